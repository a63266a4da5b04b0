//! What `plimsoll load http` sends: the requests that the flags ask for, each to its server.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::support::http::{EMPTY, answering, fetch, request};
use crate::support::peer::{command, outcome, refusing, serve};

/// A server that keeps the heads of the requests it gets.
fn listening(answer: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&heads);
    let target = serve(move |mut stream| {
        while let Some(head) = request(&mut stream) {
            log.lock().expect("no test thread panics").push(head);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (target, heads)
}

#[test]
fn requests_say_what_the_flags_say() {
    let (target, heads) = listening(EMPTY);
    let run = fetch(target, "-n 1 -c 1");
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    fetch(target, "-n 1 -c 1 --http 1.0 -m DELETE -H Accept:text/html");
    fetch(target, "-n 1 -c 1 -m HEAD -H host:other --reconnect");
    fetch(target, "-n 1 -c 1 -m POST");
    let agent = concat!("User-Agent: plimsoll/", env!("CARGO_PKG_VERSION"));
    let want = [
        format!("GET /x HTTP/1.1\r\nHost: {target}\r\n{agent}\r\nAccept: */*\r\n\r\n"),
        format!("DELETE /x HTTP/1.0\r\nHost: {target}\r\n{agent}\r\nAccept: text/html\r\n\r\n"),
        format!("HEAD /x HTTP/1.1\r\n{agent}\r\nAccept: */*\r\nConnection: close\r\nhost: other\r\n\r\n"),
        format!("POST /x HTTP/1.1\r\nHost: {target}\r\n{agent}\r\nAccept: */*\r\nContent-Length: 0\r\n\r\n"),
    ];
    assert_eq!(*heads.lock().expect("no test thread panics"), want);
}

/// A server that keeps its connections, whatever it is asked, and how many requests each has had.
fn counting_each() -> (SocketAddr, Arc<Mutex<Vec<u32>>>) {
    let counts: Arc<Mutex<Vec<u32>>> = Arc::default();
    let log = Arc::clone(&counts);
    let target = serve(move |mut stream| {
        let mut place = None;
        while request(&mut stream).is_some() {
            let mut counts = log.lock().expect("no test thread panics");
            let place = *place.get_or_insert_with(|| {
                counts.push(0);
                counts.len() - 1
            });
            counts[place] += 1;
            drop(counts);
            let _ = stream.write_all(EMPTY.as_bytes());
        }
    });
    (target, counts)
}

#[test]
fn no_request_follows_one_that_asks_for_the_end_of_its_connection() {
    let (target, counts) = counting_each();
    let load = |arguments: &str, header: Option<&str>, engine: &str| {
        let mut load =
            command("http", &format!("http://{target}/x"), &format!("-n 6 -c 2 {arguments} --engine {engine}"));
        load.args(header.map(|header| format!("-HConnection: {header}")));
        outcome(&load.output().expect("the binary runs"))
    };
    for engine in ["epoll", "uring", "threads", "fork"] {
        for (arguments, header, most, connects) in [
            ("", None, 6, 2..=2),
            ("", Some("close"), 1, 6..=6),
            ("--http 1.0", None, 1, 6..=6),
            ("--http 1.0", Some("keep-alive"), 6, 2..=2),
            // One of the first two may carry nothing, as any may send any request of an open loop.
            ("--http 1.0 -R 1k", None, 1, 6..=7),
        ] {
            let run = load(arguments, header, engine);
            let told = ["requests.completed", "requests.failed", "connections.ended_idle"].map(|name| run.count(name));
            assert_eq!((run.code, told), (Some(0), [6, 0, 0]), "{engine} {arguments} {header:?}");
            let each = std::mem::take(&mut *counts.lock().expect("no test thread panics"));
            let keeps_rule = each.iter().sum::<u32>() == 6 && each.iter().all(|count| *count <= most);
            assert!(keeps_rule, "{engine} {arguments} {header:?}: {each:?}");
            let established = run.count("establishment_time_us.count");
            assert!(connects.contains(&established), "{engine} {arguments} {header:?}: {established}");
        }
    }
}

#[test]
fn a_name_is_loaded_where_its_server_listens() {
    let (target, heads) = listening(EMPTY);
    let url = format!("http://localhost:{}/x", target.port());
    // Where localhost is ::1 first, nothing listens there, and that is said.
    let run = outcome(&command("http", &url, "-n 10 -c 4").output().expect("the binary runs"));
    assert_eq!((run.count("requests.completed"), &run.summary()["targets"]), (10, &json!([target.to_string()])));
    let run = outcome(&command("http", &url, "-n 10 -c 4 -4").output().expect("the binary runs"));
    assert_eq!((run.count("requests.completed"), run.stderr.as_str()), (10, ""));
    assert!(heads.lock().expect("no test thread panics").iter().all(|head| head.contains("Host: localhost:")));
}

#[test]
fn a_connection_goes_elsewhere_where_it_is_told_to() {
    let (target, heads) = listening(EMPTY);
    let arguments = format!("-n 6 -c 2 --connect-to shop.example:80:{target}");
    let run = outcome(&command("http", "http://shop.example/x", &arguments).output().expect("the binary runs"));
    assert_eq!(run.count("requests.completed"), 6, "{}", run.stderr);
    assert!(heads.lock().expect("no test thread panics").iter().all(|head| head.contains("Host: shop.example\r\n")));
}

/// Answers /x with a redirect to /y/, and that with one to ./z; everything else with an empty body.
fn redirecting() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let paths: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&paths);
    let target = serve(move |mut stream| {
        while let Some(head) = request(&mut stream) {
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let answer = match path.as_str() {
                "/x" => "HTTP/1.1 302 Found\r\nLocation: /y/\r\nContent-Length: 0\r\n\r\n",
                "/y/" => "HTTP/1.1 308 Permanent\r\nLocation: ./z\r\nContent-Length: 0\r\n\r\n",
                "/round" => "HTTP/1.1 302 Found\r\nLocation: /round\r\nContent-Length: 0\r\n\r\n",
                _ => EMPTY,
            };
            log.lock().expect("no test thread panics").push(path);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (target, paths)
}

#[test]
fn a_redirect_is_an_answer_unless_it_is_to_be_followed() {
    let (target, paths) = redirecting();
    let counted = fetch(target, "-n 6 -c 2");
    assert_eq!((counted.count("redirects"), &counted.summary()["statuses"]), (6, &json!({ "302": 6 })));
    paths.lock().expect("no test thread panics").clear();
    let followed = fetch(target, "-n 6 -c 2 --follow");
    assert_eq!((followed.count("redirects"), &followed.summary()["statuses"]), (0, &json!({ "200": 6 })));
    assert_eq!(*paths.lock().expect("no test thread panics"), [["/x", "/y/"].as_slice(), &["/y/z"; 7]].concat());
    for (url, arguments, says) in [("/round", "", "more than 10 redirects"), ("/x", "--data a", "leads to a GET")] {
        let mut load = command("http", &format!("http://{target}{url}"), &format!("--follow {arguments}"));
        let output = load.output().expect("the binary runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.contains(says)), (Some(2), true), "{stderr}");
    }
}

#[test]
fn credentials_are_sent_to_no_server_but_the_one_that_was_named() {
    let (other, theirs) = listening(EMPTY);
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let own = Arc::clone(&log);
    let target = serve(move |mut stream| {
        while let Some(head) = request(&mut stream) {
            let answer = match head.split(' ').nth(1).unwrap_or_default() {
                "/within" => "HTTP/1.1 302 Found\r\nLocation: /z\r\nContent-Length: 0\r\n\r\n".to_owned(),
                "/out" => format!("HTTP/1.1 302 Found\r\nLocation: http://{other}/z\r\nContent-Length: 0\r\n\r\n"),
                _ => EMPTY.to_owned(),
            };
            own.lock().expect("no test thread panics").push(head);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let load = |path: &str, flags: &[&str]| {
        let mut load = command("http", &format!("http://{target}{path}"), "-n 3 -c 1 --follow");
        let run = outcome(&load.args(flags).output().expect("the binary runs"));
        assert_eq!((run.code, run.count("requests.completed")), (Some(0), 3), "{}", run.stderr);
        let [own, theirs] = [&log, &theirs].map(|heads| std::mem::take(&mut *heads.lock().expect("no test panics")));
        (own, theirs, run.stderr)
    };
    let credentials = ["-HAuthorization: Bearer a", "-Hcookie: b=c", "-HProxy-Authorization: Basic d"];
    let flags = [credentials.as_slice(), &["-HX-Other: e"]].concat();
    let has = |head: &str, flag: &str| head.contains(&format!("\r\n{}\r\n", &flag[2..]));
    let (own, _, said) = load("/within", &flags);
    assert!(own.len() == 5 && own.iter().all(|head| flags.iter().all(|flag| has(head, flag))), "{own:?}");
    assert_eq!(said, "");
    let (own, theirs, said) = load("/out", &flags);
    assert!(own.len() == 1 && flags.iter().all(|flag| has(&own[0], flag)), "{own:?}");
    let none = |head: &String| !credentials.iter().any(|flag| has(head, flag)) && has(head, flags[3]);
    assert!(theirs.len() == 4 && theirs.iter().all(none), "{theirs:?}");
    let sentence = format!("http://{other}/z, which is loaded without Authorization, cookie, Proxy-Authorization, as");
    assert!(said.contains(&sentence) && said.lines().count() == 1, "{said}");
    assert_eq!(load("/out", &["-HX-Other: e"]).2, "");
}

#[test]
fn a_body_is_sent_with_its_length() {
    let bodies: Arc<Mutex<Vec<u8>>> = Arc::default();
    let log = Arc::clone(&bodies);
    let target = serve(move |mut stream| {
        while let Some(head) = request(&mut stream) {
            assert!(head.starts_with("POST /x HTTP/1.1\r\n") && head.contains("\r\nContent-Length: 300000\r\n"));
            let mut body = vec![0; 300_000];
            stream.read_exact(&mut body).expect("the body comes");
            log.lock().expect("no test thread panics").extend(body);
            let _ = stream.write_all(EMPTY.as_bytes());
        }
    });
    let file = std::env::temp_dir().join(format!("plimsoll-body-{}", std::process::id()));
    std::fs::write(&file, vec![7; 300_000]).expect("a file");
    let run = fetch(target, &format!("-n 4 -c 2 -b {}", file.display()));
    std::fs::remove_file(file).expect("it is there");
    assert_eq!(run.count("requests.completed"), 4);
    let bodies = bodies.lock().expect("no test thread panics");
    assert!(bodies.len() == 4 * 300_000 && bodies.iter().all(|byte| *byte == 7));
}

#[test]
fn a_body_is_sent_in_chunks_where_the_header_says_so() {
    let target = serve(|mut stream| {
        while let Some(head) = request(&mut stream) {
            assert!(head.contains("\r\nTransfer-Encoding: chunked\r\n") && !head.contains("Content-Length"), "{head}");
            let mut body = vec![0; 6 + 16_384 + 2 + 5 + 3616 + 2 + 5];
            stream.read_exact(&mut body).expect("the body comes");
            assert!(body.starts_with(b"4000\r\n\x07") && body.ends_with(b"\x07\r\n0\r\n\r\n"));
            assert_eq!(&body[6 + 16_384..][..7], b"\r\ne20\r\n");
            let _ = stream.write_all(EMPTY.as_bytes());
        }
    });
    let file = std::env::temp_dir().join(format!("plimsoll-chunks-{}", std::process::id()));
    std::fs::write(&file, vec![7; 20_000]).expect("a file");
    let run = fetch(target, &format!("-n 4 -c 2 -H Transfer-Encoding:chunked -b {}", file.display()));
    std::fs::remove_file(file).expect("it is there");
    assert_eq!((run.count("requests.completed"), run.count("requests.failed")), (4, 0), "{}", run.summary());
}

#[test]
fn several_urls_are_fetched_in_turn() {
    let (target, heads) = listening(EMPTY);
    let run = fetch(target, &format!("http://{target}/y http://{target}/z -n 30 -c 1"));
    assert_eq!(run.count("requests.completed"), 30);
    let heads = heads.lock().expect("no test thread panics");
    for path in ["/x", "/y", "/z"] {
        assert_eq!(heads.iter().filter(|head| head.starts_with(&format!("GET {path} "))).count(), 10);
    }
}

#[test]
fn each_connection_fetches_the_urls_in_turn() {
    for engine in ["epoll -t 1", "epoll -t 2", "uring", "threads", "fork"] {
        let connections: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
        let log = Arc::clone(&connections);
        let target = serve(move |mut stream| {
            let mut paths = Vec::new();
            while let Some(head) = request(&mut stream) {
                paths.push(head.split(' ').nth(1).unwrap_or_default().to_owned());
                let _ = stream.write_all(EMPTY.as_bytes());
            }
            log.lock().expect("no test thread panics").push(paths);
        });
        let run = fetch(target, &format!("http://{target}/y --each 3 -c 2 --engine {engine}"));
        assert_eq!(run.count("requests.completed"), 6, "{engine} {}", run.stderr);
        // It sees the end of a connection after the run.
        for _ in 0..10_000 {
            if connections.lock().expect("no test thread panics").len() > 1 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let connections = connections.lock().expect("no test thread panics");
        assert_eq!(connections.iter().map(Vec::len).sum::<usize>(), 6, "{engine}: {connections:?}");
        for paths in connections.iter() {
            assert!(paths.windows(2).all(|two| two[0] != two[1]), "{engine}: {paths:?}");
        }
    }
}

#[test]
fn each_server_gets_the_requests_for_it() {
    for engine in ["epoll", "uring", "threads", "fork"] {
        let servers = [listening(EMPTY), listening(EMPTY)];
        let run = fetch(servers[0].0, &format!("http://{}/y --each 3 -c 4 --engine {engine}", servers[1].0));
        assert_eq!(run.count("requests.completed"), 12, "{engine} {}", run.stderr);
        for ((server, heads), path) in servers.iter().zip(["/x", "/y"]) {
            let heads = heads.lock().expect("no test thread panics");
            assert_eq!(heads.len(), 6, "{engine}: connections are dealt over the servers in turn");
            for head in heads.iter() {
                assert!(
                    head.starts_with(&format!("GET {path} ")) && head.contains(&format!("Host: {server}\r\n")),
                    "{engine}: {head}"
                );
            }
        }
    }
}

#[test]
fn each_server_gets_all_of_its_urls_however_few_requests_a_connection_sends() {
    let paths = |heads: &Mutex<Vec<String>>| {
        let mut paths: Vec<String> = heads.lock().expect("no test thread panics").clone();
        paths.iter_mut().for_each(|head| head.truncate("GET /x".len()));
        paths.sort();
        paths
    };
    for engine in ["epoll -t 1", "epoll -t 2", "epoll -t 4", "uring -t 4", "threads", "fork"] {
        let servers = [listening(EMPTY), listening(EMPTY)];
        let [one, other] = [servers[0].0, servers[1].0];
        let urls = format!("http://{one}/y http://{other}/x http://{other}/y");
        let run = fetch(one, &format!("{urls} --each 1 -c 4 --engine {engine}"));
        assert_eq!(run.count("requests.completed"), 4, "{engine} {}", run.stderr);
        for (_, heads) in servers {
            assert_eq!(paths(&heads), ["GET /x", "GET /y"], "{engine}: two connections go to each server");
        }
        let (server, heads) = listening(EMPTY);
        let urls = format!("http://{server}/y http://{server}/z http://{server}/u");
        let run = fetch(server, &format!("{urls} --each 1 -c 4 --engine {engine}"));
        assert_eq!(run.count("requests.completed"), 4, "{engine} {}", run.stderr);
        assert_eq!(paths(&heads), ["GET /u", "GET /x", "GET /y", "GET /z"], "{engine}");
    }
}

#[test]
fn reconnecting_opens_a_connection_for_each_request() {
    for arguments in ["-n 40 -c 4 --reconnect", "--each 10 -c 4 --reconnect", "-n 40 -c 4 --reconnect -R 2k"] {
        let run = fetch(answering(&[EMPTY], false), arguments);
        assert_eq!(run.count("requests.completed"), 40, "{arguments} {}", run.summary()["errors"]);
        assert_eq!(run.count("establishment_time_us.count"), 40, "{arguments}");
        assert_eq!((run.count("connections.established"), run.count("connections.failed")), (4, 0));
        assert!(run.figure("response_time_us.mean") > run.figure("transmission_time_us.mean"));
    }
}

#[test]
fn nobody_listening_fails_every_request_of_a_reconnecting_run() {
    let target = refusing();
    for arguments in ["-d 30s -c 3 --reconnect", "-n 50 -c 3 --reconnect"] {
        let run = fetch(target, arguments);
        assert_eq!((run.code, run.count("connections.failed")), (Some(1), 3), "{arguments}");
        // The window opens at once, and the first attempts may come before it.
        let failed = run.count("requests.failed") + run.count("warm_up.requests.failed");
        assert_eq!(failed, 9, "three attempts each");
        assert!(run.summary()["warnings"].to_string().contains("ECONNREFUSED"));
    }
}

#[test]
fn a_wrong_url_or_header_is_refused_with_the_way_to_write_one() {
    for (url, arguments, says) in [
        ("127.0.0.1:80", "", "does not begin with http://"),
        ("ftp://h/", "", "only http and https"),
        ("http://127.0.0.1/", "https://127.0.0.1/", "in two runs"),
        ("http://", "", "names no host"),
        ("http://u@h/", "", "do not belong"),
        ("http://nohost.invalid/", "", "write ADDR:PORT"),
        ("http://127.0.0.1/", "-H Accept", "has no colon"),
        ("http://127.0.0.1/", "-m G,T", "such as GET"),
        ("http://127.0.0.1/", "--http 2", "1.0, 1.1"),
        ("http://::1:8000/", "", "http://[::1]:8000/"),
        ("http://127.0.0.1/", "-6", "leave -4 or -6 out"),
        ("http://127.0.0.1/", "http://127.0.0.2/ -c 1", "give a connection to each"),
        ("http://127.0.0.1/", "--insecure", "write https://"),
        ("http://127.0.0.1/", "--key /dev/null", "--cert"),
        ("https://127.0.0.1/", "--cacert /dev/null", "holds no certificate"),
        ("https://127.0.0.1/", "--cert /no/such/file", "name a PEM file"),
        ("http://127.0.0.1/", "--connect-to h:80", "shop.example"),
        ("http://127.0.0.1/", "--data x -b /dev/null", "cannot be used with"),
        ("http://127.0.0.1/", "--limit pool_wait.p99<1s", "needs an open loop"),
        ("http://127.0.0.1/", "--limit schedule_lag.p99<1s", "needs a schedule"),
    ] {
        let output = command("http", url, arguments).output().expect("the binary runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{url} {arguments}: {stderr}");
        assert!(stderr.contains(says), "{url} {arguments}: {stderr}");
    }
}
