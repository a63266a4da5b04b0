//! How a command ends: its exit code, and what it says where it failed.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

/// The arguments make no sense together, or name what is not there: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

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
    // Where standard error is closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "plimsoll: {error:#}");
    if error.is::<Usage>() {
        ExitCode::from(2)
    } else if error.is::<Environment>() {
        ExitCode::from(5)
    } else {
        ExitCode::FAILURE
    }
}
