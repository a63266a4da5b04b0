//! What a protocol is to the engines: bytes to send, and what the bytes that come back mean. No
//! socket, no clock.

use plimsoll_measure::summary::Handshakes;
use plimsoll_measure::tally::Cause;

/// A protocol, with the messages of one run.
pub trait Protocol: Send + Sync + 'static {
    /// What is kept of a connection from request to request. Every connection's slot has one, so
    /// large parts are boxed.
    type Session: Default + Send;

    /// What is kept of a request under way, in the slot as well.
    type Exchange: Default + Send;

    /// Whether the time from send to last byte is reported as transmission time.
    const TELLS_TRANSMISSION: bool;

    /// What is exchanged on a new connection before it is usable, such as a TLS handshake; none for
    /// most.
    fn begin_handshake(&self, target: usize) -> Option<(Self::Session, Self::Exchange)> {
        let _ = target;
        None
    }

    /// Begins a request on a connection, of whose output so far `written` bytes are written.
    fn begin(&self, session: &mut Self::Session, context: RequestContext, written: usize) -> Self::Exchange;

    /// The bytes of the request from `written` on; empty once all are written. It may return less
    /// than all of them.
    fn output<'a>(&'a self, session: &'a Self::Session, exchange: &'a Self::Exchange, written: usize) -> &'a [u8];

    /// Takes bytes that have arrived, split anywhere.
    fn input(&self, session: &mut Self::Session, exchange: &mut Self::Exchange, bytes: &[u8]) -> Reply;

    /// Whether the handshake's last bytes brought more than the handshake, which the protocol
    /// holds: [`Protocol::input`] or [`Protocol::idle`] is to be called without bytes.
    fn holds_input(&self, session: &Self::Session) -> bool {
        let _ = session;
        false
    }

    /// What was seen of all connections.
    fn report(&self) -> Report {
        Report::default()
    }

    /// Takes the end of the stream while a request is under way.
    fn end(&self, session: &mut Self::Session, exchange: &mut Self::Exchange) -> Reply;

    /// Takes bytes that arrived while no request was under way: `Partial` where they are in order,
    /// `Failed` where the connection is of no more use. Never `Complete`.
    fn idle(&self, session: &mut Self::Session, bytes: &[u8]) -> Reply {
        let _ = (session, bytes);
        Reply::Failed(Cause::Mismatch)
    }
}

/// What a protocol has seen of all connections of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Handshakes that made connections usable, where the protocol has them.
    pub handshakes: Option<Handshakes>,
    /// Why the protocol could not go on with connections.
    pub complaints: Vec<Complaint>,
}

/// Why the protocol could not go on with a connection, such as a certificate that has expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub remedy: &'static str,
    /// How many connections it was wrong with.
    pub count: u64,
}

/// What tells one request from another.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext {
    /// The target's place in the configuration.
    pub target: usize,
    /// The request's number, by which the protocol chooses among what it may ask the target for.
    pub sequence: u64,
    /// A random number.
    pub random: u64,
}

/// What the bytes that have arrived amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// More must come.
    Partial,
    /// The answer is complete.
    Complete {
        /// The payload bytes it brought.
        payload: u64,
        /// What it leaves of the connection.
        after: After,
        /// Its status, where answers have one, or 0. From 400 on the request has failed, and the
        /// connection is none the worse.
        status: u16,
    },
    /// The request has failed, and the connection is of no more use.
    Failed(Cause),
}

/// What an answer leaves of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It can be used for another request.
    Usable,
    /// It ends with the answer.
    Ends,
    /// It is of no more use, for what came behind the answer belongs to none: as if it had come
    /// while the connection was idle.
    Lost(Cause),
}

impl After {
    /// What bytes behind an answer leave of the connection, which [`Protocol::idle`] said this of.
    pub(crate) fn of_idle(reply: Reply) -> After {
        match reply {
            Reply::Failed(cause) => After::Lost(cause),
            Reply::Partial | Reply::Complete { .. } => After::Usable,
        }
    }
}
