//! What the forwarder writes down: a row a connection, a row a relayed read.

use std::collections::HashMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::support::forwarder::{
    Folder, Forwarder, accept, command, connect, echo, exchange, get, listener, text_of, until,
};

#[test]
fn the_transfer_log_has_a_row_for_each_relayed_read() {
    let (listener, server) = listener();
    let folder = Folder::new();
    let path = folder.path("transfers.csv");
    let mut forwarder = Forwarder::to(server, &["--transfer-log", &text_of(&path), "--workers", "1"]);
    assert!(forwarder.sentence().contains("splice is off"));
    let mut client = forwarder.connect();
    let mut server = accept(&listener);
    for _ in 0..3 {
        client.write_all(&[0; 255]).expect("there is room");
        server.read_exact(&mut [0; 255]).expect("it is relayed");
    }
    server.write_all(&[0; 10]).expect("there is room");
    client.read_exact(&mut [0; 10]).expect("it is relayed");
    until("there are four rows", || fs::read_to_string(&path).is_ok_and(|text| text.lines().count() == 5));
    let text = fs::read_to_string(&path).expect("it is there");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0], ["time", "receive_fd", "send_fd", "requests", "bytes", "worker", "table"]);
    let counts: Vec<&[&str]> = rows[1..].iter().map(|row| &row[3..]).collect();
    assert_eq!(counts, [["1", "255", "0", "0"], ["2", "510", "0", "0"], ["3", "765", "0", "0"], ["1", "10", "0", "0"]]);
    assert_eq!((rows[1][1], rows[1][2]), (rows[4][2], rows[4][1]), "the way back is between the same two");
}

#[test]
fn the_transfer_log_tells_workers_and_tables_apart_where_connections_are_handed_over() {
    const CONNECTIONS: usize = 60;
    let folder = Folder::new();
    let path = folder.path("transfers.csv");
    let mapping = format!("127.0.0.1:0={}", echo());
    let arguments = [&mapping, "--transfer-log", &text_of(&path), "--accept", "handoff", "--workers", "2"];
    // A table of 64 descriptors holds some 20 connections, so that each worker has several.
    let forwarder = Forwarder::start_with_limit(64, &arguments);
    let mut held: Vec<TcpStream> = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = forwarder.connect();
        exchange(&mut client);
        held.push(client);
    }
    until("each exchange has its rows", || {
        fs::read_to_string(&path).is_ok_and(|text| text.lines().count() == 1 + 2 * CONNECTIONS)
    });
    let text = fs::read_to_string(&path).expect("it is there");
    // Descriptors have the same numbers in each table: only with these are they one connection's.
    let ends: std::collections::HashSet<[&str; 3]> = text
        .lines()
        .skip(1)
        .map(|line| {
            let row: Vec<&str> = line.split(',').collect();
            [row[1], row[5], row[6]]
        })
        .collect();
    assert_eq!(ends.len(), 2 * CONNECTIONS, "{text}");
    let workers: std::collections::HashSet<&str> = ends.iter().map(|end| end[1]).collect();
    let tables: std::collections::HashSet<&str> = ends.iter().map(|end| end[2]).collect();
    assert!(workers.len() == 2 && tables.len() > 1, "{text}");
    drop(held);
    let summary = forwarder.stop();
    assert_eq!(summary["connections_per_worker"], serde_json::json!([CONNECTIONS / 2, CONNECTIONS / 2]));
}

#[test]
fn a_stream_has_its_turn_in_each_round_and_no_more_however_often_it_is_ready() {
    const BYTES: usize = 256 * 1024 * 1024;
    // A turn ends with the read that makes it 256 KiB or more, and in one round a stream may have
    // one that was left over and one for an event of each side.
    const A_ROUND: u64 = 3 * (256 + 64) * 1024;
    let ((listener, server), folder) = (listener(), Folder::new());
    let path = folder.path("transfers.csv");
    let forwarder = Forwarder::to(server, &["--transfer-log", &text_of(&path), "--workers", "1"]);
    let mut client = forwarder.connect();
    let mut server = accept(&listener);
    std::thread::scope(|scope| {
        scope.spawn(|| client.write_all(&vec![7; BYTES]).expect("it is taken"));
        std::io::copy(&mut (&mut server).take(BYTES as u64), &mut std::io::sink()).expect("it arrives");
    });
    drop((client, server));
    let summary = forwarder.stop();
    assert_eq!(summary["log_rows_dropped"], 0, "{summary}");
    // Rows of one round bear the same time.
    let (text, mut rounds, mut before) = (fs::read_to_string(&path).expect("it is there"), HashMap::new(), 0);
    for line in text.lines().skip(1) {
        let row: Vec<&str> = line.split(',').collect();
        let bytes: u64 = row[4].parse().expect("a number");
        *rounds.entry(row[0].to_owned()).or_insert(0) += bytes - before;
        before = bytes;
    }
    let most = rounds.values().max();
    assert!(before == BYTES as u64 && most <= Some(&A_ROUND), "{before} bytes, {most:?} of them in a round");
}

