//! The settings that make a reference server other than the plainest, and what other people's
//! clients find.
#![allow(clippy::print_stderr, reason = "a skipped test says why, and a timed one what it saw")]

use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::server::{Folder, Server, assert_echoes, for_every_model, text_of};

for_every_model!(
    each_message_gets_its_postfix,
    an_idle_connection_is_closed,
    work_is_burnt_for_each_reply,
    foreign_clients_agree,
    a_browser_shows_a_page
);

fn each_message_gets_its_postfix(model: &str) {
    let check = |arguments: &[&str], sent: &[u8], expected: &[u8]| {
        let server = Server::echo(model, &[&["--postfix", ":OK"], arguments].concat());
        let mut stream = server.connect();
        for piece in sent.chunks(7) {
            stream.write_all(piece).expect("the server reads");
        }
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).expect("the server answers");
        assert_eq!(answer, expected, "{}", answer.escape_ascii());
    };
    check(&["--message-size", "5"], b"HELLOWORLDagain", b"HELLO:OKWORLD:OKagain:OK");
    check(&["--message-end", "\\r\\n"], b"HELLO\r\nto all\r\n\r\n", b"HELLO\r\n:OKto all\r\n:OK\r\n:OK");
    let many = b"x\n".repeat(20_000);
    check(&["--message-end", "\\n"], &many, &b"x\n:OK".repeat(20_000));
}

fn an_idle_connection_is_closed(model: &str) {
    const IDLE: Duration = Duration::from_millis(500);
    let server = Server::echo(model, &["--idle-timeout", "500ms"]);
    for _ in 0..50 {
        let mut stream = server.connect();
        let (start, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
        // Each byte begins the time anew. Where this process was held up for nearly as long, the
        // server may be right to close: then once more.
        while start.elapsed() < 2 * IDLE && longest < IDLE / 2 {
            last = Instant::now();
            if stream.write_all(b"awake").and_then(|()| stream.read_exact(&mut [0; 5])).is_err() {
                assert!(longest.max(last.elapsed()) >= IDLE / 2, "it was closed while awake");
            }
            longest = longest.max(last.elapsed());
        }
        if longest >= IDLE / 2 {
            continue;
        }
        // A read with a time-out may end with EINTR without any signal of ours (signal(7)), which
        // this one retries.
        assert_eq!(stream.read_to_end(&mut Vec::new()).expect("it is closed cleanly"), 0);
        assert!(last.elapsed() >= IDLE, "{:?}", last.elapsed());
        assert_eq!(server.stop()["errors"], serde_json::json!({}));
        return;
    }
    panic!("the machine held this process up fifty times");
}

fn work_is_burnt_for_each_reply(model: &str) {
    let server = Server::echo(model, &["--work", "10ms"]);
    let mut stream = server.connect();
    assert_echoes(&mut stream, b"warm");
    let ticks = || server.processes().iter().map(|process| process.ticks).sum::<u64>();
    let before = ticks();
    (0..20).for_each(|_| assert_echoes(&mut stream, b"dear"));
    // A clock tick is 10 ms.
    assert!((18..60).contains(&(ticks() - before)), "{} ticks for 200 ms", ticks() - before);
}

/// A foreign client, its arguments, and how many requests with 200 it says it has made.
type Foreign = (&'static str, &'static [&'static str], fn(&str) -> Option<u64>);

fn number_after(text: &str, label: &str) -> Option<u64> {
    let rest = &text[text.find(label)? + label.len()..];
    rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

const PYTHON: &str = "import http.client, sys\nc = http.client.HTTPConnection('127.0.0.1', \
                      int(sys.argv[1].split(':')[2].split('/')[0]))\nn = 0\nfor _ in range(200):\n    \
                      c.request('GET', '/file.txt'); r = c.getresponse(); n += r.status == 200 and len(r.read()) == \
                      75672\nprint('ok', n)";

const FOREIGN: [Foreign; 5] = [
    ("curl", &["-sS", "-o", "/dev/null", "-w", "ok %{num_connects} %{http_code} 1"], |text| {
        text.contains("ok 1 200").then_some(200)
    }),
    ("h2load", &["--h1", "-n", "200", "-c", "8"], |text| number_after(text, "status codes:")),
    ("ab", &["-k", "-n", "200", "-c", "8"], |text| {
        (number_after(text, "Failed requests:")? == 0).then(|| number_after(text, "Complete requests:"))?
    }),
    ("wrk", &["-t", "1", "-c", "8", "-d", "1"], |text| {
        let failed = text.contains("Non-2xx") || text.contains("Socket errors");
        let made: u64 = text.split(" requests in").next()?.rsplit(char::is_whitespace).next()?.parse().ok()?;
        (!failed).then_some(made.min(200))
    }),
    ("python3", &["-c", PYTHON], |text| number_after(text, "ok")),
];

fn foreign_clients_agree(model: &str) {
    let folder = Folder::new();
    folder.write("file.txt", &"x".repeat(75_672));
    let server = Server::http(model, &["--root", &text_of(&folder.path(""))]);
    let url = format!("http://{}/file.txt", server.address());
    for (program, arguments, read) in FOREIGN {
        let Ok(output) = Command::new(program).args(arguments).arg(&url).output() else {
            eprintln!("skipped: {program} is not installed");
            continue;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(read(&text), Some(200), "{program}: {text}{}", String::from_utf8_lossy(&output.stderr));
    }
    // h2load and wrk may leave in the middle of an answer; nothing else may go wrong.
    let summary = server.stop();
    let errors = summary["errors"].as_object().expect("causes").keys();
    assert!(errors.clone().all(|cause| cause == "econnreset"), "{summary}");
}

/// A page of four files, which says itself whether all of them came.
const PAGE: [(&str, &str); 4] = [
    (
        "index.html",
        "<!doctype html><title>page</title><link rel=stylesheet href=style.css><p id=said>nothing</p><img id=image \
         src='picture.svg'><script src='code.js'></script>",
    ),
    ("style.css", "p { color: rgb(1, 2, 3) }"),
    ("picture.svg", "<svg xmlns='http://www.w3.org/2000/svg' width='17' height='5'></svg>"),
    (
        "code.js",
        "window.onload = () => { const said = document.getElementById('said'); said.textContent = 'width ' + \
         document.getElementById('image').naturalWidth + ' colour ' + getComputedStyle(said).color }",
    ),
];

fn a_browser_shows_a_page(model: &str) {
    let here = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(here) else {
        eprintln!("skipped: no browser is installed (`apt-get install chromium`)");
        return;
    };
    let folder = Folder::new();
    for (name, text) in PAGE {
        folder.write(name, text);
    }
    let server = Server::http(model, &["--root", &text_of(&folder.path(""))]);
    let profile = format!("--user-data-dir={}", text_of(&folder.path("profile")));
    let url = format!("http://{}/", server.address());
    // A browser that hangs is ended.
    let output = Command::new("timeout")
        .args(["120", browser, "--headless", "--no-sandbox", "--disable-gpu", &profile, "--dump-dom", &url])
        .output()
        .expect("coreutils are here");
    let page = String::from_utf8_lossy(&output.stdout);
    assert!(page.contains("width 17 colour rgb(1, 2, 3)"), "{page}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_postfix_without_a_message_is_refused_with_the_way_out() {
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["serve", "echo", "--postfix", ":OK"])
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("add --message-size 64 or --message-end"));
}
