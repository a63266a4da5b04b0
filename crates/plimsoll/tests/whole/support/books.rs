//! A server that keeps books of its own, for the generator's summary to be held against.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

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

/// What the server does beside answering.
#[derive(Debug)]
pub(crate) struct Script {
    /// It takes nothing from its connections before there are so many.
    pub(crate) begins_with: u64,
    /// It ends the connections of these requests in place of an answer: numbers from 1, over all
    /// connections.
    pub(crate) outage: RangeInclusive<u64>,
}

/// No request has the number 0.
const NEVER: RangeInclusive<u64> = 0..=0;

impl Default for Script {
    fn default() -> Script {
        Script { begins_with: 0, outage: NEVER }
    }
}

/// When a request had been read, and when the write of its answer began, since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handled {
    pub(crate) connection: u64,
    pub(crate) read: Duration,
    pub(crate) answered: Duration,
}

#[derive(Debug, Default)]
struct Books {
    connections: AtomicU64,
    requests: AtomicU64,
    answers: AtomicU64,
    bytes: AtomicU64,
    handled: Mutex<Vec<Handled>>,
}

/// What the server has seen.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) connections: u64,
    /// Requests that came whole, answered or not.
    pub(crate) requests: u64,
    /// Requests that an answer was written to.
    pub(crate) answers: u64,
    pub(crate) bytes: u64,
    /// Those answered, in any order.
    pub(crate) handled: Vec<Handled>,
}

/// A server and its books.
pub(crate) struct BookKeeper {
    pub(crate) address: SocketAddr,
    books: Arc<Books>,
}

impl BookKeeper {
    pub(crate) fn start(speaks: Speaks, script: Script) -> BookKeeper {
        let books = Arc::new(Books::default());
        let own = Arc::clone(&books);
        let tls = (speaks == Speaks::Https).then(|| Arc::new(tls(rustls::DEFAULT_VERSIONS)));
        let address = serve(move |stream| {
            let number = own.connections.fetch_add(1, Ordering::SeqCst);
            wait_for(&own.connections, script.begins_with);
            let conversation = Conversation { number, speaks, script: &script, books: &own };
            // The connection may end in any way: what was seen of it stands in the books.
            let _ = match &tls {
                None => conversation.run(stream),
                Some(config) => {
                    let session = rustls::ServerConnection::new(Arc::clone(config)).expect("a session");
                    conversation.run(rustls::StreamOwned::new(session, stream))
                }
            };
        });
        BookKeeper { address, books }
    }

    /// What was seen, once the connections are as many as expected: the last may still wait to be
    /// accepted when the generator has ended.
    pub(crate) fn read(&self, connections: u64) -> Seen {
        wait_for(&self.books.connections, connections);
        let count = |count: &AtomicU64| count.load(Ordering::SeqCst);
        Seen {
            connections: count(&self.books.connections),
            requests: count(&self.books.requests),
            answers: count(&self.books.answers),
            bytes: count(&self.books.bytes),
            handled: self.books.handled.lock().expect("no conversation panics").clone(),
        }
    }
}

/// Waits until a count has been reached, or for so long that it never will be.
fn wait_for(count: &AtomicU64, least: u64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while count.load(Ordering::SeqCst) < least && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970")
}

/// One connection's.
struct Conversation<'a> {
    number: u64,
    speaks: Speaks,
    script: &'a Script,
    books: &'a Books,
}

impl Conversation<'_> {
    fn run(&self, mut stream: impl Read + Write) -> std::io::Result<()> {
        let Conversation { books, speaks, .. } = *self;
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
                let read = now();
                let number = books.requests.fetch_add(1, Ordering::SeqCst) + 1;
                if self.script.outage.contains(&number) {
                    return Ok(());
                }
                let request: Vec<u8> = unanswered.drain(..end).collect();
                let answer = match speaks {
                    Speaks::Echo => request,
                    Speaks::Http | Speaks::Https => {
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{BODY}", BODY.len()).into_bytes()
                    }
                };
                // Entered first: once the generator has the answer the books may be read.
                books.answers.fetch_add(1, Ordering::SeqCst);
                let handled = Handled { connection: self.number, read, answered: now() };
                books.handled.lock().expect("no conversation panics").push(handled);
                stream.write_all(&answer)?;
                stream.flush()?;
            }
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

/// The configuration of a server that speaks these versions of TLS.
pub(crate) fn tls(versions: &[&'static rustls::SupportedProtocolVersion]) -> rustls::ServerConfig {
    let file = |name: &str| format!("{}/tests/whole/tls/{name}", env!("CARGO_MANIFEST_DIR"));
    let certificates = CertificateDer::pem_file_iter(file("server.pem")).expect("the file");
    let certificates = certificates.collect::<Result<Vec<_>, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_file(file("server.key")).expect("a key");
    let config = rustls::ServerConfig::builder_with_protocol_versions(versions).with_no_client_auth();
    config.with_single_cert(certificates, key).expect("they belong together")
}

/// A connection that the server ends at once after an answer, as some servers do without saying so.
pub(crate) fn answer_once(mut stream: TcpStream) {
    let mut message = [0; MESSAGE as usize];
    if stream.read_exact(&mut message).is_ok() {
        let _ = stream.write_all(&message);
    }
}
