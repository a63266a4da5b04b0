//! The summary as text: what was asked, what came back, how long it took, and the warnings.

use std::io::{self, Write};
use std::time::Duration;

use plimsoll_load::config::{Config, Pace, Phase, StopCondition};
use plimsoll_load::record::Sequence;
use plimsoll_measure::arrivals::Think;
use plimsoll_measure::summary::Summary;
use plimsoll_measure::times::{Times, TimesSummary};
use plimsoll_measure::units::{three_digits, write_duration};

use super::chart;
use crate::colour::Paint;

pub(super) fn write(out: &mut impl Write, summary: &Summary, config: &Config, paint: Paint) -> io::Result<()> {
    writeln!(out, "{}", paint.faint(&question(config)))?;
    writeln!(out)?;
    rates(out, summary, paint)?;
    if summary.response_time_us.count + summary.establishment_time_us.count > 0 {
        writeln!(out)?;
        times(out, summary, paint)?;
        distribution(out, summary, paint)?;
    }
    writeln!(out)?;
    generator(out, summary)?;
    judgement(out, summary, paint)
}

/// What became of one connection.
pub(super) fn write_connection(out: &mut impl Write, sequence: &Sequence) -> io::Result<()> {
    let Sequence { number, success, failed_connects, failed_sequences, failed_requests, completed, .. } = *sequence;
    let outcome = if success { "done" } else { "not done" };
    writeln!(
        out,
        "connection {number}: {outcome}, {} requests, established in {}, served in {} in all; failed: \
         {failed_connects} connects, {failed_requests} requests, {failed_sequences} sequences",
        grouped(completed),
        time(sequence.connect_ns as f64 / 1000.0),
        time(sequence.exchange_ns as f64 / 1000.0)
    )
}

/// What was asked of the server.
fn question(config: &Config) -> String {
    let targets: Vec<String> = config.targets.iter().map(ToString::to_string).collect();
    let mut lag = String::new();
    if !config.max_lag.is_zero() {
        lag = format!(", each up to {} late", write_duration(config.max_lag));
    } else if !config.spin.is_zero() {
        lag = format!(", polling for each from {} before", write_duration(config.spin));
    }
    let until = match config.stop_condition {
        StopCondition::Time(length) => format!("for {}", write_duration(length)),
        StopCondition::Requests(requests) => format!("for {requests} requests"),
        StopCondition::Each(each) => format!("for {each} requests each"),
    };
    let pace = match config.pace {
        Pace::Closed { think, phase } => {
            let lockstep = if phase == Phase::Lockstep { ", in lockstep" } else { "" };
            match think {
                Think::None => lockstep.to_owned(),
                Think::Fixed(pause) => format!(", thinking {} between requests{lockstep}", write_duration(pause)),
                Think::Exponential(mean) => {
                    format!(", thinking {} on average between requests{lockstep}", write_duration(mean))
                }
            }
        }
        Pace::Open { rate, .. } if rate.from == rate.to => format!(", at {} requests/s", three_digits(rate.from)),
        Pace::Open { rate, .. } => {
            format!(", at {} to {} requests/s", three_digits(rate.from), three_digits(rate.to))
        }
    };
    format!("{} connections to {} {until}{pace}{lag}", config.connections, targets.join(", "))
}

/// From this rate on, three digits have no decimals.
const WHOLE_FROM: f64 = 100.0;

/// A rate, whole unless it is small.
fn rate_text(rate: f64) -> String {
    if rate < WHOLE_FROM { three_digits(rate) } else { grouped(rate.round() as u64) }
}

fn rates(out: &mut impl Write, summary: &Summary, paint: Paint) -> io::Result<()> {
    let requests = summary.requests;
    let rate = paint.bold(&format!("{}/s", rate_text(summary.completed_rate)));
    writeln!(
        out,
        "completed      {} requests in {}: {rate}, goodput {}bit/s",
        grouped(requests.completed),
        write_duration(Duration::from_secs_f64(summary.elapsed_s)),
        scaled(summary.goodput_bits_per_s)
    )?;
    if let Some(intended) = summary.intended_rate {
        writeln!(
            out,
            "offered        {} of {} requests/s intended",
            three_digits(summary.offered_rate),
            three_digits(intended)
        )?;
    }
    let rest = [
        ("failed", requests.failed),
        ("timed out", requests.timed_out),
        ("in flight at the end", requests.in_flight),
        ("never sent", requests.unsent),
    ];
    list(out, "not completed", &rest)?;
    let errors = summary.errors;
    let causes = [
        ("connects", errors.connect),
        ("reads", errors.read),
        ("writes", errors.write),
        ("time-outs", errors.timeout),
        ("wrong answers", errors.mismatch),
        ("closed by the server", errors.closed),
        ("error statuses", errors.status),
    ];
    list(out, "errors", &causes)?;
    let statuses: Vec<(String, u64)> =
        summary.statuses.iter().map(|(code, count)| (format!("of {code}"), *count)).collect();
    let statuses: Vec<(&str, u64)> = statuses.iter().map(|(code, count)| (code.as_str(), *count)).collect();
    list(out, "statuses", &statuses)?;
    let connections = summary.connections;
    let extra = [
        ("failed", connections.failed),
        ("reopened", connections.reopened),
        ("ended idle", connections.ended_idle),
        ("ended by unrequested bytes", connections.unrequested),
        ("connects failed in the warm-up", summary.warm_up.errors.connect),
    ];
    let extra: Vec<String> = extra
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!(", {} {name}", grouped(*count)))
        .collect();
    writeln!(
        out,
        "connections    {} of {} established, at most {} at once{}",
        grouped(connections.established),
        grouped(connections.requested),
        grouped(connections.peak),
        extra.concat()
    )?;
    // A run so short that opening the connections took a part of it says nothing.
    if summary.has_lost_connections() && summary.available_ratio < 1.0 {
        writeln!(out, "available      connections could be used for {} of the time", percent(summary.available_ratio))?;
    }
    Ok(())
}

