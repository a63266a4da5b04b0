//! `plimsoll lab`: becomes the program `plimsoll-lab`, as git and cargo do with theirs.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::anyhow;
use clap::Args;

use crate::outcome::Environment;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Handed on as they are.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

const PROGRAM: &str = "plimsoll-lab";

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
