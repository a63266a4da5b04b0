use super::*;
use crate::log::Writer;
use crate::names::Names;
use crate::table::{mapping, toml};
use plimsoll_reactor::progress::LOOKS;
use plimsoll_reactor::slab::Slab;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

const SECOND: Duration = Duration::from_secs(1);
const FIRST_LOOP: LoopNumber = LoopNumber { worker: 0, table: 0 };

/// A connection that is relayed by these settings, between a client and a server of its own.
struct Relayed {
    connection: Connection,
    pool: Pool,
    writer: Writer,
    key: Key,
    client: TcpStream,
    server: TcpStream,
}

fn pair() -> (TcpStream, Endpoint) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let far = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (near, _) = listener.accept().expect("a connection");
    near.set_nonblocking(true).expect("a socket takes it");
    far.set_nonblocking(true).expect("a socket takes it");
    (far, Endpoint::new(near.into(), true))
}

impl Relayed {
    fn new(settings: &str, now: Instant) -> Relayed {
        Relayed::connected(settings, &Ok(()), now)
    }

    /// The same where connecting to the server had this outcome.
    fn connected(settings: &str, outcome: &io::Result<()>, now: Instant) -> Relayed {
        let text = format!("[forward.\"127.0.0.1:0\"]\nto = \"127.0.0.1:9\"\n{settings}\n");
        let table = toml::read(&text).expect("a table");
        let route = Arc::new(Route::new(&table.rules[0], &Names::of_the_machine(), now));
        let writer = Writer::start(None, None, Arc::new(Box::new(|_: &str| {}) as crate::Say)).expect("no file");
        let ((client, near_client), (server, near_server)) = (pair(), pair());
        let mut connection = Connection::new(near_client, None, route, now);
        connection.server = Some(near_server);
        connection.connected(outcome, now);
        Relayed { connection, pool: Pool::new(true, 4), writer, key: Slab::default().insert(()), client, server }
    }

    /// Relays what there is.
    fn relay(&mut self, now: Instant) {
        for side in [Side::Client, Side::Server] {
            if let Some(endpoint) = self.connection.endpoint(side) {
                endpoint.readable = true;
            }
        }
        let context = Context { key: self.key, pool: &mut self.pool, log: self.writer.log(), by: FIRST_LOOP, now };
        let _ = self.connection.relay(&mut { context });
        for message in self.pool.outbox.messages().to_vec() {
            let (sink, place) = self.connection.posted(message.from).expect("it was read");
            let outcome = net::write(sink, self.pool.outbox.bytes(place));
            self.connection.sent(message, outcome, &mut self.pool, now);
        }
        self.pool.outbox.clear();
    }

