//! A connection that has both its sides: what it moves between them.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use plimsoll_reactor::slab::Key;

use super::{Action, Connection, Context};
use crate::log::{Log, LoopNumber, Record, TransferRow};
use crate::outbox::Message;
use crate::pool::Pool;
use crate::relay::{Relay, Side, Step, Verdict};
use crate::transfer::{Channel, Endpoint, Transfer, TransferObserver, TransferOutcome};

impl Connection {
    /// Moves what there is, both ways.
    pub(super) fn relay(&mut self, context: &mut Context<'_>) -> Action {
        let Context { key, pool, log, by, now } = context;
        let (key, now) = (*key, *now);
        let mut watch = log.transfers.then_some(LogObserver { log, by: *by, time: now });
        let (mut yields, mut resumes, before) = (false, None::<Duration>, self.relay);
        let metered = self.route.bandwidth.is_some().then(|| Arc::clone(&self.route));
        // What one direction finds out may give the other something to do: never more often than
        // each side has one end.
        for _ in 0..3 {
            let mut busy = false;
            for side in [Side::Client, Side::Server] {
                let Some(mut transfer) = self.transfer(key, side) else { continue };
                if transfer.next() != Step::Wait {
                    busy = true;
                    let watch = watch.as_mut().map(|watch| watch as &mut dyn TransferObserver);
                    let meters = metered.as_ref().and_then(|route| route.bandwidth.as_ref());
                    let meter = meters.map(|meters| &meters[side as usize]);
                    match transfer.turn(pool, watch, meter.map(|meter| (meter, now))) {
                        TransferOutcome::Waits => {}
                        TransferOutcome::Yields => yields = true,
                        TransferOutcome::Metered(wait) => {
                            resumes = Some(resumes.map_or(wait, |former| former.min(wait)));
                        }
                    }
                }
            }
            if yields || resumes.is_some() || !busy {
                break;
            }
        }
        self.note_progress(&before, now);
        match self.relay.verdict() {
            Verdict::Lives if yields => Action::Yields,
            Verdict::Lives => resumes.map_or(Action::Waits, Action::Resumes),
            Verdict::Over | Verdict::Dead => Action::Closes(self.ending()),
            Verdict::Failed(errno) => Action::Fails(io::Error::from_raw_os_error(errno)),
            Verdict::Linger { survivor, end } => self.linger(survivor, end, pool, now),
        }
    }

    /// How many directions have begun to wait for their rule's bandwidth since one of this
    /// connection did.
    pub(crate) fn waits_since(&self, pool: &Pool) -> u32 {
        let waits = [&self.up, &self.down].into_iter().filter_map(|channel| channel.wait);
        waits.map(|wait| pool.waits_since(wait)).max().unwrap_or(0)
    }

    /// Takes note of what has moved since the relay was `before`.
    fn note_progress(&mut self, before: &Relay, now: Instant) {
        if self.relay.progress() != before.progress() {
            self.active = now;
        }
        let written = [self.relay.up.bytes, self.relay.down.bytes];
        let counts = &self.route.counts;
        for (count, written, before) in
            [(&counts.bytes_up, written[0], before.up.bytes), (&counts.bytes_down, written[1], before.down.bytes)]
        {
            if written != before {
                count.fetch_add(written - before, Ordering::Relaxed);
            }
        }
        let is_blocked = |channel: &Channel, sink: &Option<Endpoint>| {
            channel.is_holding() && sink.as_ref().is_some_and(|endpoint| !endpoint.writable)
        };
        let blocked = [is_blocked(&self.up, &self.server), is_blocked(&self.down, &self.client)];
        if blocked != [false; 2] || self.delivery.is_some() {
            self.delivery.get_or_insert_default().note(blocked, now);
        }
    }

    /// The direction whose source is `side`, while both sides are there.
    fn transfer(&mut self, key: Key, side: Side) -> Option<Transfer<'_>> {
        let (client, server) = (self.client.as_mut()?, self.server.as_mut()?);
        let (source, sink, channel) = match side {
            Side::Client => (client, server, &mut self.up),
            Side::Server => (server, client, &mut self.down),
        };
        Some(Transfer { key, relay: &mut self.relay, side, source, sink, channel })
    }

    /// Where in the outbox the bytes from `side` are, and the socket they go to; None when none are
    /// there.
    pub(crate) fn posted(&self, side: Side) -> Option<(BorrowedFd<'_>, Range<usize>)> {
        let (channel, sink) = match side {
            Side::Client => (&self.up, &self.server),
            Side::Server => (&self.down, &self.client),
        };
        Some((sink.as_ref()?.socket.as_fd(), channel.posted()?))
    }

    /// The message from the outbox was sent, as far as there was room for it. Returns whether there
    /// may be more to do.
    pub(crate) fn sent(&mut self, message: Message, outcome: io::Result<usize>, pool: &mut Pool, now: Instant) -> bool {
        let before = self.relay;
        if let Some(mut transfer) = self.transfer(message.key, message.from) {
            transfer.written(outcome, pool);
        }
        self.note_progress(&before, now);
        let has_more = [Side::Client, Side::Server]
            .into_iter()
            .any(|side| self.transfer(message.key, side).is_some_and(|mut transfer| transfer.next() != Step::Wait));
        has_more || self.relay.verdict() != Verdict::Lives || self.paced || self.is_spliced()
    }
}

struct LogObserver<'a> {
    log: &'a Log,
    by: LoopNumber,
    time: Instant,
}

impl TransferObserver for LogObserver<'_> {
    fn transferred(&mut self, source: &Endpoint, sink: &Endpoint, reads: u64, bytes: u64) {
        let (receive, send) = (source.socket.as_raw_fd(), sink.socket.as_raw_fd());
        let (time, by) = (self.time, self.by);
        self.log.hand(Record::Transfer(TransferRow { time, by, receive, send, requests: reads, bytes }));
    }
}
