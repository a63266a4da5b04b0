//! A connection one side of which is gone: the other is closed when it has what was sent to it.

use std::time::Instant;

use plimsoll_reactor::progress::{SendProgress, Sent, Verdict};
use plimsoll_sys::net;

use super::{Action, Connection, ConnectionState};
use crate::pool::Pool;
use crate::relay::{End, Side};

impl Connection {
    /// Lets go of the side that is gone, and of the other as soon as nothing of its is lost by it.
    pub(super) fn linger(&mut self, survivor: Side, end: End, pool: &mut Pool, now: Instant) -> Action {
        let gone = match survivor {
            Side::Client => self.server.take(),
            Side::Server => self.client.take(),
        };
        drop(gone);
        self.up.clear(pool);
        self.down.clear(pool);
        self.state = ConnectionState::Lingering { survivor, end, since: now, progress: SendProgress::begin(now) };
        self.check_delivery(now)
    }

    /// Whether a side that is being dismissed can be closed.
    pub(crate) fn check_delivery(&mut self, now: Instant) -> Action {
        let limit = self.route.rule.limits.half_close;
        let endpoint = |connection: &mut Connection, side| -> Option<(usize, bool)> {
            let endpoint = connection.endpoint(side)?;
            // A Unix socket's peer keeps what it has been given, whatever happens here.
            let waits = if endpoint.tcp { net::unacknowledged(&endpoint.socket).unwrap_or(0) } else { 0 };
            Some((waits, waits > 0 && net::take_error(&endpoint.socket).is_ok()))
        };
        let ConnectionState::Lingering { survivor, .. } = self.state else { return Action::Waits };
        let found = endpoint(self, survivor);
        let ConnectionState::Lingering { end, progress, .. } = &mut self.state else { return Action::Waits };
        let Some((waits, alive)) = found else { return Action::Closes(self.ending()) };
        // Nothing more is written, so what waits says how much it has acknowledged.
        if alive && progress.look(now, Sent::new(0, waits), limit) != Verdict::GiveUp {
            return Action::Waits;
        }
        if *end == End::Reset {
            self.reset(survivor);
        }
        Action::Closes(self.ending())
    }

    /// Makes the close of a side a reset.
    pub(crate) fn reset(&mut self, side: Side) {
        if let Some(endpoint) = self.endpoint(side).filter(|endpoint| endpoint.tcp) {
            // It can only fail where the connection is no more.
            let _ = net::reset_on_close(&endpoint.socket);
        }
    }
}
