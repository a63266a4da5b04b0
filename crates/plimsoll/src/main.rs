//! The one binary: arguments in, records out.
//!
//! Each command parses its arguments into a typed configuration, hands it to its crate, and prints what comes back. Nothing is measured here.
#![forbid(unsafe_code)]

mod capture;
mod colour;
mod forward;
mod lab;
mod link;
mod load;
mod merge;
mod outcome;
mod ring;
mod serve;

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

/// Finds how much load a TCP or HTTP server can carry.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a reference server, in any of seven I/O models.
    Serve(serve::Arguments),
    /// Load a server, and tell truly what it carried.
    Load(Box<load::Arguments>),
    /// Relay TCP connections by a table: a port forwarder.
    Forward(forward::Arguments),
    /// Make one record of those of several generators, losing nothing.
    Merge(merge::Arguments),
    /// Emulate links and switches between TAP devices: rate, delay, jitter, loss and queue.
    Link(link::Arguments),
    /// Capture an interface's packets, and tell what went wrong with TCP.
    Capture(capture::Arguments),
    /// Ask a question of servers, and get a report (needs the Python part: `pip install .`).
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Lab(lab::Arguments),
}

/// What every command takes.
#[derive(Args, Clone, Copy, Debug)]
struct Output {
    /// Print JSON lines, and nothing else, on standard output.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Print no progress, only results.
    #[arg(long, help_heading = "Output")]
    quiet: bool,
    /// Use colour: on a terminal only, always, or never. NO_COLOR is honoured.
    #[arg(long, value_enum, default_value = "auto", help_heading = "Output")]
    color: Color,
}

impl Output {
    /// Prints a record of how far it has come, at once: as a JSON line, as a sentence, or not at all.
    fn print(self, record: &impl Serialize, sentence: impl FnOnce() -> String) {
        if self.json || !self.quiet {
            self.print_result(record, sentence);
        }
    }

    /// Prints a record of what came out, at once: as a JSON line or as a sentence. A closed standard output ends nothing: a server is there for its
    /// connections, and packets may go to a file.
    fn print_result(self, record: &impl Serialize, sentence: impl FnOnce() -> String) {
        let line = if self.json {
            serde_json::to_string(record).expect("a record of numbers and names serialises")
        } else {
            sentence()
        };
        let mut stdout = std::io::stdout().lock();
        let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::Load(arguments) => load::run(*arguments),
        Command::Forward(arguments) => forward::run(arguments),
        Command::Merge(arguments) => merge::run(&arguments),
        Command::Link(arguments) => link::run(&arguments),
        Command::Capture(arguments) => capture::run(&arguments),
        Command::Lab(arguments) => lab::run(&arguments),
    };
    outcome.unwrap_or_else(outcome::report)
}
