//! What all commands have in common: the flags, the version, help, completions and man pages.

use std::process::{Command, Output};

use serde_json::Value;

use crate::support::peer::{command, echo, outcome};
use crate::support::running::Folder;

/// Every command but `lab`, which is another program.
const COMMANDS: [&str; 10] =
    ["serve echo", "serve http", "load echo", "load http", "forward", "merge", "link", "capture", "completions", "man"];

fn plimsoll(arguments: &str) -> Output {
    let mut plimsoll = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    plimsoll.args(arguments.split_whitespace()).output().expect("it starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// The version that `--version` says, behind the name.
fn version() -> String {
    stdout(&plimsoll("--version")).trim().strip_prefix("plimsoll ").expect("the name comes first").to_owned()
}

#[test]
fn every_command_takes_the_flags_that_all_have() {
    for words in COMMANDS {
        let said = plimsoll(&format!("{words} --json --quiet --color never --version"));
        assert_eq!(said.status.code(), Some(0), "{words}: {said:?}");
        assert!(stdout(&said).trim().ends_with(&version()), "{words}: {said:?}");
        let help = plimsoll(&format!("{words} --help"));
        assert!(help.status.success() && stdout(&help).contains("Exit codes:\n  0  done"), "{words}: {help:?}");
    }
}

#[test]
fn the_version_names_the_commit_in_records_too() {
    let version = version();
    let (number, commit) = version.split_once(' ').expect("a number and a commit");
    assert_eq!(number, env!("CARGO_PKG_VERSION"));
    let commit = commit.trim_start_matches('(').trim_end_matches(')').trim_end_matches("-dirty");
    // Outside a repository, as in a package of the sources, there is none to name.
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let head = std::process::Command::new("git").args(["-C", root, "rev-parse", "HEAD"]).output();
    let in_repository = head.is_ok_and(|output| output.status.success());
    assert!(
        commit == "unknown" && !in_repository
            || commit.len() >= 10 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{version}"
    );
    let run = outcome(&command("echo", &echo().to_string(), "-n 10 -c 1").output().expect("it starts"));
    assert_eq!(run.summary()["version"], version.as_str());
}

#[test]
fn a_bare_number_is_a_duration_in_seconds() {
    let run = outcome(
        &command("echo", &echo().to_string(), "-d 1 -c 1 --timeout 5 --think 0.05").output().expect("it starts"),
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!((0.9..10.0).contains(&run.figure("elapsed_s")), "{}", run.figure("elapsed_s"));
}

#[test]
fn the_old_name_of_a_flag_still_works() {
    let run = outcome(&command("echo", &echo().to_string(), "-n 10 -c 2 --threads 2").output().expect("it starts"));
    assert_eq!((run.code, run.count("generator.threads")), (Some(0), 2), "{}", run.stderr);
    for words in ["serve echo --threads 1 --log x", "forward --threads 1 --log x 1=2"] {
        assert!(plimsoll(&format!("{words} --version")).status.success(), "{words}");
    }
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&plimsoll(&format!("completions {shell}")));
        for word in COMMANDS.iter().flat_map(|words| words.split(' ')).chain(["cacert", "connect-to"]) {
            assert!(script.contains(word), "no `{word}` for {shell}");
        }
        // Words of the laboratory's that no other command has, and names that an argument takes.
        for word in ["preflight", "tolerance", "junit", "epoll-et", "reuseport"] {
            assert!(script.contains(word), "no `{word}` for {shell}");
        }
        let record: Value =
            serde_json::from_str(&stdout(&plimsoll(&format!("completions {shell} --json")))).expect("JSON");
        assert_eq!(record["script"].as_str().expect("text").trim_end(), script.trim_end());
    }
}

#[test]
fn every_command_has_a_man_page() {
    let folder = Folder::new();
    let pages = folder.path("man1");
    let said = plimsoll(&format!("man {} --json", pages.display()));
    let record: Value = serde_json::from_str(&stdout(&said)).expect("JSON");
    let written = std::fs::read_dir(&pages).expect("it was made").count();
    assert_eq!((said.status.code(), record["pages"].as_u64()), (Some(0), Some(written as u64)));
    for words in COMMANDS {
        let page = pages.join(format!("plimsoll-{}.1", words.replace(' ', "-")));
        let text = std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        assert!(text.contains("Exit codes:"), "{words}");
    }
    let gate = std::fs::read_to_string(pages.join("plimsoll-lab-gate.1")).expect("a command of the laboratory's");
    assert!(gate.contains("tolerance") && gate.contains("worse by more than the tolerance"), "{gate}");
    let refused = plimsoll("man /dev/null/x");
    assert!(refused.status.code() == Some(1) && refused.stdout.is_empty(), "{refused:?}");
}
