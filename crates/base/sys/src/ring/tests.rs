use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use super::*;
use crate::net::{self, Sharing};

const SIZES: Sizes = Sizes { submissions: 8, completions: 16, slots: 4, buffers: 4, buffer_bytes: 64, accepts: 2 };
const SECOND: Option<Duration> = Some(Duration::from_secs(1));

/// The next completion, which comes within some seconds.
pub(super) fn next(ring: &mut Ring) -> Completion {
    for _ in 0..10 {
        if let Some(completion) = ring.next_completion() {
            return completion;
        }
        ring.wait(SECOND).expect("a ring can wait");
    }
    panic!("nothing completes");
}

/// A ring with one accepted connection, and its client.
fn connected() -> (Ring, Slot, TcpStream) {
    let mut ring = Ring::new(SIZES).expect("a ring");
    let listener = net::listen(SocketAddr::from(([127, 0, 0, 1], 0)), Sharing::Alone).expect("a free port");
    assert!(ring.accept(listener.as_fd(), 0).expect("there is room"));
    ring.wait(Some(Duration::from_millis(1))).expect("a ring can wait");
    assert!(ring.next_completion().is_none(), "an accept waits for a connection");
    let client = TcpStream::connect(net::local_address(&listener).expect("bound")).expect("it listens");
    let Completion::Accepted { listener: 0, outcome: Ok((slot, peer)) } = next(&mut ring) else {
        panic!("a connection is accepted")
    };
    assert_eq!(peer, client.local_addr().expect("connected"));
    (ring, slot, client)
}

#[test]
fn a_receive_for_once_waits_for_bytes_and_leaves_nothing_behind() {
    let (mut ring, slot, mut client) = connected();
    ring.receive_once(slot).expect("it goes in");
    ring.wait(Some(Duration::from_millis(1))).expect("a ring can wait");
    assert!(ring.next_completion().is_none(), "nothing has arrived");
    client.write_all(b"abc").expect("it is connected");
    let Completion::Received { outcome: Ok(Some(buffer)), more: false, .. } = next(&mut ring) else {
        panic!("bytes arrive, and no more are to come")
    };
    assert_eq!(ring.bytes(&buffer), b"abc");
    assert_eq!(ring.outstanding(), 0);
    ring.recycle(buffer);
    assert_eq!(ring.free_buffers(), ring.buffers());
}

#[test]
fn bytes_that_are_there_already_are_received_for_once_too() {
    let (mut ring, slot, mut client) = connected();
    client.write_all(b"abc").expect("it is connected");
    ring.receive_once(slot).expect("it goes in");
    let Completion::Received { outcome: Ok(Some(buffer)), more: false, .. } = next(&mut ring) else {
        panic!("bytes arrive, and no more are to come")
    };
    ring.recycle(buffer);
    // As does the end of the stream.
    drop(client);
    ring.receive_once(slot).expect("it goes in");
    assert!(matches!(next(&mut ring), Completion::Received { outcome: Ok(None), more: false, .. }));
}

#[test]
fn a_send_on_an_accepted_socket_never_waits_in_the_threads_table() {
    let (mut ring, slot, _client) = connected();
    ring.install(slot).expect("it goes in");
    let Completion::Installed { outcome, .. } = next(&mut ring) else { panic!("the socket is installed") };
    match outcome {
        Ok(socket) => {
            let flags = rustix::fs::fcntl_getfl(&socket).expect("a descriptor has flags");
            assert!(flags.contains(rustix::fs::OFlags::NONBLOCK), "{flags:?}");
        }
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "Linux before 6.8: {error}"),
    }
}
