//! How much of the response times is the generator's own lateness: of requests that were sent after
//! they were due, and of answers that waited to be handled.

use std::net::SocketAddr;

use plimsoll_measure::summary::{Summary, Warning};
use plimsoll_measure::times::{ReadFigure, TIMES_FIGURES, TimesSummary};
use plimsoll_reactor::source::Rotation;

use crate::config::{Config, Engine};
use crate::warnings::codes::{LAG_ALLOWED, LATE, STAMPED_LATE};
use crate::warnings::text::{percent, time, warning};

/// From this share of a percentile of the response time on, that percentile is the generator's more
/// than the server's.
const LAG_SHARE_INVALID: f64 = 0.5;
/// From this share on it is worth knowing.
pub(super) const LAG_SHARE_NOTICED: f64 = 0.1;
/// Timers of an idle virtual machine are at most this late; a longer lag has other causes.
const LATE_TIMER_US: f64 = 200.0;
/// A percentile that fewer samples than this lie beyond says little.
pub(super) const SAMPLES_BEYOND: u64 = 10;

/// A published percentile: its words, how many samples have one beyond it, its value of a set of
/// times.
type Percentile = (&'static str, u64, ReadFigure);
const PERCENTILES: [Percentile; 6] = [
    ("median", 2, |times| times.p50),
    ("75th percentile", 4, |times| times.p75),
    ("90th percentile", 10, |times| times.p90),
    ("99th percentile", 100, |times| times.p99),
    ("99.9th percentile", 1000, |times| times.p99_9),
    ("99.99th percentile", 10_000, |times| times.p99_99),
];
/// A lag further out is an accident of a few requests: it is said of that percentile, which is not
/// the server's, and leaves the others valid.
const FURTHEST_THAT_INVALIDATES: u64 = 100;

/// The published percentile of which this lag makes up the largest share, among the percentiles
/// with enough samples beyond them. Returns its words, of how many samples one lies beyond it, the
/// lag there and the share. The part of each lag that was `allowed` does not count.
fn largest_share(
    lag: &TimesSummary,
    response: &TimesSummary,
    furthest: u64,
    allowed: f64,
) -> Option<(&'static str, f64, f64)> {
    if response.count == 0 {
        return None;
    }
    let told = PERCENTILES.iter().filter(|(_, one_in, _)| *one_in <= furthest && lag.count / one_in >= SAMPLES_BEYOND);
    // One late request of ten is an accident, so of fewer the median is judged.
    let told: Vec<&Percentile> =
        if lag.count > 0 && lag.count < 2 * SAMPLES_BEYOND { vec![&PERCENTILES[0]] } else { told.collect() };
    let beyond = |read: ReadFigure| (read(lag) - allowed).max(0.0);
    let shares = told.into_iter().map(|(name, _, read)| (*name, read(lag), beyond(*read) / read(response).max(0.001)));
    shares.max_by(|a, b| a.2.total_cmp(&b.2)).filter(|(.., share)| *share >= LAG_SHARE_NOTICED)
}

/// The figures of the response time of which the generator's own lag makes up half or more: they
/// say more about the generator than about the server.
pub(super) fn doubted_figures(summary: &Summary) -> Vec<String> {
    let (lag, response) = (&summary.schedule_lag_us, &summary.response_time_us);
    let allowed = summary.generator.max_lag_us.unwrap_or_default();
    let is_own = |read: ReadFigure| {
        let beyond = read(lag) - allowed;
        beyond > 0.0 && beyond >= LAG_SHARE_INVALID * read(response)
    };
    // The least lag says nothing of the least response time: they are of two requests.
    let published = TIMES_FIGURES.iter().filter(|(name, _)| *name != "min");
    let own = published.filter(|(_, read)| lag.count.min(response.count) > 0 && is_own(*read));
    own.map(|(name, _)| format!("response_time_us.{name}")).collect()
}

/// The warning of the generator's own lateness, and whether it makes the result invalid.
pub(super) fn lateness(summary: &Summary) -> Option<(Warning, bool)> {
    let (lag, response) = (&summary.schedule_lag_us, &summary.response_time_us);
    let allowed = summary.generator.max_lag_us.unwrap_or_default();
    let near = largest_share(lag, response, FURTHEST_THAT_INVALIDATES, allowed);
    let invalid = near.is_some_and(|(.., share)| share >= LAG_SHARE_INVALID);
    let any = if invalid { near } else { largest_share(lag, response, u64::MAX, allowed) };
    let (name, lag, share) = any?;
    let beyond = if allowed > 0.0 {
        format!(": beyond what --max-lag allows, {}", percent(share))
    } else {
        format!(", {}", percent(share))
    };
    let message = format!(
        "requests were sent later than they were due: the {name} of the generator's own lag is {}{beyond} of that of \
         the response time",
        time(lag),
    );
    let generator = &summary.generator;
    let has_loops = [Engine::Epoll, Engine::Uring].iter().any(|engine| engine.name() == generator.engine);
    let sleeps = has_loops && generator.polling_cpu_cores.is_none() && allowed == 0.0;
    let remedy = if sleeps && lag < LATE_TIMER_US {
        "timers are so late in virtual machines: --spin 100us polls before a request is due; or give the generator \
         CPUs of its own (--cpus, another host)"
    } else {
        "give the generator CPUs of its own (--cpus, another host), or lower the load; --lockstep makes every \
         connection due at once"
    };
    Some((warning(LATE, message, remedy), invalid))
}

/// The lateness of a run that may owe it to the kernel's search for ports: where it does, that is
/// what there is something to do about.
pub(super) fn name_search_for_ports(late: &mut Warning, config: &Config) {
    if opens_slowly(config) {
        "more than 14,000 connections of one source address to one destination keep the kernel long in its search for \
         free ports: give more addresses (--source-ip; in a suite's network, `addresses`), or open all connections \
         first (--warm-up, --barrier)"
            .clone_into(&mut late.remedy);
    }
}

/// Whether connections open while requests are due, and their source addresses have so few ports
/// left that the kernel takes up to a millisecond to find one.
fn opens_slowly(config: &Config) -> bool {
    let opening = &config.opening;
    let first = config.stop_condition.is_count() && config.warm_up.is_zero() && !opening.barrier;
    let each = config.connections.div_ceil(config.targets.len());
    let rotation = |target: &SocketAddr| Rotation::choose(target.ip(), each, &opening.sources);
    (first || opening.reconnect) && config.targets.iter().any(|target| rotation(target).is_crowded_by(each))
}

/// Requests that waited to be sent together with others, as `--max-lag` allows.
pub(super) fn allowed_lag(summary: &Summary) -> Option<Warning> {
    let allowed = summary.generator.max_lag_us?;
    let (name, lag, share) = largest_share(&summary.schedule_lag_us, &summary.response_time_us, u64::MAX, 0.0)?;
    Some(warning(
        LAG_ALLOWED,
        format!(
            "--max-lag {} lets requests that are due wait for others: the {name} of that wait is {}, {} of that of the \
             response time",
            time(allowed),
            time(lag),
            percent(share)
        ),
        "response times include the wait, service times do not; leave --max-lag out for sends at their own instants",
    ))
}

/// Answers that waited until the generator had handled those before them.
pub(super) fn late_stamps(summary: &Summary) -> Option<Warning> {
    let (name, lag, share) = largest_share(&summary.receive_lag_us, &summary.response_time_us, u64::MAX, 0.0)?;
    (share >= LAG_SHARE_INVALID).then(|| {
        warning(
            STAMPED_LATE,
            format!(
                "answers waited for the generator to handle those before them: the {name} of that wait is {}, {} of \
                 that of the response time",
                time(lag),
                percent(share)
            ),
            "response times are shorter than reported by up to that much; use fewer --connections, or more event \
             loops (--workers)",
        )
    })
}
