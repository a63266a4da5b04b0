//! What a server sends over TLS, as the generator reads it. Whatever the records are, and however
//! their bytes were cut, the answer is that of the plaintext. An end without close_notify is no end
//! of a body, no changed record is believed, and no bytes but a server's own are a handshake.
//!
//! An input is the plaintext that a server sends. The version of TLS, the records, the cuts and
//! what is changed follow from its bytes. It is also sent in place of a handshake.
#![no_main]

use std::io::Write;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use plimsoll_load::http::Http;
use plimsoll_load::protocol::{After, Protocol, Reply, RequestContext};
use plimsoll_load::secure::{Secure, Security, Trust};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const CERTIFICATE: &[u8] = include_bytes!("../../../../plimsoll/tests/whole/tls/server.pem");
const KEY: &[u8] = include_bytes!("../../../../plimsoll/tests/whole/tls/server.key");
/// More records of one input would cost time, and bring nothing new.
const MOST_RECORDS: usize = 64;

type Session = <Secure<Http> as Protocol>::Session;
type Exchange = <Secure<Http> as Protocol>::Exchange;

struct Ends {
    plain: Http,
    secure: Secure<Http>,
    servers: [Arc<ServerConfig>; 2],
}

static ENDS: LazyLock<Ends> = LazyLock::new(|| {
    let plain = Http::new(vec![Arc::from([REQUEST.to_vec()])], false);
    let names = vec![ServerName::try_from("localhost").expect("a name")];
    let security = Security { trust: Trust::Anyone, identity: None, resume: false };
    let secure = Secure::new(plain.clone(), names, security).expect("there is no key that could be wrong");
    Ends { plain, secure, servers: [server(&TLS12), server(&TLS13)] }
});

fn server(version: &'static SupportedProtocolVersion) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_protocol_versions(&[version]).expect("the provider has it").with_no_client_auth();
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(CERTIFICATE).collect();
    let key = PrivateKeyDer::from_pem_slice(KEY).expect("a key");
    let mut config = builder.with_single_cert(certificates.expect("certificates"), key).expect("they belong together");
    // An answer may come before its request (RFC 8446, section 4.4.4).
    config.send_half_rtt_data = true;
    Arc::new(config)
}

const CONTEXT: RequestContext = RequestContext { target: 0, sequence: 0, random: 0 };

/// The same, where a connection that is lost after an answer has ended with it.
fn of_use(reply: Reply) -> Reply {
    match reply {
        Reply::Complete { payload, status, after: After::Lost(_) } => {
            Reply::Complete { payload, status, after: After::Ends }
        }
        other => other,
    }
}

/// What the plaintext amounts to, after which the server says that no more comes, or the connection
/// ends without a word.
fn of_plaintext(bytes: &[u8], says_end: bool) -> Reply {
    let plain = &ENDS.plain;
    let mut session = Default::default();
    let mut exchange = plain.begin(&mut session, CONTEXT, 0);
    let reply = if bytes.is_empty() { Reply::Partial } else { plain.input(&mut session, &mut exchange, bytes) };
    match reply {
        Reply::Partial if says_end => plain.end(&mut session, &mut exchange),
        Reply::Partial => ENDS.secure.end(&mut Session::default(), &mut Exchange::default()),
        Reply::Complete { payload, status, .. } if says_end => Reply::Complete { payload, status, after: After::Ends },
        complete @ Reply::Complete { .. } => of_use(complete),
        failed @ Reply::Failed(_) => failed,
    }
}

/// What these pieces amount to, after which the connection ends. What came with the handshake goes
/// before them.
fn of_pieces<'a>(session: &mut Session, exchange: &mut Exchange, pieces: impl Iterator<Item = &'a [u8]>) -> Reply {
    let secure = &ENDS.secure;
    let held = secure.holds_input(session).then_some(&[][..]);
    let mut last = Reply::Partial;
    for piece in held.into_iter().chain(pieces.filter(|piece| !piece.is_empty())) {
        last = match last {
            Reply::Complete { payload, status, after: After::Usable } => match secure.idle(session, piece) {
                Reply::Failed(_) => Reply::Complete { payload, status, after: After::Ends },
                _ => last,
            },
            Reply::Complete { .. } => last,
            _ => of_use(secure.input(session, exchange, piece)),
        };
        if let Reply::Failed(_) = last {
            return last;
        }
    }
    if last == Reply::Partial { secure.end(session, exchange) } else { last }
}

/// Everything that the server has to say now.
fn told(server: &mut ServerConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut bytes).expect("memory takes it");
    }
    bytes
}

/// Gives the server what the generator has not written yet.
fn tell(server: &mut ServerConnection, session: &Session, exchange: &Exchange, written: &mut usize) {
    let mut bytes = ENDS.secure.output(session, exchange, *written);
    *written += bytes.len();
    while !bytes.is_empty() {
        server.read_tls(&mut bytes).expect("memory has it");
        server.process_new_packets().expect("the generator speaks TLS");
    }
}

