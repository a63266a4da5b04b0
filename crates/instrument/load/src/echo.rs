//! The echo protocol: what is sent comes back, perhaps with a postfix.

use plimsoll_measure::tally::Cause;
use plimsoll_wire::echo::{Answer, Messages};

use crate::protocol::{After, Protocol, Reply, RequestContext};

/// Echo requests over the messages of a run.
#[derive(Clone, Debug)]
pub struct Echo {
    messages: Messages,
}

impl Echo {
    /// Requests made of `messages`.
    pub fn new(messages: Messages) -> Echo {
        Echo { messages }
    }
}

/// An echo under way: which message, and how much of it has come back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exchange {
    message: u32,
    received: usize,
}

impl Protocol for Echo {
    type Session = ();
    type Exchange = Exchange;

    const TELLS_TRANSMISSION: bool = false;

    fn begin(&self, _session: &mut (), context: RequestContext, _written: usize) -> Exchange {
        Exchange { message: self.messages.pick(context.random), received: 0 }
    }

    fn output<'a>(&'a self, _session: &'a (), exchange: &'a Exchange, written: usize) -> &'a [u8] {
        &self.messages.bytes(exchange.message)[written..]
    }

    fn input(&self, _session: &mut (), exchange: &mut Exchange, bytes: &[u8]) -> Reply {
        match self.messages.check(exchange.message, exchange.received, bytes) {
            Answer::Partial => {
                exchange.received += bytes.len();
                Reply::Partial
            }
            Answer::Complete => {
                Reply::Complete { payload: self.messages.answer_length() as u64, after: After::Usable, status: 0 }
            }
            Answer::Wrong => Reply::Failed(Cause::Mismatch),
        }
    }

    fn end(&self, _session: &mut (), _exchange: &mut Exchange) -> Reply {
        Reply::Failed(Cause::Closed)
    }
}
