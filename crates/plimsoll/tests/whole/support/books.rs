//! A server that counts what it does, to compare the generator's summary with.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use plimsoll_sys::timestamp;
use rustls::HandshakeKind;
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
    /// How long it takes for an answer, in turn.
    pub(crate) times: &'static [Duration],
}

/// No request has the number 0.
const NEVER: RangeInclusive<u64> = 0..=0;

impl Default for Script {
    fn default() -> Script {
        Script { begins_with: 0, outage: NEVER, times: &[] }
    }
}

/// One request that was answered. Instants are since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handled {
    pub(crate) connection: u64,
    /// When its last byte arrived, by the kernel's clock; where that noted none, when it was read.
    pub(crate) arrived: Duration,
    /// When the write of its answer began.
    pub(crate) answered: Duration,
    /// The server's own time: from the end of the read to the write.
    pub(crate) own: Duration,
}

/// Counts over all connections.
#[derive(Debug, Default)]
struct Books {
    connections: AtomicU64,
    ended: AtomicU64,
    requests: AtomicU64,
    answers: AtomicU64,
    bytes_received: AtomicU64,
    bytes_sent: AtomicU64,
    full_handshakes: AtomicU64,
    resumed_handshakes: AtomicU64,
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
    /// Bytes of the TCP connections, those of TLS included.
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
    /// TLS handshakes that came to their end: full ones, and resumed sessions.
    pub(crate) handshakes: [u64; 2],
    /// Those answered, in the order of their answers.
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
            // A kernel that notes no arrivals leaves it to the reads.
            let _ = timestamp::stamp_arrivals(&stream);
            let arrived = Cell::new(None);
            let socket = Tapped { stream, arrived: &arrived, books: &own };
            let conversation = Conversation { number, speaks, script: &script, books: &own, arrived: &arrived };
            // The connection may end in any way: what was seen of it is counted.
            let _ = match &tls {
                None => conversation.run(socket),
                Some(config) => {
                    let session = rustls::ServerConnection::new(Arc::clone(config)).expect("a session");
                    let mut secure = rustls::StreamOwned::new(session, socket);
                    let outcome = conversation.run(&mut secure);
                    match secure.conn.handshake_kind() {
                        Some(HandshakeKind::Resumed) => own.resumed_handshakes.fetch_add(1, Ordering::SeqCst),
                        Some(_) => own.full_handshakes.fetch_add(1, Ordering::SeqCst),
                        None => 0,
                    };
                    outcome
                }
            };
            own.ended.fetch_add(1, Ordering::SeqCst);
        });
        BookKeeper { address, books }
    }

    /// What was seen, once the connections are as many as expected and all have ended: the last may
    /// still wait to be accepted when the generator has ended.
    pub(crate) fn read(&self, connections: u64) -> Seen {
        let count = |count: &AtomicU64| count.load(Ordering::SeqCst);
        wait_for(&self.books.connections, connections);
        wait_for(&self.books.ended, count(&self.books.connections));
        Seen {
            connections: count(&self.books.connections),
            requests: count(&self.books.requests),
            answers: count(&self.books.answers),
            bytes_received: count(&self.books.bytes_received),
            bytes_sent: count(&self.books.bytes_sent),
            handshakes: [&self.books.full_handshakes, &self.books.resumed_handshakes].map(count),
            handled: self.books.handled.lock().expect("no conversation panics").clone(),
        }
    }
}

/// Waits until a count has been reached, or for so long that something is wrong.
fn wait_for(count: &AtomicU64, least: u64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while count.load(Ordering::SeqCst) < least && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The time since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970")
}

/// A connection whose bytes are counted as they pass.
struct Tapped<'a> {
    stream: TcpStream,
    /// When the bytes that were read last arrived.
    arrived: &'a Cell<Option<Duration>>,
    books: &'a Books,
}

impl Read for Tapped<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let (count, at) = timestamp::read_stamped(&self.stream, buffer)?;
        self.arrived.set(at);
        self.books.bytes_received.fetch_add(count as u64, Ordering::SeqCst);
        Ok(count)
    }
}

impl Write for Tapped<'_> {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        let count = self.stream.write(buffer)?;
        self.books.bytes_sent.fetch_add(count as u64, Ordering::SeqCst);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

/// One connection's.
struct Conversation<'a> {
    number: u64,
    speaks: Speaks,
    script: &'a Script,
    books: &'a Books,
    arrived: &'a Cell<Option<Duration>>,
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
            let (read, arrived) = (Instant::now(), self.arrived.get().unwrap_or_else(now));
            unanswered.extend_from_slice(&buffer[..count]);
            while let Some(end) = end_of_request(&unanswered, speaks) {
                let number = books.requests.fetch_add(1, Ordering::SeqCst) + 1;
                if self.script.outage.contains(&number) {
                    return Ok(());
                }
                let request: Vec<u8> = unanswered.drain(..end).collect();
                let answer = match speaks {
                    Speaks::Echo => request,
                    Speaks::Http | Speaks::Https => answer().into_bytes(),
                };
                let times = self.script.times;
                if !times.is_empty() {
                    std::thread::sleep(times[number as usize % times.len()]);
                }
                // Entered first: once the generator has the answer the books may be read.
                books.answers.fetch_add(1, Ordering::SeqCst);
                let handled = Handled { connection: self.number, arrived, answered: now(), own: read.elapsed() };
                books.handled.lock().expect("no conversation panics").push(handled);
                stream.write_all(&answer)?;
                stream.flush()?;
            }
        }
    }
}

/// An answer of HTTP.
pub(crate) fn answer() -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{BODY}", BODY.len())
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