/// A connection whose handshake is over and whose request is begun, and its server, which sends
/// `early` as soon as it may.
fn connected(config: &Arc<ServerConfig>, early: &[&[u8]]) -> (Session, Exchange, ServerConnection) {
    let secure = &ENDS.secure;
    let mut server = ServerConnection::new(Arc::clone(config)).expect("a sound configuration");
    server.set_buffer_limit(None);
    for part in early {
        server.writer().write_all(part).expect("memory takes it");
    }
    let (mut session, mut exchange) = secure.begin_handshake(0).expect("TLS has one");
    let mut written = 0;
    loop {
        tell(&mut server, &session, &exchange, &mut written);
        match secure.input(&mut session, &mut exchange, &told(&mut server)) {
            Reply::Partial => {}
            Reply::Complete { .. } => break,
            Reply::Failed(cause) => panic!("a sound handshake fails: {cause:?}"),
        }
    }
    let exchange = secure.begin(&mut session, CONTEXT, written);
    tell(&mut server, &session, &exchange, &mut 0);
    (session, exchange, server)
}

/// Whether a byte is of the type or the version at the head of a record, which a receiver of TLS
/// 1.3 need not look at (RFC 8446, section 5.2).
fn is_free(bytes: &[u8], place: usize) -> bool {
    let mut begin = 0;
    loop {
        let end = begin + 5 + usize::from(u16::from_be_bytes([bytes[begin + 3], bytes[begin + 4]]));
        if place < end {
            return place < begin + 3;
        }
        begin = end;
    }
}

fuzz_target!(|input: &[u8]| {
    let mix = input.iter().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
    let bit = |number: u32| mix >> number & 1 == 1;
    let cut_at = |bytes: &[u8]| (mix >> 16) as usize * bytes.len() / 65_536;

    let (first, second) = input.split_at(cut_at(input));
    for pieces in [&[input][..], &[first, second][..]] {
        let (mut session, mut exchange) = ENDS.secure.begin_handshake(0).expect("TLS has one");
        let reply = of_pieces(&mut session, &mut exchange, pieces.iter().copied());
        assert!(matches!(reply, Reply::Failed(_)), "these bytes are no handshake: {reply:?}");
    }

    let (is_13, says_end, renews_keys, is_early, is_changed) = (bit(0), bit(1), bit(2), bit(3), bit(4));
    let server = &ENDS.servers[usize::from(is_13)];
    let size = ((mix >> 5) as usize % 4096 + 1).max(input.len() / MOST_RECORDS + 1);
    let parts: Vec<&[u8]> = input.chunks(size).collect();
    let wanted = of_plaintext(input, says_end);
    // Each connection has keys of its own, so its records are sent anew.
    for is_cut in [false, true] {
        let early = if is_early { &parts[..] } else { &[] };
        let (mut session, mut exchange, mut server) = connected(server, early);
        let mut bytes = told(&mut server);
        // Where each part's record begins.
        let mut records = Vec::new();
        for part in parts.iter().filter(|_| !is_early) {
            if renews_keys && is_13 {
                server.refresh_traffic_keys().expect("the handshake is over");
                bytes.extend(told(&mut server));
            }
            records.push(bytes.len());
            server.writer().write_all(part).expect("memory takes it");
            bytes.extend(told(&mut server));
        }
        if says_end {
            server.send_close_notify();
            bytes.extend(told(&mut server));
        }
        let place = records.first().map_or(0, |first| first + (mix >> 7) as usize % (bytes.len() - first));
        if is_changed && !records.is_empty() && !is_free(&bytes, place) {
            bytes[place] ^= 1 << (mix % 8);
            let reply = of_pieces(&mut session, &mut exchange, std::iter::once(&bytes[..]));
            // An answer that was complete before is one; of the last record on, nothing has to be.
            let before = records.iter().filter(|begin| **begin <= place).count() - 1;
            let is_after_all = place >= records[before] + parts[before].len();
            let whole: usize = parts[..before].iter().map(|part| part.len()).sum();
            // Its connection is lost to the changed byte.
            let ended = |reply| match reply {
                Reply::Complete { payload, status, .. } => Reply::Complete { payload, status, after: After::Ends },
                other => other,
            };
            let is_sound = ended(reply) == ended(of_plaintext(&input[..whole], false))
                || is_after_all && reply == of_plaintext(input, false)
                || matches!(reply, Reply::Failed(_));
            assert!(is_sound, "{reply:?}, though byte {place} was changed");
            return;
        }
        let (first, second) = bytes.split_at(cut_at(&bytes));
        let reply = match is_cut {
            false => of_pieces(&mut session, &mut exchange, std::iter::once(&bytes[..])),
            true if bytes.len() <= 4096 => of_pieces(&mut session, &mut exchange, bytes.chunks(1)),
            true => of_pieces(&mut session, &mut exchange, [first, second].into_iter()),
        };
        assert_eq!(reply, wanted, "cut: {is_cut}");
    }
});
