//! `plimsoll lab`: becomes the program `plimsoll-lab`, as git and cargo do with theirs.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Args, Command, ValueHint};
use serde::Deserialize;

use crate::outcome::Environment;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Handed on as they are.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

const PROGRAM: &str = "plimsoll-lab";
/// The commands of the program with their arguments, as it writes them (`make reference`). A test
/// of both programs compares them.
const COMMANDS: &str = include_str!("lab.json");

#[derive(Deserialize)]
struct Verb {
    name: String,
    about: String,
    after: String,
    arguments: Vec<Argument>,
}

#[derive(Deserialize)]
struct Argument {
    id: String,
    /// Without their dashes; an argument without flags is known by its place.
    flags: Vec<String>,
    value: Option<String>,
    choices: Vec<String>,
    several: bool,
    needed: bool,
    help: String,
}

/// `lab` with a subcommand for each of its commands, for the completions of shells and for man
/// pages.
pub(crate) fn with_verbs(lab: Command) -> Command {
    let verbs: Vec<Verb> = serde_json::from_str(COMMANDS).expect("a test reads it");
    let lab = Command::new("lab").about(lab.get_about().cloned().unwrap_or_default());
    lab.disable_help_subcommand(true).subcommands(verbs.into_iter().map(|verb| {
        let arguments = verb.arguments.into_iter().map(Argument::known);
        Command::new(known(verb.name)).about(verb.about).after_help(verb.after).args(arguments)
    }))
}

impl Argument {
    fn known(self) -> Arg {
        let mut argument = Arg::new(known(self.id)).help(self.help).required(self.needed);
        for flag in self.flags {
            argument = argument.long(known(flag));
        }
        let Some(value) = self.value else { return argument.action(ArgAction::SetTrue) };
        let hint = match value.as_str() {
            "DIR" | "RUN" => ValueHint::DirPath,
            name if name.contains("FILE") || name == "SUITE" => ValueHint::FilePath,
            _ => ValueHint::Other,
        };
        argument = argument.value_name(known(value)).value_hint(hint).action(ArgAction::Append);
        if self.several {
            argument = argument.num_args(1..);
        }
        if self.choices.is_empty() {
            return argument;
        }
        argument.value_parser(PossibleValuesParser::new(self.choices.into_iter().map(known)))
    }
}

/// A name for as long as the program runs, which is until it has printed what was asked for.
fn known(name: String) -> &'static str {
    name.leak()
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let beside = std::env::current_exe().ok().map(|path| path.with_file_name(PROGRAM)).filter(|path| path.exists());
    let error = std::process::Command::new(beside.unwrap_or_else(|| PROGRAM.into())).args(&arguments.arguments).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        return Err(anyhow!(Environment(format!(
            "the laboratory is not installed: no `{PROGRAM}` beside this program or in PATH; run `pip install .` in \
             Plimsoll's folder"
        ))));
    }
    Err(anyhow!(error).context(format!("cannot run `{PROGRAM}`")))
}
