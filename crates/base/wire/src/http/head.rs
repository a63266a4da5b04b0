//! The head of a response, for a client that only needs its redirect.

use thiserror::Error;

/// Header fields of a head that is read here.
const MOST_FIELDS: usize = 1000;

/// The final response's status and redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status code.
    pub status: u16,
    /// Where it redirects to (RFC 9110, section 10.2.2).
    pub location: Option<String>,
}

/// Bytes that are no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeadError {
    /// More must come.
    #[error("the answer is not complete")]
    Partial,
    /// They are not HTTP, or the head is too long.
    #[error("the answer is not HTTP/1.x")]
    Wrong,
}

impl ResponseHead {
    /// Reads the head of the first response that is not an interim one (RFC 9110, section 15.2).
    pub fn read(mut bytes: &[u8]) -> Result<ResponseHead, HeadError> {
        loop {
            let mut fields = vec![httparse::EMPTY_HEADER; MOST_FIELDS];
            let mut response = httparse::Response::new(&mut fields);
            let parsed = httparse::ParserConfig::default()
                .allow_obsolete_multiline_headers_in_responses(true)
                .parse_response(&mut response, bytes);
            let used = match parsed {
                Ok(httparse::Status::Complete(used)) => used,
                Ok(httparse::Status::Partial) if bytes.len() <= super::MOST_HEAD_BYTES => {
                    return Err(HeadError::Partial);
                }
                Ok(httparse::Status::Partial) | Err(_) => return Err(HeadError::Wrong),
            };
            let status = response.code.ok_or(HeadError::Wrong)?;
            if (100..200).contains(&status) {
                bytes = &bytes[used..];
                continue;
            }
            let location = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case("location"));
            let location = location.map(|field| String::from_utf8_lossy(field.value).trim().to_owned());
            return Ok(ResponseHead { status, location });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_where_it_leads() {
        let lead = |text: &str| ResponseHead::read(text.as_bytes()).map(|head| (head.status, head.location));
        let moved = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 301 Moved\r\nA: b\r\nlocation:  /x y \r\n\r\nbody";
        assert_eq!(lead(moved), Ok((301, Some("/x y".to_owned()))));
        assert_eq!(lead("HTTP/1.0 200 OK\r\n\r\n"), Ok((200, None)));
        for length in 0..moved.len() - "body".len() {
            assert_eq!(lead(&moved[..length]), Err(HeadError::Partial), "{length} bytes");
        }
        assert_eq!(lead("SSH-2.0\r\n"), Err(HeadError::Wrong));
    }
}
