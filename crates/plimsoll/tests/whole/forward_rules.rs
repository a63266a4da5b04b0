//! What a rule of the forwarder's table may say: whom it lets in, how much, and who is told.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::forwarder::{Folder, Forwarder, Noise, PATIENCE, accept, echo, exchange, listener, until};
use crate::support::ruled::{Ruled, connect_from, is_cut_off};
use crate::support::running::queued_at;

#[test]
fn who_is_denied_is_reset_and_the_log_says_so() {
    let ruled = Ruled::new(&[echo()], "allow = [\"127.0.0.0/24\"]\ndeny = [\"127.0.0.7\"]");
    let address = ruled.forwarder.address();
    exchange(&mut connect_from([127, 0, 0, 2], address));
    for source in [[127, 0, 0, 7], [127, 0, 1, 1]] {
        assert!(is_cut_off(connect_from(source, address)), "{source:?}");
    }
    let ends = ruled.ends(3);
    assert_eq!(ends.iter().filter(|(end, _)| end == "denied").count(), 2, "{ends:?}");
}

#[test]
fn rinetds_rules_say_who_may_connect() {
    let folder = Folder::new();
    let server = echo();
    let (host, port) = (server.ip(), server.port());
    let text = format!("127.0.0.1 0 {host} {port}\nallow 127.0.0.*\ndeny 127.0.0.7\n127.0.0.1 0 {host} {port}\n");
    let forwarder = Forwarder::start(&["--table", &folder.write("rinetd.conf", &text)]);
    let [guarded, open] = forwarder.addresses()[..] else { panic!("two rules") };
    exchange(&mut connect_from([127, 0, 0, 2], guarded));
    assert!(is_cut_off(connect_from([127, 0, 0, 7], guarded)));
    exchange(&mut connect_from([127, 0, 0, 7], open));
}

#[test]
fn connections_beyond_a_rules_limit_are_reset() {
    let ruled = Ruled::with(&["--workers", "2"], &[echo()], "limit = { connections = 3 }");
    let mut held: Vec<TcpStream> = (0..3).map(|_| ruled.connect()).collect();
    held.iter_mut().for_each(exchange);
    assert!(is_cut_off(ruled.connect()));
    assert_eq!(ruled.ends(1)[0].0, "limit");
    held.pop();
    until("there is room for another", || !is_cut_off(ruled.connect()));
}

#[test]
fn connections_beyond_a_rules_rate_are_reset() {
    // One in ten minutes: the second comes too early, however slow this machine is.
    let ruled = Ruled::new(&[echo()], "limit = { rate = \"0.002/s\" }");
    exchange(&mut ruled.connect());
    assert!(is_cut_off(ruled.connect()));
    let ruled = Ruled::new(&[echo()], "limit = { rate = \"5/s\" }");
    let begun = Instant::now();
    let served = (0..50).filter(|_| !is_cut_off(ruled.connect())).count();
    let most = 5.0 + 5.0 * begun.elapsed().as_secs_f64() + 1.0;
    assert!(served >= 5 && served as f64 <= most, "{served} of at most {most}");
}

#[test]
fn a_rules_bandwidth_holds_for_all_its_connections_together() {
    const BYTES: usize = 512 * 1024;
    let ruled = Ruled::new(&[echo()], "limit = { bandwidth = \"1MiB/s\" }");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut stream = ruled.connect();
                let mut writer = stream.try_clone().expect("a descriptor is left");
                let bytes = Noise::new(9).bytes(BYTES);
                let mut read = vec![0; BYTES];
                std::thread::scope(|scope| {
                    scope.spawn(|| writer.write_all(&bytes).expect("it is read"));
                    stream.read_exact(&mut read).expect("an echo");
                });
                assert!(read == bytes);
            });
        }
    });
    // A read of 64 KiB for each connection may go before its time.
    let least = (3 * BYTES - 3 * 64 * 1024) as f64 / f64::from(1 << 20);
    assert!(begun.elapsed().as_secs_f64() >= least, "{:?} for at least {least} s", begun.elapsed());
    let summary = ruled.forwarder.stop();
    assert_eq!(summary["bytes_up"], 3 * BYTES);
}

