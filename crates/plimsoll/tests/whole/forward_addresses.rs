//! Where the forwarder listens and leads: Unix sockets, IPv6, names.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::support::forwarder::{
    Folder, Forwarder, accept, command, connect, echo, injected, listener, text_of, traced,
};
use crate::support::server::may_trace;

#[test]
fn unix_sockets_ipv6_names_and_ranges_are_relayed() {
    let folder = Folder::new();
    let (listen, to) = (text_of(&folder.path("listen.sock")), text_of(&folder.path("to.sock")));
    let unix = UnixListener::bind(&to).expect("the folder can be written to");
    // Where `localhost` leads.
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = tcp.local_addr().expect("it is bound");
    let six = TcpListener::bind("[::1]:0").expect("IPv6 loopback");
    let mappings = [
        format!("unix:{listen}={address}"),
        format!("127.0.0.1:0=unix:{to}"),
        format!("[::1]:0=localhost:{}", address.port()),
        format!("127.0.0.1:0={}", six.local_addr().expect("it is bound")),
    ];
    let arguments: Vec<&str> = mappings.iter().map(String::as_str).collect();
    let forwarder = Forwarder::start(&arguments);
    let addresses: Vec<String> = forwarder.ready["addresses"]
        .as_array()
        .expect("addresses")
        .iter()
        .map(|text| text.as_str().expect("text").to_owned())
        .collect();
    let through = |mut client: Box<dyn Write>, server: &mut dyn Read| {
        client.write_all(b"hello").expect("there is room");
        let mut buffer = [0; 5];
        server.read_exact(&mut buffer).expect("it is relayed");
        assert_eq!(&buffer, b"hello");
    };
    let tcp_client = |number: usize| Box::new(connect(addresses[number].parse().expect("an address")));
    through(Box::new(UnixStream::connect(&listen).expect("it listens")), &mut accept(&tcp));
    let client = tcp_client(1);
    through(client, &mut unix.accept().expect("a connection").0);
    through(tcp_client(2), &mut accept(&tcp));
    through(tcp_client(3), &mut accept(&six));
    let _ = forwarder.stop();
    assert!(!folder.path("listen.sock").exists(), "the name is taken away");
}

/// A server in Python at a Unix socket, whose queue has room for two. It takes them when its input
/// ends.
struct SlowUnixServer(Child);

impl SlowUnixServer {
    fn start(path: &str) -> SlowUnixServer {
        const SCRIPT: &str = "import socket,sys\ns = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(1); \
                              print('ready', flush=True)\nsys.stdin.read()\nwhile True:\n\x20   c, _ = s.accept(); \
                              c.sendall(c.recv(5)); c.close()\n";
        let mut command = Command::new("python3");
        let command = command.args(["-c", SCRIPT, path]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 runs");
        child.stdout.as_mut().expect("piped").read_exact(&mut [0; 6]).expect("it is ready");
        SlowUnixServer(child)
    }
}

impl Drop for SlowUnixServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_unix_socket_whose_queue_is_full_is_waited_for() {
    let folder = Folder::new();
    let path = text_of(&folder.path("slow.sock"));
    let mut server = SlowUnixServer::start(&path);
    let table = format!("[forward.\"127.0.0.1:0\"]\nto = \"unix:{path}\"\nconnect_timeout = \"60s\"\n");
    let forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table)]);
    let mut clients: Vec<TcpStream> = (0..20).map(|_| forwarder.connect()).collect();
    clients.iter_mut().for_each(|client| client.write_all(b"hello").expect("there is room"));
    drop(server.0.stdin.take());
    for client in &mut clients {
        let mut answer = [0; 5];
        client.read_exact(&mut answer).expect("it is served in its turn");
        assert_eq!(&answer, b"hello");
    }
    drop(clients);
    assert_eq!(forwarder.stop()["errors"], serde_json::json!({}));
}

#[test]
fn a_unix_socket_that_another_process_has_put_in_the_place_of_ones_own_is_left_there() {
    let folder = Folder::new();
    let paths = ["own", "replaced"].map(|name| folder.path(name));
    let mappings = paths.each_ref().map(|path| format!("unix:{}={}", path.display(), echo()));
    let forwarder = Forwarder::start(&mappings.each_ref().map(String::as_str));
    fs::remove_file(&paths[1]).expect("it is there");
    let _another = UnixListener::bind(&paths[1]).expect("the path is free");
    forwarder.stop();
    assert_eq!(paths.map(|path| path.exists()), [false, true]);
}

#[test]
fn a_forwarder_that_fails_before_it_has_begun_leaves_no_unix_sockets() {
    let (folder, (_held, taken)) = (Folder::new(), listener());
    let path = folder.path("a.sock");
    let table = format!("[admin]\nlisten = \"{taken}\"\n[forward]\n\"unix:{}\" = \"192.0.2.1:80\"\n", text_of(&path));
    let config = folder.write("forward.toml", &table);
    let output = command(&["--config", &config]).output().expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&format!("cannot listen on {taken}")), "{said}");
    assert!(!path.exists(), "a socket's name is left");
}

#[test]
fn a_unix_socket_that_cannot_listen_leaves_no_name() {
    if !may_trace() {
        return;
    }
    let folder = Folder::new();
    let path = folder.path("a.sock");
    let mapping = format!("unix:{}=192.0.2.1:80", text_of(&path));
    let output = traced("listen", "ENOMEM", 1, &[&mapping]).output().expect("strace is here");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot listen on"), "{said}");
    assert!(!path.exists(), "a socket's name is left");
}

#[test]
fn a_unix_socket_has_the_permissions_that_its_rule_says() {
    let folder = Folder::new();
    let (path, server) = (folder.path("a.sock"), echo());
    let table = |mode| format!("[forward.\"unix:{}\"]\nto = \"{server}\"\nmode = \"{mode}\"\n", text_of(&path));
    let mode = || fs::metadata(&path).expect("it is there").permissions().mode() & 0o777;
    let mut forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table("0620"))]);
    assert_eq!(mode(), 0o620);
    folder.write("forward.toml", &table("0600"));
    forwarder.signal("HUP");
    assert!(forwarder.sentence().contains("the table is reloaded"));
    assert_eq!(mode(), 0o600, "the socket is the former one");
}

#[test]
fn unix_sockets_keep_their_permissions_where_one_of_them_cannot_have_those_of_a_new_table() {
    if !may_trace() {
        return;
    }
    let (folder, server) = (Folder::new(), echo());
    let paths = ["a.sock", "b.sock"].map(|name| folder.path(name));
    let table = |mode| {
        let rule =
            |path: &PathBuf| format!("[forward.\"unix:{}\"]\nto = \"{server}\"\nmode = \"{mode}\"\n", text_of(path));
        paths.each_ref().map(rule).concat()
    };
    let config = folder.write("forward.toml", &table("0620"));
    // The first two are the start's, and the fourth one is the second socket's at the reload.
    let mut forwarder = injected("/^f?chmod", "EPERM", "4", &["--config", &config]);
    folder.write("forward.toml", &table("0600"));
    forwarder.signal("HUP");
    let sentence = forwarder.sentence();
    assert!(sentence.contains("the table is refused"), "{sentence}");
    let modes = paths.each_ref().map(|path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777);
    assert_eq!(modes, [0o620; 2]);
    forwarder.stop();
}
