//! A conversation: what one connection's service has answered, what of its input is left, and what
//! happens next. It moves no bytes itself.

use std::io;
use std::time::{Duration, Instant};

use super::environment::{Environment, Workspace, burn};
use crate::service::{Next, Output, Service, Turn};
use crate::totals::Exchange;

/// How long a peer may go on sending what nobody reads, after the last answer.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// What happens next on a connection, once everything is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Bytes are received for the service.
    Receiving,
    /// The service has more to say to what it has.
    Resuming,
    /// It is closed.
    Closing,
    /// Its writing half is to be ended.
    Lingering,
    /// Its writing half is ended: bytes are received for nobody.
    Discarding,
}

pub(crate) struct Conversation<P> {
    service: P,
    pub(crate) exchange: Exchange,
    pub(crate) stage: Stage,
    /// Until when something must arrive.
    pub(crate) until: Option<Instant>,
    /// Input that the service has left; there is a buffer only while there is some. Boxed: few
    /// connections have one at a time.
    #[expect(clippy::box_collection, reason = "a pointer a connection, not a vector")]
    held: Option<Box<Vec<u8>>>,
}

impl<P: Service> Conversation<P> {
    pub(crate) fn new(prototype: &P, environment: &Environment) -> Conversation<P> {
        let mut service = prototype.clone();
        let until = service.opened(environment);
        Conversation { service, exchange: Exchange::default(), stage: Stage::Receiving, until, held: None }
    }

    /// Keeps bytes that come while the service cannot take them.
    pub(crate) fn hold(&mut self, fresh: &[u8]) {
        self.held.get_or_insert_default().extend_from_slice(fresh);
    }

    /// How many bytes are kept.
    pub(crate) fn held(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.len())
    }

    /// How long the peer may acknowledge nothing of what is being sent.
    pub(crate) fn send_timeout(&self) -> Option<Duration> {
        self.service.send_timeout()
    }

    /// Has the service answer `fresh` bytes after those that it left. `send` takes each turn's
    /// output with the input that it may borrow from, and returns whether all of it is sent.
    /// Where input is left after that, the next turn has to wait for those of other connections.
    pub(crate) fn serve(
        &mut self,
        fresh: &[u8],
        workspace: &mut Workspace,
        mut send: impl FnMut(&[u8], &mut Output, &Environment, &mut Exchange) -> io::Result<bool>,
    ) -> io::Result<()> {
        let mut held = self.held.take();
        let input: &[u8] = match &mut held {
            Some(held) => {
                held.extend_from_slice(fresh);
                held
            }
            None => fresh,
        };
        let mut taken = 0;
        loop {
            let Turn { consumed, requests, next } =
                self.service.receive(&input[taken..], &mut workspace.environment, &mut workspace.output);
            self.exchange.requests += requests;
            let mut sent = true;
            if !workspace.output.chunks.is_empty() {
                burn(workspace.output.burn);
                let outcome = send(&input[taken..], &mut workspace.output, &workspace.environment, &mut self.exchange);
                workspace.output.clear();
                sent = outcome?;
            }
            taken += consumed;
            self.stage = match next {
                Next::Receive(until) => {
                    self.until = until;
                    Stage::Receiving
                }
                Next::Send => Stage::Resuming,
                Next::Close => Stage::Closing,
                Next::Linger => Stage::Lingering,
            };
            if !sent || self.stage != Stage::Resuming || taken < input.len() {
                break;
            }
        }
        self.held = match held {
            _ if taken == input.len() || matches!(self.stage, Stage::Closing | Stage::Lingering) => None,
            None => Some(Box::new(fresh[taken..].to_vec())),
            Some(mut held) => {
                held.drain(..taken);
                Some(held)
            }
        };
        Ok(())
    }

    /// The limit has passed: has the service say so, or end the connection without a word.
    pub(crate) fn expire(
        &mut self,
        workspace: &mut Workspace,
        mut send: impl FnMut(&[u8], &mut Output, &Environment, &mut Exchange) -> io::Result<bool>,
    ) -> io::Result<()> {
        if self.stage != Stage::Receiving {
            self.stage = Stage::Closing;
            return Ok(());
        }
        let partial = self.held.take().is_some();
        let next = self.service.expired(partial, &mut workspace.environment, &mut workspace.output);
        self.stage = if next == Next::Linger { Stage::Lingering } else { Stage::Closing };
        if !workspace.output.chunks.is_empty() {
            let outcome = send(&[], &mut workspace.output, &workspace.environment, &mut self.exchange);
            workspace.output.clear();
            outcome?;
        }
        Ok(())
    }

    /// Everything is sent and the writing half is ended: what still comes is for nobody, and not
    /// for long.
    pub(crate) fn discard(&mut self, now: Instant) {
        self.stage = Stage::Discarding;
        self.until = Some(now + LINGER);
    }
}