#[test]
fn where_the_log_goes_may_change_with_the_table() {
    let folder = Folder::new();
    let server = echo();
    let table = |log: &str| {
        let log = text_of(&folder.path(log));
        format!("[log]\nconnections = \"{log}\"\n[forward]\n\"127.0.0.1:0\" = \"{server}\"\n")
    };
    let mut forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table("one.csv"))]);
    let rows = |log: &str| fs::read_to_string(folder.path(log)).unwrap_or_default().lines().count();
    exchange(&mut forwarder.connect());
    until("the first log has a header and a row", || rows("one.csv") == 2);
    folder.replace("forward.toml", &table("two.csv"));
    forwarder.signal("HUP");
    until("the table is reloaded", || forwarder.sentence().contains("reloaded"));
    exchange(&mut forwarder.connect());
    until("the second log has a header and a row", || rows("two.csv") == 2);
    assert_eq!(rows("one.csv"), 2);
    folder.replace("forward.toml", &format!("[forward]\n\"127.0.0.1:0\" = \"{server}\"\n"));
    forwarder.signal("HUP");
    until("the table is reloaded", || forwarder.sentence().contains("reloaded"));
    exchange(&mut forwarder.connect());
    forwarder.stop();
    assert_eq!(rows("two.csv"), 2);
}

#[test]
fn a_reload_puts_no_csv_between_the_lines_of_json() {
    let (folder, server) = (Folder::new(), echo());
    let table = |log: &str| format!("{log}[forward]\n\"127.0.0.1:0\" = \"{server}\"\n");
    let config = folder.write("forward.toml", &table(""));
    let mut forwarder = Forwarder::start(&["--config", &config, "--workers", "1"]);
    folder.replace("forward.toml", &table("[log]\nconnections = \"stdout\"\n"));
    forwarder.signal("HUP");
    let sentence = forwarder.sentence();
    assert!(sentence.contains("the table is refused") && sentence.contains("nothing but JSON"), "{sentence}");
    exchange(&mut forwarder.connect());
    assert_eq!(forwarder.stop()["reloads_refused"], 1);
}

#[test]
fn a_fifo_that_nobody_reads_is_no_log() {
    let folder = Folder::new();
    let fifo = text_of(&folder.path("log.fifo"));
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    let output = command(&["127.0.0.1:0=127.0.0.1:9", "--log", &fifo]).output().expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("this FIFO has no reader"), "{said}");
}

#[test]
fn two_logs_in_one_file_are_refused() {
    let folder = Folder::new();
    let path = text_of(&folder.path("log.csv"));
    let both = ["127.0.0.1:0=127.0.0.1:9", "--log", &path, "--transfer-log", &path];
    let output = command(&both).output().expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("it has the rows of transfers, which have another form; name another file"), "{said}");
    assert_eq!(fs::read_to_string(&path).expect("it is made"), "", "no header of either stands in it");
    // Nor by a table that comes later.
    let (transfers, own) = (text_of(&folder.path("transfers.csv")), text_of(&folder.path("own.csv")));
    let table = |log: &str| format!("[log]\nconnections = \"{log}\"\n[forward]\n\"127.0.0.1:0\" = \"{}\"\n", echo());
    let file = folder.write("forward.toml", &table(&own));
    let forwarder = Forwarder::start(&["--config", &file, "--transfer-log", &transfers]);
    folder.replace("forward.toml", &table(&transfers));
    forwarder.signal("HUP");
    exchange(&mut forwarder.connect());
    until("it is refused", || fs::read_to_string(&own).is_ok_and(|rows| rows.lines().count() > 1));
    forwarder.stop();
    assert!(!fs::read_to_string(&transfers).expect("it is there").contains("client_closed"));
}