    /// Has the server send until nothing more fits anywhere on the way to the client.
    fn fill(&mut self, now: Instant) {
        let piece = vec![7; 1 << 20];
        let deadline = Instant::now() + 60 * SECOND;
        let mut quiet = 0;
        // What the kernel has on its way arrives within some looks.
        while quiet < 20 {
            assert!(Instant::now() < deadline, "there is room without end");
            let before = self.connection.relay.progress();
            while self.server.write(&piece).is_ok() {}
            self.connection.client.as_mut().expect("it is there").writable = true;
            self.relay(now);
            quiet = if self.connection.relay.progress() == before { quiet + 1 } else { 0 };
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Has the client read until the kernel has an acknowledgement for it.
    fn read_some(&mut self) {
        let sink = self.connection.client.as_ref().expect("it is there");
        let waits = || net::unacknowledged(&sink.socket).expect("a socket has a queue");
        let (before, deadline) = (waits(), Instant::now() + 60 * SECOND);
        assert!(before > 0, "all is acknowledged");
        while waits() >= before {
            assert!(Instant::now() < deadline, "nothing is acknowledged");
            let _ = self.client.read(&mut vec![0; 1 << 16]);
            // An acknowledgement may be 40 ms late. Reading on meanwhile would take all that waits.
            for _ in (0..100).take_while(|_| waits() >= before) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

#[test]
fn a_slow_reader_is_waited_for_and_one_that_takes_nothing_is_given_up_when_the_time_is_over() {
    let start = Instant::now();
    let mut relayed = Relayed::new("", start);
    relayed.fill(start);
    let look = |relayed: &mut Relayed, seconds: u32| relayed.connection.look(start + seconds * SECOND);
    // No byte fits in, so that its progress is only what the client acknowledges.
    for seconds in (50..=300).step_by(50) {
        assert!(look(&mut relayed, seconds).is_ok(), "after {seconds} s");
        relayed.read_some();
    }
    let last = 301;
    assert!(look(&mut relayed, last).is_ok());
    assert!(look(&mut relayed, last + 59).is_ok());
    assert_eq!(look(&mut relayed, last + 60), Err(Ending::SendTimeout));
}

#[test]
fn room_that_no_event_has_told_of_is_found_when_the_time_is_over() {
    let start = Instant::now();
    let mut relayed = Relayed::new("idle_timeout = \"1s\"", start);
    relayed.fill(start);
    let deadline = Instant::now() + 60 * SECOND;
    let sink = relayed.connection.client.as_ref().expect("it is there");
    while net::unacknowledged(&sink.socket).expect("a socket has a queue") > 0 {
        assert!(Instant::now() < deadline, "something is not acknowledged");
        let _ = relayed.client.read(&mut vec![0; 1 << 16]);
    }
    let late = start + 2 * SECOND;
    assert_eq!(relayed.connection.look(late), Err(Ending::Idle));
    assert!(relayed.connection.finds_events());
    relayed.relay(late);
    assert!(relayed.connection.look(late).is_ok(), "nothing more is sent");
}

#[test]
fn bulk_that_arrives_waits_for_its_place_in_the_ready_list() {
    let start = Instant::now();
    let mut relayed = Relayed::new("", start);
    let (piece, deadline) = (vec![7; 1 << 20], Instant::now() + 60 * SECOND);
    while !relayed.connection.is_spliced() {
        assert!(Instant::now() < deadline, "its reads are not full");
        while relayed.server.write(&piece).is_ok() {}
        relayed.connection.client.as_mut().expect("it is there").writable = true;
        relayed.relay(start);
        while relayed.client.read(&mut vec![0; 1 << 20]).is_ok() {}
    }
    while relayed.server.write(&piece).is_ok() {}
    let before = relayed.connection.relay.progress();
    let event = Ready { key: 0, readable: true, writable: true, ended: false };
    let Relayed { connection, pool, writer, key, .. } = &mut relayed;
    let mut context = Context { key: *key, pool, log: writer.log(), by: FIRST_LOOP, now: start };
    for side in [Side::Server, Side::Client] {
        assert!(matches!(connection.on_event(side, event, false, &mut context), Action::Yields), "{side:?}");
    }
    assert_eq!(connection.relay.progress(), before, "it moved bytes before others had their turn");
}

#[test]
fn bytes_keep_a_connection_alive_past_its_idle_time_and_silence_ends_it() {
    let start = Instant::now();
    let mut relayed = Relayed::new("idle_timeout = \"10s\"", start);
    for seconds in (9..90).step_by(9) {
        assert!(relayed.connection.look(start + seconds * SECOND).is_ok(), "after {seconds} s");
        let before = relayed.connection.relay.progress();
        relayed.server.write_all(b"x").expect("there is room");
        let deadline = Instant::now() + 60 * SECOND;
        while relayed.connection.relay.progress() == before {
            assert!(Instant::now() < deadline, "the byte does not arrive");
            relayed.relay(start + seconds * SECOND);
        }
        // The client takes it.
        let _ = relayed.client.read(&mut [0; 16]);
    }
    assert!(relayed.connection.look(start + 90 * SECOND).is_ok());
    let mut ended = Ok(start + 91 * SECOND);
    while let Ok(due) = ended {
        assert!(due <= start + 110 * SECOND, "silence has no end");
        ended = relayed.connection.look(due);
    }
    assert_eq!(ended, Err(Ending::Idle));
}

#[test]
fn each_state_has_its_own_deadline() {
    let start = Instant::now();
    let at = |seconds: u32| start + seconds * SECOND;
    for (settings, header) in [("connect_timeout = \"4s\"", 4), ("idle_timeout = \"3s\"", 3)] {
        let mut relayed = Relayed::new(settings, start);
        relayed.connection.state = ConnectionState::Header;
        assert_eq!(relayed.connection.deadline(at(1)), at(header), "{settings}");
    }
    let mut relayed = Relayed::new("idle_timeout = \"30s\"\nhalf_close = \"8s\"", start);
    assert_eq!([1, 29, 31].map(|now| relayed.connection.deadline(at(now))), [at(30), at(30), at(31)]);
    for (until, again_at, deadline) in [(9, None, 9), (9, Some(2), 2), (9, Some(12), 9), (40, None, 30)] {
        let attempts = Attempts { rest: Vec::new(), until: at(until), again_at: again_at.map(at) };
        relayed.connection.state = ConnectionState::Connecting(attempts);
        assert_eq!(relayed.connection.deadline(at(1)), at(deadline), "{until} {again_at:?}");
    }
    let progress = SendProgress::begin(start);
    relayed.connection.state =
        ConnectionState::Lingering { survivor: Side::Client, end: End::Clean, since: start, progress };
    // In milliseconds: soon at first, then less and less often, not beyond the time that is left.
    for (passed, wait) in [(0, 1), (100, 25), (2_000, 250)] {
        let now = start + Duration::from_millis(passed);
        assert_eq!(relayed.connection.deadline(now) - now, Duration::from_millis(wait), "after {passed} ms");
    }
}

#[test]
fn a_part_of_the_time_more_tells_whether_a_side_takes_what_the_kernel_holds_for_it() {
    let start = Instant::now();
    let mut relayed = Relayed::new("idle_timeout = \"10s\"", start);
    relayed.fill(start);
    let now = start + 10 * SECOND;
    assert_eq!(relayed.connection.look(now), Ok(now + 10 * SECOND / LOOKS));
    assert_eq!(relayed.connection.look(now + 10 * SECOND / LOOKS), Err(Ending::Idle));
}

#[test]
fn urgent_data_that_brings_turns_and_no_byte_keeps_no_connection_alive() {
    let start = Instant::now();
    let mut relayed = Relayed::new("idle_timeout = \"10s\"", start);
    for seconds in 1..10 {
        relayed.connection.client.as_mut().expect("it is there").urgent = true;
        relayed.relay(start + seconds * SECOND);
        assert!(relayed.connection.look(start + seconds * SECOND).is_ok(), "after {seconds} s");
    }
    assert_eq!(relayed.connection.look(start + 10 * SECOND), Err(Ending::Idle));
}

#[test]
fn a_half_is_open_while_the_kernel_delivers_what_it_holds_and_no_longer() {
    let start = Instant::now();
    let mut relayed = Relayed::new("half_close = \"60s\"\nsend_timeout = \"1h\"", start);
    relayed.fill(start);
    let _ = relayed.client.shutdown(Shutdown::Write);
    let deadline = Instant::now() + 60 * SECOND;
    while !relayed.connection.is_half() {
        assert!(Instant::now() < deadline, "the end does not arrive");
        relayed.relay(start);
    }
    let mut seconds = 60;
    assert!(relayed.connection.look(start + seconds * SECOND).is_ok(), "bytes wait: it looks again");
    for _ in 0..10 {
        relayed.read_some();
        seconds += 59;
        assert!(relayed.connection.look(start + seconds * SECOND).is_ok(), "after {seconds} s");
    }
    assert!(relayed.connection.look(start + (seconds + 59) * SECOND).is_ok());
    assert_eq!(relayed.connection.look(start + (seconds + 60) * SECOND), Err(Ending::HalfClose));
}

#[test]
fn a_paced_connection_whose_message_went_out_in_part_is_asked_after_anew() {
    let table = mapping::read(["127.0.0.1:0=127.0.0.1:9"]).expect("a mapping");
    let now = Instant::now();
    let route = Arc::new(Route::new(&table.rules[0], &Names::of_the_machine(), now));
    let writer = Writer::start(None, None, Arc::new(Box::new(|_: &str| {}) as crate::Say)).expect("no file");
    let (now, key) = (now, Slab::default().insert(()));
    // Its sockets are registered for what was waited for before the message went out
    // (event_loop/pacing.rs): room was not.
    for paced in [true, false] {
        let (mut pool, log) = (Pool::new(true, 4), writer.log());
        let [(mut client, near_client), (_server, near_server)] =
            [(); 2].map(|()| UnixStream::pair().expect("a pair of sockets"));
        client.write_all(b"hello").expect("there is room");
        let endpoint = Endpoint { readable: true, ..Endpoint::new(near_client.into(), false) };
        let mut connection = Connection::new(endpoint, None, Arc::clone(&route), now);
        connection.server = Some(Endpoint::new(near_server.into(), false));
        connection.connected(&Ok(()), now);
        connection.paced = paced;
        assert!(matches!(
            connection.relay(&mut Context { key, pool: &mut pool, log, by: FIRST_LOOP, now }),
            Action::Waits
        ));
        let message = pool.outbox.messages()[0];
        assert_eq!(connection.sent(message, Ok(2), &mut pool, now), paced);
    }
}

#[test]
fn a_reset_that_is_known_before_the_kernel_has_ended_the_connection_is_the_servers() {
    for errno in [104, 32] {
        // ECONNRESET and EPIPE, of a socket that is still connected.
        let outcome = Err(io::Error::from_raw_os_error(errno));
        let relayed = Relayed::connected("", &outcome, Instant::now());
        let server = relayed.connection.server.as_ref().expect("it is there");
        assert!(!net::is_over(&server.socket).expect("it has a state"));
        assert_eq!(relayed.connection.relay.failure, None, "{errno}");
        assert!(server.readable && server.ended, "what it sent before is read");
    }
}
