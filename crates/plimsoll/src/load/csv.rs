//! The summary as one row of CSV: with named columns, or as tcpbenchmark or three-servers' client
//! writes it.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::ValueEnum;
use plimsoll_load::STACK_BYTES;
use plimsoll_load::config::{Config, Engine, StopCondition};
use plimsoll_load::record::Sequence;
use plimsoll_measure::summary::Summary;
use serde_json::Value;

use super::Payload;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// Every figure of the summary under its name.
    Summary,
    /// tcpbenchmark's header and row, over the connections.
    Tcpbenchmark,
    /// A row without a header, to be appended to a file: server, size, mean response time in
    /// seconds.
    ThreeServers,
}

/// Header and row of every number in the summary; the first columns say what was asked of whom.
pub(super) fn write_summary(
    out: &mut impl Write,
    summary: &Summary,
    config: &Config,
    size: Option<u64>,
) -> io::Result<()> {
    let targets: Vec<String> = config.targets.iter().map(ToString::to_string).collect();
    let mut columns = vec![
        ("server".to_owned(), targets.join(" ")),
        ("size_bytes".to_owned(), size.map_or_else(String::new, |size| size.to_string())),
    ];
    flatten("", &serde_json::to_value(summary)?, &mut columns);
    let (names, cells): (Vec<String>, Vec<String>) = columns.into_iter().unzip();
    writeln!(out, "{}\n{}", names.join(","), cells.join(","))
}

fn flatten(path: &str, value: &Value, columns: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            // Histograms are not figures.
            for (name, value) in fields.iter().filter(|(name, _)| *name != "histograms") {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, value, columns);
            }
        }
        Value::Number(number) => columns.push((path.to_owned(), number.to_string())),
        Value::Bool(truth) => columns.push((path.to_owned(), truth.to_string())),
        Value::Null => columns.push((path.to_owned(), String::new())),
        // Names without commas or quotes: the engine, the signal.
        Value::String(text) => columns.push((path.to_owned(), text.clone())),
        Value::Array(_) => {}
    }
}

/// The row of three-servers' client: the server's address without its port, the length of a
/// message, and how long one took. No answer has no time: its cell is empty.
pub(super) fn write_three_servers(
    out: &mut impl Write,
    summary: &Summary,
    config: &Config,
    size: Option<u64>,
) -> io::Result<()> {
    let servers: BTreeSet<IpAddr> = config.targets.iter().map(SocketAddr::ip).collect();
    let servers: Vec<String> = servers.iter().map(IpAddr::to_string).collect();
    let size = size.map_or_else(String::new, |size| size.to_string());
    // Of the answers alone: there is no column that tells how many requests had none.
    let times = summary.answered_time_us.unwrap_or(summary.response_time_us);
    let mean = (summary.requests.completed > 0).then(|| format!("{:.6}", times.mean / 1e6));
    writeln!(out, "{},{size},{}", servers.join(" "), mean.unwrap_or_default())
}

/// What tcpbenchmark says before it starts. Its threads are our connections.
pub(super) fn write_parameters(out: &mut impl Write, config: &Config, payload: Option<&Payload<'_>>) -> io::Result<()> {
    let each = if let StopCondition::Each(each) = config.stop_condition { each } else { 0 };
    let (server, size) = payload.map_or(("", 0), |payload| (payload.server, payload.bytes));
    let (host, port) = server.rsplit_once(':').unwrap_or((server, ""));
    writeln!(out, "hostname = {host}, port = {port}")?;
    writeln!(out, "{} thread with {each} echoback.", config.connections)?;
    writeln!(out, "message size is {size} bytes.")?;
    if config.engine == Engine::Threads {
        writeln!(out, "Thread stack size = {STACK_BYTES} bytes")?;
    }
    Ok(())
}

/// What tcpbenchmark says of its threads once they are there.
pub(super) fn write_threads(out: &mut impl Write, threads: usize) -> io::Result<()> {
    (0..threads).try_for_each(|number| writeln!(out, "thread {number} created."))
}

/// Whom each connection reached, and its result, in tcpbenchmark's words.
pub(super) fn write_connections(out: &mut impl Write, sequences: &[Sequence], config: &Config) -> io::Result<()> {
    for sequence in sequences.iter().filter(|sequence| sequence.connect_ns > 0) {
        let target = config.targets[sequence.number as usize % config.targets.len()];
        writeln!(out, "addr={}\nport={}", target.ip(), target.port())?;
    }
    for sequence in sequences {
        writeln!(out, "Thread({}): {}", sequence.number, sequence.success)?;
        writeln!(out, "  connectTime: UsedTime: {:.10}(sec)", seconds(connect_ns(sequence)))?;
        writeln!(out, "  sendRecvTime: UsedTime: {:.10}(sec)", seconds(exchange_ns(sequence)))?;
        writeln!(out, "  failedConnectNum = {}", sequence.failed_connects)?;
        writeln!(out, "  failedSendRecvLoopNum = {}", sequence.failed_sequences)?;
        writeln!(out, "  failedSendRecvNum = {}", sequence.failed_requests)?;
    }
    Ok(())
}

