//! Runs a cell: one generator, or two at once, against a server that keeps books.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::table::{
    CONNECT_RATE, COUNT, CPUS, Cell, OUTAGE, PER_CONNECTION, RAMP, RATE, REQUEST_LOG, TIMESERIES, TWO_GENERATORS,
    WARM_UP,
};
use crate::support::books::{BookKeeper, Script, Seen, Speaks, now};
use crate::support::network::{Scratch, ScratchFolder};
use crate::support::peer::{Run, command, outcome};

pub(super) const CONNECTIONS: u64 = 4;

/// Requests that the outage leaves unanswered: enough for each connection to lose one or more.
pub(super) const LOST: u64 = 7;
pub(super) const ANSWERED_BEFORE: u64 = 14;

/// How long the server takes for its answers, in turn: different times, so that their percentiles
/// differ.
const TIMES: [Duration; 4] =
    [Duration::ZERO, Duration::from_micros(300), Duration::from_micros(600), Duration::from_micros(1500)];

/// A cell that was run, and what is to be compared.
pub(super) struct Measured {
    pub(super) cell: Cell,
    /// The whole: a generator's run, or the merged one.
    pub(super) run: Run,
    /// The runs of the generators.
    pub(super) parts: Vec<Run>,
    /// Their request logs and time series, where they keep some.
    pub(super) logs: Vec<String>,
    pub(super) series: Vec<String>,
    pub(super) seen: Seen,
    /// From before the first process until after the last, since 1970, and for how long.
    pub(super) began: Duration,
    pub(super) ended: Duration,
    pub(super) took: Duration,
}

impl Measured {
    /// What to say where something is not as it has to be.
    pub(super) fn told(&self) -> String {
        let Seen { connections, requests, answers, .. } = self.seen;
        let books = format!("{connections} connections, {requests} requests, {answers} answers");
        format!("{:?}: the server saw {books}; {} {}", self.cell, self.run.stderr, self.run.summary())
    }

    /// Whether all that the server saw belongs to the window.
    pub(super) fn is_whole(&self) -> bool {
        !self.cell.has(super::table::LASTS) && !self.cell.has(WARM_UP)
    }

    /// Whether the reported window is made of several, each with a warm-up of its own.
    pub(super) fn has_several_windows(&self) -> bool {
        self.cell.has(TWO_GENERATORS) || self.cell.has("--engine fork")
    }

    /// Whether requests come at a rate.
    pub(super) fn is_open(&self) -> bool {
        self.cell.has(RATE) || self.cell.has(RAMP)
    }

    pub(super) fn speaks(&self) -> Speaks {
        speaks(&self.cell)
    }
}

fn speaks(cell: &Cell) -> Speaks {
    match cell.0[1] {
        "echo" => Speaks::Echo,
        "http" => Speaks::Http,
        _ => Speaks::Https,
    }
}

/// One of the generators that share a cell's load, and its files.
struct Generator {
    command: Command,
    log: Option<Scratch>,
    series: Option<Scratch>,
}

fn generator(cell: &Cell, keeper: &BookKeeper, of: u64) -> Generator {
    let speaks = speaks(cell);
    let (protocol, target) = match speaks {
        Speaks::Echo => ("echo", keeper.address.to_string()),
        Speaks::Http => ("http", format!("http://{}/", keeper.address)),
        Speaks::Https => ("http", format!("https://localhost:{}/", keeper.address.port())),
    };
    let file = |flag| cell.has(flag).then(|| Scratch::new(".txt"));
    let (log, series) = (file(REQUEST_LOG), file(TIMESERIES));
    let given = cell.0.iter().filter(|value| value.starts_with('-')).map(|value| match (*value, of) {
        (REQUEST_LOG, _) => format!("{REQUEST_LOG} {}", log.as_ref().map_or("", Scratch::path)),
        (TIMESERIES, _) => format!("{TIMESERIES} {}", series.as_ref().map_or("", Scratch::path)),
        (CPUS, _) => format!("{CPUS} {}", first_cpu()),
        (RATE, 2) => "-R 100".to_owned(),
        (RAMP, 2) => "-R 50:150".to_owned(),
        (COUNT, 2) => "-n 20".to_owned(),
        (CONNECT_RATE, 2) => "--connect-rate 50".to_owned(),
        (value, _) => value.to_owned(),
    });
    let arguments = given.collect::<Vec<_>>().join(" ");
    let mut command = command(protocol, &target, &format!("-c {} {arguments}", CONNECTIONS / of));
    command.env("SSL_CERT_FILE", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/whole/tls/authority.pem"));
    Generator { command, log, series }
}

/// The first CPU that this process may use (proc_pid_status(5)).
fn first_cpu() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel has it");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list");
    list.trim().split([',', '-']).next().expect("a CPU").to_owned()
}

