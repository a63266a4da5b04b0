//! Turns of one direction between real sockets.

use super::*;
use plimsoll_reactor::slab::Slab;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Only against hanging.
const PATIENCE: Duration = Duration::from_secs(60);

fn pair() -> (TcpStream, Endpoint) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let far = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (near, _) = listener.accept().expect("a connection");
    near.set_nonblocking(true).expect("a socket takes it");
    (far, Endpoint { readable: true, ..Endpoint::new(near.into(), true) })
}

/// A connection's two sides, as the forwarder has them.
struct Between {
    key: Key,
    relay: Relay,
    client: Endpoint,
    server: Endpoint,
    up: Channel,
    down: Channel,
    pool: Pool,
}

impl Between {
    fn new() -> (TcpStream, TcpStream, Between) {
        let ((client, near_client), (server, near_server)) = (pair(), pair());
        let between = Between {
            key: Slab::default().insert(()),
            relay: Relay::NEW,
            client: near_client,
            server: near_server,
            up: Channel::default(),
            down: Channel::default(),
            pool: Pool::new(true, 4),
        };
        (client, server, between)
    }

    fn transfer(&mut self, side: Side) -> (Transfer<'_>, &mut Pool) {
        let (source, sink, channel) = match side {
            Side::Client => (&mut self.client, &mut self.server, &mut self.up),
            Side::Server => (&mut self.server, &mut self.client, &mut self.down),
        };
        (Transfer { key: self.key, relay: &mut self.relay, side, source, sink, channel }, &mut self.pool)
    }

    /// Has a direction read, so that the outbox has what it read.
    fn post(&mut self, side: Side) -> (Transfer<'_>, &mut Pool) {
        let deadline = Instant::now() + PATIENCE;
        let (mut transfer, pool) = self.transfer(side);
        while transfer.channel.posted().is_none() {
            assert!(Instant::now() < deadline, "nothing arrives");
            transfer.source.readable = true;
            let _ = transfer.turn(pool, None, None);
        }
        (transfer, pool)
    }

    /// Has a direction do all that it can.
    fn move_all(&mut self, side: Side) {
        let (mut transfer, pool) = self.transfer(side);
        loop {
            let _ = transfer.turn(pool, None, None);
            pool.outbox.clear();
            let Some(place) = transfer.channel.posted() else { return };
            let outcome = net::write(&transfer.sink.socket, pool.outbox.bytes(place));
            transfer.written(outcome, pool);
        }
    }
}

#[test]
fn what_waits_in_the_outbox_for_a_side_that_is_gone_by_then_is_not_counted() {
    let (mut client, _server, mut between) = Between::new();
    client.write_all(b"hello").expect("there is room");
    let (mut transfer, pool) = between.post(Side::Client);
    assert_eq!(transfer.next(), Step::Wait);
    transfer.relay.ended(Side::Server, End::Reset);
    transfer.written(Ok(5), pool);
    assert_eq!((transfer.relay.up.bytes, transfer.channel.is_holding()), (0, false));
}

#[test]
fn what_a_sink_does_not_take_of_the_outbox_follows_when_it_has_room() {
    let (mut client, mut server, mut between) = Between::new();
    client.write_all(b"hello").expect("there is room");
    let (mut transfer, pool) = between.post(Side::Client);
    let place = transfer.channel.posted().expect("it was read");
    net::write(&transfer.sink.socket, &pool.outbox.bytes(place)[..2]).expect("there is room");
    transfer.written(Ok(2), pool);
    pool.outbox.clear();
    assert_eq!(transfer.next(), Step::Wait, "the sink has no room");
    transfer.sink.writable = true;
    between.move_all(Side::Client);
    let mut read = [0; 5];
    server.read_exact(&mut read).expect("it follows");
    assert_eq!((&read, between.relay.up.bytes), (b"hello", 5));
}

/// Reads what a side sends before the bytes that are relayed.
fn read_header(side: &mut Endpoint, length: usize) {
    let deadline = Instant::now() + PATIENCE;
    while (side.header_bytes as usize) < length {
        assert!(Instant::now() < deadline, "the header does not arrive");
        let read = net::read(&side.socket, &mut vec![0; length - side.header_bytes as usize]);
        side.header_bytes += read.unwrap_or(0) as u32;
    }
}

#[test]
fn a_reset_whose_error_a_splice_has_used_up_is_told_from_a_clean_end() {
    for (clean, header) in [(false, &b""[..]), (true, b""), (false, b"a header"), (true, b"a header")] {
        let (mut client, mut server, mut between) = Between::new();
        server.write_all(header).expect("there is room");
        read_header(&mut between.server, header.len());
        (between.up.spliced, between.server.writable) = (true, false);
        client.write_all(&[7; 50_000]).expect("there is room");
        server.write_all(b"the last words").expect("there is room");
        between.move_all(Side::Client);
        assert!(between.up.is_holding(), "bytes wait in a pipe");
        if clean {
            server.shutdown(std::net::Shutdown::Write).expect("connected");
        }
        net::reset_on_close(&server).expect("a socket takes it");
        drop(server);
        // As the kernel does where some of a splice was taken before.
        let deadline = Instant::now() + PATIENCE;
        while net::take_error(&between.server.socket).is_ok() {
            assert!(Instant::now() < deadline, "the reset does not arrive");
            std::thread::sleep(Duration::from_millis(1));
        }
        between.server.writable = true;
        between.move_all(Side::Client);
        between.move_all(Side::Server);
        assert_eq!(between.relay.down.bytes, 14, "what it had sent is delivered");
        let end = if clean { End::Clean } else { End::Reset };
        assert_eq!(between.relay.cause, Some((Side::Server, end)));
        assert_eq!(between.relay.verdict(), crate::relay::Verdict::Linger { survivor: Side::Client, end });
    }
}

