//! Stale events, and what has arrived when time is over.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Mutex;

use plimsoll_reactor::worker_group::{Growth, TableInit, WorkerGroup};
use plimsoll_sys::epoll::{Epoll, Trigger};
use plimsoll_sys::net::Sharing;

use super::*;
use crate::service::{Echo, NextStep, Output, Processed, ServiceContext};

/// By descriptor number, the keys it was reported under.
static KEYS: Mutex<Option<HashMap<RawFd, Vec<u64>>>> = Mutex::new(None);

/// A selector that reports stale events: every event comes again after the next wait, when its
/// connection may be closed and its descriptor and slot in use by another.
struct Haunted {
    epoll: Epoll,
    last: Vec<Ready>,
}

impl Selector for Haunted {
    fn new() -> io::Result<Haunted> {
        Ok(Haunted { epoll: Epoll::new(16)?, last: Vec::new() })
    }

    fn add(&mut self, descriptor: BorrowedFd<'_>, key: u64, interest: Interest) -> Result<(), NotAdded> {
        let mut keys = KEYS.lock().expect("no test thread panics");
        keys.get_or_insert_default().entry(descriptor.as_raw_fd()).or_default().push(key);
        self.epoll.add(descriptor, key, interest, Trigger::Level).map_err(NotAdded::Refused)
    }

    fn modify(&mut self, descriptor: BorrowedFd<'_>, key: u64, interest: Interest) -> io::Result<()> {
        self.epoll.modify(descriptor, key, interest, Trigger::Level)
    }

    fn remove(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.epoll.remove(descriptor)
    }

    fn forget(&mut self, _descriptor: BorrowedFd<'_>) {}

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        let now: Vec<Ready> = self.epoll.wait(timeout)?.collect();
        ready.extend_from_slice(&now);
        ready.extend(std::mem::replace(&mut self.last, now).into_iter().map(|event| Ready { ended: true, ..event }));
        Ok(())
    }
}

#[test]
fn a_stale_event_never_reaches_the_next_connection_with_the_same_descriptor() {
    let listener = net::listen(SocketAddr::from(([127, 0, 0, 1], 0)), Sharing::Alone).expect("a free port");
    let address = net::local_address(&listener).expect("bound");
    // A copy of all descriptors would hold the sockets of other tests open until this one ends.
    let only = TableInit::Only(vec![listener.as_raw_fd()]);
    let listeners = vec![listener];
    let table = move |handle: LoopHandle| {
        let state = ServerState::new(None, None, u64::MAX, Box::new(|_| {}));
        run::<Haunted, Echo>(&handle, ConnectionSource::Own(&listeners), &Echo::default(), &state)
    };
    let mut group = WorkerGroup::new(1, Growth::Never, table).expect("an event").with_table_init(only);
    group.add_table(0).expect("a table");
    for round in 0..200_u32 {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(&round.to_ne_bytes()).expect("the server reads");
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).expect("the server answers");
        assert_eq!(u32::from_ne_bytes(answer), round);
        if round % 2 == 0 {
            net::reset_on_close(&stream).expect("it is connected");
        }
    }
    group.set_phase(Phase::Drain);
    let totals = group.join().remove(0).expect("the table served to its end");
    assert_eq!((totals.connections, totals.bytes_sent), (200, 800));
    let keys = KEYS.lock().expect("no test thread panics").take().expect("descriptors were added");
    let reused = keys.values().max_by_key(|keys| keys.len()).expect("descriptors were added");
    assert!(reused.len() > 20, "a descriptor was hardly reused: {keys:?}");
    let mut distinct = reused.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), reused.len(), "each connection had a key of its own");
}

/// A service whose time is over as soon as it begins, and that always waits for more.
#[derive(Clone)]
struct Late;

impl Service for Late {
    fn is_timed(&self) -> bool {
        true
    }

    fn send_timeout(&self) -> Option<Duration> {
        None
    }

    fn opened(&mut self, context: &impl ServiceContext) -> Option<Instant> {
        Some(context.time().now)
    }

    fn receive(&mut self, input: &[u8], context: &mut impl ServiceContext, _output: &mut Output) -> Processed {
        Processed { consumed: input.len(), requests: 0, next: NextStep::Receive(Some(context.time().now)) }
    }

    fn expired(&mut self, _partial: bool, _context: &mut impl ServiceContext, _output: &mut Output) -> NextStep {
        NextStep::Close
    }
}

#[test]
fn a_connection_is_overdue_once_all_that_has_arrived_is_read() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut client = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (socket, peer) = listener.accept().expect("a connection");
    client.write_all(&[7; 10]).expect("there is room");
    while socket.peek(&mut [0; 10]).expect("the client writes") < 10 {}
    socket.set_nonblocking(true).expect("a socket takes it");
    let mut workspace = Workspace::new(None, true);
    let mut connection = Connection {
        socket: socket.into(),
        peer,
        conversation: Conversation::new(&Late, &workspace.environment),
        unsent: Unsent::default(),
        room: Room::LevelTriggered,
        limit: Limit::default(),
        interest: Interest::READ,
        readable: false,
        is_listed: false,
        ended: false,
    };
    let now = workspace.environment.now();
    let is_overdue_after_a_read = |_| {
        connection.readable = true;
        connection.exchange(&mut [0; 4], &mut workspace, 1).expect("the client is there");
        connection.is_overdue(now)
    };
    assert_eq!([0, 1, 2].map(is_overdue_after_a_read), [false, false, true]);
}