/// Runs the command of a cell that is refused.
pub(super) fn refused(cell: &Cell) -> Run {
    let keeper = BookKeeper::start(speaks(cell), Script::default());
    let output = generator(cell, &keeper, 1).command.output().expect("the binary runs");
    let code = output.status.code();
    Run { code, told: code, lines: Vec::new(), stderr: String::from_utf8_lossy(&output.stderr).into_owned() }
}

/// Runs a cell. The server of two generators takes nothing before both are connected; where their
/// windows lie apart all the same, as on a busy machine, they are run again.
pub(super) fn measure(cell: &Cell) -> Measured {
    for _ in 0..100 {
        let measured = attempt(cell);
        if !measured.run.stderr.contains("no generator measured") {
            return measured;
        }
    }
    panic!("{cell:?}: the generators never ran at one time");
}

fn attempt(cell: &Cell) -> Measured {
    let of = if cell.has(TWO_GENERATORS) { 2 } else { 1 };
    let mut script = Script { times: &TIMES, ..Script::default() };
    if of > 1 {
        script.begins_with = CONNECTIONS;
    }
    if cell.has(OUTAGE) {
        script.outage = ANSWERED_BEFORE + 1..=ANSWERED_BEFORE + LOST;
    }
    let keeper = BookKeeper::start(speaks(cell), script);
    let mut generators: Vec<Generator> = (0..of).map(|_| generator(cell, &keeper, of)).collect();
    let (began, begun) = (now(), Instant::now());
    let processes: Vec<Child> =
        generators.iter_mut().map(|one| one.command.spawn().expect("the binary runs")).collect();
    let end = |process: Child| outcome(&process.wait_with_output().expect("it ends"));
    let mut parts: Vec<Run> = processes.into_iter().map(end).collect();
    let (ended, took) = (now(), begun.elapsed());
    let run = if of > 1 { merged(cell, &parts) } else { parts[0].clone() };
    let text = |file: &Option<Scratch>| file.as_ref().map(|file| file.text());
    let logs = generators.iter().filter_map(|one| text(&one.log)).collect();
    let series = generators.iter().filter_map(|one| text(&one.series)).collect();
    let made = parts.iter_mut().map(|part| part.count("connections.established") + part.count("connections.reopened"));
    let seen = keeper.read(made.sum());
    Measured { cell: cell.clone(), run, parts, logs, series, seen, began, ended, took }
}

/// The records of several generators, merged.
fn merged(cell: &Cell, parts: &[Run]) -> Run {
    let records = ScratchFolder::new();
    let mut merge = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    merge.arg("merge");
    for (part, number) in parts.iter().zip(0..) {
        assert!(matches!(part.code, Some(0 | 1)), "{cell:?}: {}", part.stderr);
        let file = records.0.join(format!("{number}.json"));
        std::fs::write(&file, part.summary().to_string()).expect("a file");
        merge.arg(file);
    }
    outcome(&merge.output().expect("the binary runs"))
}

/// What `--per-connection` printed.
pub(super) fn connection_lines(measured: &Measured) -> Option<Vec<&serde_json::Value>> {
    let lines = measured.parts.iter().flat_map(|part| &part.lines);
    measured.cell.has(PER_CONNECTION).then(|| lines.filter(|line| line["event"] == "connection").collect())
}
