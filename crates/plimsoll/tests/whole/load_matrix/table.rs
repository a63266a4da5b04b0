//! What a run of the generator can be asked for, which pairs of that are refused, and the cells
//! that hold all other pairs.

use std::collections::HashMap;
use std::fmt;

/// One setting of a run: one of these values. A value that begins with `-` is given as it is;
/// [`super::cell`] interprets the others.
pub(super) type Factor = &'static [&'static str];

/// The first factors: each combination of their values has a cell, unless it is refused.
pub(super) const CORE: [Factor; 4] = [
    &["--engine epoll", "--engine uring", "--engine threads", "--engine fork"],
    &["echo", "http", "https"],
    &[AT_ONCE, THINK, RATE, RAMP],
    &[LASTS, COUNT, EACH],
];
/// The others, spread over the cells so that each pair of values has one. Each is off first.
pub(super) const OPTIONS: [Factor; 17] = [
    &["", ARRIVALS_FIXED, "--arrivals poisson"],
    &["", RECONNECT],
    &["", BARRIER],
    &["", OUTAGE],
    &["", RESTART],
    &["", TWO_GENERATORS],
    &["", WARM_UP],
    &["", CONNECT_RATE],
    &["", "-t 3"],
    &["", "--max-lag 10ms"],
    &["", SPIN],
    &["", "--lockstep"],
    &["", TLS_RESUME],
    &["", REQUEST_LOG],
    &["", TIMESERIES],
    &["", PER_CONNECTION],
    &["", CPUS],
];

/// A closed loop without pauses.
pub(super) const AT_ONCE: &str = "at once";
pub(super) const THINK: &str = "--think 2ms";
/// 200 a second.
pub(super) const RATE: &str = "-R 200";
/// The same on average.
pub(super) const RAMP: &str = "-R 100:300";
pub(super) const LASTS: &str = "-d 300ms";
pub(super) const COUNT: &str = "-n 40";
pub(super) const EACH: &str = "--each 10";
pub(super) const ARRIVALS_FIXED: &str = "--arrivals fixed";
pub(super) const RECONNECT: &str = "--reconnect";
pub(super) const BARRIER: &str = "--barrier";
/// A server that ends connections in place of an answer for a while.
pub(super) const OUTAGE: &str = "outage";
pub(super) const RESTART: &str = "--restart-sequence";
/// Two generators at once, of half the connections and load each, whose records are merged.
pub(super) const TWO_GENERATORS: &str = "two generators";
pub(super) const WARM_UP: &str = "--warm-up 50ms";
pub(super) const CONNECT_RATE: &str = "--connect-rate 100";
pub(super) const SPIN: &str = "--spin 100us";
pub(super) const TLS_RESUME: &str = "--tls-resume";
/// Files of the cell's own.
pub(super) const REQUEST_LOG: &str = "--request-log";
pub(super) const TIMESERIES: &str = "--timeseries";
pub(super) const PER_CONNECTION: &str = "--per-connection";
/// A CPU that this process may use.
pub(super) const CPUS: &str = "--cpus";

/// Values that are refused beside these others, with a part of the sentence that says why.
pub(super) const REFUSED: [(&str, &[&str], &str); 17] = [
    ("-t 3", &["--engine threads", "--engine fork"], "--workers counts event loops, and each connection has a"),
    (BARRIER, &["--engine fork"], "processes share nothing"),
    (BARRIER, &[RECONNECT], "cannot be used with"),
    (REQUEST_LOG, &["--engine fork"], "processes keep no common record"),
    (TIMESERIES, &["--engine fork"], "processes keep no common record"),
    (PER_CONNECTION, &["--engine fork"], "processes keep no common record"),
    ("--max-lag 10ms", &["--engine uring", "--engine threads", "--engine fork"], "--max-lag needs an event loop"),
    ("--max-lag 10ms", &[AT_ONCE, THINK], "--max-lag is of requests at a rate"),
    ("--max-lag 10ms", &[SPIN], "cannot be used with"),
    (SPIN, &["--engine threads", "--engine fork"], "--spin is of event loops"),
    (SPIN, &[AT_ONCE], "--spin is of requests that are due at an instant"),
    (ARRIVALS_FIXED, &[AT_ONCE, THINK], "--arrivals is of requests at a rate"),
    ("--arrivals poisson", &[AT_ONCE, THINK], "--arrivals is of requests at a rate"),
    ("--lockstep", &[RATE, RAMP], "cannot be used with"),
    (RAMP, &[COUNT, EACH], "--rate A:B changes over a --duration"),
    (RESTART, &[LASTS, COUNT], "--restart-sequence starts the requests of --each over"),
    (TLS_RESUME, &["echo", "http"], "--tls-resume"),
];