#[test]
fn rows_are_lost_while_what_read_the_log_has_ended_and_written_when_it_is_started_again() {
    let folder = Folder::new();
    let fifo = text_of(&folder.path("log.fifo"));
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    let reader = || {
        // Who may write too need not wait for a writer.
        let _both = fs::File::options().read(true).write(true).open(&fifo).expect("it is there");
        fs::File::open(&fifo).expect("it is there")
    };
    let first = reader();
    let mut forwarder = Forwarder::to(echo(), &["--log", &fifo]);
    drop(first);
    exchange(&mut forwarder.connect());
    let sentence = forwarder.sentence();
    assert!(sentence.contains("log rows are lost") && sentence.contains("has ended: start it again"), "{sentence}");
    let (mut second, mut rows) = (reader(), String::new());
    exchange(&mut forwarder.connect());
    let summary = forwarder.stop();
    assert_eq!((&summary["log_rows_dropped"], &summary["connections"]), (&1.into(), &2.into()), "{summary}");
    second.read_to_string(&mut rows).expect("text");
    // The header still waited in the pipe.
    assert_eq!(rows.matches(",client_closed,").count(), 1, "{rows}");
}

#[test]
fn a_log_that_nobody_reads_stalls_nobody_and_the_rows_that_it_misses_are_counted() {
    let folder = Folder::new();
    let fifo = text_of(&folder.path("log.fifo"));
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    // Somebody has it open, and does not read.
    let _reader = fs::File::options().read(true).write(true).open(&fifo).expect("it is there");
    let forwarder = Forwarder::to(echo(), &["--log", &fifo]);
    const CONNECTIONS: u64 = 22_000;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..CONNECTIONS / 4 {
                    exchange(&mut forwarder.connect());
                }
            });
        }
    });
    forwarder.signal("TERM");
    let (status, summary, said) = forwarder.wait();
    assert_eq!(status.code(), Some(0));
    assert_eq!(summary["connections"], CONNECTIONS);
    let dropped = summary["log_rows_dropped"].as_u64().expect("a count");
    // The fifo holds 64 KiB, some 450 rows. The queue has room for 16,384, which are in no log
    // either: some waited there until the end.
    assert!(dropped > CONNECTIONS - 1000 && dropped <= CONNECTIONS, "{dropped} rows");
    assert!(said.contains("log rows are dropped"), "{said}");
    assert!(said.contains("the last log rows are not written"), "{said}");
}

#[test]
fn sentences_that_nobody_reads_stall_nobody() {
    // Each rule has a sentence of its own; all together are more than a pipe holds.
    const RULES: usize = 500;
    let folder = Folder::new();
    let nobody = folder.path(&"x".repeat(40));
    let mapping = format!("127.0.0.1:0=unix:{}", nobody.display());
    let arguments: Vec<&str> = (0..RULES).map(|_| mapping.as_str()).chain(["--workers", "1"]).collect();
    let forwarder = Forwarder::start(&arguments);
    for address in forwarder.addresses() {
        // It is reset, as nobody listens behind it.
        let outcome = connect(address).read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(outcome, Err(ErrorKind::ConnectionReset));
    }
    let summary = forwarder.stop();
    assert_eq!(summary["connections"], RULES, "{summary}");
}

#[test]
fn a_full_disk_loses_log_rows_and_nothing_else() {
    // The header could not be written: that is met at the start.
    let output = command(&["127.0.0.1:0=127.0.0.1:9", "--log", "/dev/full"]).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot open the log /dev/full"));
    // Later, rows are lost, counted and said. In JSON there is no header.
    let folder = Folder::new();
    let table =
        format!("[log]\nconnections = \"/dev/full\"\nformat = \"json\"\n[forward]\n\"127.0.0.1:0\" = \"{}\"\n", echo());
    let table = format!("[admin]\nlisten = \"127.0.0.1:0\"\n{table}");
    let mut forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table)]);
    exchange(&mut forwarder.connect());
    assert!(forwarder.sentence().contains("free space on the disk"));
    exchange(&mut forwarder.connect());
    until("the metrics count both", || {
        get(forwarder.admin(), "/metrics").contains("\nplimsoll_forward_log_rows_dropped_total 2\n")
    });
    assert_eq!(forwarder.stop()["log_rows_dropped"], 2);
}
