//! How a command ends: its exit code, and what it says where it failed.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use anyhow::anyhow;

/// The arguments make no sense together, or name what is not there: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Refuses the arguments for this reason, which ends with what to write instead.
pub(crate) fn usage<T>(why: impl Into<String>) -> anyhow::Result<T> {
    Err(anyhow!(Usage(why.into())))
}

/// The environment cannot run this: exit code 5.
#[derive(Debug)]
pub(crate) struct Environment(pub(crate) String);

impl fmt::Display for Environment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Environment {}

/// Says why a command failed, on one line, and returns its exit code.
pub(crate) fn report(error: anyhow::Error) -> ExitCode {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "plimsoll: {}", told(&error));
    if error.is::<Usage>() {
        ExitCode::from(2)
    } else if error.is::<Environment>() {
        ExitCode::from(5)
    } else {
        ExitCode::FAILURE
    }
}

/// What went wrong, and what caused it where that is not said already.
fn told(error: &anyhow::Error) -> String {
    error
        .chain()
        .skip(1)
        .map(ToString::to_string)
        .fold(error.to_string(), |said, cause| if said.contains(&cause) { said } else { format!("{said}: {cause}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let cause = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let apart = anyhow::Error::from(cause()).context("cannot read it");
        assert_eq!(told(&apart), "cannot read it: entity not found");
        let within = anyhow::Error::from(cause()).context("cannot read it: entity not found; name another");
        assert_eq!(told(&within), "cannot read it: entity not found; name another");
    }
}
