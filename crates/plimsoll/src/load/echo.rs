//! The flags of `load echo`, and the messages they make.

use std::net::SocketAddr;

use clap::{Args, ValueEnum};
use plimsoll_measure::units;
use plimsoll_wire::echo::{Alphabet, Messages, Verification};

use super::common::Common;
use crate::outcome::usage;

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// Where to connect: ADDR:PORT. Several are used in turn, and so are all addresses of a name.
    #[arg(required = true, value_name = "ADDR:PORT")]
    targets: Vec<String>,
    /// Payload of a request.
    #[arg(short, long, default_value = "64B", value_parser = units::size, help_heading = "Echo")]
    pub(super) size: u64,
    /// What payloads are made of.
    #[arg(long, value_enum, default_value = "bytes", help_heading = "Echo")]
    payload: Payload,
    /// How closely answers are checked: every byte, their length, or not at all.
    #[arg(long, value_enum, default_value = "full", help_heading = "Echo")]
    verify: Verify,
    /// What the server appends to each echo.
    #[arg(long, value_name = "TEXT", default_value = "", help_heading = "Echo")]
    postfix: String,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Payload {
    Text,
    Bytes,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Verify {
    Full,
    Length,
    None,
}

/// The largest echo message: it, and a buffer of its size in the server, must fit in memory beside
/// everything else.
const MOST_BYTES: u64 = 1 << 30;

impl Arguments {
    pub(super) fn targets(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let targets = self.common.deal(&self.targets)?;
        Ok(targets.into_iter().map(|(_, address)| address).collect())
    }

    /// The first target, as it was written.
    pub(super) fn first_target(&self) -> &str {
        &self.targets[0]
    }

    pub(super) fn messages(&self, seed: u64) -> anyhow::Result<Messages> {
        if self.size == 0 || self.size > MOST_BYTES {
            return usage(format!(
                "--size {}: an echo needs at least one byte and at most 1GiB, or there is no answer to wait for; give \
                 a size such as 64B",
                self.size
            ));
        }
        let alphabet = match self.payload {
            Payload::Text => Alphabet::Text,
            Payload::Bytes => Alphabet::Bytes,
        };
        let verification = match self.verify {
            Verify::Full => Verification::Full,
            Verify::Length => Verification::Length,
            Verify::None => Verification::None,
        };
        Ok(Messages::new(self.size as usize, alphabet, self.postfix.as_bytes(), verification, seed))
    }
}
