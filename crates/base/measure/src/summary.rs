//! The record of a run of the generator: one object, whose field names are those that limits, suites and reports use.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::tally::{Connections, Errors, Requests, Tally};
use crate::times::TimesSummary;

/// The version of this record's form. It grows when a field changes its meaning, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// The names under which histograms stand in a record: the paths of what they are of.
pub(crate) const RESPONSE: &str = "response_time_us";
pub(crate) const SERVICE: &str = "service_time_us";
pub(crate) const POOL_WAIT: &str = "pool_wait_us";
pub(crate) const SCHEDULE_LAG: &str = "schedule_lag_us";
pub(crate) const TRANSMISSION: &str = "transmission_time_us";
pub(crate) const ESTABLISHMENT: &str = "establishment_time_us";
pub(crate) const WARM_UP: &str = "warm_up.response_time_us";

/// A run, as it is reported. Everything but `warm_up` and `connections` is about the window alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Whether the figures are the server's: neither generator nor machine was the limit.
    pub valid: bool,
    /// What speaks against the figures, or explains them.
    pub warnings: Vec<Warning>,
    /// The signal that ended the run early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<String>,
    /// The window's length.
    pub elapsed_s: f64,
    /// Open loop: requests a second asked for.
    pub intended_rate: Option<f64>,
    /// Requests a second really sent.
    pub offered_rate: f64,
    /// Requests a second answered.
    pub completed_rate: f64,
    /// Payload bits a second that came back in right answers.
    pub goodput_bits_per_s: f64,
    /// Requests that failed, timed out or were never sent, of all that were due and are not still under way.
    pub failed_ratio: f64,
    /// What became of the requests.
    pub requests: Requests,
    /// Errors by cause.
    pub errors: Errors,
    /// What became of the connections.
    pub connections: ConnectionsSummary,
    /// Connect call until usable.
    pub establishment_time_us: TimesSummary,
    /// Intended start to last byte; unanswered requests at their age, flagged.
    pub response_time_us: TimesSummary,
    /// Actual send to last byte.
    pub service_time_us: TimesSummary,
    /// Open loop: intended start until a connection was free: the server's doing.
    pub pool_wait_us: TimesSummary,
    /// Actual send minus the later of intended start and connection free: the generator's doing.
    pub schedule_lag_us: TimesSummary,
    /// Request sent to last byte, where the protocol tells them apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transmission_time_us: Option<TimesSummary>,
    /// Answers by the class of their status, such as `2xx`.
    pub status_codes: BTreeMap<String, u64>,
    /// Answers by their exact status, such as `404`.
    #[serde(default)]
    pub statuses: BTreeMap<String, u64>,
    /// Answers that redirect: they name another place, which the generator does not fetch.
    #[serde(default)]
    pub redirects: u64,
    /// Bytes written.
    pub bytes_sent: u64,
    /// Bytes read.
    pub bytes_received: u64,
    /// What the generator itself used.
    pub generator: GeneratorSummary,
    /// What was counted before the window.
    pub warm_up: WarmUp,
    /// HdrHistogram V2, base64, in microseconds.
    pub histograms: BTreeMap<String, String>,
    /// The limits that were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Checked>,
}

/// A doubt about the figures, or what explains them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Its name, for programs.
    pub code: String,
    /// What was seen.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

/// What became of the connections, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionsSummary {
    /// Asked for.
    pub requested: u64,
    /// Up at least once.
    pub established: u64,
    /// The most that were up at once.
    pub peak: u64,
    /// Never up, or lost and not replaced.
    pub failed: u64,
    /// Opened again in place of lost ones.
    pub reopened: u64,
    /// Memory of the generator's that a connection added.
    pub bytes_each: u64,
}

/// What the generator itself used, over the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorSummary {
    /// CPU, as cores kept busy.
    pub cpu_cores: f64,
    /// The same of the event loop that used most.
    pub busiest_thread_cpu_cores: f64,
    /// The longest that an event loop was ready and had no CPU, as a share of the window.
    #[serde(default)]
    pub run_queue_wait_ratio: f64,
    /// CPU a completed request.
    pub cpu_us_per_request: f64,
    /// Event loops.
    pub threads: u64,
    /// Descriptor tables that they needed.
    pub tables: u64,
    /// How sockets were driven.
    pub engine: String,
    /// Resident memory.
    pub memory_bytes: u64,
}

/// What was counted before the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WarmUp {
    /// What became of the requests.
    pub requests: Requests,
    /// Errors by cause.
    pub errors: Errors,
    /// Intended start to last byte.
    pub response_time_us: TimesSummary,
}

/// A limit, and whether it was met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// As it was written.
    pub limit: String,
    /// The figure's value, in the unit of its name.
    pub value: f64,
    /// Whether it was met.
    pub met: bool,
}

impl Summary {
    /// The part of a record that follows from what was counted in a window of the given length.
    pub fn of(window: &Tally, warm_up: &Tally, connections: &Connections, elapsed: Duration) -> Summary {
        let seconds = elapsed.as_secs_f64();
        let per_second = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        let Requests { scheduled, completed, failed, timed_out, in_flight, unsent } = window.requests;
        let ended = scheduled - in_flight;
        let (response, unanswered) = window.response_with_unanswered();
        // Where a transmission time is told it is the service time; where nothing can come between the intended start and the send, the
        // response time is.
        let candidates = [&window.service, &window.transmission, &window.response];
        let service = candidates.into_iter().find(|times| times.count() > 0).unwrap_or(&window.response);
        Summary {
            schema_version: SCHEMA_VERSION,
            valid: true,
            elapsed_s: seconds,
            offered_rate: per_second(window.sent as f64),
            completed_rate: per_second(completed as f64),
            goodput_bits_per_s: per_second(window.payload_bytes as f64 * 8.0),
            failed_ratio: if ended > 0 { (failed + timed_out + unsent) as f64 / ended as f64 } else { 0.0 },
            requests: window.requests,
            errors: Errors { connect: connections.attempts_failed, ..window.errors },
            connections: ConnectionsSummary {
                established: connections.established,
                failed: connections.failed,
                reopened: connections.reopened,
                ..ConnectionsSummary::default()
            },
            establishment_time_us: connections.establishment.summary(),
            response_time_us: TimesSummary { unanswered: Some(unanswered), ..response.summary() },
            service_time_us: service.summary(),
            pool_wait_us: window.pool_wait.summary(),
            schedule_lag_us: window.schedule_lag.summary(),
            transmission_time_us: (window.transmission.count() > 0).then(|| window.transmission.summary()),
            status_codes: window.statuses.by_class(),
            statuses: window.statuses.by_code(),
            redirects: window.statuses.redirects(),
            bytes_sent: window.bytes_sent,
            bytes_received: window.bytes_received,
            warm_up: WarmUp {
                requests: warm_up.requests,
                errors: warm_up.errors,
                response_time_us: warm_up.response.summary(),
            },
            histograms: [
                (RESPONSE, &response),
                (SERVICE, service),
                (POOL_WAIT, &window.pool_wait),
                (SCHEDULE_LAG, &window.schedule_lag),
                (TRANSMISSION, &window.transmission),
                (ESTABLISHMENT, &connections.establishment),
                (WARM_UP, &warm_up.response),
            ]
            .into_iter()
            .filter(|(name, times)| times.count() > 0 || [RESPONSE, SERVICE].contains(name))
            .map(|(name, times)| (name.to_owned(), times.encode()))
            .collect(),
            ..Summary::default()
        }
    }
}
