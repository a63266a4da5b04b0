//! The summary of a run, and its warnings: reasons to mistrust it, each with its evidence and its
//! remedy. A warning that the generator or the machine was the limit makes the result invalid.

use std::collections::HashSet;
use std::time::Duration;

use plimsoll_measure::summary::{GeneratorSummary, Summary, Warning, Window};
use plimsoll_measure::tally::{Errors, Requests};
use plimsoll_measure::units::{three_digits, write_duration};
use plimsoll_sys::signal::Signal;

use crate::config::{Config, Pace, StopCondition};
use crate::protocol::Complaint;
use crate::run::Outcome;
use crate::shared::EPROTO;
use crate::warnings::codes::{
    BUSY, CLOSED, FEW_SAMPLES, INTERRUPTED, NOT_OFFERED, NOTHING_COMPLETED, REDIRECTS, SATURATED, UNAVAILABLE,
};
use crate::warnings::lateness::{
    LAG_SHARE_NOTICED, SAMPLES_BEYOND, allowed_lag, doubted_figures, late_stamps, lateness, name_search_for_ports,
};
use crate::warnings::text::{percent, time, warning};

mod codes;
mod lateness;
mod text;
pub mod together;

/// An event loop that used this much of a core had no time left to ask for more: what it could not
/// ask for, the server was not asked for.
const SATURATED_CORES: f64 = 0.95;
/// Waiting for a CPU during this share of the window is no accident.
const RUN_QUEUE_NOTICED: f64 = 0.1;
/// Pool wait below this is within what a timer and a scheduler do on an idle machine.
const WAIT_NOTICED_US: f64 = 1000.0;
/// An offered rate below this share of the intended one is not the load that was asked for.
const OFFERED_SHARE: f64 = 0.98;
/// Requests that began before the window, from this part of a counted one on.
const HEAD_START_NOTICED: f64 = 0.05;
/// Connections that could be used for less than this share of the time were not the number asked
/// for.
const AVAILABLE_NOTICED: f64 = 0.99;
/// From this share of the window on, a generator that began late measured another load than the
/// generators that began in time.
const START_LAG_NOTICED: f64 = 0.01;
/// A start later than this is not a timer's or a scheduler's doing on an idle machine.
const START_LAG_LEAST: Duration = Duration::from_millis(10);

/// The summary of a run, with its warnings.
pub fn summarise(config: &Config, outcome: &Outcome) -> Summary {
    let mut summary = Summary::of(&outcome.window, &outcome.warm_up, &outcome.connections, outcome.elapsed);
    let opened_unix_s = outcome.opened_unix_ns as f64 / 1e9;
    summary.window = Window { opened_unix_s, closed_unix_s: opened_unix_s + summary.elapsed_s };
    summary.connections.requested = config.connections as u64;
    summary.connections.peak = outcome.peak;
    summary.connections.bytes_each = outcome.bytes_each;
    if let Pace::Open { rate, .. } = config.pace {
        // A ramp that was ended early has not come to its later rates.
        let part = match config.stop_condition {
            StopCondition::Time(length) => outcome.elapsed.as_secs_f64() / length.as_secs_f64(),
            StopCondition::Requests(_) | StopCondition::Each(_) => 1.0,
        };
        summary.intended_rate = Some(rate.mean_of_first(part.min(1.0)));
    }
    summary.seeds = vec![config.seed];
    summary.targets = config.targets.iter().map(ToString::to_string).collect();
    summary.tls_handshakes = outcome.report.handshakes;
    summary.counted = config.stop_condition.is_count();
    // One that comes after the window, while connections close or are kept up, cuts nothing short.
    let is_whole = match config.stop_condition {
        StopCondition::Time(length) => outcome.elapsed >= length,
        StopCondition::Requests(_) | StopCondition::Each(_) => {
            let Requests { scheduled, unsent, in_flight, .. } = summary.requests;
            unsent + in_flight == 0 && scheduled >= config.requests_asked_for()
        }
    };
    let interrupted = outcome.interrupted.filter(|_| !is_whole);
    summary.interrupted = interrupted.map(signal_name);
    let cores = |cpu: Duration| {
        if summary.elapsed_s > 0.0 { cpu.as_secs_f64() / summary.elapsed_s } else { 0.0 }
    };
    summary.generator = GeneratorSummary {
        cpu_cores: cores(outcome.cpu),
        busiest_thread_cpu_cores: cores(outcome.busiest_cpu),
        run_queue_wait_ratio: cores(outcome.run_queue),
        cpu_us_per_request: outcome.cpu.as_secs_f64() * 1e6 / (summary.requests.completed.max(1)) as f64,
        threads: outcome.workers as u64,
        tables: outcome.tables as u64,
        engine: config.engine.name().to_owned(),
        max_lag_us: (!config.max_lag.is_zero()).then(|| config.max_lag.as_nanos() as f64 / 1000.0),
        polling_cpu_cores: (!config.spin.is_zero()).then(|| cores(outcome.polled)),
        memory_bytes: outcome.memory_bytes,
    };
    let wanted_ns = config.connections as f64 * outcome.elapsed.as_nanos() as f64;
    if wanted_ns > 0.0 {
        summary.available_ratio = (1.0 - outcome.connections.unavailable_ns as f64 / wanted_ns).max(0.0);
    }
    let mut late = lateness(&summary);
    if let Some((warning, _)) = &mut late {
        name_search_for_ports(warning, config);
    }
    let all_work = outcome.cpu.saturating_sub(outcome.polled);
    let saturated = saturation(cores(outcome.busiest_work), cores(all_work), usable_cpus(config));
    summary.doubted = doubted_figures(&summary);
    summary.valid = saturated.is_none() && !late.as_ref().is_some_and(|(_, invalid)| *invalid);
    let warnings = [
        saturated,
        late.map(|(warning, _)| warning),
        allowed_lag(&summary),
        late_stamps(&summary),
        late_start(outcome),
        contention(&summary),
        crowding(&summary),
        shortfall(&summary, offered_for(&summary, outcome.offered_for.as_secs_f64())),
        missing_connections(&summary, outcome),
        head_start(&summary, config, outcome),
        unavailability(&summary),
        closing(&summary),
        silence(&summary),
        redirects(&summary),
        few_samples(&summary),
        interruption(&summary),
    ];
    summary.warnings = warnings.into_iter().flatten().chain(outcome.report.complaints.iter().map(complaint)).collect();
    summary
}

