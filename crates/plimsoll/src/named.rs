//! Arguments that are one of a few names: parsed as the type says, and known to completions.

use std::error::Error;
use std::ffi::OsStr;
use std::str::FromStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command};

/// Parses by `FromStr`, whose error names the values, and gives the names to a shell's completion.
#[derive(Clone)]
pub(crate) struct Named<T: 'static> {
    names: &'static [T],
    name: fn(T) -> &'static str,
}

/// One of these values, each by its name.
pub(crate) const fn named<T>(names: &'static [T], name: fn(T) -> &'static str) -> Named<T> {
    Named { names, name }
}

impl<T> TypedValueParser for Named<T>
where
    T: Copy + FromStr + Send + Sync + 'static,
    T::Err: Error + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        str::parse::<T>.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names.iter().map(|each| PossibleValue::new((self.name)(*each)))))
    }
}
