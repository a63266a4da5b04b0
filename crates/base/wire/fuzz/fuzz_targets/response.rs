//! The response reader: whatever a server sends, the reader comes to one end of it, however the
//! bytes were cut.
//!
//! An input is what a server sends, and nothing else; whether it answers a HEAD request and where
//! it is cut follow from its bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_wire::http::head::{HeadError, ResponseHead};
use plimsoll_wire::http::response::{Progress, Reader};

/// What a reader makes of a response that comes in these pieces, after which the connection ends:
/// how it ended, and where it is whole also its status, its body's length, and whether the
/// connection would have been kept.
fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>, to_head: bool) -> (Progress, Option<(u16, u64, bool)>) {
    let mut reader = Reader::new(to_head);
    let (mut taken, mut progress) = (0, Progress::Partial);
    for piece in pieces.filter(|piece| !piece.is_empty()) {
        let (now, behind) = reader.take(piece);
        taken += (piece.len() - behind.len()) as u64;
        progress = now;
        assert!(reader.body_bytes() <= taken, "a body is no longer than what came");
        match progress {
            Progress::Wrong => return (progress, None),
            // What comes behind it belongs to no response.
            Progress::Complete => break,
            Progress::Partial => assert!(behind.is_empty(), "all of a part is taken"),
        }
    }
    let keep = reader.keeps_connection();
    if progress == Progress::Partial {
        progress = reader.end();
        assert!(!reader.keeps_connection(), "the connection has ended");
        assert!(progress != Progress::Wrong, "an end is early or in its place");
    }
    if progress != Progress::Complete {
        return (progress, None);
    }
    assert!((102..1000).contains(&reader.status()) || reader.status() == 100, "a status has three digits");
    assert!(!(100..200).contains(&reader.status()), "an interim response is no answer");
    (progress, Some((reader.status(), reader.body_bytes(), keep)))
}

fuzz_target!(|input: &[u8]| {
    let cut = input.iter().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte));
    let to_head = cut & 1 == 1;
    let whole = read([input].into_iter(), to_head);
    let (first, second) = input.split_at(usize::from(cut) * input.len() / 256);
    assert_eq!(read([first, second].into_iter(), to_head), whole, "cut at {}", first.len());
    // Cutting into many pieces parses a head as often, so only short inputs are.
    if input.len() <= 4096 {
        assert_eq!(read(input.chunks(1), to_head), whole, "byte by byte");
    }
    if let (Progress::Complete, Some((status, ..))) = whole {
        // The other reader of heads agrees; it takes fewer fields.
        match ResponseHead::read(input) {
            Ok(head) => assert_eq!(head.status, status),
            Err(error) => assert!(error == HeadError::Wrong && input.len() > 4000, "{error}"),
        }
    }
});