/// A signal as records name it.
pub fn signal_name(signal: Signal) -> String {
    format!("{signal:?}").to_lowercase()
}

/// CPUs that the generator's threads may be on.
fn usable_cpus(config: &Config) -> usize {
    let available = plimsoll_sys::process::available_cpus();
    let named: HashSet<usize> = config.cpus.iter().copied().collect();
    if named.is_empty() { available } else { named.len().min(available) }
}

/// The busiest loop, or all threads together where each connection has one, had no time left: both
/// in cores, and without what went into polling in vain.
fn saturation(busiest: f64, all: f64, cpus: usize) -> Option<Warning> {
    let (seen, remedy) = if busiest >= SATURATED_CORES {
        (
            format!("the busiest event loop of the generator used {} of a core", percent(busiest)),
            "give the generator more event loops (--workers) and CPUs of its own, or lower the load",
        )
    } else if all >= SATURATED_CORES * cpus as f64 {
        (
            format!("the generator's threads used {} of a core, and have {cpus}", percent(all)),
            "give the generator more CPUs (--cpus, another host), or lower the load",
        )
    } else {
        return None;
    };
    Some(warning(SATURATED, format!("{seen}: it could not ask for more"), remedy))
}

/// A run that began after the instant it was to start at: other generators may have run alone.
fn late_start(outcome: &Outcome) -> Option<Warning> {
    let lag = outcome.start_lag;
    (lag >= START_LAG_LEAST && lag >= outcome.elapsed.mul_f64(START_LAG_NOTICED)).then(|| {
        warning(
            "late_start",
            format!("the run began {} after the instant it was to start at", write_duration(lag)),
            "start the generator sooner, or give an instant further ahead (--start-at, --await-start); close what else \
             runs on this machine",
        )
    })
}

/// An event loop that was ready and had no CPU: what it measured includes its own wait.
fn contention(summary: &Summary) -> Option<Warning> {
    let ratio = summary.generator.run_queue_wait_ratio;
    (ratio >= RUN_QUEUE_NOTICED).then(|| {
        warning(
            "cpu_contended",
            format!(
                "an event loop of the generator was ready and waited for a CPU during {} of the window",
                percent(ratio)
            ),
            "more runs on this machine than it has CPUs for: give generator and server CPUs of their own (--cpus, \
             taskset, another host)",
        )
    })
}

