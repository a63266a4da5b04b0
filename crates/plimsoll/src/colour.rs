//! Colour, where a person looks on.

use std::io::IsTerminal;

use crate::{Color, Output};

/// Whether and how words are coloured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint(bool);

impl Paint {
    /// For standard output.
    pub(crate) fn stdout(output: Output) -> Paint {
        Paint::choose(output, std::io::stdout().is_terminal())
    }

    fn choose(output: Output, terminal: bool) -> Paint {
        Paint(match output.color {
            Color::Always => true,
            Color::Never => false,
            // https://no-color.org: set and not empty.
            Color::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        })
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn faint(self, text: &str) -> String {
        self.wrap("2", text)
    }

    pub(crate) fn alarm(self, text: &str) -> String {
        self.wrap("33", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
