//! The record of a run of the generator: one object, whose field names are those that limits,
//! suites and reports use.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::tally::{Connections, Errors, Requests, Tally, with_unanswered};
use crate::times::{Times, TimesSummary};

/// The version of this record's form. It grows when a field changes its meaning, not when one is
/// added.
pub const SCHEMA_VERSION: u32 = 2;

/// A connect that takes so much longer than another was sent more than once (RFC 6298, section
/// 2.1), in microseconds. With TLS it has a handshake, which may wait for its server.
const FIRST_TIMEOUT_US: f64 = 1e6;

/// The names of histograms in a record: the paths of their figures, in nanoseconds.
pub(crate) const RESPONSE: &str = "response_time_ns";
pub(crate) const ANSWERED: &str = "answered_time_ns";
pub(crate) const UNANSWERED: &str = "unanswered_age_ns";
pub(crate) const SERVICE: &str = "service_time_ns";
pub(crate) const POOL_WAIT: &str = "pool_wait_ns";
pub(crate) const BACKOFF_WAIT: &str = "backoff_wait_ns";
pub(crate) const SCHEDULE_LAG: &str = "schedule_lag_ns";
pub(crate) const RECEIVE_LAG: &str = "receive_lag_ns";
pub(crate) const TRANSMISSION: &str = "transmission_time_ns";
pub(crate) const ESTABLISHMENT: &str = "establishment_time_ns";
pub(crate) const WARM_UP: &str = "warm_up.response_time_ns";

/// A run, as it is reported. Everything is about the window alone, but for `warm_up` and what is of
/// the whole run: `connections`, `tls_handshakes` and `establishment_time_us`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The version of the program that measured. Several versions are separated by commas.
    #[serde(default)]
    pub version: String,
    /// The addresses that connections went to, in turn.
    #[serde(default)]
    pub targets: Vec<String>,
    /// What payloads, arrivals and think times were drawn from: a seed a generator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seeds: Vec<u64>,
    /// Whether the generator kept up: it was neither saturated nor late by a share that matters.
    /// That other processes took its CPUs is the warning `cpu_contended`.
    pub valid: bool,
    /// Figures of the response time that are the generator's own lateness by half or more, such as
    /// `response_time_us.p99`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubted: Vec<String>,
    /// What speaks against the figures, or explains them.
    pub warnings: Vec<Warning>,
    /// The signal that ended the run early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<String>,
    /// Whether a number of requests ended the run (`-n`, `--each`), and not a duration.
    #[serde(default)]
    pub counted: bool,
    /// The window's length.
    pub elapsed_s: f64,
    /// When the window opened and closed, on the wall clock.
    pub window: Window,
    /// Open loop: requests a second asked for.
    pub intended_rate: Option<f64>,
    /// Requests a second really begun: sent, or with a connect of their own, which may have failed.
    pub offered_rate: f64,
    /// Requests a second answered.
    pub completed_rate: f64,
    /// Payload bits a second that came back in right answers.
    pub goodput_bits_per_s: f64,
    /// Requests that failed, timed out or were never sent, of all that were due and are not still
    /// under way.
    pub failed_ratio: f64,
    /// Connection time during which connections could be used, or had nothing more to do, of all
    /// connection time in the window.
    pub available_ratio: f64,
    /// What became of the requests.
    pub requests: Requests,
    /// Errors by cause.
    pub errors: Errors,
    /// What became of the connections, over the whole run.
    pub connections: ConnectionsSummary,
    /// TLS handshakes, where there were any, over the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_handshakes: Option<Handshakes>,
    /// Connect call until usable, over the whole run.
    pub establishment_time_us: TimesSummary,
    /// Intended start to last byte; unanswered requests at their age, flagged.
    pub response_time_us: TimesSummary,
    /// The same of the answered requests alone, where some were not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_time_us: Option<TimesSummary>,
    /// Ages of all unanswered requests, where there were some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered_age_us: Option<TimesSummary>,
    /// Actual send to last byte.
    pub service_time_us: TimesSummary,
    /// Open loop: intended start until a connection was free: the server's doing.
    pub pool_wait_us: TimesSummary,
    /// Open loop: the part of the wait for a connection that is due to lost ones which waited to be
    /// opened again: at each instant their share of the connections. It is no part of
    /// `pool_wait_us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_wait_us: Option<TimesSummary>,
    /// Actual send minus the later of intended start and connection free: the generator's doing.
    pub schedule_lag_us: TimesSummary,
    /// By how much a response time may be too long for the generator's own work: since an answer
    /// may have been there until its time was taken. Empty where the kernel took it.
    pub receive_lag_us: TimesSummary,
    /// Request sent to last byte, where the protocol has requests and answers.
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
    /// HdrHistogram V2, base64, in nanoseconds.
    pub histograms: BTreeMap<String, String>,
    /// The limits that were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Checked>,
}

/// A window's two ends, in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Its beginning.
    pub opened_unix_s: f64,
    /// Its end.
    pub closed_unix_s: f64,
}

/// A reason to mistrust the figures, or what explains them.
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
    /// The most that were up at once. Of several processes of one run: how many certainly were. Of
    /// several generators: the sum of theirs.
    pub peak: u64,
    /// Never up, or lost and not replaced.
    pub failed: u64,
    /// Opened again: in place of lost ones, and of those that ended with their answer as agreed.
    pub reopened: u64,
    /// Ended while no request was under way on them.
    pub ended_idle: u64,
    /// Of those, lost because the server sent bytes that answer no request.
    #[serde(default)]
    pub unrequested: u64,
    /// Memory of the generator's that a connection added.
    pub bytes_each: u64,
}