/// Open loop: requests that waited for a connection. It is the server's doing, and belongs in its
/// response time; but who sees it may want more connections.
fn crowding(summary: &Summary) -> Option<Warning> {
    let wait = summary.pool_wait_us.p99;
    (wait >= WAIT_NOTICED_US && wait >= LAG_SHARE_NOTICED * summary.response_time_us.p99).then(|| {
        warning(
            BUSY,
            format!("one request in a hundred waited {} or more until a connection was free", time(wait)),
            "it is the server's response time that keeps them busy; with more --connections requests would wait in \
             the server instead",
        )
    })
}

/// For how long requests were due, in seconds, of which the last one was begun so many after the
/// window had opened. A count is offered once its last request is sent, however long the last
/// answer takes.
fn offered_for(summary: &Summary, last_begun_s: f64) -> f64 {
    let is_offered = summary.requests.unsent == 0 && last_begun_s < summary.elapsed_s;
    if is_offered { last_begun_s } else { summary.elapsed_s }
}

/// Open loop: fewer requests sent than intended in these seconds.
fn shortfall(summary: &Summary, seconds: f64) -> Option<Warning> {
    let intended = summary.intended_rate? * seconds;
    // Poisson arrivals vary by the square root of their number; three times that is chance once in
    // 700 runs.
    let least = (intended * OFFERED_SHARE).min(intended - 3.0 * intended.sqrt());
    let offered = summary.offered_rate * summary.elapsed_s;
    (offered < least).then(|| {
        warning(
            NOT_OFFERED,
            format!(
                "{} of the requests due were sent: {} a second in place of {}",
                percent(offered / intended),
                three_digits(offered / seconds),
                three_digits(summary.intended_rate.unwrap_or_default())
            ),
            "where pool wait is high the server was too slow for this rate on so many connections; where schedule lag \
             is, the generator was",
        )
    })
}

/// A count behind a warm-up takes the requests first that are under way as its window opens. Of a
/// few rounds these are a part, and the time that they took before is in no rate.
fn head_start(summary: &Summary, config: &Config, outcome: &Outcome) -> Option<Warning> {
    let counts = config.stop_condition.is_count() && !config.warm_up.is_zero() && !config.pace.is_open();
    let requests = summary.requests;
    let ended = requests.completed + requests.failed + requests.timed_out;
    let early = requests.scheduled.saturating_sub(outcome.window.sent + requests.unsent).min(ended);
    (counts && early as f64 > HEAD_START_NOTICED * ended as f64).then(|| {
        let how_much = if early == ended {
            "says nothing".to_owned()
        } else {
            format!("is up to {} too high", percent(early as f64 / (ended - early) as f64))
        };
        warning(
            "head_start",
            format!(
                "{early} of the {ended} requests counted had begun before the window: where all take the same time, \
                 the rate {how_much}"
            ),
            "ask for twenty times as many requests as connections or more (-n, --each), or for a time (-d)",
        )
    })
}

/// Connections that were wanted and could not be used, so that less was asked of the server.
fn unavailability(summary: &Summary) -> Option<Warning> {
    (summary.has_lost_connections() && summary.available_ratio < AVAILABLE_NOTICED).then(|| {
        warning(
            UNAVAILABLE,
            format!(
                "connections could be used for {} of the time: a closed loop asked for nothing meanwhile, and \
                 requests that were never sent are in no failed_ratio",
                percent(summary.available_ratio)
            ),
            "see what the server says about the connections it ended or refused; --limit 'available_ratio > 99%' \
             makes this a failure",
        )
    })
}

/// A server that ends connections after an answer or two, without saying so: a request sent
/// meanwhile is lost.
fn closing(summary: &Summary) -> Option<Warning> {
    // Connections are counted over the whole run.
    let reopened = summary.connections.reopened;
    let completed = summary.warm_up.requests.completed + summary.requests.completed;
    let lost = |errors: &Errors| errors.closed + errors.read;
    let ended = summary.connections.ended_idle + lost(&summary.warm_up.errors) + lost(&summary.errors);
    (reopened > summary.connections.established && 2 * ended.min(reopened) >= completed && completed > 0).then(|| {
        warning(
            CLOSED,
            format!(
                "the server ended connections after an answer or two: {reopened} were opened again for {completed} \
                 answers"
            ),
            "use --reconnect (or --http 1.0), which opens a connection for each request and sends none on one that is \
             about to end",
        )
    })
}

