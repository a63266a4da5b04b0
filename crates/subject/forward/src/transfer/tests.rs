//! Turns of one direction between real sockets.

use super::*;
use plimsoll_reactor::slab::Slab;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Only against hanging.
const PATIENCE: Duration = Duration::from_secs(60);

fn pair() -> (TcpStream, Leg) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let far = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (near, _) = listener.accept().expect("a connection");
    near.set_nonblocking(true).expect("a socket takes it");
    (far, Leg { readable: true, ..Leg::new(near.into(), true) })
}

/// A connection's two sides, as the forwarder has them.
struct Between {
    key: Key,
    relay: Relay,
    client: Leg,
    server: Leg,
    up: Lane,
    down: Lane,
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
            up: Lane::default(),
            down: Lane::default(),
            pool: Pool::new(true, 4),
        };
        (client, server, between)
    }

    fn transfer(&mut self, side: Side) -> (Transfer<'_>, &mut Pool) {
        let (source, sink, lane) = match side {
            Side::Client => (&mut self.client, &mut self.server, &mut self.up),
            Side::Server => (&mut self.server, &mut self.client, &mut self.down),
        };
        (Transfer { key: self.key, relay: &mut self.relay, side, source, sink, lane }, &mut self.pool)
    }

    /// Has a direction read, so that the outbox has what it read.
    fn post(&mut self, side: Side) -> (Transfer<'_>, &mut Pool) {
        let deadline = Instant::now() + PATIENCE;
        let (mut transfer, pool) = self.transfer(side);
        while !transfer.lane.is_posted() {
            assert!(Instant::now() < deadline, "nothing arrives");
            transfer.source.readable = true;
            let _ = transfer.turn(pool, None);
        }
        (transfer, pool)
    }

    /// Has a direction do all that it can.
    fn move_all(&mut self, side: Side) {
        let (mut transfer, pool) = self.transfer(side);
        loop {
            let _ = transfer.turn(pool, None);
            let messages = pool.outbox.messages().to_vec();
            for Message { place, .. } in &messages {
                let outcome = net::write(&transfer.sink.socket, pool.outbox.bytes(place.clone()));
                transfer.written(place.clone(), outcome, pool);
            }
            pool.outbox.clear();
            if messages.is_empty() {
                return;
            }
        }
    }
}

#[test]
fn what_waits_in_the_outbox_for_a_side_that_is_gone_by_then_is_not_counted() {
    let (mut client, _server, mut between) = Between::new();
    client.write_all(b"hello").expect("there is room");
    let (mut transfer, pool) = between.post(Side::Client);
    assert_eq!(transfer.next(), Step::Rest);
    transfer.relay.ended(Side::Server, End::Reset);
    transfer.written(pool.outbox.place(5), Ok(5), pool);
    assert_eq!((transfer.relay.up.bytes, transfer.relay.up.pending()), (0, 0));
}

#[test]
fn what_a_sink_does_not_take_of_the_outbox_follows_when_it_has_room() {
    let (mut client, mut server, mut between) = Between::new();
    client.write_all(b"hello").expect("there is room");
    let (mut transfer, pool) = between.post(Side::Client);
    let place = pool.outbox.messages()[0].place.clone();
    net::write(&transfer.sink.socket, &pool.outbox.bytes(place.clone())[..2]).expect("there is room");
    transfer.written(place, Ok(2), pool);
    pool.outbox.clear();
    assert_eq!(transfer.next(), Step::Rest, "the sink has no room");
    transfer.sink.writable = true;
    between.move_all(Side::Client);
    let mut read = [0; 5];
    server.read_exact(&mut read).expect("it follows");
    assert_eq!((&read, between.relay.up.bytes), (b"hello", 5));
}

#[test]
fn a_reset_whose_error_a_splice_has_used_up_is_told_from_a_clean_end() {
    for clean in [false, true] {
        let (mut client, mut server, mut between) = Between::new();
        (between.up.moving, between.server.writable) = (true, false);
        client.write_all(&[7; 50_000]).expect("there is room");
        server.write_all(b"the last words").expect("there is room");
        between.move_all(Side::Client);
        assert!(between.relay.up.pending() > 0, "bytes wait in a pipe");
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
        assert_eq!(between.relay.verdict(), crate::relay::Verdict::Dismiss { survivor: Side::Client, end });
    }
}
