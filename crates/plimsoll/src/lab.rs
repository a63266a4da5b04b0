//! `plimsoll lab`: becomes the program `plimsoll-lab`, as git and cargo do with theirs.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::anyhow;
use clap::{Arg, Args, ValueHint};

use crate::outcome::Environment;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Handed on as they are.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

const PROGRAM: &str = "plimsoll-lab";
/// The commands of the program and what they are for. A test of both programs compares them with
/// its help.
const VERBS: [(&str, &str); 15] = [
    ("run", "Measure a suite"),
    ("plan", "Show what a suite would measure, and whether it could tell a winner"),
    ("resume", "Continue a run that was interrupted"),
    ("report", "Make the report of a run anew"),
    ("compare", "Compare stored runs of A with stored runs of B"),
    ("gate", "Measure a baseline and a new build in one run"),
    ("capacity", "Find the highest load that meets its limits"),
    ("preflight", "Say what this machine lacks for a suite; changes nothing"),
    ("init", "Write a commented suite for my own server"),
    ("suites", "List the suites that ship with Plimsoll"),
    ("list", "List the runs"),
    ("serve", "Show the runs as local web pages: list, live view, comparison, history"),
    ("query", "Ask the runs in SQL"),
    ("import", "Make a run of the results of k6, oha, fortio, wrk2, wrk or HdrHistogram"),
    ("prune", "Remove old runs"),
];

/// `lab` with a subcommand for each of its commands, for the completions of shells.
pub(crate) fn with_verbs(lab: clap::Command) -> clap::Command {
    let lab = clap::Command::new("lab").about(lab.get_about().cloned().unwrap_or_default());
    lab.disable_help_subcommand(true).subcommands(VERBS.map(|(name, about)| {
        let files = Arg::new("arguments").num_args(0..).value_hint(ValueHint::AnyPath);
        clap::Command::new(name).about(about).arg(files)
    }))
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let beside = std::env::current_exe().ok().map(|path| path.with_file_name(PROGRAM)).filter(|path| path.exists());
    let error = Command::new(beside.unwrap_or_else(|| PROGRAM.into())).args(&arguments.arguments).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        return Err(anyhow!(Environment(format!(
            "the laboratory is not installed: no `{PROGRAM}` beside this program or in PATH; run `pip install .` in \
             Plimsoll's folder"
        ))));
    }
    Err(anyhow!(error).context(format!("cannot run `{PROGRAM}`")))
}
