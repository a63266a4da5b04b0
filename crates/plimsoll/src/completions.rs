//! `plimsoll completions` and `plimsoll man`: the arguments, for shells and for man(1).

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;
use serde::Serialize;

use crate::{Output, lab};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plimsoll completions bash > ~/.local/share/bash-completion/completions/plimsoll
  plimsoll completions zsh > ~/.zfunc/_plimsoll                with ~/.zfunc in fpath
  plimsoll completions fish > ~/.config/fish/completions/plimsoll.fish")]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
    #[command(flatten)]
    output: Output,
}

/// What `completions --json` prints.
#[derive(Serialize)]
struct Script {
    event: &'static str,
    shell: String,
    script: String,
}

pub(crate) fn run(arguments: &Completions, command: Command) -> anyhow::Result<ExitCode> {
    let mut command = command.mut_subcommand("lab", lab::with_verbs);
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "plimsoll", &mut script);
    let script = String::from_utf8(script).context("the script is not text")?;
    let record = Script { event: "summary", shell: arguments.shell.to_string(), script };
    arguments.output.print_summary(&record, || record.script.trim_end().to_owned());
    Ok(ExitCode::SUCCESS)
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plimsoll man ~/.local/share/man/man1           a page for each command; then `man plimsoll-load-http`")]
pub(crate) struct Man {
    /// The folder to write the pages to. It is made where it does not exist.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// What `man --json` prints.
#[derive(Serialize)]
struct Pages<'a> {
    event: &'static str,
    folder: &'a PathBuf,
    pages: usize,
}

pub(crate) fn write_man_pages(arguments: &Man, command: Command) -> anyhow::Result<ExitCode> {
    let folder = &arguments.folder;
    let failed = || format!("cannot write man pages to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(failed)?;
    clap_mangen::generate_to(command.mut_subcommand("lab", lab::with_verbs), folder).with_context(failed)?;
    let pages = std::fs::read_dir(folder).with_context(failed)?.flatten();
    let pages = pages.filter(|entry| entry.file_name().to_string_lossy().starts_with("plimsoll")).count();
    let record = Pages { event: "summary", folder, pages };
    arguments.output.print_summary(&record, || format!("{pages} man pages in {}", folder.display()));
    Ok(ExitCode::SUCCESS)
}
