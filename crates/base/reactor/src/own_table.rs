//! A thread beside the event loops with a descriptor table of its own. Descriptors that it opens
//! take no numbers of the coordinator's table, which needs a few free ones.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread;

use plimsoll_sys::{descriptor, passing};

/// Starts the thread. Its table begins with standard input, output and error, and with the mailbox
/// that `body` gets: messages to the end that is returned arrive there (`plimsoll_sys::passing`),
/// and its end when that one is closed.
pub fn spawn(name: &str, body: impl FnOnce(OwnedFd) + Send + 'static) -> io::Result<OwnedFd> {
    let (near, far) = passing::pair()?;
    let far = Arc::new(far);
    let theirs = Arc::clone(&far);
    let (report, began) = mpsc::sync_channel(0);
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        let unshared = descriptor::unshare_table_keeping(&[theirs.as_raw_fd()]);
        // A number that this table's owner closes: the first one is closed below, in the table
        // where it was made.
        let mailbox = unshared.and_then(|()| theirs.try_clone());
        drop(theirs);
        match mailbox {
            Ok(mailbox) => {
                let _ = report.send(Ok(()));
                body(mailbox);
            }
            Err(error) => drop(report.send(Err(error))),
        }
    })?;
    began.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
    drop(far);
    Ok(near)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use plimsoll_sys::poll::{self, Place};
    use plimsoll_sys::readiness::Interest;

    use super::*;

    #[test]
    fn the_thread_opens_nothing_here_and_learns_of_messages_and_of_their_end() {
        let (tell, told) = mpsc::channel();
        let mailbox = spawn("apart", move |mailbox| {
            let wait = || {
                poll::wait(&mut [Place::new(mailbox.as_raw_fd(), Interest::READ)], None).expect("a wait");
                let mut sockets = Vec::new();
                let length = passing::receive(&mailbox, &mut [0; 8], &mut sockets).expect("a message, or the end");
                (length, sockets.len())
            };
            tell.send(wait()).expect("the test listens");
            let opened = File::open("/proc/self/status").expect("there is /proc");
            let _ = tell.send((opened.as_raw_fd() as usize, 0));
            tell.send(wait()).expect("the test listens");
        })
        .expect("a thread");
        let file = File::open("/dev/null").expect("/dev/null opens");
        passing::send(&mailbox, b"hello", &[file.as_fd()]).expect("the mailbox has room");
        assert_eq!(told.recv().expect("it tells"), (5, 1));
        let (number, _) = told.recv().expect("it tells");
        let seen_here = std::fs::read_link(format!("/proc/thread-self/fd/{number}")).unwrap_or_default();
        assert!(!seen_here.ends_with("status"), "{seen_here:?}");
        drop(mailbox);
        assert_eq!(told.recv().expect("it tells"), (0, 0));
    }
}