/// Flags of `load` that no cell has, and the tests that hold them: a part of this file's name, and
/// how the flag is written there.
pub(super) const ELSEWHERE: [(&str, &str, &str); 34] = [
    ("--attempts", "load_tcpbenchmark", "--attempts"),
    ("--await-end", "load_await_end", "--await-end"),
    ("--await-start", "load_await_start", "--await-start"),
    ("--body", "load_http_requests", "-b "),
    ("--cacert", "load_https", "--cacert"),
    ("--cert", "load_https", "--cert"),
    ("--color", "command_line", "--color"),
    ("--connect-to", "load_https", "--connect-to"),
    ("--connections", "load_matrix/cell", "-c {"),
    ("--countdown", "load_tcpbenchmark", "--countdown"),
    ("--csv", "load_records", "--csv"),
    ("--data", "load_http_requests", "--data"),
    ("--follow", "load_http_requests", "--follow"),
    ("--hdr", "load_records", "--hdr"),
    ("--header", "load_http_requests", "-H"),
    ("--help", "command_line", "--help"),
    ("--http", "load_http_requests", "--http 1.0"),
    ("--insecure", "load_https", "--insecure"),
    ("--ipv4", "load_http_requests", "-4"),
    ("--ipv6", "load_http_requests", "-6"),
    ("--json", "support/peer", "--json"),
    ("--key", "load_https", "--key"),
    ("--limit", "load_counts", "--limit"),
    ("--method", "load_http_requests", "-m "),
    ("--payload", "load_echo", "--payload"),
    ("--postfix", "load_echo", "--postfix"),
    ("--quiet", "support/peer", "--quiet"),
    ("--seed", "load_open", "--seed"),
    ("--size", "load_records", "-s "),
    ("--source-ip", "load_echo", "--source-ip"),
    ("--start-at", "load_echo", "--start-at"),
    ("--timeout", "load_engines", "--timeout"),
    ("--verify", "load_echo", "--verify"),
    ("--version", "command_line", "--version"),
];

/// One value of each factor, in their order.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Cell(pub(super) Vec<&'static str>);

impl fmt::Debug for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given: Vec<&str> = self.0.iter().copied().filter(|value| !value.is_empty()).collect();
        write!(formatter, "[{}]", given.join(", "))
    }
}

impl Cell {
    pub(super) fn has(&self, value: &str) -> bool {
        self.0.contains(&value)
    }

    /// Why it is refused, if it is.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        let beside = |others: &[&str]| others.iter().any(|other| self.has(other));
        let refused = REFUSED.iter().find(|(value, others, _)| self.has(value) && beside(others));
        refused.map(|(.., sentence)| *sentence)
    }

    /// Two counts that begin after warm-ups of their own have windows of milliseconds, which need
    /// not have an instant in common: `merge` refuses such records.
    fn has_windows_apart(&self) -> bool {
        self.has(TWO_GENERATORS) && self.has(WARM_UP) && !self.has(LASTS)
    }

    pub(super) fn may_be_measured(&self) -> bool {
        self.refusal().is_none() && !self.has_windows_apart()
    }
}

/// All factors.
pub(super) fn factors() -> impl Iterator<Item = Factor> + Clone {
    CORE.into_iter().chain(OPTIONS)
}

/// Two values of different factors, by their places.
pub(super) type Pair = [(usize, &'static str); 2];

/// The pairs that a cell, or the beginning of one, holds.
pub(super) fn pairs(cell: &Cell) -> impl Iterator<Item = Pair> {
    let values = cell.0.iter().copied().enumerate();
    values.clone().flat_map(move |one| values.clone().take(one.0).map(move |other| [other, one]))
}

/// An option is off in so many cells for each in which it is on: with many at once fewer figures
/// follow from the books alone.
const WEIGHT_OF_AN_OPTION: u32 = 2;

/// The cells that are measured: each combination of [`CORE`] once. Each takes of the options the
/// values that have met the cell's others least often so far.
pub(super) fn cells() -> Vec<Cell> {
    let mut met: HashMap<Pair, u32> = HashMap::new();
    let mut all = combinations(CORE);
    all.retain(Cell::may_be_measured);
    for cell in &mut all {
        for factor in OPTIONS {
            let with = |value: &&'static str| Cell([&cell.0[..], &[*value]].concat());
            let may_be = factor.iter().map(with).filter(Cell::may_be_measured);
            // Pairs that no cell has yet come first.
            let known = |cell: &Cell| {
                let own = cell.0.len() - 1;
                let counts = pairs(cell).filter(|pair| pair[1].0 == own).map(|pair| met.get(&pair).copied());
                let counts: Vec<u32> = counts.map(Option::unwrap_or_default).collect();
                let new = counts.iter().filter(|count| **count == 0).count();
                let weight = if cell.0[own].is_empty() { 1 } else { WEIGHT_OF_AN_OPTION };
                (usize::MAX - new, weight * counts.iter().sum::<u32>())
            };
            let next = may_be.min_by_key(known).expect("an option can be off");
            *cell = next;
        }
        for pair in pairs(cell) {
            *met.entry(pair).or_default() += 1;
        }
    }
    all
}

/// Every combination of a value of each factor.
pub(super) fn combinations(factors: impl IntoIterator<Item = Factor>) -> Vec<Cell> {
    factors.into_iter().fold(vec![Cell(Vec::new())], |cells, factor| {
        let longer =
            |cell: &Cell| factor.iter().map(|value| Cell([&cell.0[..], &[*value]].concat())).collect::<Vec<_>>();
        cells.iter().flat_map(longer).collect()
    })
}
