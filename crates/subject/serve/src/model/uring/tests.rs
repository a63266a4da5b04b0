//! What runs out is forced to run out here: buffers, completions, slots. Nothing may be lost.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use plimsoll_reactor::worker_group::{Growth, TableInit, WorkerGroup};
use plimsoll_sys::net::{self, Sharing};

use super::*;
use crate::service::Echo;

/// How long a client waits for the server, and the other way round: a fault ends a test then, and a
/// machine that is busy with something else does not.
const PATIENCE: Duration = Duration::from_secs(300);

const ROOMY: Sizes =
    Sizes { submissions: 64, completions: 256, slots: 512, buffers: 64, buffer_bytes: 4096, accepts: 8 };

/// Serves echo on rings of these sizes while `clients` runs; returns what was counted and how many
/// tables it took.
fn serve(sizes: Sizes, growth: Growth, clients: impl FnOnce(SocketAddr) + Send + 'static) -> (Totals, usize) {
    serve_at::<1>(sizes, growth, |[address]| clients(address))
}

/// The same at several addresses.
fn serve_at<const ADDRESSES: usize>(
    sizes: Sizes,
    growth: Growth,
    clients: impl FnOnce([SocketAddr; ADDRESSES]) + Send + 'static,
) -> (Totals, usize) {
    let listeners: [_; ADDRESSES] = std::array::from_fn(|_| {
        net::listen(SocketAddr::from(([127, 0, 0, 1], 0)), Sharing::Alone).expect("a free port")
    });
    // A copy of all descriptors would hold the sockets of other tests open until this one ends.
    let only = TableInit::Only(listeners.iter().map(AsRawFd::as_raw_fd).collect());
    let address = std::array::from_fn(|number| net::local_address(&listeners[number]).expect("bound"));
    let state = Arc::new(ServerState::new(None, None, u64::MAX, Box::new(|_| {})));
    let (listeners, shared) = (Arc::new(Vec::from(listeners)), Arc::clone(&state));
    let table =
        move |handle: LoopHandle| run(&handle, ConnectionSource::Own(&listeners), &Echo::default(), &shared, sizes);
    let mut group = WorkerGroup::new(1, growth, table).expect("an event").with_table_init(only);
    group.add_table(0).expect("a table");
    let clients = thread::spawn(move || clients(address));
    while !clients.is_finished() {
        assert!(group.process_requests().refused.is_none());
        thread::sleep(Duration::from_millis(1));
    }
    clients.join().expect("every client was served");
    group.set_phase(Phase::Drain);
    let tables = group.table_count();
    let mut totals = Totals::default();
    group.join().into_iter().for_each(|part| totals.add(&part.expect("the table served to its end")));
    assert!(totals.leaked.is_nothing(), "{}", totals.leaked);
    // Clients may be rude; nothing else may go wrong.
    assert!(totals.errors.keys().all(|cause| cause == "econnreset"), "{totals:?}");
    (totals, tables)
}

fn message(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|position| (position * 31 + position / 251 + seed * 7) as u8).collect()
}

/// A client that reads while it writes, and goes only when it has everything.
fn exchange(address: SocketAddr, seed: usize, length: usize) {
    let mut reader = TcpStream::connect(address).expect("it listens");
    reader.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    reader.set_write_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let mut writer = reader.try_clone().expect("a stream can be cloned");
    let sent = message(seed, length);
    let writing = thread::spawn(move || writer.write_all(&sent).expect("the server reads"));
    let mut answer = vec![0; length];
    reader.read_exact(&mut answer).expect("the server answers");
    writing.join().expect("the writer does not panic");
    assert!(answer == message(seed, length));
}

fn exchange_at_once(count: usize, length: usize) -> impl FnOnce(SocketAddr) + Send {
    move |address| {
        let clients = (0..count).map(|seed| thread::spawn(move || exchange(address, seed, length)));
        clients.collect::<Vec<_>>().into_iter().for_each(|client| client.join().expect("the client was served"));
    }
}

#[test]
fn a_tiny_pool_starves_nobody() {
    let sizes = Sizes { buffers: 2, buffer_bytes: 64, ..ROOMY };
    let (totals, _) = serve(sizes, Growth::Never, exchange_at_once(40, 20_000));
    assert_eq!((totals.bytes_received, totals.bytes_sent), (800_000, 800_000));
}