/// Has a direction read `bytes` that `source` sends, and moves them as they come.
fn carry(between: &mut Between, source: &mut TcpStream, sink: &mut TcpStream, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    let before = between.relay.up.bytes;
    std::thread::scope(|scope| {
        scope.spawn(|| source.write_all(bytes).expect("it is read"));
        let reader = scope.spawn(|| sink.read_exact(&mut read).expect("it is passed on"));
        let deadline = Instant::now() + PATIENCE;
        while between.relay.up.bytes < before + bytes.len() as u64 {
            assert!(Instant::now() < deadline, "nothing moves");
            (between.client.readable, between.server.writable) = (true, true);
            between.move_all(Side::Client);
            std::thread::yield_now();
        }
        reader.join().expect("it has read all");
    });
    assert_eq!(read, bytes);
}

#[test]
fn a_direction_that_turns_from_bulk_to_small_messages_and_back_holds_no_pipe_while_it_holds_no_byte() {
    let (mut client, mut server, mut between) = Between::new();
    let bulk: Vec<u8> = (0..4 * 1024 * 1024_u32).map(|place| (place % 251) as u8).collect();
    for round in 0..6 {
        // Four pipes may be had: a round that lost one would be copied by the fifth at the latest.
        between.up.spliced = true;
        carry(&mut between, &mut client, &mut server, &bulk);
        for _ in 0..=SMALL_TURNS {
            carry(&mut between, &mut client, &mut server, b"a small message");
        }
        assert!(!between.up.is_spliced(), "small messages are copied");
        assert!(!between.up.is_holding());
        assert_eq!((between.pool.pipes_out(), between.pool.buffers_out()), (0, 0), "round {round}");
        assert_eq!(between.pool.pipes_missed, 0, "round {round}");
    }
}

#[test]
fn what_follows_urgent_data_is_read_at_once_and_spliced_again_once_all_is_read() {
    let (mut client, _server, mut between) = Between::new();
    net::prepare(&between.client.socket, PATIENCE).expect("a socket takes it");
    client.write_all(b"abc").expect("there is room");
    net::write_urgent(&client, b'!').expect("there is room");
    client.write_all(b"def").expect("there is room");
    let deadline = Instant::now() + PATIENCE;
    while net::unacknowledged(&client).expect("a socket has a queue") > 0 {
        assert!(Instant::now() < deadline, "it does not arrive");
    }
    (between.up.spliced, between.client.urgent) = (true, true);
    between.move_all(Side::Client);
    assert_eq!(between.relay.up.bytes, 7, "a read stops before the urgent byte");
    assert!(!between.client.readable && !between.client.urgent);
}

#[test]
fn a_unix_socket_that_no_longer_reads_still_sends() {
    let (mut client, _server, mut between) = Between::new();
    let (near, mut server) = UnixStream::pair().expect("a pair of sockets");
    near.set_nonblocking(true).expect("a socket takes it");
    between.server = Endpoint { readable: true, ..Endpoint::new(near.into(), false) };
    server.shutdown(std::net::Shutdown::Read).expect("connected");
    client.write_all(b"hello").expect("there is room");
    let deadline = Instant::now() + PATIENCE;
    while !between.relay.up.is_over() {
        assert!(Instant::now() < deadline, "nothing arrives");
        between.client.readable = true;
        between.move_all(Side::Client);
    }
    between.move_all(Side::Server);
    assert_eq!(between.relay.verdict(), crate::relay::Verdict::Lives);
    server.write_all(b"an answer").expect("there is room");
    between.server.readable = true;
    between.move_all(Side::Server);
    assert_eq!(between.relay.down.bytes, 9);
}

#[test]
fn a_low_bandwidth_lets_little_through_at_once() {
    // 64 KiB were read at once, whatever the rate: six seconds of 10 KB/s, and silence for as long.
    let (mut client, _server, mut between) = Between::new();
    client.write_all(&[7; 32 * 1024]).expect("it is taken");
    let start = Instant::now();
    let meter = Meter::new(10_000.0, start);
    let (mut transfer, pool) = between.transfer(Side::Client);
    while transfer.direction().read_bytes == 0 {
        assert!(start.elapsed() < PATIENCE, "nothing arrives");
        transfer.source.readable = true;
        let _ = transfer.turn(pool, None, Some((&meter, start)));
    }
    assert!(transfer.direction().read_bytes <= 2048, "{}", transfer.direction().read_bytes);
    assert!(transfer.source.readable, "more is there");
}
