//! The one binary: arguments in, records out.
//!
//! Each command parses its arguments into a typed configuration, hands it to its crate, and prints
//! what comes back. Nothing is measured here.
#![forbid(unsafe_code)]

mod address;
mod capture;
mod colour;
mod completions;
mod event;
mod exit_codes;
mod forward;
mod lab;
mod link;
mod load;
mod merge;
mod named;
mod outcome;
mod printer;
mod ring;
mod serve;
mod source_ip;
mod version;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use serde::Serialize;

use outcome::printable;
use version::{VERSION, Versioned};

/// Finds how much load a TCP or HTTP server can handle.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version = VERSION, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a reference server, in any of seven I/O models.
    Serve(serve::Arguments),
    /// Load a server, and report what it completed.
    Load(Box<load::Arguments>),
    /// Relay TCP connections by a table: a port forwarder.
    Forward(forward::Arguments),
    /// Add the records of several generators up to one, without loss.
    Merge(merge::Arguments),
    /// Emulate links and switches between TAP devices: rate, delay, jitter, loss and queue.
    Link(link::Arguments),
    /// Capture the packets of an interface, and count what went wrong with TCP.
    Capture(capture::Arguments),
    /// Ask a question of servers, and get a report (needs the Python part: `pip install .`).
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Lab(lab::Arguments),
    /// Print the completions of a shell.
    Completions(completions::Completions),
    /// Write man pages.
    Man(completions::Man),
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
    /// Prints a record of how far it has come, at once: as a JSON line, as a sentence, or not at
    /// all.
    fn print(self, record: &impl Serialize, sentence: impl FnOnce() -> String) {
        if self.shows_progress() {
            self.print_result(record, sentence);
        }
    }

    fn shows_progress(self) -> bool {
        self.json || !self.quiet
    }

    /// Writes a note for a person to standard error, which no record has.
    fn note(self, sentence: &str) {
        if !self.quiet {
            outcome::note(sentence);
        }
    }

    /// Prints the record that ends a command, with the program's version.
    fn print_summary(self, record: &impl Serialize, sentence: impl FnOnce() -> String) {
        self.print_result(&Versioned::of(record), sentence);
    }

    /// Prints a record of what came out, at once: as a JSON line or as a sentence. A closed
    /// standard output ends nothing: a server is there for its connections, and packets may go
    /// to a file.
    fn print_result(self, record: &impl Serialize, sentence: impl FnOnce() -> String) {
        let _ = self.write(record, sentence);
    }

    /// Prints the record that a command was run for, as `print_summary` does: an error where it
    /// cannot be written.
    fn print_outcome(self, record: &impl Serialize, sentence: impl FnOnce() -> String) -> anyhow::Result<()> {
        check_written(self.write(&Versioned::of(record), sentence))
    }

    fn line(self, record: &impl Serialize, sentence: impl FnOnce() -> String) -> String {
        if self.json {
            serde_json::to_string(record).expect("a record of numbers and names serialises")
        } else {
            sentence()
        }
    }

    fn write(self, record: &impl Serialize, sentence: impl FnOnce() -> String) -> std::io::Result<()> {
        let line = self.line(record, sentence);
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{line}").and_then(|()| stdout.flush())
    }
}

/// Whether the record that a command was run for was written. A reader that has gone, as `head`
/// does, wanted no more.
fn check_written(outcome: std::io::Result<()>) -> anyhow::Result<()> {
    match outcome {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(anyhow::anyhow!(
            "the result cannot be written to standard output: {error}; make room, or write it elsewhere"
        )),
        _ => Ok(()),
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

/// The commands and their flags, with the exit codes in their help.
fn command() -> clap::Command {
    exit_codes::document(Cli::command())
}

fn parse(words: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command().try_get_matches_from(words)?)
}

/// Ends the program over arguments that cannot be read, or with the help that they ask for. Words
/// in which control characters are escaped are refused for the same reason, unless the characters
/// are the reason.
fn refuse(error: &clap::Error) -> ! {
    let escaped = std::env::args_os().map(|word| printable(&word.to_string_lossy()).into());
    if let Err(error) = parse(escaped) {
        error.exit();
    }
    let text = error.to_string();
    let reason = text.rsplit_once("\n\n").map_or(text.as_str(), |(reason, _)| reason);
    outcome::note(reason.trim_start_matches("error: "));
    std::process::exit(error.exit_code());
}

fn main() -> ExitCode {
    let parsed = parse(std::env::args_os()).unwrap_or_else(|error| refuse(&error));
    let outcome = match parsed.command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::Load(arguments) => load::run(*arguments),
        Command::Forward(arguments) => forward::run(arguments),
        Command::Merge(arguments) => merge::run(&arguments),
        Command::Link(arguments) => link::run(&arguments),
        Command::Capture(arguments) => capture::run(&arguments),
        Command::Lab(arguments) => lab::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments, command()),
        Command::Man(arguments) => completions::write_man_pages(&arguments, command()),
    };
    outcome.unwrap_or_else(outcome::report)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command that does something, by its words; `lab` hands its words on to another
    /// program.
    fn commands() -> Vec<(String, clap::Command)> {
        let mut all = command();
        all.build();
        let mut found = Vec::new();
        let mut left: Vec<(String, clap::Command)> = vec![(String::new(), all)];
        while let Some((words, command)) = left.pop() {
            let below = command.get_subcommands().filter(|below| !["help", "lab"].contains(&below.get_name()));
            let below: Vec<_> = below.map(|below| (format!("{words} {}", below.get_name()), below.clone())).collect();
            if below.is_empty() {
                found.push((words.trim().to_owned(), command));
            }
            left.extend(below);
        }
        found
    }

    #[test]
    fn the_flags_contradict_each_other_nowhere() {
        command().debug_assert();
    }

    #[test]
    fn every_command_has_the_flags_that_all_have_and_says_its_exit_codes() {
        let all = commands();
        assert!(all.iter().any(|(words, _)| words == "load http") && all.len() >= 10, "{}", all.len());
        for (words, mut command) in all {
            for flag in ["json", "quiet", "color", "version", "help"] {
                let has = command.get_arguments().any(|argument| argument.get_long() == Some(flag));
                assert!(has, "`{words}` has no --{flag}");
            }
            let help = command.render_long_help().to_string();
            for part in ["Exit codes:\n  0  done", "Examples:\n  plimsoll "] {
                assert!(help.contains(part), "no `{part}` in the help of `{words}`");
            }
        }
    }
}
