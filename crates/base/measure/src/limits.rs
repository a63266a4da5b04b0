//! Limits: `response_time.p99 < 250ms`, `failed_ratio < 0.1%`, `completed_rate > 10k`,
//! `statuses.404 == 0`.
//!
//! A figure is named by its path in the record. In the record the name has the unit, in a limit the
//! value has it; the path itself names the figure too.

use std::collections::BTreeMap;
use std::str::FromStr;

use thiserror::Error;

use crate::summary::{Checked, Summary};
use crate::times::{ReadFigure, TIMES_FIGURES, TimesSummary};
use crate::units;

/// What a figure must be.
#[derive(Clone, Debug)]
pub struct Limit {
    text: String,
    figure: Figure,
    operator: Operator,
    value: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    AtMost,
    AtLeast,
    Less,
    More,
    Equal,
    NotEqual,
}

/// Two characters before one, so that `<=` is not read as `<` and a value that begins with `=`.
const OPERATORS: [(&str, Operator); 6] = [
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<", Operator::Less),
    (">", Operator::More),
];

/// A limit that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LimitError {
    /// There is no operator in it.
    #[error(
        "'{0}' is not a limit: write a figure, <, <=, >, >=, == or !=, and a value, such as 'response_time.p99 < \
         250ms'"
    )]
    Form(String),
    /// Two measured values are never exactly equal.
    #[error("the limit on {0}: == and != compare counts; write <, <=, > or >= for a measured value")]
    Equality(String),
    /// No figure has this name.
    #[error("no figure is called '{name}'; known are {known}")]
    Figure {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The value is not one of the figure's unit.
    #[error("the limit on {figure}: {error}")]
    Value {
        /// The figure.
        figure: String,
        /// Why.
        error: units::UnitError,
    },
}

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Limit, LimitError> {
        let form = || LimitError::Form(text.to_owned());
        let (name, rest) = text.split_at(text.find(['<', '>', '=', '!']).ok_or_else(form)?);
        let (sign, operator) = OPERATORS.into_iter().find(|(sign, _)| rest.starts_with(sign)).ok_or_else(form)?;
        let name = name.trim();
        let figure =
            Figure::named(name).ok_or_else(|| LimitError::Figure { name: name.to_owned(), known: known_names() })?;
        if matches!(operator, Operator::Equal | Operator::NotEqual) && !figure.is_count() {
            return Err(LimitError::Equality(name.to_owned()));
        }
        let value = figure
            .read_value(rest[sign.len()..].trim())
            .map_err(|error| LimitError::Value { figure: name.to_owned(), error })?;
        Ok(Limit { text: text.trim().to_owned(), figure, operator, value })
    }
}

impl Limit {
    /// Why a run of this kind has no such figure, and what has; `None` where it has one.
    pub fn missing_in(&self, kind: Kind) -> Option<String> {
        let name = self.text.split(['<', '>', '=', '!']).next().unwrap_or_default().trim();
        let stem = name.split('.').next().map_or("", without_unit);
        let (_, has, remedy) = SOME_RUNS_ONLY.iter().find(|(known, ..)| *known == stem || *known == name)?;
        (!has(kind)).then(|| format!("this run has no {name}, which {remedy}"))
    }

    /// Holds the limit against a record. A time of which there is no sample, and a share of
    /// nothing, meet no limit: nothing shows that they would. Only of the back-off no sample
    /// means that no request waited for it.
    pub fn check(&self, summary: &Summary) -> Checked {
        let (value, shown) = match &self.figure {
            Figure::Time(times, part) => {
                let is_backoff = self.text.starts_with(BACKOFF_WAIT);
                (part(&times(summary)), times(summary).count > 0 || is_backoff)
            }
            Figure::Single(Unit::Ratio, read) => (read(summary), self.has_whole(summary)),
            Figure::Single(_, read) => (read(summary), true),
            Figure::Answers(counts, status) => (counts(summary).get(status).map_or(0.0, |count| *count as f64), true),
        };
        let holds = match self.operator {
            Operator::AtMost => value <= self.value,
            Operator::AtLeast => value >= self.value,
            Operator::Less => value < self.value,
            Operator::More => value > self.value,
            Operator::Equal => value == self.value,
            Operator::NotEqual => value != self.value,
        };
        Checked { limit: self.text.clone(), value, met: holds && shown }
    }