fn list(out: &mut impl Write, title: &str, counts: &[(&str, u64)]) -> io::Result<()> {
    let some: Vec<String> = counts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{} {name}", grouped(*count)))
        .collect();
    if some.is_empty() { Ok(()) } else { writeln!(out, "{title:<15}{}", some.join(", ")) }
}

fn times(out: &mut impl Write, summary: &Summary, paint: Paint) -> io::Result<()> {
    let header = ["", "min", "mean", "p50", "p90", "p99", "p99.9", "max"];
    let row = |cells: [String; 8]| {
        let [title, rest @ ..] = cells;
        format!("{title:<20}{}", rest.iter().map(|cell| format!("{cell:>10}")).collect::<String>())
    };
    writeln!(out, "{}", paint.faint(&row(header.map(str::to_owned))))?;
    let rows = [
        ("response time", summary.response_time_us),
        ("service time", summary.service_time_us),
        ("pool wait", summary.pool_wait_us),
        ("back-off wait", summary.backoff_wait_us.unwrap_or_default()),
        ("schedule lag", summary.schedule_lag_us),
        ("receive lag", summary.receive_lag_us),
        ("establishment time", summary.establishment_time_us),
    ];
    for (title, times) in rows.into_iter().filter(|(_, times)| times.count > 0) {
        let TimesSummary { min, mean, p50, p90, p99, p99_9, max, .. } = times;
        let [min, mean, p50, p90, p99, p99_9, max] = [min, mean, p50, p90, p99, p99_9, max].map(time);
        let line = row([title.to_owned(), min, mean, p50, p90, p99, p99_9, max]);
        writeln!(out, "{}", if title == "response time" { paint.bold(&line) } else { line })?;
    }
    match summary.response_time_us.unanswered {
        Some(unanswered @ 1..) => {
            writeln!(out, "response times include {} unanswered requests at their age", grouped(unanswered))
        }
        _ => Ok(()),
    }
}

/// How response times are distributed. Of a few requests the lines above say it all.
fn distribution(out: &mut impl Write, summary: &Summary, paint: Paint) -> io::Result<()> {
    let histogram = summary.histograms.get("response_time_ns").map(String::as_str).unwrap_or_default();
    match Times::decode(histogram, &summary.response_time_us) {
        Ok(times) if times.count() >= 2 * chart::LINES as u64 => {
            writeln!(out)?;
            for (place, line) in chart::chart(&times).into_iter().enumerate() {
                writeln!(out, "{}", if place == 0 { paint.faint(&line) } else { line })?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn generator(out: &mut impl Write, summary: &Summary) -> io::Result<()> {
    let generator = &summary.generator;
    writeln!(
        out,
        "generator      {} of a core ({} in the busiest of {} event loops), {} us a request, {}B",
        percent(generator.cpu_cores),
        percent(generator.busiest_thread_cpu_cores),
        generator.threads,
        three_digits(generator.cpu_us_per_request),
        scaled(generator.memory_bytes as f64)
    )
}

fn judgement(out: &mut impl Write, summary: &Summary, paint: Paint) -> io::Result<()> {
    for limit in &summary.limits {
        let verdict = if limit.met { "met".to_owned() } else { paint.alarm("missed") };
        writeln!(out, "limit          {}: {verdict}", limit.limit)?;
    }
    for warning in &summary.warnings {
        writeln!(out, "{} {}\n               {}", paint.alarm("warning       "), warning.message, warning.remedy)?;
    }
    if summary.valid {
        Ok(())
    } else {
        writeln!(
            out,
            "{}",
            paint.alarm("INVALID: the generator was late or saturated, so the figures are not the server's")
        )
    }
}

fn percent(ratio: f64) -> String {
    format!("{} %", three_digits(ratio * 100.0))
}

fn time(microseconds: f64) -> String {
    write_duration(Duration::from_nanos((microseconds * 1000.0).round() as u64))
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with a decimal prefix and a space: `63.2 M`.
fn scaled(number: f64) -> String {
    let prefixes = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (factor, prefix) = prefixes.into_iter().find(|(factor, _)| number >= *factor).unwrap_or((1.0, ""));
    format!("{} {prefix}", three_digits(number / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_rate_is_not_rounded_to_nothing() {
        assert_eq!([0.0, 0.415, 1.538, 99.96, 39_812.4].map(rate_text), ["0", "0.415", "1.54", "100", "39,812"]);
    }

    #[test]
    fn numbers_are_grouped_and_scaled() {
        assert_eq!([0, 12, 123, 1234, 1_234_567].map(grouped), ["0", "12", "123", "1,234", "1,234,567"]);
        assert_eq!([0.0, 999.0, 1500.0, 63_200_000.0].map(scaled), ["0 ", "999 ", "1.5 k", "63.2 M"]);
    }
}
