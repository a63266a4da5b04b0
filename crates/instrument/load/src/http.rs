//! The HTTP/1.x protocol: requests rendered once, answers read as they come.

use std::sync::Arc;

use plimsoll_measure::tally::Cause;
use plimsoll_wire::http::response::{Progress, Reader, Unrequested, unrequested};

use crate::protocol::{After, Protocol, Reply, RequestContext};

/// HTTP requests, of which each connection sends those of its target in turn.
#[derive(Clone, Debug)]
pub struct Http {
    /// The requests of each target as they go over the wire, head and body. No list is empty.
    requests: Vec<Arc<[Vec<u8>]>>,
    to_head: bool,
    /// Each request says that its connection ends with the answer.
    ends_connections: bool,
}

impl Http {
    /// Requests for each target; `to_head` says that they are HEAD requests, whose answers have no
    /// body.
    pub fn new(requests: Vec<Arc<[Vec<u8>]>>, to_head: bool) -> Http {
        Http { requests, to_head, ends_connections: false }
    }

    /// Whether the requests ask for the end of their connections. Then none is followed by another
    /// on its connection, even if the answer says nothing of that end (RFC 9112, section 9.6).
    pub fn ending_connections(self, ends_connections: bool) -> Http {
        Http { ends_connections, ..self }
    }

    /// The answer is complete, and `behind` it came bytes that would be of this use.
    fn complete(&self, reader: &Reader, behind: After) -> Reply {
        let keeps = reader.keeps_connection() && !self.ends_connections;
        let after = if keeps { behind } else { After::Ends };
        Reply::Complete { payload: reader.body_bytes(), after, status: reader.status() }
    }
}

/// What came while no request was under way, and may be the beginning of a response 408.
#[derive(Debug, Default)]
pub struct Session {
    #[expect(clippy::box_collection, reason = "it stands in every connection's slot: 8 bytes in place of 24")]
    begun: Option<Box<Vec<u8>>>,
}

/// A request under way: which one, and how much of its answer has been read.
#[derive(Debug, Default)]
pub struct Exchange {
    target: u32,
    request: u32,
    reader: Reader,
}

impl Protocol for Http {
    type Session = Session;
    type Exchange = Exchange;

    const TELLS_TRANSMISSION: bool = true;

    fn begin(&self, session: &mut Self::Session, context: RequestContext, _written: usize) -> Exchange {
        let request = context.sequence % self.requests[context.target].len() as u64;
        let mut reader = Reader::new(self.to_head);
        if let Some(begun) = session.begun.take() {
            // A part of a status line shows nothing about the answer.
            let _ = reader.take(&begun);
        }
        Exchange { target: context.target as u32, request: request as u32, reader }
    }

    fn output<'a>(&'a self, _session: &'a Self::Session, exchange: &'a Exchange, written: usize) -> &'a [u8] {
        &self.requests[exchange.target as usize][exchange.request as usize][written..]
    }

    fn input(&self, session: &mut Self::Session, exchange: &mut Exchange, bytes: &[u8]) -> Reply {
        match exchange.reader.take(bytes) {
            (Progress::Partial, _) => Reply::Partial,
            (Progress::Complete, []) => self.complete(&exchange.reader, After::Usable),
            // Whether it came together with the answer is chance.
            (Progress::Complete, behind) => self.complete(&exchange.reader, After::of_idle(self.idle(session, behind))),
            (Progress::Wrong, _) => Reply::Failed(Cause::Mismatch),
        }
    }

    fn idle(&self, session: &mut Self::Session, bytes: &[u8]) -> Reply {
        // A server may say that it gives up an idle connection (RFC 9110, section 15.5.9), which is
        // no answer to any request.
        let all = session.begun.get_or_insert_default();
        all.extend_from_slice(bytes);
        match unrequested(all) {
            Unrequested::RequestTimeout => Reply::Failed(Cause::Closed),
            Unrequested::Partial => Reply::Partial,
            Unrequested::Other => Reply::Failed(Cause::Mismatch),
        }
    }

    fn end(&self, _session: &mut Self::Session, exchange: &mut Exchange) -> Reply {
        match exchange.reader.end() {
            Progress::Complete => self.complete(&exchange.reader, After::Ends),
            Progress::Partial | Progress::Wrong => Reply::Failed(Cause::Closed),
        }
    }
}
