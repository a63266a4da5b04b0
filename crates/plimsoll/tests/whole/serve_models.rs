//! What single models must do besides: select's limit, and fork's children.

use std::io::{Read, Write};
use std::net::TcpStream;

use plimsoll_sys::descriptor;

use crate::support::server::{Server, assert_echoes, until};

#[test]
fn select_refuses_what_does_not_fit_its_set_and_serves_the_rest() {
    if descriptor::limit() < 1200 {
        eprintln!("skipped: needs 1200 descriptors, `ulimit -n` gives {}", descriptor::limit());
        return;
    }
    let server = Server::echo("select", &["--workers", "1"]);
    let mut streams: Vec<TcpStream> = (0..1100).map(|_| server.connect()).collect();
    let mut served = 0;
    for stream in &mut streams {
        // One that was refused may have been reset before or after its bytes went out.
        let mut answer = [0; 2];
        if stream.write_all(b"hi").and_then(|()| stream.read_exact(&mut answer)).is_ok() {
            served += 1;
        }
    }
    // The set's 1024 less standard streams, listener, wake-up and what else the process has open.
    assert!((1000..1024).contains(&served), "{served}");
    drop(streams);
    until("there is room again", || {
        let mut stream = server.connect();
        let mut answer = [0; 2];
        stream.write_all(b"hi").and_then(|()| stream.read_exact(&mut answer)).is_ok()
    });
    let summary = server.stop();
    assert!(summary["refused"].as_u64() >= Some(1100 - served), "{summary}");
    assert_eq!(summary["errors"]["fd_setsize"], summary["refused"]);
}

#[test]
fn select_says_so_where_a_listener_does_not_fit_its_set() {
    if descriptor::limit() < 1200 {
        eprintln!("skipped: needs 1200 descriptors, `ulimit -n` gives {}", descriptor::limit());
        return;
    }
    let listen = ["--listen", "127.0.0.1:0"].repeat(1030);
    // It ends without a signal: it would not see one.
    let server = Server::echo("select", &[&["--workers", "1"], &listen[..]].concat());
    let (status, said) = server.wait_failed();
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("listen on fewer addresses"), "{said}");
}

#[test]
fn select_hears_the_stop_or_says_why_not_however_many_descriptors_come_before_its_wake_up() {
    if descriptor::limit() < 1200 {
        eprintln!("skipped: needs 1200 descriptors, `ulimit -n` gives {}", descriptor::limit());
        return;
    }
    let ended = (1006..1024).map(|listeners| {
        let listen = ["--listen", "127.0.0.1:0"].repeat(listeners);
        let server = Server::echo("select", &[&["--workers", "1", "--drain", "1h"], &listen[..]].concat());
        server.terminate();
        until("it is over", || server.is_over());
        let (status, said) = server.wait_failed();
        let code = status.code().expect("no signal ended it");
        assert_eq!(code == 1, said.contains("listen on fewer addresses"), "{listeners} listeners: {said}");
        code
    });
    let ended: Vec<i32> = ended.collect();
    assert!(ended.starts_with(&[0]) && ended.ends_with(&[1]) && ended.is_sorted(), "{ended:?}");
}

#[test]
fn fork_leaves_no_zombie_and_inherits_no_listener() {
    let server = Server::echo("fork", &[]);
    let mut streams: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
    streams.iter_mut().for_each(|stream| assert_echoes(stream, b"served by a child"));
    let processes = server.processes();
    assert_eq!(processes.len(), 21);
    for child in processes.iter().filter(|process| process.pid != server.pid()) {
        let sockets = child.descriptors().iter().filter(|name| name.starts_with("socket:")).count();
        assert_eq!(sockets, 1, "its connection and nothing else: {:?}", child.descriptors());
    }
    drop(streams);
    until("no child is left, not even a zombie", || server.processes().len() == 1);
    server.stop();
}

#[test]
fn forks_children_die_with_their_killed_parent() {
    let server = Server::echo("fork", &[]);
    let mut stream = server.connect();
    assert_echoes(&mut stream, b"served by a child");
    let address = server.address();
    server.kill();
    assert_eq!(stream.read_to_end(&mut Vec::new()).expect("the kernel closes the child's socket"), 0);
    let again = Server::echo("fork", &["--listen", &address.to_string()]);
    again.assert_serves();
}
