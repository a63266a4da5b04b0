//! A server that keeps books of its own, for the generator's summary to be held against.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::peer::serve;

/// What the server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// Each read goes back.
    Echo,
    /// Each request's head is answered with [`BODY`].
    Http,
    /// The same over TLS.
    Https,
}

/// The body of every HTTP answer.
pub(crate) const BODY: &str = "hello";
/// The size of an echo message.
pub(crate) const MESSAGE: u64 = 64;

/// What the server has seen.
#[derive(Debug, Default)]
pub(crate) struct Books {
    connections: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// A server and its books.
pub(crate) struct BookKeeper {
    pub(crate) address: SocketAddr,
    books: Arc<Books>,
}

impl BookKeeper {
    pub(crate) fn start(speaks: Speaks) -> BookKeeper {
        let books = Arc::new(Books::default());
        let own = Arc::clone(&books);
        let tls = (speaks == Speaks::Https).then(tls);
        let address = serve(move |stream| {
            own.connections.fetch_add(1, Ordering::SeqCst);
            // The connection may end in any way: what was seen of it stands in the books.
            let _ = match &tls {
                None => converse(stream, speaks, &own),
                Some(config) => {
                    let session = rustls::ServerConnection::new(Arc::clone(config)).expect("a session");
                    converse(rustls::StreamOwned::new(session, stream), speaks, &own)
                }
            };
        });
        BookKeeper { address, books }
    }

    /// Connections, requests and bytes seen, once the connections are as many as expected: the last
    /// may still wait to be accepted when the generator has ended.
    pub(crate) fn read(&self, connections: u64) -> (u64, u64, u64) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let count = |count: &AtomicU64| count.load(Ordering::SeqCst);
        while count(&self.books.connections) < connections && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        (count(&self.books.connections), count(&self.books.requests), count(&self.books.bytes))
    }
}

fn converse(mut stream: impl Read + Write, speaks: Speaks, books: &Books) -> std::io::Result<()> {
    let mut unanswered = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        unanswered.extend_from_slice(&buffer[..count]);
        books.bytes.fetch_add(count as u64, Ordering::SeqCst);
        while let Some(end) = end_of_request(&unanswered, speaks) {
            books.requests.fetch_add(1, Ordering::SeqCst);
            let request: Vec<u8> = unanswered.drain(..end).collect();
            match speaks {
                Speaks::Echo => stream.write_all(&request)?,
                Speaks::Http | Speaks::Https => {
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{BODY}", BODY.len());
                    stream.write_all(head.as_bytes())?;
                }
            }
            stream.flush()?;
        }
    }
}

/// Where the first whole request ends.
fn end_of_request(bytes: &[u8], speaks: Speaks) -> Option<usize> {
    match speaks {
        Speaks::Echo => (bytes.len() as u64 >= MESSAGE).then_some(MESSAGE as usize),
        Speaks::Http | Speaks::Https => {
            bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|position| position + 4)
        }
    }
}

fn tls() -> Arc<rustls::ServerConfig> {
    let file = |name: &str| format!("{}/tests/whole/tls/{name}", env!("CARGO_MANIFEST_DIR"));
    let certificates = CertificateDer::pem_file_iter(file("server.pem")).expect("the file");
    let certificates = certificates.collect::<Result<Vec<_>, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_file(file("server.key")).expect("a key");
    let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(certificates, key);
    Arc::new(config.expect("they belong together"))
}

/// A connection that the server ends at once after an answer, as some servers do without saying so.
pub(crate) fn answer_once(mut stream: TcpStream) {
    let mut message = [0; MESSAGE as usize];
    if stream.read_exact(&mut message).is_ok() {
        let _ = stream.write_all(&message);
    }
}
