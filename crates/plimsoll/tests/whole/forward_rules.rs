//! What a rule of the forwarder's table may say: whom it lets in, how much, and where it leads.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::support::forwarder::{
    Folder, Forwarder, Noise, PATIENCE, accept, answer, asks, echo, exchange, listener, reset, text_of, until,
};
use crate::support::peer::read_once;

/// A forwarder with one rule, at a free port, and its log.
struct Ruled {
    forwarder: Forwarder,
    folder: Folder,
}

impl Ruled {
    fn new(to: &[SocketAddr], settings: &str) -> Ruled {
        Ruled::with(&["--workers", "1"], to, settings)
    }

    fn with(arguments: &[&str], to: &[SocketAddr], settings: &str) -> Ruled {
        let folder = Folder::new();
        let to: Vec<String> = to.iter().map(|address| format!("\"{address}\"")).collect();
        let table = format!("[forward.\"127.0.0.1:0\"]\nto = [{}]\n{settings}\n", to.join(", "));
        let (config, log) = (folder.write("forward.toml", &table), text_of(&folder.path("log.csv")));
        let forwarder = Forwarder::start(&[&["--config", &config, "--log", &log], arguments].concat());
        Ruled { forwarder, folder }
    }

    fn connect(&self) -> TcpStream {
        self.forwarder.connect()
    }

    /// The last two columns of each row of the log, when there are as many.
    fn ends(&self, count: usize) -> Vec<(String, String)> {
        let read = || fs::read_to_string(self.folder.path("log.csv")).unwrap_or_default();
        until(&format!("the log has {count} rows"), || read().lines().count() > count);
        let end = |line: &str| {
            let mut fields = line.rsplit(',');
            let error = fields.next().unwrap_or_default().to_owned();
            (fields.next().unwrap_or_default().to_owned(), error)
        };
        read().lines().skip(1).map(end).collect()
    }
}

/// A connection from an address of this machine.
fn connect_from(source: [u8; 4], address: SocketAddr) -> TcpStream {
    let socket = plimsoll_sys::net::connect(address, Some(IpAddr::from(source)), plimsoll_sys::net::Mode::Blocking);
    let stream = TcpStream::from(socket.expect("connections are taken"));
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream
}

/// Whether the other side cuts the connection off without a byte. The reset is told to whichever
/// call comes first: a read after a write that was told of it sees an end of the stream.
fn is_cut_off(mut stream: TcpStream) -> bool {
    let is_reset = |kind: ErrorKind| matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
    match stream.write_all(b"?").and_then(|()| read_once(&stream, &mut [0])) {
        Ok(_) => false,
        Err(error) => is_reset(error.kind()),
    }
}

/// A listener that no connection gets through to: its queue is full, and the kernel drops what else
/// is sent to it.
struct Silent {
    _listener: TcpListener,
    _queued: Vec<TcpStream>,
    address: SocketAddr,
}

fn silent() -> Silent {
    let (listener, address) = listener();
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
        queued.push(stream);
        assert!(queued.len() < 10_000, "the queue has no end");
    }
    Silent { _listener: listener, _queued: queued, address }
}

#[test]
fn another_destination_is_tried_where_one_refuses() {
    let (dead, refusing) = listener();
    drop(dead);
    let (alive, serving) = listener();
    let folder = Folder::new();
    let table = format!("[forward]\n\"127.0.0.1:0\" = [\"{refusing}\", \"{serving}\"]\n");
    let forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table)]);
    for _ in 0..4 {
        let mut client = forwarder.connect();
        client.write_all(b"x").expect("there is room");
        accept(&alive).read_exact(&mut [0]).expect("it is relayed");
    }
}

#[test]
fn a_silent_destination_takes_its_share_of_the_time_and_the_next_one_serves() {
    let (silent, alive) = (silent(), answer(b'a'));
    for balance in ["first", "round-robin"] {
        // Half of it is the silent one's share. Where this machine comes to its end only after the
        // other half, nothing is left for the next.
        let settings = format!("balance = \"{balance}\"\nconnect_timeout = \"10s\"");
        let ruled = Ruled::new(&[silent.address, alive], &settings);
        for _ in 0..4 {
            assert_eq!(asks(&mut ruled.connect()), b'a', "{balance}");
        }
        assert_eq!(ruled.forwarder.stop()["ends"], serde_json::json!({"client_closed": 4}), "{balance}");
    }
}

#[test]
fn a_client_that_is_gone_before_there_is_a_server_is_let_go_at_once() {
    let silent = silent();
    let ruled = Ruled::new(&[silent.address], "connect_timeout = \"10m\"");
    let client = ruled.connect();
    until("it is being connected", || ruled.forwarder.open_connections() > 0);
    reset(client);
    assert_eq!(ruled.ends(1)[0].0, "client_reset");
}