    /// Whether there is anything that a ratio is a share of: requests that have ended, or time of
    /// connections.
    fn has_whole(&self, summary: &Summary) -> bool {
        if self.text.starts_with(AVAILABLE_RATIO) {
            summary.elapsed_s > 0.0
        } else {
            summary.requests.scheduled > summary.requests.in_flight
        }
    }
}

/// A run, as far as it decides which figures there are.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Requests come at a rate of their own.
    pub open: bool,
    /// Requests are due at instants that the generator can be late for.
    pub scheduled: bool,
    /// Answers have a status.
    pub statuses: bool,
    /// The generator itself takes the time at which an answer came, as the kernel does not.
    pub receive_lag: bool,
}

const BACKOFF_WAIT: &str = "backoff_wait";
const AVAILABLE_RATIO: &str = "available_ratio";

type Has = fn(Kind) -> bool;

/// Figures that not every run has: those of a name, or of all names that begin with it and a point.
const SOME_RUNS_ONLY: [(&str, Has, &str); 9] = [
    ("pool_wait", |kind| kind.open, "needs an open loop (--rate)"),
    (BACKOFF_WAIT, |kind| kind.open, "needs an open loop (--rate)"),
    (
        "receive_lag",
        |kind| kind.receive_lag,
        "no run has in which the kernel notes when answers come (--rate with --engine epoll or fork)",
    ),
    ("schedule_lag", |kind| kind.scheduled, "needs a schedule (--rate, --think or --lockstep)"),
    ("transmission_time", |kind| kind.statuses, "only HTTP has"),
    ("statuses", |kind| kind.statuses, "only HTTP has"),
    ("status_codes", |kind| kind.statuses, "only HTTP has"),
    ("redirects", |kind| kind.statuses, "only HTTP has"),
    ("errors.status", |kind| kind.statuses, "only HTTP has"),
];

#[derive(Clone, Debug)]
enum Figure {
    /// A part of a set of durations, in microseconds.
    Time(ReadTimes, ReadFigure),
    Single(Unit, ReadSingle),
    /// Answers by status. No such answer is a count of 0.
    Answers(ReadCounts, String),
}

#[derive(Clone, Copy, Debug)]
enum Unit {
    Rate,
    Ratio,
    Bytes,
    Count,
    Duration,
}

impl Figure {
    fn named(name: &str) -> Option<Figure> {
        let name = PATHS.iter().find(|(path, _)| *path == name).map_or(name, |(_, limited)| *limited);
        if let Some((_, unit, read)) = SINGLES.iter().find(|(known, ..)| *known == name) {
            return Some(Figure::Single(*unit, *read));
        }
        let (stem, part) = name.split_once('.')?;
        if let Some((_, read, is_key)) = ANSWERS.iter().find(|(known, ..)| *known == stem) {
            return is_key(part).then(|| Figure::Answers(*read, part.to_owned()));
        }
        let stem = without_unit(stem);
        let (_, times) = TIMES.iter().find(|(known, _)| *known == stem)?;
        let (_, part) = TIMES_FIGURES.iter().find(|(known, _)| *known == part)?;
        Some(Figure::Time(*times, *part))
    }

    fn is_count(&self) -> bool {
        matches!(self, Figure::Single(Unit::Count, _) | Figure::Answers(..))
    }

    fn read_value(&self, text: &str) -> Result<f64, units::UnitError> {
        let duration_us = |text| Ok(units::duration(text)?.as_nanos() as f64 / 1000.0);
        match self {
            Figure::Time(..) => duration_us(text),
            Figure::Single(Unit::Duration, _) => duration_us(text),
            Figure::Single(Unit::Rate, _) => units::rate(text),
            Figure::Single(Unit::Ratio, _) => units::ratio(text),
            Figure::Single(Unit::Bytes, _) => Ok(units::size(text)? as f64),
            Figure::Single(Unit::Count, _) | Figure::Answers(..) => Ok(units::count(text)? as f64),
        }
    }
}

