use super::*;
use proptest::prelude::*;

/// Hands a response over in pieces and ends the connection after it.
fn read(bytes: &[u8], piece: usize, to_head: bool) -> (Progress, u16, u64, bool) {
    let mut reader = Reader::new(to_head);
    let mut progress = Progress::Partial;
    for part in bytes.chunks(piece) {
        let (taken, behind) = reader.take(part);
        progress = taken;
        if progress == Progress::Wrong {
            break;
        }
        assert!(progress == Progress::Complete || behind.is_empty());
    }
    let keep = reader.keeps_connection();
    if progress == Progress::Partial {
        progress = reader.end();
    }
    (progress, reader.status(), reader.body_bytes(), keep)
}

const WHOLE: [(&str, u16, u64, bool); 23] = [
    (
        "HTTP/1.1 200 OK\r\nKeep-Alive: close\r\nX-Content-Size: 3\r\nX-Transfer-Coding: chunked\r\nContent-Length: \
         5\r\n\r\nhello",
        200,
        5,
        true,
    ),
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, 5, true),
    ("HTTP/1.1 200 OK\r\ncontent-length:5\r\nCONNECTION: x, Close\r\n\r\nhello", 200, 5, false),
    ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, 5, false),
    ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", 200, 5, true),
    ("HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, 13, false),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\nuntil the end", 200, 13, false),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\nuntil", 200, 5, false),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nContent-Length: 2\r\n\r\nuntil", 200, 5, false),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip,\r\n\t chunked ,\r\n\r\n1\r\nx\r\n0\r\n\r\n", 200, 1, true),
    ("HTTP/1.1 200 OK\r\nContent-Length:\r\n 5\r\nX: a\r\n b\r\n\tc\r\n\r\nhello", 200, 5, true),
    ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, 0, false),
    ("HTTP/1.1 999 \r\nContent-Length: 0\r\n\r\n", 999, 0, true),
    ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, 0, true),
    ("HTTP/1.1 204 No Content\r\n\r\n", 204, 0, true),
    ("HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n", 304, 0, true),
    ("HTTP/1.1 404 Not Found\nContent-Length: 2\n\nno", 404, 2, true),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 200, 5, true),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\nA;x=\"1\"\r\n0123456789\r\n00\r\n\r\n", 200, 10, true),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\n0\nTrailer: yes\nOther: 1\n\n", 200, 1, true),
    ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", 200, 1, true),
    (
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 \
         OK\r\nContent-Length: 1\r\n\r\nx",
        200,
        1,
        true,
    ),
    ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nfour", 200, 4, true),
];

#[test]
fn a_response_is_whole_wherever_it_is_split() {
    for (text, status, body, keep) in WHOLE {
        for piece in 1..=text.len() {
            let want = (Progress::Complete, status, body, keep);
            assert_eq!(read(text.as_bytes(), piece, false), want, "in pieces of {piece}: {text}");
        }
    }
}

#[test]
fn a_response_cut_short_is_never_whole() {
    for (text, ..) in WHOLE.iter().filter(|(text, ..)| !text.contains("until")) {
        for length in 0..text.len() {
            let (progress, ..) = read(&text.as_bytes()[..length], length.max(1), false);
            assert_eq!(progress, Progress::Partial, "{length} bytes of {text}");
        }
    }
}

#[test]
fn the_response_to_head_has_no_body() {
    let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(read(text, 7, true), (Progress::Complete, 200, 0, true));
}

#[test]
fn what_is_no_response_is_wrong() {
    for text in [
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "HTTP/1.1 099 Early\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 000 \r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n folded: first\r\n\r\n",
    ] {
        for piece in [1, 3, text.len()] {
            assert_eq!(read(text.as_bytes(), piece, false).0, Progress::Wrong, "in pieces of {piece}: {text}");
        }
    }
}

