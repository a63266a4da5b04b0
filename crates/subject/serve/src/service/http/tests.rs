//! The service against a table of exchanges, with its input cut at every byte.

use std::collections::HashMap;
use std::time::SystemTime;

use proptest::prelude::*;

use super::super::tests_context::{TestContext, converse};
use super::*;
use crate::service::{CachedTime, Found};

fn http() -> Http {
    with(|_| {})
}

fn with(change: impl FnOnce(&mut Settings)) -> Http {
    let mut settings = Settings {
        version: Version::Http11,
        keep_alive_timeout: Duration::from_secs(5),
        request_timeout: Duration::from_secs(10),
        send_timeout: Duration::from_secs(60),
        synthetic: true,
        work: Duration::ZERO,
        work_paths: Vec::new(),
    };
    change(&mut settings);
    Http::new(settings)
}

/// 1994-11-06 08:49:37.
const MODIFIED: (i64, u32) = (784_111_777, 5);
const TAG: &str = "\"2ebc98a1-5-64\"";

fn context() -> TestContext {
    let file = Ok(Found { length: 100, modified: MODIFIED });
    let files = [
        ("index.html", file),
        ("a b.txt", file),
        ("empty.bin", Ok(Found { length: 0, modified: MODIFIED })),
        ("folder", Err(NotFound::Folder)),
        ("secret", Err(NotFound::Forbidden)),
        ("long", Err(NotFound::TooLong)),
        ("busy", Err(NotFound::Unavailable)),
    ];
    let time = CachedTime::new(Instant::now(), SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
    TestContext { files: HashMap::from(files), time }
}

/// Everything sent, and whether the connection goes on.
fn exchange(service: Http, pieces: &[&[u8]]) -> (String, bool) {
    let (sent, next) = converse(service, pieces, context());
    (sent.into_iter().map(char::from).collect(), matches!(next, NextStep::Receive(_)))
}

fn get(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

fn synthetic(fields: &str) -> String {
    format!("GET /bytes/10 HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

/// Status, fields and body of one answer that ends the text.
fn parts(answer: &str) -> (&str, Vec<&str>, &str) {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.split("\r\n");
    (lines.next().expect("a status line"), lines.collect(), body)
}

#[test]
fn each_request_gets_the_answer_that_the_rfcs_say() {
    for (request, status, goes_on) in [
        (get(""), "200 OK", true),
        (get("Connection: close\r\n"), "200 OK", false),
        ("GET / HTTP/1.0\r\n\r\n".into(), "200 OK", false),
        ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n".into(), "200 OK", true),
        ("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n".into(), "200 OK", true),
        ("GET http://h/a%20b.txt?q HTTP/1.1\r\nHost: h\r\n\r\n".into(), "200 OK", true),
        ("\r\n\r\nGET / HTTP/1.1\r\nhost:h\r\n\r\n".into(), "200 OK", true),
        ("GET /empty.bin HTTP/1.1\r\nHost: h\r\n\r\n".into(), "200 OK", true),
        ("GET /bytes/10 HTTP/1.1\r\nHost: h\r\n\r\n".into(), "200 OK", true),
        (get("Range: bytes=1-2\r\n"), "206 Partial Content", true),
        ("GET /folder HTTP/1.1\r\nHost: h\r\n\r\n".into(), "301 Moved Permanently", true),
        (get("If-None-Match: \"x\", W/\"2ebc98a1-5-64\"\r\n"), "304 Not Modified", true),
        (get("If-None-Match: *\r\n"), "304 Not Modified", true),
        (get("If-None-Match: \"x\"\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), "200 OK", true),
        (get("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), "304 Not Modified", true),
        (get("If-Modified-Since: Sun, 06 Nov 1994 08:49:36 GMT\r\n"), "200 OK", true),
        (get("If-Modified-Since: yesterday\r\n"), "200 OK", true),
        (get("If-Range: \"2ebc98a1-5-64\"\r\nRange: bytes=1-2\r\n"), "206 Partial Content", true),
        (get("If-Range: \"other\"\r\nRange: bytes=1-2\r\n"), "200 OK", true),
        (get("If-Range: Sun, 06 Nov 1994 08:49:37 GMT\r\nRange: bytes=1-2\r\n"), "206 Partial Content", true),
        (get("If-Match: \"other\"\r\n"), "412 Precondition Failed", true),
        (get("If-Match: \"2ebc98a1-5-64\"\r\n"), "200 OK", true),
        (get("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT\r\n"), "412 Precondition Failed", true),
        ("GET / HTTP/1.1\r\n\r\n".into(), "400 Bad Request", false),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".into(), "400 Bad Request", false),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n".into(), "400 Bad Request", false),
        ("GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n folded\r\n\r\n".into(), "400 Bad Request", false),
        ("GET  / HTTP/1.1\r\nHost: h\r\n\r\n".into(), "400 Bad Request", false),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n".into(), "400 Bad Request", false),
        ("GET /../x HTTP/1.1\r\nHost: h\r\n\r\n".into(), "400 Bad Request", true),
        ("GET /a%00b HTTP/1.1\r\nHost: h\r\n\r\n".into(), "400 Bad Request", true),
        (get("Content-Length: +1\r\n"), "400 Bad Request", false),
        (get("Content-Length: 1\r\nContent-Length: 2\r\n"), "400 Bad Request", false),
        (get("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), "400 Bad Request", false),
        ("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".into(), "400 Bad Request", false),
        ("GET /secret HTTP/1.1\r\nHost: h\r\n\r\n".into(), "403 Forbidden", true),
        ("GET /absent HTTP/1.1\r\nHost: h\r\n\r\n".into(), "404 Not Found", true),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n".into(), "405 Method Not Allowed", false),
        ("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n".into(), "405 Method Not Allowed", true),
        ("CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n".into(), "405 Method Not Allowed", true),
        (get("Content-Length: 1048577\r\n"), "413 Content Too Large", false),
        (get("Content-Length: 99999999999999999999999\r\n"), "413 Content Too Large", false),
        ("GET /long HTTP/1.1\r\nHost: h\r\n\r\n".into(), "414 URI Too Long", true),
        // Lines of 8,000 bytes (RFC 9112, section 3), and of one more.
        (format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "x".repeat(7986)), "404 Not Found", true),
        (format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "x".repeat(7987)), "414 URI Too Long", false),
        (get("Range: bytes=100-\r\n"), "416 Range Not Satisfiable", true),
        (get("Expect: the-unexpected\r\n"), "417 Expectation Failed", false),
        (get(&"X: y\r\n".repeat(101)), "431 Request Header Fields Too Large", false),
        (get(&format!("X: {}\r\n", "y".repeat(20_000))), "431 Request Header Fields Too Large", false),
        ("BREW / HTTP/1.1\r\nHost: h\r\n\r\n".into(), "501 Not Implemented", true),
        ("BREW / HTTP/1.1\r\nHost: h\r\nContent-Length: 1048577\r\n\r\n".into(), "501 Not Implemented", false),
        (get("Transfer-Encoding: gzip, chunked\r\n"), "501 Not Implemented", false),
        (get("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), "501 Not Implemented", false),
        (get("Transfer-Encoding: gzip\r\n"), "400 Bad Request", false),
        (get("Transfer-Encoding: chunked, gzip\r\n"), "400 Bad Request", false),
        (get("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"), "400 Bad Request", false),
        (get("Transfer-Encoding:\r\n"), "400 Bad Request", false),
        (get("Transfer-Encoding: , chunked,\r\nTransfer-Encoding:\r\n\r\n0\r\n"), "200 OK", true),
        ("GET /busy HTTP/1.1\r\nHost: h\r\n\r\n".into(), "503 Service Unavailable", true),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), "505 HTTP Version Not Supported", false),
        ("GET / HTTP/3.0\r\nHost: h\r\n\r\n".into(), "505 HTTP Version Not Supported", false),
        ("GET / HTTP/1.2\r\nHost: h\r\n\r\n".into(), "200 OK", true),
        ("GET / HTTP/1.9\r\n\r\n".into(), "400 Bad Request", false),
        ("GET /a b HTTP/1.1\r\nHost: h\r\n\r\n".into(), "400 Bad Request", false),
        ("GET / HTTPS/1.1\r\nHost: h\r\n\r\n".into(), "400 Bad Request", false),
        ("GET / HTTP/11\r\nHost: h\r\n\r\n".into(), "400 Bad Request", false),
        ("GET http://h?x=y HTTP/1.1\r\nHost: h\r\n\r\n".into(), "200 OK", true),
        ("GET http://:80:80/ HTTP/1.1\r\nHost: h\r\n\r\n".into(), "400 Bad Request", true),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n".into(), "200 OK", true),
        ("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n".into(), "200 OK", true),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n".into(), "400 Bad Request", false),
        ("GET / HTTP/1.1\r\nHost: h:x\r\n\r\n".into(), "400 Bad Request", false),
        ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n".into(), "400 Bad Request", false),
        ("GET / HTTP/1.0\r\nHost: <script>\r\n\r\n".into(), "400 Bad Request", false),
        (get(&format!("If-None-Match: {TAG}\r\nIf-None-Match: \"x\"\r\n")), "304 Not Modified", true),
        (get(&format!("If-Match: {TAG}\r\nIf-Match: \"x\"\r\n")), "200 OK", true),
        (get("Range: bytes=1-2\r\nRange: bytes=3-4\r\n"), "200 OK", true),
        // What is no file has no validator for a condition to meet.
        (synthetic("Range: bytes=1-2\r\n"), "206 Partial Content", true),
        (synthetic("If-Range: \"x\"\r\nRange: bytes=1-2\r\n"), "200 OK", true),
        (synthetic("If-Range: Sun, 06 Nov 1994 08:49:37 GMT\r\nRange: bytes=1-2\r\n"), "200 OK", true),
        (synthetic("If-Match: \"x\"\r\n"), "412 Precondition Failed", true),
        (synthetic("If-Match: \"x\"\r\nIf-Match: *\r\n"), "200 OK", true),
        (synthetic("If-None-Match: *\r\n"), "304 Not Modified", true),
        (synthetic("If-None-Match: \"x\"\r\n"), "200 OK", true),
        (synthetic("If-Modified-Since: Sun, 06 Nov 2094 08:49:37 GMT\r\n"), "200 OK", true),
        (synthetic("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), "200 OK", true),
        (get(&format!("Content-Length: 1048576\r\n\r\n{}", "x".repeat((1 << 20) - 2))), "200 OK", true),
    ] {
        let (answer, went_on) = exchange(http(), &[request.as_bytes()]);
        let start = request.get(..90).unwrap_or(&request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{start:?} got {answer:?}");
        assert_eq!(went_on, goes_on, "{start:?}");
        assert_eq!(answer.contains("Connection: close\r\n"), !goes_on, "{start:?} got {answer:?}");
        let (_, fields, body) = parts(&answer);
        assert!(fields.contains(&"Date: Sun, 09 Sep 2001 01:46:40 GMT"), "{answer:?}");
        let length = fields.iter().find_map(|field| field.strip_prefix("Content-Length: "));
        match (request.starts_with("HEAD"), length) {
            (true, _) | (false, None) => assert_eq!(body, "", "{start:?}"),
            (false, Some(length)) => assert_eq!(body.chars().count().to_string(), length, "{start:?}"),
        }
        if status.starts_with("405") {
            assert!(fields.contains(&"Allow: GET, HEAD"), "{answer:?}");
        }
    }
}

#[test]
fn a_head_that_is_refused_has_no_body_wherever_it_is_cut() {
    for (request, status) in [
        ("HEAD / HTTP/1.1\r\n\r\n", "400"),
        ("\r\nHEAD / HTTP/1.1\r\nHost: a/b\r\n\r\n", "400"),
        ("HEAD / HTTP/1.1\r\nHost: h\r\nExpect: more\r\n\r\n", "417"),
        ("HEAD / HTTP/3.0\r\nHost: h\r\n\r\n", "505"),
        ("HEAD  / HTTP/1.1\r\n\r\n", "400"),
    ] {
        for cut in 0..=request.len() {
            let (answer, goes_on) = exchange(http(), &[&request.as_bytes()[..cut], &request.as_bytes()[cut..]]);
            let (line, fields, body) = parts(&answer);
            assert_eq!((line.get(9..12), body, goes_on), (Some(status), "", false), "{request:?} cut at {cut}");
            assert!(fields.iter().any(|field| field.starts_with("Content-Length: ")), "{answer:?}");
        }
    }
    let (mut service, mut context, mut output) = (http(), context(), Output::default());
    service.receive(b"HEAD / HTTP/1.1\r\nHost", &mut context, &mut output);
    service.expired(true, &mut context, &mut output);
    let answer: String = output.bytes.iter().copied().map(char::from).collect();
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn an_empty_line_after_a_request_begins_no_other() {
    for end in ["\r\n", "\n", "\r\n\r\n"] {
        let (mut service, mut context, mut output) = (http(), context(), Output::default());
        assert_eq!(service.receive(get("").as_bytes(), &mut context, &mut output).requests, 1);
        let idle_until = context.time.now + Duration::from_secs(5);
        // However often it comes, and in pieces.
        for later in [0, 1, 2] {
            context.time.now += Duration::from_secs(later);
            let pending = service.receive(b"\r", &mut context, &mut output);
            assert_eq!((pending.consumed, pending.next), (0, NextStep::Receive(Some(idle_until))), "{end:?}");
            let processed = service.receive(end.as_bytes(), &mut context, &mut output);
            assert_eq!((processed.consumed, processed.requests), (end.len(), 0), "{end:?}");
            assert_eq!(processed.next, NextStep::Receive(Some(idle_until)), "{end:?}");
        }
        assert_eq!(service.receive(get("").as_bytes(), &mut context, &mut output).requests, 1);
        let next = service.receive(b"", &mut context, &mut output).next;
        assert_eq!(next, NextStep::Receive(Some(context.time.now + Duration::from_secs(5))), "{end:?}");
    }
}

#[test]
fn a_file_comes_with_all_that_describes_it() {
    let (answer, _) = exchange(http(), &[get("").as_bytes()]);
    let (_, fields, body) = parts(&answer);
    let tag = format!("ETag: {TAG}");
    for field in [
        "Content-Type: text/html; charset=utf-8",
        "Content-Length: 100",
        "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT",
        "Accept-Ranges: bytes",
        &tag,
    ] {
        assert!(fields.contains(&field), "{field} is not in {answer}");
    }
    assert!(body.chars().eq((0..100_u8).map(char::from)));
    let (answer, _) = exchange(http(), &[get("Range: bytes=10-19\r\n").as_bytes()]);
    let (_, fields, body) = parts(&answer);
    assert!(fields.contains(&"Content-Range: bytes 10-19/100"), "{answer}");
    assert!(body.chars().eq((10..20_u8).map(char::from)));
}

#[test]
fn a_folder_is_redirected_to_its_slash_on_this_host() {
    for target in ["/folder", "//folder"] {
        let (answer, _) = exchange(http(), &[format!("GET {target}?a=b HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()]);
        assert!(answer.contains("\r\nLocation: /folder/?a=b\r\n"), "{answer}");
    }
}

#[test]
fn an_index_that_is_a_folder_is_not_found_and_leads_nowhere() {
    for (index, target) in [("index.html", "/"), ("folder/index.html", "/folder/"), ("index.html", "http://h")] {
        let mut context = context();
        context.files.insert(index, Err(NotFound::Folder));
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        let (sent, _) = converse(http(), &[request.as_bytes()], context);
        let answer: String = sent.into_iter().map(char::from).collect();
        assert!(answer.starts_with("HTTP/1.1 404 ") && !answer.contains("Location"), "{target}: {answer}");
    }
}

#[test]
fn a_location_is_ascii() {
    let (answer, _) = exchange(http(), &["GET /folder?\u{e9} HTTP/1.1\r\nHost: h\r\n\r\n".as_bytes()]);
    assert!(answer.contains("\r\nLocation: /folder/?%C3%A9\r\n"), "{answer}");
}

#[test]
fn nothing_was_modified_after_the_date_of_its_answer() {
    let mut context = context();
    context.files.insert("future", Ok(Found { length: 1, modified: (4_000_000_000, 0) }));
    let (sent, _) = converse(http(), &[b"GET /future HTTP/1.1\r\nHost: h\r\n\r\n"], context);
    let answer: String = sent.into_iter().map(char::from).collect();
    assert!(answer.contains("\r\nLast-Modified: Sun, 09 Sep 2001 01:46:40 GMT\r\n"), "{answer}");
}

#[test]
fn a_file_may_be_costly_and_others_not() {
    let service = with(|settings| settings.work_paths = vec![(b"a b.txt".to_vec(), Duration::from_millis(3))]);
    let burnt = |target: &str| {
        let (mut context, mut output) = (context(), Output::default());
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        service.clone().receive(request.as_bytes(), &mut context, &mut output);
        output.burn
    };
    assert_eq!(burnt("/a%20b.txt?q"), Duration::from_millis(3));
    assert_eq!(burnt("/index.html"), Duration::ZERO);
}

#[test]
fn a_client_of_the_older_version_gets_no_interim_answer() {
    let request = "GET / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello";
    let (answer, _) = exchange(http(), &[request.as_bytes()]);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

#[test]
fn a_body_is_read_past_and_the_next_request_answered() {
    let chunked = "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n";
    for body in ["Content-Length: 5\r\n\r\nhello", chunked] {
        let requests = format!("{}\r\n{}", get(body).trim_end_matches("\r\n"), "");
        let requests = if body == chunked { format!("{requests}\r\n") } else { requests.trim_end().to_owned() };
        let requests = requests + &get("Connection: close\r\n");
        for cut in 0..=requests.len() {
            let (answer, goes_on) = exchange(http(), &[&requests.as_bytes()[..cut], &requests.as_bytes()[cut..]]);
            assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 2, "cut at {cut}: {requests:?} got {answer:?}");
            assert!(!goes_on);
        }
    }
}

#[test]
fn a_bad_chunked_body_has_its_request_answered_and_ends_the_connection() {
    let too_long = format!("{:x}\r\n", (1 << 20) + 1);
    for body in ["\r\n", ";x\r\n", "  \r\n", "x\r\n", "1\r\nab\r\n", &too_long] {
        for request in [get, synthetic] {
            // Where the body is taken for none, or for over, another request follows.
            let requests = request("Transfer-Encoding: chunked\r\n") + body + &"\r\n".repeat(2) + &get("");
            for cut in 0..=requests.len() {
                let (sent, next) =
                    converse(http(), &[&requests.as_bytes()[..cut], &requests.as_bytes()[cut..]], context());
                let answer: String = sent.into_iter().map(char::from).collect();
                assert_eq!((answer.matches("HTTP/1.1 ").count(), next), (1, NextStep::Linger), "{body:?} cut at {cut}");
                assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            }
        }
    }
}

#[test]
fn a_client_that_waits_to_send_its_body_is_told_to_go_on() {
    let (answer, _) = exchange(http(), &[get("Expect: 100-continue\r\nContent-Length: 5\r\n").as_bytes()]);
    assert!(answer.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"), "{answer}");
}

#[test]
fn a_server_of_the_older_version_closes_after_each_answer() {
    let service = with(|settings| settings.version = Version::Http10);
    let (answer, goes_on) = exchange(service, &[get("Connection: keep-alive\r\n").as_bytes()]);
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n") && answer.contains("\r\nConnection: close\r\n"), "{answer}");
    assert!(!goes_on);
}

#[test]
fn a_server_of_the_older_version_has_no_interim_answer() {
    let service = with(|settings| settings.version = Version::Http10);
    let (answer, _) = exchange(service, &[get("Expect: 100-continue\r\nContent-Length: 5\r\n").as_bytes()]);
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
}

#[test]
fn a_request_has_until_its_first_byte_and_the_timeout_and_not_longer() {
    let (mut service, mut context, mut output) = (http(), context(), Output::default());
    let start = context.time.now;
    let seconds = Duration::from_secs;
    assert_eq!(service.opened(&context), Some(start + seconds(10)));
    for (after, input) in [(3, "GE"), (9, "GET"), (12, "GET /")] {
        context.time.now = start + seconds(after);
        let processed = service.receive(input.as_bytes(), &mut context, &mut output);
        assert_eq!(
            processed,
            Processed { consumed: 0, requests: 0, next: NextStep::Receive(Some(start + seconds(13))) }
        );
    }
    assert_eq!(service.expired(true, &mut context, &mut output), NextStep::Linger);
    assert!(output.bytes.starts_with(b"HTTP/1.1 408 Request Timeout\r\n"));

    let (mut service, mut output) = (http(), Output::default());
    let processed = service.receive(get("").as_bytes(), &mut context, &mut output);
    assert_eq!(processed.next, NextStep::Send);
    context.time.now = start + seconds(20);
    let processed = service.receive(b"", &mut context, &mut output);
    assert_eq!(processed.next, NextStep::Receive(Some(start + seconds(25))));
    output.clear();
    assert_eq!(service.expired(false, &mut context, &mut output), NextStep::Close);
    assert!(output.chunks.is_empty());
}

#[test]
fn a_draining_server_answers_what_has_arrived_and_says_that_it_closes() {
    let mut context = context();
    context.time.draining = true;
    let pipelined = get("") + &get("");
    let (sent, next) = converse(http(), &[pipelined.as_bytes()], context);
    let text: String = sent.into_iter().map(char::from).collect();
    assert_eq!((text.matches(" 200 OK").count(), text.matches("Connection: close").count()), (2, 1));
    assert_eq!(next, NextStep::Close);
}

#[test]
fn one_who_pipelines_has_to_let_others_have_their_turn() {
    let (mut service, mut context, mut output) = (http(), context(), Output::default());
    let pipelined = "GET /bytes/1 HTTP/1.1\r\nHost: h\r\n\r\n".repeat(1000);
    let processed = service.receive(pipelined.as_bytes(), &mut context, &mut output);
    assert_eq!((processed.next, processed.requests), (NextStep::Send, REQUESTS));
}

#[test]
fn what_begins_with_a_bare_carriage_return_is_no_head_request_however_it_comes() {
    let bytes = b"\rHEAD / HTTP/1.1\r\nHost: h\r\n\r\n";
    let whole = exchange(http(), &[bytes]);
    assert!(whole.0.ends_with("400 Bad Request\n"), "{whole:?}");
    assert_eq!(exchange(http(), &[&bytes[..2], &bytes[2..]]), whole);
    let empty_lines = exchange(http(), &[b"\n\r\nHEAD  / HTTP/1.1\r\n\r\n"]);
    assert!(empty_lines.0.ends_with("\r\n\r\n"), "{empty_lines:?}");
}

fn requests() -> impl Strategy<Value = String> {
    let one = prop_oneof![
        Just(get("")),
        Just("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n".to_owned()),
        Just("GET /absent HTTP/1.1\r\nHost: h\r\n\r\n".to_owned()),
        Just("GET /bytes/9 HTTP/1.1\r\nHost: h\r\n\r\n".to_owned()),
        Just("GET /bytes/9000 HTTP/1.1\r\nHost: h\r\n\r\n".to_owned()),
        Just("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody".to_owned()),
        Just("GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_owned()),
        Just("\r\nOPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n".to_owned()),
        "[a-zA-Z /:\r\n]{0,40}",
    ];
    prop::collection::vec(one, 1..5).prop_map(|requests| requests.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn answers_do_not_depend_on_where_the_input_is_cut(requests in requests()) {
        let bytes = requests.as_bytes();
        let whole = exchange(http(), &[bytes]);
        for cut in 1..bytes.len() {
            prop_assert_eq!(&exchange(http(), &[&bytes[..cut], &bytes[cut..]]), &whole);
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(exchange(http(), &single), whole);
    }

    #[test]
    fn no_input_panics_or_is_taken_without_end(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let (mut service, mut context, mut output) = (http(), context(), Output::default());
        let processed = service.receive(&bytes, &mut context, &mut output);
        prop_assert!(processed.consumed <= bytes.len());
    }
}