/// The name of a set of durations, of which its path in the record says the unit too.
fn without_unit(stem: &str) -> &str {
    stem.strip_suffix("_us").unwrap_or(stem)
}

fn known_names() -> String {
    let singles = SINGLES.iter().map(|(name, ..)| (*name).to_owned());
    let parts: Vec<&str> = TIMES_FIGURES.iter().map(|(name, _)| *name).collect();
    let times = TIMES.iter().map(|(name, _)| format!("{name}.{{{}}}", parts.join(",")));
    let answers = ["statuses.CODE", "status_codes.{1xx,2xx,3xx,4xx,5xx}"].map(str::to_owned);
    singles.chain(answers).chain(times).collect::<Vec<_>>().join(", ")
}

type ReadTimes = fn(&Summary) -> TimesSummary;
type ReadSingle = fn(&Summary) -> f64;
type ReadCounts = fn(&Summary) -> &BTreeMap<String, u64>;
type IsKey = fn(&str) -> bool;

/// Counts by status, and what the part after the point may be.
const ANSWERS: [(&str, ReadCounts, IsKey); 2] = [
    (
        "statuses",
        |summary| &summary.statuses,
        |code| code.len() == 3 && code.parse().is_ok_and(|code: u16| (100..1000).contains(&code)),
    ),
    ("status_codes", |summary| &summary.status_codes, |class| ["1xx", "2xx", "3xx", "4xx", "5xx"].contains(&class)),
];

const TIMES: [(&str, ReadTimes); 8] = [
    ("establishment_time", |summary| summary.establishment_time_us),
    ("response_time", |summary| summary.response_time_us),
    ("service_time", |summary| summary.service_time_us),
    ("pool_wait", |summary| summary.pool_wait_us),
    ("schedule_lag", |summary| summary.schedule_lag_us),
    ("receive_lag", |summary| summary.receive_lag_us),
    (BACKOFF_WAIT, |summary| summary.backoff_wait_us.unwrap_or_default()),
    ("transmission_time", |summary| summary.transmission_time_us.unwrap_or_default()),
];

/// Paths in the record that have a unit, and the names in a limit.
const PATHS: [(&str, &str); 4] = [
    ("goodput_bits_per_s", "goodput"),
    ("elapsed_s", "elapsed"),
    ("generator.cpu_us_per_request", "generator.cpu_per_request"),
    ("generator.memory_bytes", "generator.memory"),
];