const HEADER: &str = "thread,success,failedConnect,failedSendRecvLoop,failedSendRecv,connectTime(total),\
                      connectTime(average),connectTime(sample \
                      variance),connectTime(max),sendRecvTime(total),sendRecvTime(average),sendRecvTime(sample \
                      variance),sendRecvTime(max),benchmarkTime(include failed)";

/// tcpbenchmark's header and row. Its times are of the connections that succeeded, a sample each;
/// the last column is from the common start to the end.
pub(super) fn write_tcpbenchmark(out: &mut impl Write, sequences: &[Sequence], elapsed: Duration) -> io::Result<()> {
    let sum = |count: fn(&Sequence) -> u64| sequences.iter().map(count).sum::<u64>();
    let counts = [
        sequences.len() as u64,
        sum(|sequence| u64::from(sequence.success)),
        sum(|sequence| sequence.failed_connects),
        sum(|sequence| sequence.failed_sequences),
        sum(|sequence| sequence.failed_requests),
    ];
    let succeeded = || sequences.iter().filter(|sequence| sequence.success);
    let connect: Vec<f64> = succeeded().map(|sequence| seconds(sequence.connect_ns)).collect();
    let exchange: Vec<f64> = succeeded().map(|sequence| seconds(sequence.exchange_ns)).collect();
    let mut cells: Vec<String> = counts.iter().map(u64::to_string).collect();
    let figures = [statistics(&connect), statistics(&exchange)].concat();
    cells.extend(figures.iter().chain([&elapsed.as_secs_f64()]).map(|value| format!("{value:.6}")));
    writeln!(out, "-----\n{HEADER}\n{}\n-----", cells.join(","))
}

/// Total, average, sample variance, maximum.
fn statistics(samples: &[f64]) -> [f64; 4] {
    let count = samples.len() as f64;
    // An empty `sum` of floats is -0.0, which a row would show as -0.000000.
    let total = samples.iter().fold(0.0, |sum, sample| sum + sample);
    let mean = if samples.is_empty() { 0.0 } else { total / count };
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    let variance = if samples.len() > 1 { squares / (count - 1.0) } else { 0.0 };
    [total, mean, variance, samples.iter().copied().fold(0.0, f64::max)]
}

/// Times exclude failures.
fn connect_ns(sequence: &Sequence) -> u64 {
    if sequence.success { sequence.connect_ns } else { 0 }
}

fn exchange_ns(sequence: &Sequence) -> u64 {
    if sequence.success { sequence.exchange_ns } else { 0 }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_without_any_success_are_zero_and_not_below_it() {
        let mut out = Vec::new();
        write_tcpbenchmark(&mut out, &[], Duration::from_secs(1)).expect("a vector takes all");
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains("0,0,0,0,0,0.000000,0.000000,0.000000,0.000000,0.000000,"), "{text}");
        assert!(!text.contains("-0.0"), "{text}");
    }

    #[test]
    fn the_row_of_the_report_comes_out_to_the_letter() {
        // The report's own run: three threads, their times as it printed them.
        let times = [(1_390_954, 362_995), (1_288_070, 474_143), (1_646_464, 457_696)];
        let sequences: Vec<Sequence> = times
            .iter()
            .zip(0..)
            .map(|((connect_ns, exchange_ns), number)| Sequence {
                number,
                success: true,
                connect_ns: *connect_ns,
                exchange_ns: *exchange_ns,
                ..Sequence::default()
            })
            .collect();
        let mut out = Vec::new();
        write_tcpbenchmark(&mut out, &sequences, Duration::from_nanos(2_886_000)).expect("memory takes it");
        let text = String::from_utf8(out).expect("text");
        let row = "3,3,0,0,0,0.004325,0.001442,0.000000,0.001646,0.001295,0.000432,0.000000,0.000474,0.002886";
        assert_eq!(text.lines().nth(2), Some(row));
        assert_eq!(text.lines().nth(1), Some(HEADER));
    }

    #[test]
    fn failures_are_counted_and_their_times_left_out() {
        let failed = Sequence { failed_connects: 10, connect_ns: 5, ..Sequence::default() };
        let broken = Sequence {
            number: 1,
            success: true,
            failed_sequences: 2,
            failed_requests: 2,
            connect_ns: 1_000_000_000,
            ..failed
        };
        let mut out = Vec::new();
        write_tcpbenchmark(&mut out, &[failed, broken], Duration::from_secs(3)).expect("memory takes it");
        let text = String::from_utf8(out).expect("text");
        let row = "2,1,20,2,2,1.000000,1.000000,0.000000,1.000000,0.000000,0.000000,0.000000,0.000000,3.000000";
        assert_eq!(text.lines().nth(2), Some(row));
    }
}
