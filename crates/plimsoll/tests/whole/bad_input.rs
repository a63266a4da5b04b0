//! What a person gets to see who asks for what cannot be: one line with what, why and how to fix
//! it, and the right exit code.

use std::io::Write;
use std::net::TcpListener;
use std::process::Command;

use crate::support::server::{Folder, text_of};

/// Runs `plimsoll` and returns its exit code and what it said, which must be one line of its own or
/// clap's.
fn refuse(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(arguments).output().expect("it starts");
    assert!(output.stdout.is_empty(), "{output:?}");
    (output.status.code().expect("it exits"), String::from_utf8(output.stderr).expect("text"))
}

#[track_caller]
fn assert_refused(arguments: &[&str], code: i32, words: &[&str]) {
    let (actual, said) = refuse(arguments);
    assert_eq!(actual, code, "{said}");
    for word in words {
        assert!(said.contains(word), "no `{word}` in: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn an_unknown_model_is_refused_with_the_known_ones() {
    assert_refused(&["serve", "echo", "--model", "epol"], 2, &["epol", "epoll-et", "uring"]);
}

#[test]
fn a_control_character_in_an_argument_is_shown_and_ends_no_line() {
    let load = ["load", "echo", "127.0.0.1:7"];
    let with = |more: &[&'static str]| [load.as_slice(), more].concat();
    // What the parser of the arguments refuses has lines of its own.
    for (arguments, code, shown, lines) in [
        (vec!["load", "http", "http://127.0.0.1:7/a\nb"], 2, r"`http://127.0.0.1:7/a\nb`", Some(1)),
        (vec!["load", "echo", "no\u{1b}[2J\nhost:7"], 2, r"no\u{1b}[2J\nhost:7", Some(1)),
        (with(&["--request-log", "/no/a\rb"]), 2, r"/no/a\rb", Some(1)),
        (vec!["serve", "echo", "--listen", "he\nre:1"], 2, r"he\nre:1", Some(1)),
        (vec!["serve", "http", "--listen", "127.0.0.1:0", "--root", "/no\nroot"], 1, r"/no\nroot", Some(1)),
        (vec!["forward", "127.0.0.1:0=a\tb"], 2, r"a\tb", Some(1)),
        (vec!["forward", "--config", "/no/t\nable.toml"], 2, r"/no/t\nable.toml", Some(1)),
        (vec!["merge", "/no\nfile"], 2, r"/no\nfile", Some(1)),
        (with(&["--size", "6\n4"]), 2, r"'6\n4'", None),
        (with(&["--limit=response_time\u{1b}.p99 < 1s"]), 2, r"response_time\u{1b}.p99", None),
        (vec!["load", "http", "http://127.0.0.1:7/", "-H", "A: x\r\nB: y"], 2, r"'A: x\r\nB: y'", Some(1)),
        (with(&["--no\nflag"]), 2, r"'--no\nflag'", None),
        (vec!["serve", "ec\nho"], 2, r"'ec\nho'", None),
    ] {
        let (actual, said) = refuse(&arguments);
        assert!(actual == code && said.contains(shown), "no `{shown}` in: {actual} {said:?}");
        let unseen = |character: char| character.is_control() && character != '\n';
        assert!(!said.contains(unseen), "{said:?}");
        assert!(lines.is_none_or(|lines| said.lines().count() == lines), "{said:?}");
    }
}

#[test]
fn a_port_in_use_is_refused_with_a_way_out() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    for workers in ["1", "2"] {
        let arguments = ["serve", "echo", "--listen", &address, "--workers", workers];
        assert_refused(&arguments, 1, &[&address, "in use", "another port"]);
    }
}

#[test]
fn a_port_that_another_of_our_servers_shares_out_is_refused() {
    // Both would set SO_REUSEPORT, and the kernel would spread connections over the two, unnoticed.
    let mut first = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["serve", "echo", "--workers", "2", "--listen", "127.0.0.1:0"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    let stdout = first.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).expect("a ready line");
    let address = line.split_whitespace().nth(2).expect("listening on ADDRESS");
    assert_refused(&["serve", "echo", "--workers", "2", "--listen", address], 1, &["in use"]);
    first.kill().expect("it runs");
    first.wait().expect("a status");
}

#[test]
fn workers_for_a_model_without_event_loops_are_refused() {
    assert_refused(&["serve", "echo", "--model", "threads", "--workers", "2"], 2, &["--workers", "threads"]);
}

#[test]
fn an_address_that_is_none_is_refused_with_the_right_form() {
    assert_refused(&["serve", "echo", "--listen", "nowhere.invalid:1"], 2, &["nowhere.invalid", "ADDR:PORT"]);
    assert_refused(&["serve", "echo", "--listen", "7000"], 2, &["7000", "ADDR:PORT"]);
    assert_refused(&["serve", "echo", "--listen", "*:port"], 2, &["`port` is not a port"]);
}

#[test]
fn an_address_of_another_machine_is_refused() {
    assert_refused(&["serve", "echo", "--listen", "192.0.2.1:7000"], 1, &["192.0.2.1", "ip address"]);
}

#[test]
fn a_drain_of_an_unknown_unit_is_refused() {
    assert_refused(&["serve", "echo", "--drain", "5x"], 2, &["5x", "a number and one of us, ms, s, m, h"]);
}

#[test]
fn a_connection_log_that_cannot_be_written_is_refused() {
    assert_refused(&["serve", "echo", "--connection-log", "/nowhere/log.csv"], 1, &["/nowhere/log.csv"]);
}

#[test]
fn a_record_to_a_fifo_that_nobody_reads_is_refused() {
    let folder = Folder::new();
    let fifo = text_of(&folder.path("log.fifo"));
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    let words = [fifo.as_str(), "this FIFO has no reader"];
    assert_refused(&["serve", "echo", "--listen", "127.0.0.1:0", "--connection-log", &fifo], 1, &words);
    assert_refused(&["capture", "-i", "lo", "-w", &fifo], 1, &words);
    for flag in ["--request-log", "--timeseries", "--hdr"] {
        assert_refused(&["load", "echo", "127.0.0.1:7", flag, &fifo], 2, &words);
    }
}

#[test]
fn rings_are_refused_with_a_way_out_where_the_kernel_has_none() {
    let without = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/whole/without_io_uring.py");
    for (arguments, instead) in [
        ("serve echo --model uring --listen 127.0.0.1:0", "--model epoll"),
        ("serve http --model uring --listen 127.0.0.1:0", "--model epoll"),
        ("load echo 127.0.0.1:7 --engine uring", "--engine epoll"),
        ("load http http://127.0.0.1:7/ --engine uring", "--engine epoll"),
    ] {
        let mut python = Command::new("python3");
        python.args([without, env!("CARGO_BIN_EXE_plimsoll")]).args(arguments.split_whitespace());
        let output = python.output().expect("python3");
        if output.status.code() == Some(77) {
            let _ = writeln!(std::io::stderr(), "skipped: this machine lets no program filter its system calls");
            return;
        }
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!((output.status.code(), output.stdout.len(), said.lines().count()), (Some(5), 0, 1), "{said}");
        for words in ["io_uring cannot be used here: Function not implemented", instead, "kernel.io_uring_disabled"] {
            assert!(said.contains(words), "no `{words}` in: {said}");
        }
    }
}