#[test]
fn the_idle_time_out_holds_while_connecting_too() {
    let silent = silent();
    let ruled = Ruled::new(&[silent.address], "connect_timeout = \"10m\"\nidle_timeout = \"200ms\"");
    assert!(is_cut_off(ruled.connect()));
    assert_eq!(ruled.ends(1)[0].0, "idle");
}

#[test]
fn a_failure_to_connect_has_its_reason_in_the_log_and_is_said_once() {
    let (dead, refusing) = listener();
    drop(dead);
    let mut ruled = Ruled::new(&[refusing], "");
    for _ in 0..3 {
        assert!(is_cut_off(ruled.connect()));
    }
    assert_eq!(ruled.ends(3), vec![("connect_refused".to_owned(), "econnrefused".to_owned()); 3]);
    let sentence = ruled.forwarder.sentence();
    assert!(sentence.contains(&format!("cannot connect to {refusing}: Connection refused")), "{sentence}");
    let (_, _, said) = {
        ruled.forwarder.signal("TERM");
        ruled.forwarder.wait()
    };
    assert!(!said.contains("cannot connect"), "it was said already: {said}");
}

#[test]
fn the_destination_with_the_fewest_connections_is_next() {
    let ruled = Ruled::new(&[answer(b'a'), answer(b'b')], "balance = \"least-connections\"");
    let mut first = ruled.connect();
    let busy = asks(&mut first);
    // All of these end before the next begins, but the first lives: its server has one more.
    for _ in 0..4 {
        let mut next = ruled.connect();
        assert_ne!(asks(&mut next), busy);
        drop(next);
        until("it is closed", || ruled.forwarder.open_connections() <= 1);
    }
}

#[test]
fn a_client_address_keeps_its_destination() {
    let ruled = Ruled::new(&[answer(b'a'), answer(b'b'), answer(b'c')], "balance = \"source-hash\"");
    let at = |source: [u8; 4]| asks(&mut connect_from(source, ruled.forwarder.address()));
    let firsts: Vec<u8> = (1..=30).map(|last| at([127, 0, 9, last])).collect();
    let seconds: Vec<u8> = (1..=30).map(|last| at([127, 0, 9, last])).collect();
    assert_eq!(firsts, seconds);
    assert!([b'a', b'b', b'c'].iter().all(|server| firsts.contains(server)), "{firsts:?}");
}

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
fn a_destination_is_checked_from_the_address_that_connections_come_from() {
    let (server, address) = listener();
    let _ruled = Ruled::new(&[address], "source = \"127.0.0.9\"\ncheck = { every = \"1h\" }");
    let peer = accept(&server).peer_addr().expect("it is connected");
    assert_eq!(peer.ip(), IpAddr::from([127, 0, 0, 9]));
}

#[test]
fn a_destination_whose_checks_fail_gets_no_connection_until_they_succeed() {
    let (dead, moving) = listener();
    drop(dead);
    let alive = answer(b'a');
    let check = "check = { every = \"50ms\", timeout = \"5s\", fall = 2, rise = 2 }\nbalance = \"first\"";
    let mut ruled = Ruled::new(&[moving, alive], check);
    let sentence = ruled.forwarder.sentence();
    assert!(sentence.contains(&format!("{moving} is down: 2 checks failed")), "{sentence}");
    assert_eq!(asks(&mut ruled.connect()), b'a');
    let back = TcpListener::bind(moving).expect("the port was ours");
    let sentence = ruled.forwarder.sentence();
    assert!(sentence.contains(&format!("{moving} is up again")), "{sentence}");
    let mut client = ruled.connect();
    client.write_all(b"x").expect("there is room");
    // Checks are connections without a byte.
    let mut byte = [0];
    while read_once(accept(&back), &mut byte).expect("a check ends, and the client sends") == 0 {}
    assert_eq!(&byte, b"x");
    let summary = ruled.forwarder.stop();
    assert_eq!(summary["errors"], serde_json::json!({}), "nobody was led to the dead one");
}

#[test]
fn a_table_that_is_refused_forgets_of_no_destination_that_its_checks_fail() {
    let (dead, gone) = listener();
    drop(dead);
    let (_other, taken) = listener();
    let check = "check = { every = \"50ms\", timeout = \"5s\", fall = 1 }\nbalance = \"first\"";
    let mut ruled = Ruled::new(&[gone, answer(b'a')], check);
    assert!(ruled.forwarder.sentence().contains("is down"));
    let table = fs::read_to_string(ruled.folder.path("forward.toml")).expect("it was written");
    let unchecked = table.replace(check, "balance = \"first\"");
    ruled.folder.replace("forward.toml", &format!("{unchecked}[forward]\n\"{taken}\" = \"{gone}\"\n"));
    ruled.forwarder.signal("HUP");
    let sentence = ruled.forwarder.sentence();
    assert!(sentence.contains("the table is refused"), "{sentence}");
    assert_eq!(asks(&mut ruled.connect()), b'a');
    let summary = ruled.forwarder.stop();
    assert_eq!(summary["errors"], serde_json::json!({}), "nobody was led to the dead one");
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
