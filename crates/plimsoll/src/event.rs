//! A line of `--json`: a record with the name of its event.

use serde::Serialize;

/// A record under the name of its event.
#[derive(Serialize)]
pub(crate) struct Event<'a, T> {
    event: &'static str,
    #[serde(flatten)]
    record: &'a T,
}

impl<'a, T: Serialize> Event<'a, T> {
    pub(crate) fn new(event: &'static str, record: &'a T) -> Event<'a, T> {
        Event { event, record }
    }

    /// A command's last line.
    pub(crate) fn summary(record: &'a T) -> Event<'a, T> {
        Event::new("summary", record)
    }
}
