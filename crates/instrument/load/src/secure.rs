//! TLS under any protocol, by rustls: it turns bytes into bytes without a socket, so it is a
//! protocol around a protocol.

mod complaints;

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_measure::summary::Handshakes;
use plimsoll_measure::tally::Cause;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, RootCertStore, SignatureScheme};

use crate::protocol::{After, Protocol, Reply, Report, RequestContext};
use complaints::Complaints;

/// A TLS record's largest plaintext (RFC 8446, section 5.1).
const RECORD_BYTES: usize = 16 * 1024;

/// A protocol over TLS.
pub struct Secure<P> {
    inner: P,
    config: Arc<ClientConfig>,
    /// Whom each target has to prove to be.
    names: Vec<ServerName<'static>>,
    full: AtomicU64,
    resumed: AtomicU64,
    complaints: Complaints,
}

/// How connections are secured.
#[derive(Debug)]
pub struct Security {
    /// Which certificates are believed.
    pub trust: Trust,
    /// The client's own certificate, with the chain to its authority, and its key.
    pub identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    /// Whether a connection may resume the session of an earlier one, which costs the server less
    /// than a full handshake.
    pub resume: bool,
}

/// Which certificates are believed.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Certificates that these authorities signed.
    Roots(Arc<RootCertStore>),
    /// Any.
    Anyone,
}