const SINGLES: [(&str, Unit, ReadSingle); 32] = [
    ("completed_rate", Unit::Rate, |summary| summary.completed_rate),
    ("offered_rate", Unit::Rate, |summary| summary.offered_rate),
    ("goodput", Unit::Rate, |summary| summary.goodput_bits_per_s),
    ("failed_ratio", Unit::Ratio, |summary| summary.failed_ratio),
    (AVAILABLE_RATIO, Unit::Ratio, |summary| summary.available_ratio),
    ("elapsed", Unit::Duration, |summary| summary.elapsed_s * 1e6),
    ("bytes_sent", Unit::Bytes, |summary| summary.bytes_sent as f64),
    ("bytes_received", Unit::Bytes, |summary| summary.bytes_received as f64),
    ("requests.scheduled", Unit::Count, |summary| summary.requests.scheduled as f64),
    ("requests.completed", Unit::Count, |summary| summary.requests.completed as f64),
    ("requests.failed", Unit::Count, |summary| summary.requests.failed as f64),
    ("requests.timed_out", Unit::Count, |summary| summary.requests.timed_out as f64),
    ("requests.in_flight", Unit::Count, |summary| summary.requests.in_flight as f64),
    ("requests.unsent", Unit::Count, |summary| summary.requests.unsent as f64),
    ("connections.established", Unit::Count, |summary| summary.connections.established as f64),
    ("connections.peak", Unit::Count, |summary| summary.connections.peak as f64),
    ("connections.failed", Unit::Count, |summary| summary.connections.failed as f64),
    ("connections.reopened", Unit::Count, |summary| summary.connections.reopened as f64),
    ("connections.ended_idle", Unit::Count, |summary| summary.connections.ended_idle as f64),
    ("connections.unrequested", Unit::Count, |summary| summary.connections.unrequested as f64),
    ("redirects", Unit::Count, |summary| summary.redirects as f64),
    ("errors.connect", Unit::Count, |summary| summary.errors.connect as f64),
    ("errors.read", Unit::Count, |summary| summary.errors.read as f64),
    ("errors.write", Unit::Count, |summary| summary.errors.write as f64),
    ("errors.timeout", Unit::Count, |summary| summary.errors.timeout as f64),
    ("errors.mismatch", Unit::Count, |summary| summary.errors.mismatch as f64),
    ("errors.closed", Unit::Count, |summary| summary.errors.closed as f64),
    ("errors.status", Unit::Count, |summary| summary.errors.status as f64),
    ("generator.cpu_cores", Unit::Rate, |summary| summary.generator.cpu_cores),
    ("generator.busiest_thread_cpu_cores", Unit::Rate, |summary| summary.generator.busiest_thread_cpu_cores),
    ("generator.cpu_per_request", Unit::Duration, |summary| summary.generator.cpu_us_per_request),
    ("generator.memory", Unit::Bytes, |summary| summary.generator.memory_bytes as f64),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn summary() -> Summary {
        let mut summary = Summary { completed_rate: 10_000.0, failed_ratio: 0.001, ..Summary::default() };
        summary.response_time_us =
            TimesSummary { count: 10, p99: 250_000.0, p99_9: 300_000.0, ..summary.response_time_us };
        (summary.elapsed_s, summary.available_ratio) = (1.0, 0.995);
        (summary.requests.scheduled, summary.requests.completed) = (10, 10);
        (summary.errors.timeout, summary.bytes_received, summary.generator.cpu_us_per_request) = (1, 1024, 12.0);
        summary.statuses.insert("404".to_owned(), 2);
        summary.status_codes.insert("4xx".to_owned(), 2);
        summary
    }

    #[test]
    fn a_limit_is_held_against_the_figure_it_names() {
        for (text, met) in [
            ("response_time.p99 < 250ms", false),
            ("response_time.p99 <= 250ms", true),
            ("response_time.p99<=0.25s", true),
            ("response_time.p99_9 < 1s", true),
            ("completed_rate > 10k", false),
            (" completed_rate >= 10k ", true),
            ("failed_ratio < 0.2%", true),
            ("failed_ratio < 0.0005", false),
            ("available_ratio > 99%", true),
            ("available_ratio > 99.9%", false),
            ("requests.failed <= 0", true),
            ("statuses.404 == 2", true),
            ("statuses.404 != 2", false),
            ("statuses.404 < 3", true),
            ("statuses.404 == 0", false),
            ("statuses.500 == 0", true),
            ("status_codes.4xx <= 1", false),
            ("status_codes.5xx == 0", true),
            ("redirects == 0", true),
            ("errors.timeout == 0", false),
            ("elapsed <= 1s", true),
            ("elapsed_s < 1s", false),
            ("bytes_received >= 1KiB", true),
            // By their paths in the record.
            ("response_time_us.p99 < 250ms", false),
            ("response_time_us.p99_9 < 1s", true),
            ("generator.cpu_us_per_request < 12us", false),
            ("generator.cpu_per_request <= 12us", true),
        ] {
            let limit: Limit = text.parse().expect(text);
            assert_eq!(limit.check(&summary()).met, met, "{text}");
        }
    }

    #[test]
    fn a_time_without_a_sample_meets_no_limit() {
        let limit: Limit = "establishment_time.p99 < 1s".parse().expect("a limit");
        assert!(!limit.check(&summary()).met);
        // Where nothing waited for a connection to be opened again there is no sample.
        let limit: Limit = "backoff_wait.max <= 0s".parse().expect("a limit");
        assert!(limit.check(&summary()).met);
        let waited = TimesSummary { count: 1, max: 50_000.0, ..TimesSummary::default() };
        assert!(!limit.check(&Summary { backoff_wait_us: Some(waited), ..summary() }).met);
    }

    #[test]
    fn a_share_of_nothing_meets_no_limit() {
        // All requests are still under way, or the run ended before its window.
        let mut silent = Summary { failed_ratio: 0.0, ..summary() };
        (silent.requests.completed, silent.requests.in_flight) = (0, 10);
        let none = Summary { elapsed_s: 0.0, available_ratio: 1.0, ..summary() };
        for (text, of) in [("failed_ratio < 1%", &silent), ("available_ratio > 99%", &none)] {
            let limit: Limit = text.parse().expect("a limit");
            assert!(!limit.check(of).met, "{text}");
        }
    }

    #[test]
    fn a_limit_says_which_runs_have_its_figure() {
        let open = Kind { open: true, scheduled: true, statuses: false, receive_lag: false };
        let http = Kind { open: false, scheduled: false, statuses: true, receive_lag: true };
        for (text, in_open, in_http) in [
            ("pool_wait.p99 < 1s", true, false),
            ("pool_wait_us.p99 < 1s", true, false),
            ("schedule_lag.max<1s", true, false),
            ("backoff_wait.p99 < 1s", true, false),
            ("receive_lag.p99 < 1ms", false, true),
            ("transmission_time.p50 < 1s", false, true),
            ("statuses.404 == 0", false, true),
            ("status_codes.5xx==0", false, true),
            ("redirects == 0", false, true),
            ("errors.status == 0", false, true),
            ("errors.closed == 0", true, true),
            ("response_time.p99 < 1s", true, true),
            ("failed_ratio < 1%", true, true),
        ] {
            let limit: Limit = text.parse().expect(text);
            assert_eq!([open, http].map(|kind| limit.missing_in(kind).is_none()), [in_open, in_http], "{text}");
        }
        let limit: Limit = "pool_wait.p99 < 1s".parse().expect("a limit");
        assert_eq!(
            limit.missing_in(http).as_deref(),
            Some("this run has no pool_wait.p99, which needs an open loop (--rate)")
        );
    }

    #[test]
    fn what_is_no_limit_is_refused_with_what_would_be_one() {
        for (text, says) in [
            ("response_time.p99", "write a figure"),
            ("", "write a figure"),
            ("speed > 3", "no figure is called 'speed'"),
            ("response_time > 3ms", "no figure is called 'response_time'"),
            ("response_time.p99 < 3", "is not a duration"),
            ("completed_rate => 3", "write a figure"),
            ("requests.failed = 3", "write a figure"),
            ("completed_rate == 3", "== and != compare counts"),
            ("response_time.p99 != 3ms", "== and != compare counts"),
            ("statuses.4xx == 0", "no figure is called 'statuses.4xx'"),
            ("statuses.099 == 0", "no figure is called 'statuses.099'"),
            ("statuses.+20 == 0", "no figure is called 'statuses.+20'"),
            ("status_codes.404 == 0", "no figure is called 'status_codes.404'"),
            ("speed == 0", "statuses.CODE"),
            ("failed_ratio < 3ms", "is not a ratio"),
            ("goodput_us > 1", "no figure is called 'goodput_us'"),
            ("requests.failed < 1.5", "is not a count"),
        ] {
            let error = text.parse::<Limit>().expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = text.parse::<Limit>();
        }

        #[test]
        fn spaces_change_nothing(before in " *", between in " *", after in " *") {
            let text = format!("{before}response_time.p50{between}<{after}300ms{before}");
            prop_assert_eq!(text.parse::<Limit>().expect("a limit").check(&summary()).value, 0.0);
        }
    }
}
