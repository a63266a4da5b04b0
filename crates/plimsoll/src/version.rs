//! Which program this is.

use serde::Serialize;

/// The version, and the commit that it is built from: `unknown` outside a git repository, and with
/// `-dirty` where the sources differ from the commit.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("PLIMSOLL_COMMIT"), ")");

/// A record with the version of the program that made it.
#[derive(Serialize)]
pub(crate) struct Versioned<'a, T> {
    #[serde(flatten)]
    record: &'a T,
    version: &'static str,
}

impl<'a, T: Serialize> Versioned<'a, T> {
    pub(crate) fn of(record: &'a T) -> Versioned<'a, T> {
        Versioned { record, version: VERSION }
    }
}