#[test]
fn each_connection_has_its_part_of_its_rules_bandwidth() {
    const CLIENTS: usize = 5;
    // What each is to move: by then each has waited a dozen times.
    const ENOUGH: usize = 12 * 64 * 1024;
    let (server, address) = listener();
    for workers in ["1", "2"] {
        let settings = "limit = { bandwidth = \"8MB/s\" }";
        let ruled = Ruled::with(&["--workers", workers, "--accept", "handoff"], &[address], settings);
        let moved: Vec<AtomicUsize> = (0..CLIENTS).map(|_| AtomicUsize::new(0)).collect();
        let has_enough = |count: &AtomicUsize| count.load(Ordering::Relaxed) >= ENOUGH;
        std::thread::scope(|scope| {
            for moved in &moved {
                let (mut client, mut served) = (ruled.connect(), accept(&server));
                scope.spawn(move || while client.write_all(&[7; 64 * 1024]).is_ok() {});
                scope.spawn(move || {
                    let mut buffer = vec![0; 64 * 1024];
                    while let Ok(length @ 1..) = served.read(&mut buffer) {
                        moved.fetch_add(length, Ordering::Relaxed);
                    }
                });
            }
            let begun = Instant::now();
            until("each has enough, or one has that of all", || {
                let all: usize = moved.iter().map(|count| count.load(Ordering::Relaxed)).sum();
                moved.iter().all(has_enough) || all > 3 * CLIENTS * ENOUGH || begun.elapsed() > PATIENCE / 2
            });
            // Those that write and read are waited for.
            ruled.forwarder.signal("TERM");
            ruled.forwarder.signal("TERM");
        });
        assert!(moved.iter().all(has_enough), "{workers} workers: {moved:?}");
        ruled.forwarder.wait();
    }
}

#[test]
fn the_end_of_a_message_that_waited_for_its_rules_bandwidth_is_sent_at_once() {
    // A read and a part of one: nothing follows that would send the part on.
    const BYTES: usize = 100_000;
    let (server, address) = listener();
    let ruled = Ruled::new(&[address], "connect_timeout = \"1h\"\nlimit = { bandwidth = \"1MB/s\" }");
    let (mut client, bytes) = (ruled.connect(), Noise::new(3).bytes(BYTES));
    client.write_all(&bytes).expect("it is read");
    let mut read = vec![0; BYTES];
    accept(&server).read_exact(&mut read).expect("all of it arrives");
    assert!(read == bytes);
}

#[test]
fn a_wait_for_a_rules_bandwidth_is_no_silence() {
    const BYTES: usize = 200_000;
    let (server, address) = listener();
    // A read uses the bandwidth up for three times as long as either may be silent.
    let settings = "idle_timeout = \"200ms\"\nlimit = { bandwidth = \"100KB/s\" }";
    let ruled = Ruled::new(&[address], settings);
    let (mut client, bytes) = (ruled.connect(), Noise::new(4).bytes(BYTES));
    client.write_all(&bytes).expect("it is read");
    client.shutdown(Shutdown::Write).expect("connected");
    let (mut served, mut read) = (accept(&server), Vec::new());
    served.read_to_end(&mut read).expect("the end of the stream");
    assert!(read == bytes, "{} of {BYTES}", read.len());
}

#[test]
fn a_silent_connection_ends_though_others_have_used_its_rules_bandwidth_up() {
    let (server, address) = listener();
    // Less than a packet uses it up for longer than a test waits.
    let ruled = Ruled::new(&[address], "idle_timeout = \"1s\"\nlimit = { bandwidth = \"10B/s\" }");
    let mut busy = ruled.connect();
    busy.write_all(&[7; 1000]).expect("there is room");
    accept(&server).read_exact(&mut [0]).expect("it is relayed");
    let end = ruled.connect().read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
}

#[test]
fn what_came_in_time_to_a_forwarder_that_stood_still_is_relayed() {
    let server = echo();
    // The time-out is longer than this machine takes for an exchange, however busy it is.
    for timeout in (1..8).map(|doubled| Duration::from_secs(1 << doubled)) {
        let ruled = Ruled::new(&[server], &format!("idle_timeout = \"{}s\"", timeout.as_secs()));
        let (start, mut client) = (Instant::now(), ruled.connect());
        exchange(&mut client);
        ruled.forwarder.signal("STOP");
        let is_in_time = client.write_all(b"x").is_ok() && start.elapsed() < timeout;
        std::thread::sleep(timeout + Duration::from_millis(500));
        ruled.forwarder.signal("CONT");
        if is_in_time {
            client.read_exact(&mut [0]).expect("it is relayed and answered");
            return;
        }
    }
    panic!("nothing is relayed within minutes");
}

#[test]
fn a_proxys_header_that_came_in_time_to_a_forwarder_that_stood_still_is_read() {
    let server = echo();
    // The time-out is longer than this machine takes for a connection, however busy it is.
    for timeout in (1..8).map(|doubled| Duration::from_secs(1 << doubled)) {
        let time_out = format!("connect_timeout = \"{}s\"", timeout.as_secs());
        let ruled = Ruled::new(&[server], &format!("{time_out}\naccept_proxy = {{ from = [\"127.0.0.1\"] }}"));
        let (start, mut client) = (Instant::now(), ruled.connect());
        until("it is accepted", || queued_at(ruled.forwarder.address()) == 0);
        ruled.forwarder.signal("STOP");
        let is_in_time = client.write_all(b"PROXY UNKNOWN\r\n").is_ok() && start.elapsed() < timeout;
        std::thread::sleep(timeout + Duration::from_millis(500));
        ruled.forwarder.signal("CONT");
        if is_in_time {
            exchange(&mut client);
            return;
        }
    }
    panic!("nothing is relayed within minutes");
}