#[test]
fn what_comes_behind_a_response_is_none_of_it() {
    for (text, body) in [("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 5), ("HTTP/1.1 204 No\r\n\r\n", 0)] {
        let mut reader = Reader::new(false);
        let both = [text, "HTTP/1.1 408 "].concat();
        assert_eq!(reader.take(both.as_bytes()), (Progress::Complete, &b"HTTP/1.1 408 "[..]));
        assert_eq!(reader.take(b"x"), (Progress::Complete, &b"x"[..]));
        assert_eq!((reader.keeps_connection(), reader.body_bytes()), (true, body));
    }
}

/// A response without a body whose head has so many bytes.
fn head_of(length: usize) -> String {
    let (start, end) = ("HTTP/1.1 204 No\r\nX: ", "\r\n\r\n");
    format!("{start}{}{end}", "x".repeat(length - start.len() - end.len()))
}

#[test]
fn a_long_head_is_taken_or_refused_alike_however_it_is_split() {
    for (length, want) in [
        (70_000, Progress::Complete),
        (MOST_HEAD_BYTES, Progress::Complete),
        (MOST_HEAD_BYTES + 1, Progress::Wrong),
        (2 * MOST_HEAD_BYTES, Progress::Wrong),
    ] {
        for piece in [4096, length / 2 + 1, length - 1, length] {
            let progress = read(head_of(length).as_bytes(), piece, false).0;
            assert_eq!(progress, want, "{length} bytes in pieces of {piece}");
        }
    }
}

#[test]
fn a_request_timeout_is_known_by_its_status_line() {
    for text in ["HTTP/1.1 408 Request Timeout\r\n", "HTTP/1.0 408\r\n\r\n"] {
        assert_eq!(unrequested(text.as_bytes()), Unrequested::RequestTimeout, "{text}");
    }
    for text in ["", "HTTP/1.1 40", "HTTP/1.0 408"] {
        assert_eq!(unrequested(text.as_bytes()), Unrequested::Partial, "{text}");
    }
    for text in ["HTTP/1.1 4080\r\n", "HTTP/1.1 400 Bad\r\n", "HTTP/2.0 408 \r\n", "408"] {
        assert_eq!(unrequested(text.as_bytes()), Unrequested::Other, "{text}");
    }
}

#[test]
fn an_endless_trailer_is_refused() {
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX: ";
    for (length, want) in [(MOST_HEAD_BYTES / 2, Progress::Complete), (2 * MOST_HEAD_BYTES, Progress::Wrong)] {
        let text = format!("{chunks}{}\r\n\r\n", "x".repeat(length));
        assert_eq!(read(text.as_bytes(), 4096, false).0, want, "{length}");
    }
}

#[test]
fn an_endless_head_is_refused() {
    let text = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(2 * MOST_HEAD_BYTES));
    assert_eq!(read(text.as_bytes(), 4096, false).0, Progress::Wrong);
}

#[test]
fn a_head_may_have_any_number_of_fields() {
    for fields in [USUAL_FIELDS, USUAL_FIELDS + 1, 5000] {
        let text = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 2\r\n\r\n\n\n", "A: b\r\n".repeat(fields));
        for piece in [1000, text.len()] {
            let want = (Progress::Complete, 200, 2, true);
            assert_eq!(read(text.as_bytes(), piece, false), want, "{fields} fields in pieces of {piece}");
        }
    }
}

proptest! {
    #[test]
    fn a_chunked_body_has_the_length_of_its_chunks(
        chunks in prop::collection::vec(1_usize..300, 0..10),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
    ) {
        let mut text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for size in &chunks {
            text.extend(format!("{size:x}\r\n{}\r\n", "\n".repeat(*size)).bytes());
        }
        text.extend(b"0\r\n\r\n");
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let mut reader = Reader::default();
        let progress = cuts.windows(2).map(|part| reader.take(&text[part[0]..part[1]])).last();
        prop_assert_eq!(progress, Some((Progress::Complete, &[][..])));
        prop_assert_eq!(reader.body_bytes(), chunks.iter().sum::<usize>() as u64);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), valid_start: bool) {
        let head: &[u8] = if valid_start { b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" } else { b"" };
        let _ = read(&[head, &bytes].concat(), 7, false);
    }
}
