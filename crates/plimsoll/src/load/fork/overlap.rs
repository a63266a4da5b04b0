//! How many connections of different processes were up at once, as far as their records say.

use plimsoll_measure::summary::Summary;

/// The most connections that were certainly up at once. A record has no instants of its connection.
/// But a connection that was never lost was up from when it could be used until the window closed.
/// With `reconnect` it was up for each request alone.
pub(super) fn up_at_once(records: &[Summary], reconnect: bool) -> u64 {
    let most_of_one = records.iter().map(|record| record.connections.peak).max().unwrap_or(0);
    let kept = records.iter().filter(|record| !reconnect && was_kept(record));
    let mut changes: Vec<(f64, i64)> = kept
        .flat_map(|record| {
            let closed = record.window.closed_unix_s;
            [(closed - record.available_ratio * record.elapsed_s, 1), (closed, -1)]
        })
        .collect();
    // Of changes at one instant the ends come first: no two of them were up at once.
    changes.sort_by(|(at, change), (other_at, other)| at.total_cmp(other_at).then(change.cmp(other)));
    let mut up = 0;
    let counts = changes.into_iter().map(|(_, change)| {
        up += change;
        up
    });
    most_of_one.max(counts.max().unwrap_or(0).unsigned_abs())
}

/// Whether the connection came up and was never lost. Whatever ends one is counted.
fn was_kept(record: &Summary) -> bool {
    let (connections, errors) = (&record.connections, &record.errors);
    let lost = connections.failed + connections.reopened + connections.ended_idle;
    let lost_with_a_request = errors.read + errors.write + errors.timeout + errors.mismatch + errors.closed;
    connections.established > 0 && lost + lost_with_a_request == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_measure::summary::Window;

    /// A connection that could be used for the last `available` of this window.
    fn record(opened: f64, closed: f64, available: f64) -> Summary {
        let mut record = Summary { elapsed_s: closed - opened, available_ratio: available, ..Summary::default() };
        record.window = Window { opened_unix_s: opened, closed_unix_s: closed };
        (record.connections.established, record.connections.peak) = (1, 1);
        record
    }

    #[test]
    fn connections_were_up_at_once_where_their_times_overlap() {
        for (windows, most) in [
            (vec![], 0),
            (vec![(0.0, 8.0, 1.0)], 1),
            (vec![(0.0, 8.0, 1.0), (0.0, 8.0, 1.0), (4.0, 16.0, 1.0)], 3),
            (vec![(0.0, 8.0, 1.0), (16.0, 24.0, 1.0), (4.0, 12.0, 1.0)], 2),
            (vec![(0.0, 8.0, 1.0), (8.0, 16.0, 1.0)], 1),
            // It could be used from the twelfth second on, when the other was closed.
            (vec![(0.0, 8.0, 1.0), (4.0, 20.0, 0.5)], 1),
            (vec![(0.0, 8.0, 1.0), (4.0, 20.0, 0.875)], 2),
        ] {
            let records: Vec<Summary> = windows.iter().map(|(from, to, part)| record(*from, *to, *part)).collect();
            assert_eq!(up_at_once(&records, false), most, "{windows:?}");
            assert_eq!(up_at_once(&records, true), most.min(1), "{windows:?}, a connection for each request");
        }
    }

    #[test]
    fn a_connection_that_was_lost_is_not_known_to_have_been_up_with_others() {
        let losses: [fn(&mut Summary); 7] = [
            |record| record.connections.reopened = 1,
            |record| record.connections.failed = 1,
            |record| record.connections.ended_idle = 1,
            |record| record.errors.closed = 1,
            |record| record.errors.timeout = 1,
            |record| record.errors.mismatch = 1,
            |record| (record.connections.established, record.connections.peak) = (0, 0),
        ];
        for (lose, number) in losses.into_iter().zip(0..) {
            let mut lost = record(0.0, 8.0, 1.0);
            lose(&mut lost);
            assert_eq!(up_at_once(&[record(0.0, 8.0, 1.0), lost], false), 1, "{number}");
        }
    }
}