fn missing_connections(summary: &Summary, outcome: &Outcome) -> Option<Warning> {
    let connections = summary.connections;
    if connections.failed == 0 {
        return None;
    }
    let number = outcome.connections.main_cause();
    let (cause, remedy) = number.map_or(("their requests were lost (see errors)".to_owned(), SERVER_LOG), explain);
    let message = format!(
        "{} of {} connections could not be established or kept (at most {} were up at once): {cause}",
        connections.failed, connections.requested, connections.peak
    );
    Some(warning("connections_missing", message, remedy))
}

const SERVER_LOG: &str = "see what the server says; its own limit of connections or descriptors may be reached";

/// What an error number means for a connection, and what to do about it (connect(2), socket(2)).
fn explain(number: i32) -> (String, &'static str) {
    let error = std::io::Error::from_raw_os_error(number);
    let name = if number == EPROTO { "eproto" } else { plimsoll_sys::descriptor::error_name(&error) };
    let remedy = match name {
        "econnrefused" => "nothing listens there: start the server, or correct the address",
        "emfile" => "the limit of open descriptors is too low for even one table: raise it (ulimit -n)",
        "enfile" => "the machine's limit of open files is reached: raise fs.file-max",
        "eaddrnotavail" => {
            "no local port is left to this destination, or the source address is not this machine's: add --source-ip \
             addresses, or widen net.ipv4.ip_local_port_range"
        }
        "enomem" | "enobufs" => {
            "the kernel has no memory for more sockets: raise net.ipv4.tcp_mem, or use fewer connections"
        }
        "etimedout" => {
            "the server's backlog is full, or packets are dropped on the way: raise net.core.somaxconn there, or open \
             connections more slowly (--connect-rate)"
        }
        "eproto" => {
            "the TLS handshake failed: see the warning tls_failed; without one, the server ended the connection during \
             the handshake, and may speak no TLS there"
        }
        "enetunreach" | "ehostunreach" => "there is no route to that address: correct it, or the network",
        _ => SERVER_LOG,
    };
    // The standard library adds "(os error N)"; the symbol says more.
    let words = error.to_string();
    let words = words.split(" (os error").next().unwrap_or_default().to_lowercase();
    (format!("{words} ({})", name.to_uppercase()), remedy)
}

fn silence(summary: &Summary) -> Option<Warning> {
    let nothing =
        summary.requests.completed == 0 && summary.connections.established > 0 && summary.interrupted.is_none();
    nothing.then(|| {
        let errors = summary.errors;
        let what = if errors.status > 0 {
            "every answer had an error status"
        } else if errors.mismatch > 0 {
            "every answer was wrong"
        } else if errors.closed + errors.read + summary.connections.ended_idle > 0 {
            "the server ended every connection"
        } else {
            "nothing was answered"
        };
        warning(
            NOTHING_COMPLETED,
            format!("not one request was completed: {what}"),
            "check the address, the path and the protocol (an echo server sends back just what it gets; see --postfix \
             and --verify)",
        )
    })
}

/// Answers that name another place: small, quick, and seldom what was meant to be measured.
fn redirects(summary: &Summary) -> Option<Warning> {
    (summary.redirects > 0).then(|| {
        warning(
            REDIRECTS,
            format!("{} answers redirect to another URL, which was not fetched", summary.redirects),
            "give the URL that they lead to, or --follow to have it looked up before the run",
        )
    })
}

/// What the protocol could not go on with.
fn complaint(complaint: &Complaint) -> Warning {
    let connections = if complaint.count == 1 { "connection" } else { "connections" };
    warning(
        "tls_failed",
        format!("TLS failed on {} {connections}: {}", complaint.count, complaint.message),
        complaint.remedy,
    )
}

/// The warning of percentiles that few requests lie beyond.
fn few_samples(summary: &Summary) -> Option<Warning> {
    let count = summary.response_time_us.count;
    (count > 0 && count < 100 * SAMPLES_BEYOND).then(|| {
        warning(
            FEW_SAMPLES,
            format!("the 99th percentile rests on the slowest {} of {count} requests", count.div_ceil(100)),
            "measure for longer (--duration), or over more requests, before believing a tail",
        )
    })
}

fn interruption(summary: &Summary) -> Option<Warning> {
    let signal = summary.interrupted.as_ref()?;
    Some(warning(
        INTERRUPTED,
        format!(
            "the run was ended early ({signal}); the figures cover {} of it",
            write_duration(Duration::from_secs_f64(summary.elapsed_s))
        ),
        "let the run come to its end",
    ))
}

#[cfg(test)]
mod tests;