#[test]
fn clients_that_never_stop_to_send_share_a_tiny_pool() {
    const CLIENTS: isize = 12;
    const ENOUGH: usize = 64 * 1024;
    /// Each has at least this on its way: more than the pool holds, and less than a socket would.
    const AHEAD: usize = 32 * 1024;
    let sizes = Sizes { buffers: 2, buffer_bytes: 64, ..ROOMY };
    serve(sizes, Growth::Never, |address| {
        let left = AtomicIsize::new(CLIENTS);
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                let mut reader = TcpStream::connect(address).expect("it listens");
                reader.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
                reader.set_write_timeout(Some(PATIENCE)).expect("a timeout can be set");
                let (mut writer, left) = (reader.try_clone().expect("a stream can be cloned"), &left);
                let read = Arc::new(AtomicUsize::new(0));
                let seen = Arc::clone(&read);
                scope.spawn(move || {
                    let mut sent = 0;
                    // Nobody ends before the last one has enough.
                    while left.load(Ordering::Relaxed) > 0 {
                        if sent < seen.load(Ordering::Relaxed) + AHEAD {
                            writer.write_all(&[7; 4096]).expect("the server reads");
                            sent += 4096;
                        } else {
                            thread::yield_now();
                        }
                    }
                    writer.shutdown(std::net::Shutdown::Write).expect("it is connected");
                });
                scope.spawn(move || {
                    let mut buffer = [0; 4096];
                    loop {
                        let Ok(length) = reader.read(&mut buffer) else {
                            left.store(0, Ordering::Relaxed);
                            panic!("the server has forgotten it after {} bytes", read.load(Ordering::Relaxed));
                        };
                        let before = read.fetch_add(length, Ordering::Relaxed);
                        if (before..before + length).contains(&ENOUGH) {
                            left.fetch_sub(1, Ordering::Relaxed);
                        }
                        if length == 0 {
                            break;
                        }
                    }
                });
            }
        });
    });
}

#[test]
fn a_full_completion_queue_loses_nothing() {
    let sizes = Sizes { submissions: 2, completions: 4, ..ROOMY };
    let (totals, _) = serve(sizes, Growth::Never, exchange_at_once(40, 20_000));
    assert_eq!((totals.bytes_received, totals.bytes_sent), (800_000, 800_000));
}

#[test]
fn a_full_table_keeps_connections_in_the_queue_until_there_is_room() {
    let sizes = Sizes { slots: 4, ..ROOMY };
    let (totals, tables) = serve(sizes, Growth::Never, exchange_at_once(40, 20_000));
    assert_eq!((totals.connections, tables), (40, 1));
}

#[test]
fn a_full_table_gets_another_where_it_may() {
    let (totals, tables) = serve(Sizes { slots: 4, ..ROOMY }, Growth::AsNeeded, |address| {
        let mut streams: Vec<TcpStream> = (0..18).map(|_| TcpStream::connect(address).expect("it listens")).collect();
        for (stream, seed) in streams.iter_mut().zip(0..) {
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
            stream.write_all(&message(seed, 100)).expect("the server reads");
            let mut answer = [0; 100];
            stream.read_exact(&mut answer).expect("the server answers");
            assert!(answer[..] == message(seed, 100));
        }
    });
    assert_eq!((totals.connections, tables), (18, 5));
}

#[test]
fn a_busy_listener_gets_the_slots_that_a_quiet_one_does_not_need() {
    let (totals, tables) = serve_at(Sizes { slots: 4, ..ROOMY }, Growth::AsNeeded, |[busy, _quiet]| {
        let mut streams: Vec<TcpStream> = (0..17).map(|_| TcpStream::connect(busy).expect("it listens")).collect();
        for stream in &mut streams {
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
            stream.write_all(b"here").expect("the server reads");
            stream.read_exact(&mut [0; 4]).expect("the server answers");
        }
    });
    // Each table keeps a slot for the quiet listener.
    assert_eq!((totals.connections, tables), (17, 6));
}

#[test]
fn a_slot_is_reused_without_a_trace_of_its_last_connection() {
    let sizes = Sizes { slots: 1, accepts: 1, ..ROOMY };
    let (totals, _) = serve(sizes, Growth::Never, |address| {
        for seed in 0..100 {
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
            stream.write_all(&message(seed, 1000)).expect("the server reads");
            let mut answer = [0; 1000];
            stream.read_exact(&mut answer[..1 + seed * 9]).expect("the server answers");
            assert!(answer[..1 + seed * 9] == message(seed, 1000)[..1 + seed * 9]);
            if seed % 2 == 0 {
                // Dropped with bytes unread: a reset, while something of it may be under way.
                continue;
            }
            stream.shutdown(std::net::Shutdown::Write).expect("it is connected");
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).expect("the server answers all");
            assert!(rest == message(seed, 1000)[1 + seed * 9..]);
        }
    });
    assert_eq!(totals.connections, 100);
}
