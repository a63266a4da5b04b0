//! The generator's figures against a server's own books, for every engine x protocol x pace x end,
//! and every pair of options. No assertion depends on how fast the machine is; how much longer
//! times are than the server's own is measured in `make measure`.

pub(crate) mod cell;
mod counts;
pub(crate) mod table;
mod times;

use std::collections::{HashMap, HashSet};
use std::process::Command;
use std::sync::Mutex;

use table::{
    AT_ONCE, CORE, COUNT, Cell, ELSEWHERE, LASTS, OPTIONS, Pair, RAMP, RATE, REFUSED, THINK, cells, combinations,
    factors, pairs,
};

/// Whether a value beside another is refused by a row of the table.
fn refused_pairs() -> HashSet<[&'static str; 2]> {
    let rows = REFUSED.iter().flat_map(|(value, others, _)| others.iter().map(move |other| [*value, *other]));
    rows.flat_map(|[one, other]| [[one, other], [other, one]]).collect()
}

#[test]
fn every_pair_of_values_is_measured_or_is_in_the_table_of_what_is_refused() {
    let mut measured: HashMap<Pair, u32> = HashMap::new();
    let cells = cells();
    for pair in cells.iter().flat_map(pairs) {
        *measured.entry(pair).or_default() += 1;
    }
    let refused = refused_pairs();
    // Or what they need excludes each other: of a third factor each value is refused beside one.
    let exclude_each_other = |one: &'static str, other: &'static str| {
        let has_none = |factor: &[&'static str]| {
            factor.iter().all(|third| refused.contains(&[*third, one]) || refused.contains(&[*third, other]))
        };
        factors().any(has_none)
    };
    let values = factors().enumerate().flat_map(|(place, factor)| factor.iter().map(move |value| (place, *value)));
    let mut wrong = Vec::new();
    for one in values.clone() {
        for other in values.clone().filter(|other| other.0 > one.0) {
            let count = measured.get(&[one, other]).copied().unwrap_or_default();
            let may_not_be = refused.contains(&[one.1, other.1]) || exclude_each_other(one.1, other.1);
            if may_not_be != (count == 0) {
                wrong.push(format!("{} with {} is in {count} cells", one.1, other.1));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let distinct: HashSet<String> = cells.iter().map(|cell| format!("{cell:?}")).collect();
    assert_eq!(distinct.len(), cells.len());
}

/// A cell in which only this pair is refused.
fn cell_of(value: &str, other: &str) -> Cell {
    let options = OPTIONS.map(|factor| if factor.contains(&value) || factor.contains(&other) { factor } else { &[""] });
    let all = combinations(CORE.into_iter().chain(options));
    let refusals = |cell: &Cell| {
        let rows = REFUSED.iter().flat_map(|(value, others, _)| others.iter().map(move |other| (value, other)));
        rows.filter(|(value, other)| cell.has(value) && cell.has(other)).count()
    };
    let found = all.into_iter().find(|cell| cell.has(value) && cell.has(other) && refusals(cell) == 1);
    found.unwrap_or_else(|| panic!("nothing but {value} with {other} is refused in no cell"))
}

#[test]
fn what_is_refused_says_why() {
    for (value, others, sentence) in REFUSED {
        for other in others {
            let cell = cell_of(value, other);
            let run = cell::refused(&cell);
            assert!(run.code == Some(2) && run.stderr.contains(sentence), "{cell:?}: {}", run.stderr);
        }
    }
}

/// What the book calls a value.
fn in_the_book(value: &'static str) -> &'static str {
    match value {
        "-t 3" => "--workers",
        AT_ONCE | THINK => "a closed loop",
        RATE => "--rate`",
        RAMP => "--rate",
        LASTS => "--duration",
        COUNT => "--requests",
        "http" => "http://",
        engine if engine.starts_with("--engine") => engine,
        other => other.split(' ').next().unwrap_or(other),
    }
}

#[test]
fn the_book_has_what_is_refused() {
    let book = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/load.md")).expect("the book");
    assert!(book.contains(&format!("{} cells", cells().len())));
    let rows = book.lines().skip_while(|line| !line.starts_with("| flag | is refused with |"));
    let rows: Vec<Vec<&str>> =
        rows.take_while(|line| line.starts_with('|')).map(|row| row.split('|').collect()).collect();
    for [value, other] in REFUSED.iter().flat_map(|(value, others, _)| others.iter().map(move |other| [*value, *other]))
    {
        let names = |row: &&Vec<&str>| row[1].contains(in_the_book(value)) && row[2].contains(in_the_book(other));
        assert!(rows.iter().any(|row| names(&row)), "no row for {value} with {other} in {rows:#?}");
    }
}

/// The flags that the help of a command has: each in its short form, or in its long one where it
/// has no other, and in its long one.
fn flags(protocol: &str) -> Vec<(String, String)> {
    let help = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(["load", protocol, "--help"]).output();
    let text = String::from_utf8(help.expect("the binary runs").stdout).expect("text");
    let flags = text.lines().filter_map(|line| {
        let mut words =
            line.split_whitespace().map(|word| word.split([',', '[']).next().unwrap_or_default().to_owned());
        let first = words.next().filter(|word| word.starts_with('-') && word.len() > 1)?;
        if first.starts_with("--") { Some((first.clone(), first)) } else { Some((first, words.next()?)) }
    });
    flags.collect()
}

#[test]
fn every_flag_is_a_factor_or_is_held_by_another_test() {
    let mut wrong = Vec::new();
    for protocol in ["echo", "http"] {
        let flags = flags(protocol);
        assert!(flags.len() > 30, "{flags:?}");
        for (short, long) in flags {
            let is = |value: &str| value.split(' ').next().is_some_and(|flag| flag == long || flag == short);
            let in_table = factors().flatten().any(|value| is(value));
            let elsewhere = ELSEWHERE.iter().find(|(flag, ..)| *flag == long);
            if in_table == elsewhere.is_some() {
                wrong.push(format!("{long} has to stand once, in the table or in the list of other tests"));
            }
            if let Some((_, test, written)) = elsewhere {
                let file = format!("{}/tests/whole/{test}.rs", env!("CARGO_MANIFEST_DIR"));
                if !std::fs::read_to_string(&file).is_ok_and(|text| text.contains(written)) {
                    wrong.push(format!("`{written}` is not in {file}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Cells that are run at once: most of their time they wait.
const TOGETHER: usize = 3;

fn check_engine(engine: &str) {
    let cells = Mutex::new(cells().into_iter().filter(|cell| cell.has(engine)));
    let next = || cells.lock().expect("no cell is checked meanwhile").next();
    let check_some = || {
        while let Some(cell) = next() {
            let measured = cell::measure(&cell);
            counts::check(&measured);
            times::check(&measured);
        }
    };
    std::thread::scope(|scope| (0..TOGETHER).for_each(|_| drop(scope.spawn(check_some))));
}

#[test]
fn epoll_measures_what_the_server_saw() {
    check_engine("--engine epoll");
}

#[test]
fn uring_measures_what_the_server_saw() {
    check_engine("--engine uring");
}

#[test]
fn threads_measure_what_the_server_saw() {
    check_engine("--engine threads");
}

#[test]
fn processes_measure_what_the_server_saw() {
    check_engine("--engine fork");
}
