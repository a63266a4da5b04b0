//! A folder of files to serve over HTTP, and a client for it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::server::Server;

/// A folder of files that goes away with the test.
pub(crate) struct Site(pub(crate) PathBuf);

impl Site {
    pub(crate) fn new() -> Site {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("plimsoll-site-{}-{number}", std::process::id()));
        fs::create_dir_all(folder.join("root")).expect("a folder can be made");
        Site(folder)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.0.join("root")
    }

    pub(crate) fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("beneath the root")).expect("a folder can be made");
        fs::write(path, bytes).expect("a file can be written");
    }

    pub(crate) fn serve(&self, model: &str, arguments: &[&str]) -> Server {
        let root = self.root();
        Server::http(model, &[&["--root", root.to_str().expect("text")], arguments].concat())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A simple client: it reads heads to the empty line, and bodies by their length.
pub(crate) struct Client {
    pub(crate) writer: TcpStream,
    pub(crate) reader: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn new(server: &Server) -> Client {
        let writer = server.connect();
        let reader = BufReader::new(writer.try_clone().expect("a stream can be cloned"));
        Client { writer, reader }
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.writer.write_all(text.as_bytes()).expect("the server reads");
    }

    pub(crate) fn head(&mut self) -> Option<Answer> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let status = lines[0].split(' ').nth(1).expect("a status").parse().expect("a number");
        let fields = lines[1..].iter().map(|line| line.split_once(": ").expect("a field"));
        let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        Some(Answer { status, fields, body: Vec::new() })
    }

    pub(crate) fn answer(&mut self) -> Answer {
        let mut answer = self.head().expect("the server answers");
        let length = answer.field("content-length").map_or(0, |length| length.parse().expect("a number"));
        answer.body = vec![0; length];
        self.reader.read_exact(&mut answer.body).expect("the body comes whole");
        answer
    }

    pub(crate) fn get(&mut self, target: &str, fields: &str) -> Answer {
        self.send(&format!("GET {target} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"));
        self.answer()
    }

    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        // A reset is an end too.
        self.reader.read_to_end(&mut rest).map_or(true, |_| rest.is_empty())
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}