#[test]
fn a_server_is_told_who_has_connected() {
    for version in ["v1", "v2"] {
        let (server, address) = listener();
        let ruled = Ruled::new(&[address], &format!("send_proxy = \"{version}\""));
        let mut client = ruled.connect();
        client.write_all(b"hello").expect("there is room");
        let (from, to) = (client.local_addr().expect("connected"), ruled.forwarder.address());
        let want = if version == "v1" {
            format!("PROXY TCP4 {} {} {} {}\r\n", from.ip(), to.ip(), from.port(), to.port()).into_bytes()
        } else {
            let mut want = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\x7f\0\0\x01\x7f\0\0\x01".to_vec();
            want.extend(from.port().to_be_bytes());
            want.extend(to.port().to_be_bytes());
            want
        };
        let mut read = vec![0; want.len() + 5];
        accept(&server).read_exact(&mut read).expect("it is told and then relayed");
        assert_eq!(read, [&want[..], b"hello"].concat(), "{version}");
        drop(client);
        assert_eq!(ruled.forwarder.stop()["bytes_up"], 5, "the header is no byte of the client's");
    }
}

#[test]
fn a_proxys_header_is_believed_from_those_that_are_named_and_from_nobody_else() {
    let (server, address) = listener();
    let ruled = Ruled::new(
        &[address],
        "accept_proxy = { from = [\"127.0.0.8\"] }\nsend_proxy = \"v1\"\ndeny = [\"192.0.2.66\"]",
    );
    let at = ruled.forwarder.address();
    let mut proxy = connect_from([127, 0, 0, 8], at);
    // In pieces, and with the first bytes of the stream.
    for piece in [&b"PROXY TCP4 192.0.2.1 "[..], b"198.51.100.1 1111 2222\r", b"\nhello"] {
        proxy.write_all(piece).expect("there is room");
        std::thread::sleep(Duration::from_millis(20));
    }
    let want = b"PROXY TCP4 192.0.2.1 198.51.100.1 1111 2222\r\nhello";
    let mut read = [0; 50];
    accept(&server).read_exact(&mut read[..want.len()]).expect("it is passed on");
    assert_eq!(&read[..want.len()], want);
    drop(proxy);
    // What is denied is whom the proxy speaks for.
    let mut denied = connect_from([127, 0, 0, 8], at);
    denied.write_all(b"PROXY TCP4 192.0.2.66 198.51.100.1 1111 2222\r\n").expect("there is room");
    assert!(is_cut_off(denied));
    let mut wrong = connect_from([127, 0, 0, 8], at);
    wrong.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("there is room");
    assert!(is_cut_off(wrong));
    // A stranger's header is bytes like others.
    let mut stranger = connect_from([127, 0, 0, 9], at);
    stranger.write_all(b"PROXY UNKNOWN\r\n").expect("there is room");
    let mut server_side = accept(&server);
    let local = stranger.local_addr().expect("connected");
    let want = format!("PROXY TCP4 127.0.0.9 127.0.0.1 {} {}\r\nPROXY UNKNOWN\r\n", local.port(), at.port());
    let mut read = vec![0; want.len()];
    server_side.read_exact(&mut read).expect("it is passed on");
    assert_eq!(String::from_utf8_lossy(&read), want);
    let ends: Vec<String> = ruled.ends(3).into_iter().map(|(end, _)| end).collect();
    assert!(ends.contains(&"denied".to_owned()) && ends.contains(&"proxy_header".to_owned()), "{ends:?}");
    let log = fs::read_to_string(ruled.folder.path("log.csv")).expect("there is a log");
    assert!(log.contains(",192.0.2.1:1111,"), "{log}");
}

#[test]
fn who_takes_nothing_is_given_up_with_a_reset_and_its_own_cause() {
    let (server, address) = listener();
    let ruled = Ruled::new(&[address], "send_timeout = \"300ms\"");
    let client = ruled.connect();
    let mut sending = accept(&server);
    // More than any buffer on the way holds: it ends by the reset.
    let piece = vec![7; 1 << 20];
    let error = loop {
        if let Err(error) = sending.write_all(&piece) {
            break error;
        }
    };
    assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
    assert_eq!(ruled.ends(1)[0].0, "send_timeout");
    drop(client);
    assert_eq!(ruled.forwarder.stop()["ends"], serde_json::json!({"send_timeout": 1}));
}