impl<P: Protocol> Secure<P> {
    /// `inner` over TLS to servers of these names, one a target. Fails where the key is not that of
    /// the client's certificate.
    pub fn new(inner: P, names: Vec<ServerName<'static>>, security: Security) -> Result<Secure<P>, rustls::Error> {
        let config = Arc::new(security.client_config()?);
        let (full, resumed) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Secure { inner, config, names, full, resumed, complaints: Complaints::default() })
    }

    /// Takes bytes of the handshake. Plaintext behind its end is kept: an answer may come before
    /// its request.
    fn shake_hands<S>(&self, session: &mut Session<S>, mut bytes: &[u8]) -> Reply {
        let Some(connection) = &mut session.connection else { return Reply::Failed(Cause::Mismatch) };
        let (mut early, mut ended) = (Vec::new(), false);
        // After the peer's close_notify nothing more is taken.
        while !bytes.is_empty() && matches!(connection.read_tls(&mut bytes), Ok(1..)) {
            match connection.process_new_packets() {
                Ok(state) => {
                    // Read at once: the connection takes no more while a record of it is unread.
                    let known = early.len();
                    early.resize(known + state.plaintext_bytes_to_read(), 0);
                    if connection.reader().read_exact(&mut early[known..]).is_err() {
                        return Reply::Failed(Cause::Mismatch);
                    }
                    ended = state.peer_has_closed();
                }
                Err(error) => {
                    session.collect();
                    self.complaints.add(&error);
                    return Reply::Failed(Cause::Mismatch);
                }
            }
        }
        let (shaking, kind) = (connection.is_handshaking(), connection.handshake_kind());
        session.early = (!early.is_empty() || ended).then(|| Box::new(early));
        session.collect();
        match (shaking, ended) {
            (false, _) => {
                self.count_handshake(kind);
                Reply::Complete { payload: 0, after: After::Usable, status: 0 }
            }
            (true, true) => Reply::Failed(Cause::Closed),
            (true, false) => Reply::Partial,
        }
    }

    fn count_handshake(&self, kind: Option<HandshakeKind>) {
        let counter = if kind == Some(HandshakeKind::Resumed) { &self.resumed } else { &self.full };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Security {
    /// What TLS by these rules needs, for a client of HTTP/1.1.
    pub fn client_config(self) -> Result<ClientConfig, rustls::Error> {
        let provider = Arc::new(ring::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let builder = ClientConfig::builder_with_provider(Arc::<CryptoProvider>::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match self.trust {
            Trust::Roots(roots) => builder.with_root_certificates(roots),
            Trust::Anyone => builder.dangerous().with_custom_certificate_verifier(Arc::new(NoVerification(algorithms))),
        };
        let mut config = match self.identity {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if !self.resume {
            config.resumption = Resumption::disabled();
        }
        Ok(config)
    }
}

/// A connection's TLS, and what it has to send.
pub struct Session<S> {
    connection: Option<Box<ClientConnection>>,
    /// Plaintext that came together with the handshake's end, or with none the end of it.
    #[expect(clippy::box_collection, reason = "it stands in every connection's slot: 8 bytes in place of 24")]
    early: Option<Box<Vec<u8>>>,
    out: Vec<u8>,
    inner: S,
}

impl<S: Default> Default for Session<S> {
    fn default() -> Session<S> {
        Session { connection: None, early: None, out: Vec::new(), inner: S::default() }
    }
}

impl<S> Session<S> {
    /// Takes what TLS has to say into the bytes to send.
    fn collect(&mut self) {
        if let Some(connection) = &mut self.connection {
            while connection.wants_write() {
                // Writing to memory does not fail, and nothing written means nothing left.
                if !matches!(connection.write_tls(&mut self.out), Ok(1..)) {
                    break;
                }
            }
        }
    }
}

/// A request under way, or the handshake.
#[derive(Default)]
pub struct Exchange<E> {
    inner: E,
    handshake: bool,
}

impl<P: Protocol> Protocol for Secure<P> {
    type Session = Session<P::Session>;
    type Exchange = Exchange<P::Exchange>;

    const TELLS_TRANSMISSION: bool = P::TELLS_TRANSMISSION;

    fn begin_handshake(&self, target: usize) -> Option<(Self::Session, Self::Exchange)> {
        let connection = ClientConnection::new(Arc::clone(&self.config), self.names[target].clone());
        // It fails for a configuration that cannot be used, which was built before.
        let mut session = Session { connection: connection.ok().map(Box::new), ..Session::default() };
        if let Some(connection) = &mut session.connection {
            connection.set_buffer_limit(None);
        }
        session.collect();
        Some((session, Exchange { handshake: true, ..Exchange::default() }))
    }

    fn begin(&self, session: &mut Self::Session, context: RequestContext, written: usize) -> Self::Exchange {
        // What is left of the handshake goes before the request.
        session.out.drain(..written);
        let inner = self.inner.begin(&mut session.inner, context, 0);
        let mut taken = 0;
        if let Some(connection) = &mut session.connection {
            loop {
                let plain = self.inner.output(&session.inner, &inner, taken);
                match connection.writer().write(plain) {
                    Ok(count @ 1..) => taken += count,
                    _ => break,
                }
            }
        }
        session.collect();
        Exchange { inner, handshake: false }
    }

    fn output<'a>(&'a self, session: &'a Self::Session, _exchange: &'a Self::Exchange, written: usize) -> &'a [u8] {
        &session.out[written..]
    }

    fn input(&self, session: &mut Self::Session, exchange: &mut Self::Exchange, bytes: &[u8]) -> Reply {
        let mut reply = Reply::Partial;
        let Session { connection: Some(connection), inner, early, .. } = session else {
            return Reply::Failed(Cause::Mismatch);
        };
        if exchange.handshake {
            return self.shake_hands(session, bytes);
        }
        let early = early.take().unwrap_or_default();
        let outcome = decrypt(connection, &early, bytes, |plain| {
            reply = match reply {
                Reply::Partial => self.inner.input(inner, &mut exchange.inner, plain),
                Reply::Complete { payload, status, after: After::Usable } => {
                    let after = After::of_idle(self.inner.idle(inner, plain));
                    Reply::Complete { payload, status, after }
                }
                known => known,
            };
        });
        session.collect();
        match outcome {
            Err(error) => {
                self.complaints.add(&error);
                match reply {
                    Reply::Complete { payload, status, after: After::Usable } => {
                        Reply::Complete { payload, status, after: After::Lost(Cause::Mismatch) }
                    }
                    Reply::Partial => Reply::Failed(Cause::Mismatch),
                    known => known,
                }
            }
            Ok(Stream::Ended) => match reply {
                // The peer has said that its data is complete, so this may be the end of a body.
                Reply::Partial => self.inner.end(&mut session.inner, &mut exchange.inner),
                Reply::Complete { payload, status, after: After::Usable } => {
                    Reply::Complete { payload, status, after: After::Ends }
                }
                known => known,
            },
            Ok(Stream::Open) => reply,
        }
    }

    fn holds_input(&self, session: &Self::Session) -> bool {
        session.early.is_some()
    }

    fn end(&self, _session: &mut Self::Session, _exchange: &mut Self::Exchange) -> Reply {
        // The end of the connection without close_notify may be an attacker's, so what came before
        // it is not known to be all (RFC 9112, section 9.8).
        Reply::Failed(Cause::Closed)
    }

    fn idle(&self, session: &mut Self::Session, bytes: &[u8]) -> Reply {
        let Session { connection: Some(connection), inner, early, .. } = session else {
            return Reply::Failed(Cause::Mismatch);
        };
        let early = early.take().unwrap_or_default();
        // Session tickets come at any time (RFC 8446, section 4.6.1), and are no plaintext.
        let mut reply = Reply::Partial;
        let outcome = decrypt(connection, &early, bytes, |plain| {
            if reply == Reply::Partial {
                reply = self.inner.idle(inner, plain);
            }
        });
        session.collect();
        match outcome {
            Err(error) => {
                self.complaints.add(&error);
                Reply::Failed(Cause::Mismatch)
            }
            Ok(Stream::Ended) if reply == Reply::Partial => Reply::Failed(Cause::Closed),
            Ok(_) => reply,
        }
    }

    fn report(&self) -> Report {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let handshakes = Handshakes { full: count(&self.full), resumed: count(&self.resumed) };
        Report { handshakes: Some(handshakes), complaints: self.complaints.all() }
    }
}

enum Stream {
    Open,
    /// The peer said that no more comes (close_notify).
    Ended,
}

/// Hands over what bytes hold, after plaintext that came earlier. Of bytes that are wrong it hands
/// over what came before.
fn decrypt(
    connection: &mut ClientConnection,
    early: &[u8],
    mut bytes: &[u8],
    mut plain: impl FnMut(&[u8]),
) -> Result<Stream, rustls::Error> {
    if !early.is_empty() {
        plain(early);
    }
    let mut buffer = [0; RECORD_BYTES];
    let mut stream = Stream::Open;
    let mut failure = None;
    loop {
        loop {
            match connection.reader().read(&mut buffer) {
                Ok(count @ 1..) => plain(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Ok(0) | Err(_) => {
                    stream = Stream::Ended;
                    break;
                }
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        if bytes.is_empty() || !matches!(connection.read_tls(&mut bytes), Ok(1..)) {
            return Ok(stream);
        }
        failure = connection.process_new_packets().err();
    }
}

/// Believes any certificate, and still checks that the server holds its key.
#[derive(Debug)]
struct NoVerification(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for NoVerification {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
