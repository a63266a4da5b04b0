//! The request path: whatever a peer sends, in whatever pieces, the service takes no more than
//! there is, promises what it sends, comes to an end of it, and answers the same however the bytes
//! were cut.
//!
//! An input is what a peer sends, and nothing else, so that tests can replay the corpus against
//! servers; where it is cut, and what the server is, follows from its bytes.
#![no_main]

use std::time::{Duration, Instant, SystemTime};

use libfuzzer_sys::fuzz_target;
use plimsoll_serve::service::{
    CachedTime, Chunk, Found, Http, HttpSettings, HttpVersion, NextStep, NotFound, Output, Service, ServiceContext,
};

/// Files by the first letter of their name.
struct TestContext(CachedTime);

impl ServiceContext for TestContext {
    fn time(&self) -> &CachedTime {
        &self.0
    }

    fn resolve(&mut self, path: &[u8]) -> Result<Found, NotFound> {
        assert!(!path.contains(&0) && !path.starts_with(b"/"), "no such path is ever asked for");
        assert!(path.split(|byte| *byte == b'/').all(|part| part != b".."), "nor one that leads up");
        match path.first() {
            Some(b'f') => Err(NotFound::Folder),
            Some(b's') => Err(NotFound::Forbidden),
            Some(b'l') => Err(NotFound::TooLong),
            Some(b'a') => Err(NotFound::Absent),
            _ => Ok(Found { length: path.len() as u64 * 100, modified: (1_700_000_000, 0) }),
        }
    }
}

/// What a service sends when its input comes in these pieces: bytes as they are, bodies by their
/// length.
fn sent(prototype: &Http, pieces: [&[u8]; 2], context: &mut TestContext) -> (Vec<u8>, u64, bool) {
    let (mut service, mut output) = (prototype.clone(), Output::default());
    let (mut bytes, mut bodies, mut held) = (Vec::new(), 0, Vec::new());
    service.opened(context);
    for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
        held.extend_from_slice(piece);
        loop {
            let processed = service.receive(&held, context, &mut output);
            assert!(processed.consumed <= held.len());
            for chunk in output.chunks.drain(..) {
                match chunk {
                    Chunk::Input(range) => bytes.extend_from_slice(&held[range]),
                    Chunk::Written(range) => bytes.extend_from_slice(&output.bytes[range]),
                    Chunk::Static(part) => bytes.extend_from_slice(part),
                    Chunk::File { length, .. } | Chunk::Repeated { length, .. } => {
                        assert!(length > 0);
                        bodies += length;
                    }
                }
            }
            output.clear();
            held.drain(..processed.consumed);
            match processed.next {
                NextStep::Send => {
                    assert!(
                        processed.consumed > 0 || held.is_empty(),
                        "it comes no further, and asks to be called again"
                    )
                }
                NextStep::Receive(_) => break,
                NextStep::Close | NextStep::Linger => return (bytes, bodies, true),
            }
        }
    }
    (bytes, bodies, false)
}

fuzz_target!(|input: &[u8]| {
    let cut = input.iter().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte));
    let prototype = Http::new(HttpSettings {
        version: if cut & 1 == 0 { HttpVersion::Http11 } else { HttpVersion::Http10 },
        keep_alive_timeout: Duration::from_secs(5),
        request_timeout: Duration::from_secs(10),
        send_timeout: Duration::from_secs(60),
        synthetic: cut & 2 == 0,
        work_paths: Vec::new(),
        work: Duration::ZERO,
    });
    let mut context = TestContext(CachedTime::new(Instant::now(), SystemTime::UNIX_EPOCH));
    let whole = sent(&prototype, [input, &[]], &mut context);
    assert!(whole.0.is_empty() || whole.0.starts_with(b"HTTP/1."), "an answer is HTTP");
    let (first, second) = input.split_at(usize::from(cut) * input.len() / 256);
    let parted = sent(&prototype, [first, second], &mut context);
    assert_eq!(parted.2, whole.2, "cut at {}", first.len());
    if whole.2 {
        // Of two things that are wrong with a request, which is found first may depend on what has
        // come: only the last answer may differ.
        assert_eq!(before_the_last(&parted.0), before_the_last(&whole.0), "cut at {}", first.len());
    } else {
        assert!(parted == whole, "cut at {}", first.len());
    }
});

/// All answers but the last.
fn before_the_last(answers: &[u8]) -> &[u8] {
    // A status line, and not a version that a sentence speaks of.
    let begins = |window: &[u8]| {
        window.starts_with(b"HTTP/1.") && window[8] == b' ' && window[9..12].iter().all(u8::is_ascii_digit)
    };
    let last = answers.windows(12).rposition(begins);
    &answers[..last.unwrap_or(0)]
}
