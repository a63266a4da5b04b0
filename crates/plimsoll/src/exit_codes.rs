//! What each command's exit codes mean, as its `--help` says it.

use clap::Command;

const DONE: &str = "  0  done";
const SERVED: &str = "  0  done; also stopped by SIGTERM or SIGINT";
const FAILED: &str = "  1  failed";
const LOAD_FAILED: &str =
    "  1  failed; also fewer connections than asked for, nothing completed, or a record that is incomplete";
const USAGE: &str = "  2  the arguments are wrong";
const MISSED: &str = "  3  a --limit was missed";
const INVALID: &str = "  4  measured, but not valid: the generator or the machine was the limit";
const LOAD_INVALID: &str = "  4  measured, but not valid: the generator or the machine was the limit (4 wins over 3)";
const ENVIRONMENT: &str = "  5  this machine cannot run it";
const INTERRUPTED: &str =
    "  130, 143  interrupted by SIGINT or SIGTERM; the figures cover what was measured until then";

/// The exit codes of a command, by its name.
fn of(command: &str) -> &'static [&'static str] {
    match command {
        "load" => &[DONE, LOAD_FAILED, USAGE, MISSED, LOAD_INVALID, ENVIRONMENT, INTERRUPTED],
        "merge" => &[DONE, LOAD_FAILED, USAGE, MISSED, LOAD_INVALID],
        "serve" | "forward" | "link" | "capture" => &[SERVED, FAILED, USAGE, ENVIRONMENT],
        "plimsoll" => &[DONE, FAILED, USAGE, MISSED, INVALID, ENVIRONMENT, INTERRUPTED],
        _ => &[DONE, FAILED, USAGE],
    }
}

/// Adds the exit codes to the help of a command and of all commands below it.
pub(crate) fn document(command: Command) -> Command {
    let codes = of(command.get_name());
    add(command, codes).mut_subcommands(|command| {
        let codes = of(command.get_name());
        add(command, codes).mut_subcommands(|command| add(command, codes))
    })
}

fn add(command: Command, codes: &[&str]) -> Command {
    let before = command.get_after_help().map(|help| format!("{help}\n\n")).unwrap_or_default();
    command.after_help(format!("{before}Exit codes:\n{}", codes.join("\n")))
}
