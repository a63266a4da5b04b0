//! What a forwarder counted.

use std::collections::BTreeMap;
use std::io;

use plimsoll_reactor::leaked::Leaked;
use plimsoll_sys::descriptor;
use serde::Serialize;

use crate::ending::Ending;

/// Counts of one forwarder, or of one part of it until they are added up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// The most connections that were relayed at one moment.
    pub peak_connections: u64,
    /// Connections accepted.
    pub connections: u64,
    /// The same, by the worker that relayed them.
    pub connections_per_worker: Vec<u64>,
    /// Bytes written to servers.
    pub bytes_up: u64,
    /// Bytes written to clients.
    pub bytes_down: u64,
    /// How connections ended, as in the connection log.
    pub ends: BTreeMap<&'static str, u64>,
    /// What went wrong, by cause: errno(3) in lower case.
    pub errors: BTreeMap<&'static str, u64>,
    /// Sends that went to the kernel together with others (io_uring(7)).
    pub sends_batched: u64,
    /// Pipes that the kernel made smaller than was wanted: this user had too many pages in pipes
    /// (pipe(7)).
    pub pipes_shrunk: u64,
    /// Times that a direction was copied as no pipe could be had.
    pub pipes_missed: u64,
    /// Rows that went missing: a log was too slow, its disk full, or its reader had stalled in the
    /// end.
    pub log_rows_dropped: u64,
    /// Tables that replaced the first one.
    pub reloads: u64,
    /// Tables that were refused.
    pub reloads_refused: u64,
    /// What the event loops had taken and not given back when they ended.
    pub leaked: Leaked,
}

impl Totals {
    pub(crate) fn count_end(&mut self, end: Ending) {
        *self.ends.entry(end.name()).or_default() += 1;
    }

    pub(crate) fn count_error(&mut self, error: &io::Error) {
        *self.errors.entry(descriptor::error_name(error)).or_default() += 1;
    }

    /// Adds a part's counts. The peak is not a sum: it is counted as connections come
    /// (`crate::limit`).
    pub(crate) fn add(&mut self, part: &Totals) {
        self.connections += part.connections;
        self.bytes_up += part.bytes_up;
        self.bytes_down += part.bytes_down;
        self.sends_batched += part.sends_batched;
        self.pipes_shrunk += part.pipes_shrunk;
        self.pipes_missed += part.pipes_missed;
        self.leaked.add(&part.leaked);
        for (end, count) in &part.ends {
            *self.ends.entry(end).or_default() += count;
        }
        for (cause, count) in &part.errors {
            *self.errors.entry(cause).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part's counts, each in another size times `factor`.
    fn part(factor: u64) -> Totals {
        Totals {
            connections: factor,
            bytes_up: 20 * factor,
            bytes_down: 300 * factor,
            sends_batched: 4_000 * factor,
            pipes_shrunk: 50_000 * factor,
            pipes_missed: 600_000 * factor,
            leaked: Leaked { pipes: 7 * factor, ..Leaked::default() },
            ends: BTreeMap::from([("idle", factor)]),
            errors: BTreeMap::from([("enomem", 2 * factor)]),
            ..Totals::default()
        }
    }

    #[test]
    fn parts_add_up_kind_by_kind_and_cause_by_cause() {
        let mut all = Totals { peak_connections: 9, ..Totals::default() };
        all.add(&part(1));
        all.add(&part(4));
        all.add(&Totals { ends: BTreeMap::from([("drained", 1)]), ..Totals::default() });
        let ends = BTreeMap::from([("idle", 5), ("drained", 1)]);
        assert_eq!(all, Totals { peak_connections: 9, ends, ..part(5) });
    }

    #[test]
    fn each_end_and_each_error_is_counted_by_its_name() {
        let mut totals = Totals::default();
        totals.count_end(Ending::Idle);
        totals.count_end(Ending::Idle);
        // EMFILE
        totals.count_error(&io::Error::from_raw_os_error(24));
        assert_eq!(totals.ends, BTreeMap::from([("idle", 2)]));
        assert_eq!(totals.errors, BTreeMap::from([("emfile", 1)]));
    }
}