/// TLS handshakes that were completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handshakes {
    /// With certificates and a key exchange.
    pub full: u64,
    /// Resumed from an earlier connection's session, which costs the server less.
    pub resumed: u64,
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
    /// Open loop: how late requests were allowed to be sent, to be sent together, where that was
    /// asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_lag_us: Option<f64>,
    /// The part of `cpu_cores` that polled before requests were due and found nothing, with
    /// `--spin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polling_cpu_cores: Option<f64>,
    /// Resident memory; of processes that share a load, what they occupy together.
    pub memory_bytes: u64,
}

/// What was counted before the window. Connects that failed then are of the window where no warm-up
/// was asked for.
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
        let mut summary = Summary {
            schema_version: SCHEMA_VERSION,
            valid: true,
            elapsed_s: seconds,
            offered_rate: per_second(window.sent as f64),
            completed_rate: per_second(window.requests.completed as f64),
            goodput_bits_per_s: per_second(window.payload_bytes as f64 * 8.0),
            failed_ratio: window.requests.failed_ratio(),
            available_ratio: 1.0,
            requests: window.requests,
            errors: window.errors,
            connections: ConnectionsSummary {
                established: connections.established,
                failed: connections.failed,
                reopened: connections.reopened,
                ended_idle: connections.ended_idle,
                unrequested: connections.unrequested,
                ..ConnectionsSummary::default()
            },
            status_codes: window.statuses.by_class(),
            statuses: window.statuses.by_code(),
            redirects: window.statuses.redirects(),
            bytes_sent: window.bytes_sent,
            bytes_received: window.bytes_received,
            warm_up: WarmUp { requests: warm_up.requests, errors: warm_up.errors, ..WarmUp::default() },
            ..Summary::default()
        };
        // A transmission time is the service time. Where nothing can come between the intended
        // start and the send, the response time is.
        let candidates = [&window.service, &window.transmission];
        let service = candidates.into_iter().find(|times| times.count() > 0).unwrap_or(&window.response);
        summary.set_times(&TimeSets {
            answered: &window.response,
            unanswered: &window.unanswered,
            service,
            pool_wait: &window.pool_wait,
            backoff_wait: &window.backoff_wait,
            schedule_lag: &window.schedule_lag,
            receive_lag: &window.receive_lag,
            transmission: &window.transmission,
            establishment: &connections.establishment,
            warm_up: &warm_up.response,
        });
        summary
    }

    /// Whether connections were lost, or connects failed or had to be repeated, before the window
    /// or in it. One that ends as agreed with its answer is not lost, though it is opened again.
    pub fn has_lost_connections(&self) -> bool {
        let errors = self.warm_up.errors.of_connections() + self.errors.of_connections();
        let times = &self.establishment_time_us;
        let repeated = self.tls_handshakes.is_none() && times.max - times.min >= FIRST_TIMEOUT_US;
        self.connections.failed + self.connections.ended_idle + errors > 0 || repeated
    }

    /// Sets every time and histogram of the record.
    pub(crate) fn set_times(&mut self, times: &TimeSets<'_>) {
        let some = |times: &Times| (times.count() > 0).then(|| times.summary());
        let (response, unanswered) = with_unanswered(times.answered, times.unanswered);
        self.response_time_us = TimesSummary { unanswered: Some(unanswered), ..response.summary() };
        self.unanswered_age_us = some(times.unanswered);
        self.answered_time_us = self.unanswered_age_us.map(|_| times.answered.summary());
        self.service_time_us = times.service.summary();
        self.pool_wait_us = times.pool_wait.summary();
        self.backoff_wait_us = some(times.backoff_wait);
        self.schedule_lag_us = times.schedule_lag.summary();
        self.receive_lag_us = times.receive_lag.summary();
        self.transmission_time_us = some(times.transmission);
        self.establishment_time_us = times.establishment.summary();
        self.warm_up.response_time_us = times.warm_up.summary();
        let named = [
            (RESPONSE, &response),
            (UNANSWERED, times.unanswered),
            (SERVICE, times.service),
            (POOL_WAIT, times.pool_wait),
            (BACKOFF_WAIT, times.backoff_wait),
            (SCHEDULE_LAG, times.schedule_lag),
            (RECEIVE_LAG, times.receive_lag),
            (TRANSMISSION, times.transmission),
            (ESTABLISHMENT, times.establishment),
            (WARM_UP, times.warm_up),
        ];
        let kept = named.into_iter().filter(|(name, times)| times.count() > 0 || [RESPONSE, SERVICE].contains(name));
        self.histograms = kept.map(|(name, times)| (name.to_owned(), times.encode())).collect();
        if self.answered_time_us.is_some() {
            // Merging needs the answered alone: which ages enter is decided over all records.
            self.histograms.insert(ANSWERED.to_owned(), times.answered.encode());
        }
    }
}

/// The sets of times in a record.
pub(crate) struct TimeSets<'a> {
    pub(crate) answered: &'a Times,
    pub(crate) unanswered: &'a Times,
    pub(crate) service: &'a Times,
    pub(crate) pool_wait: &'a Times,
    pub(crate) backoff_wait: &'a Times,
    pub(crate) schedule_lag: &'a Times,
    pub(crate) receive_lag: &'a Times,
    pub(crate) transmission: &'a Times,
    pub(crate) establishment: &'a Times,
    pub(crate) warm_up: &'a Times,
}

#[cfg(test)]
mod tests;
