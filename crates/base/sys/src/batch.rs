//! Sends to many sockets with one call: io_uring(7) as a vector of system calls.
//!
//! A send wakes the thread that waits at the other end. If that thread is to run on the same CPU,
//! the kernel switches to it as soon as the call returns. Sends that are submitted together are all
//! done before that. Nothing here waits: a send takes what its socket has room for and has
//! completed when the call returns. So the kernel keeps no memory for longer, and the outcomes are
//! those of [`net::write`].

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::types::Fd;
use io_uring::{IoUring, opcode, squeue};

use crate::net;

/// Sends to many sockets at once. One thread makes and uses it.
pub struct Batch {
    /// None where io_uring cannot be had, or has failed.
    uring: Option<IoUring>,
    fault: Option<io::Error>,
    requests: Vec<squeue::Entry>,
    /// Of each send, what the kernel said, if it was handed in with the others.
    results: Vec<Option<i32>>,
    /// Sends handed in less those completed.
    in_flight: usize,
}

impl Batch {
    /// A batch of at most `most` sends, a power of two. Where io_uring cannot be had each is a call
    /// of its own: see [`Batch::take_fault`].
    pub fn new(most: u32) -> Batch {
        // One thread (IORING_SETUP_SINGLE_ISSUER), which nothing is to interrupt
        // (IORING_SETUP_DEFER_TASKRUN).
        let (uring, fault) = match IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(most) {
            Ok(uring) => (Some(uring), None),
            Err(error) => (None, Some(error)),
        };
        Batch { uring, fault, requests: Vec::new(), results: Vec::new(), in_flight: 0 }
    }

    /// Why each send is a call of its own from now on; once.
    pub fn take_fault(&mut self) -> Option<io::Error> {
        self.fault.take()
    }

    /// Sends that were handed in and have not completed: none, between two calls.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Sends to each socket what it has room for, and appends in their order what became of each,
    /// as [`net::write`] says it. Returns how many of them shared a call. The sockets
    /// are different ones: of two sends to the same the kernel could do the second first.
    pub fn send<'a>(
        &mut self,
        sends: impl ExactSizeIterator<Item = (BorrowedFd<'a>, &'a [u8])> + Clone,
        outcomes: &mut Vec<io::Result<usize>>,
    ) -> usize {
        self.results.clear();
        self.results.resize(sends.len(), None);
        if sends.len() > 1
            && let Err(error) = self.hand_in(sends.clone())
        {
            // The requests that it had not completed end with the ring.
            (self.uring, self.fault, self.in_flight) = (None, Some(error), 0);
        }
        outcomes.extend(sends.zip(&self.results).map(|((socket, bytes), result)| match *result {
            None => net::write(socket, bytes),
            Some(count @ 0..) => Ok(count as usize),
            Some(error) => Err(io::Error::from_raw_os_error(-error)),
        }));
        self.results.iter().flatten().count()
    }

    /// Has the kernel do the sends, and takes note of their results. After an error some have none:
    /// the kernel has not taken those, and will not.
    fn hand_in<'a>(&mut self, sends: impl Iterator<Item = (BorrowedFd<'a>, &'a [u8])>) -> io::Result<()> {
        let Some(uring) = &mut self.uring else { return Ok(()) };
        self.requests.clear();
        self.requests.extend(sends.zip(0..).map(|((socket, bytes), number)| {
            // MSG_DONTWAIT: it is tried once, here and now, and never handed to a worker thread or
            // put off until there is room (io_sendmsg_prep in the kernel's io_uring/net.c).
            opcode::Send::new(Fd(socket.as_raw_fd()), bytes.as_ptr(), bytes.len() as u32)
                .flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
                .build()
                .user_data(number)
        }));
        // SAFETY: sockets and bytes are borrowed for the whole call, and no request outlives it:
        // those handed in are complete when the kernel returns, and each is waited for below; after
        // an error the caller drops the ring, and with it those that were not.
        unsafe { uring.submission().push_multiple(&self.requests) }
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "more sends than the batch was made for"))?;
        self.in_flight += self.requests.len();
        while self.in_flight > 0 {
            let outcome = uring.submit_and_wait(self.in_flight);
            for completion in uring.completion() {
                self.results[completion.user_data() as usize] = Some(completion.result());
                self.in_flight -= 1;
            }
            match outcome {
                Err(error) if self.in_flight > 0 && error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    const MOST: u32 = 8;

    fn without_a_ring() -> Batch {
        Batch { uring: None, fault: None, requests: Vec::new(), results: Vec::new(), in_flight: 0 }
    }

    fn pair() -> (UnixStream, UnixStream) {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        near.set_nonblocking(true).expect("a socket takes it");
        (near, far)
    }

    #[test]
    fn every_send_has_its_own_outcome_whether_they_share_a_call_or_not() {
        for (mut batch, shared) in [(Batch::new(MOST), 4), (without_a_ring(), 0)] {
            let ((open, mut reader), (full, _unread), (broken, gone), (last, mut last_reader)) =
                (pair(), pair(), pair(), pair());
            while (&full).write(&[0; 4096]).is_ok() {}
            drop(gone);
            let (hello, world, mut outcomes) = (b"hello".as_slice(), b"world".as_slice(), Vec::new());
            let sends = [(&open, hello), (&full, hello), (&broken, hello), (&last, world)];
            let sends = sends.iter().map(|(socket, bytes)| (socket.as_fd(), *bytes));
            assert_eq!(batch.send(sends, &mut outcomes), shared);
            let kinds = outcomes.into_iter().map(|outcome| outcome.map_err(|error| error.kind()));
            let expected = [Ok(5), Err(io::ErrorKind::WouldBlock), Err(io::ErrorKind::BrokenPipe), Ok(5)];
            assert_eq!(kinds.collect::<Vec<_>>(), expected);
            for (reader, expected) in [(&mut reader, b"hello"), (&mut last_reader, b"world")] {
                let mut read = [0; 5];
                reader.read_exact(&mut read).expect("it was sent");
                assert_eq!(&read, expected);
            }
        }
    }

    #[test]
    fn a_send_takes_what_there_is_room_for() {
        let (near, mut far) = pair();
        let (other, _other_far) = pair();
        let (much, mut outcomes) = (vec![7; 16 * 1024 * 1024], Vec::new());
        let sends = [(&near, much.as_slice()), (&other, b"x")];
        Batch::new(MOST).send(sends.iter().map(|(socket, bytes)| (socket.as_fd(), *bytes)), &mut outcomes);
        let taken = *outcomes[0].as_ref().expect("there is some room");
        assert!(taken > 0 && taken < much.len(), "{taken} of {}", much.len());
        drop(near);
        let mut read = Vec::new();
        far.read_to_end(&mut read).expect("the end of the stream");
        assert_eq!(read.len(), taken);
    }

    #[test]
    fn what_a_failed_ring_did_not_take_is_sent_by_calls_of_their_own_and_the_fault_is_said_once() {
        let mut batch = Batch::new(2);
        let pairs = [pair(), pair(), pair()];
        for _ in 0..2 {
            let mut outcomes = Vec::new();
            let sends = pairs.iter().map(|(near, _)| (near.as_fd(), b"more than two".as_slice()));
            assert_eq!(batch.send(sends, &mut outcomes), 0);
            assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(13))), "{outcomes:?}");
        }
        assert_eq!(batch.take_fault().map(|fault| fault.kind()), Some(io::ErrorKind::InvalidInput));
        assert!(batch.take_fault().is_none());
    }
}
