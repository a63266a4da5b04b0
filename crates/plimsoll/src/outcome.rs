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
    note(&told(&error));
    if error.is::<Usage>() {
        ExitCode::from(2)
    } else if error.is::<Environment>() {
        ExitCode::from(5)
    } else {
        ExitCode::FAILURE
    }
}

/// Writes a sentence for a person to standard error, on one line.
pub(crate) fn note(sentence: &str) {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "plimsoll: {}", printable(sentence));
}

/// A text that holds what a person wrote, on one line: a line break is shown as `\n`, and a
/// terminal has nothing to obey.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_unseen(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Control characters, what else ends a line, and what changes the direction of a text (Unicode
/// Standard Annex 9, section 2).
fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
    fn what_a_terminal_would_obey_is_escaped() {
        let obeyed = "a\nb\t\u{1b}[2J\u{7f}\u{202e}\u{2028}";
        assert_eq!(printable(obeyed), r"a\nb\t\u{1b}[2J\u{7f}\u{202e}\u{2028}");
        assert_eq!(printable("'\u{e9}' \\n"), "'\u{e9}' \\n");
    }

    #[test]
    fn a_cause_is_told_once() {
        let cause = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let apart = anyhow::Error::from(cause()).context("cannot read it");
        assert_eq!(told(&apart), "cannot read it: entity not found");
        let within = anyhow::Error::from(cause()).context("cannot read it: entity not found; name another");
        assert_eq!(told(&within), "cannot read it: entity not found; name another");
    }
}
