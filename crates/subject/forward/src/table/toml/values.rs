//! Values of a TOML file, each of the kind that its key asks for; of any other it is a fault with
//! its place.

use std::time::Duration;

use plimsoll_measure::units;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::table::{Fault, Network, Place, Places, Sources, mapping};

pub(super) struct Key<'a> {
    pub(super) name: &'a str,
    pub(super) place: Place,
}

impl Key<'_> {
    pub(super) fn unknown(&self, known: &str) -> Fault {
        Fault::new(self.place, format!("`{}` means nothing here; what does is {known}", self.name))
    }
}

pub(super) struct Reader<'a> {
    pub(super) places: Places<'a>,
}

impl<'a> Reader<'a> {
    /// Keys and values in the order of the file.
    pub(super) fn pairs<'t>(&self, table: &'t DeTable<'a>) -> Vec<(Key<'t>, &'t Spanned<DeValue<'a>>)> {
        let mut pairs: Vec<_> = table.iter().collect();
        pairs.sort_by_key(|(key, _)| key.span().start);
        pairs
            .into_iter()
            .map(|(key, value)| (Key { name: key.get_ref().as_ref(), place: self.places.at(key.span().start) }, value))
            .collect()
    }

    pub(super) fn fault(&self, value: &Spanned<DeValue<'_>>, what: impl Into<String>) -> Fault {
        Fault::new(self.places.at(value.span().start), what)
    }

    pub(super) fn duration(&self, value: &Spanned<DeValue<'a>>, name: &str) -> Result<Duration, Fault> {
        let duration = units::duration(self.string(value, name)?)
            .map_err(|error| self.fault(value, format!("`{name}`: {error}")))?;
        if duration < Duration::from_millis(1) {
            return Err(self.fault(value, format!("`{name}` must be at least 1ms")));
        }
        Ok(duration)
    }

    pub(super) fn networks(&self, value: &Spanned<DeValue<'a>>, name: &str) -> Result<Vec<Network>, Fault> {
        let network = |text: &str| Network::parse(text).map_err(|what| self.fault(value, format!("`{name}`: {what}")));
        self.strings(value, name)?.into_iter().map(network).collect()
    }

    pub(super) fn table<'t>(&self, value: &'t Spanned<DeValue<'a>>, name: &str) -> Result<&'t DeTable<'a>, Fault> {
        value.get_ref().as_table().ok_or_else(|| self.fault(value, format!("{name} must be a table")))
    }

    pub(super) fn string<'t>(&self, value: &'t Spanned<DeValue<'a>>, name: &str) -> Result<&'t str, Fault> {
        let wrong = || self.fault(value, format!("`{name}` must be a string, not a {}", value.get_ref().type_str()));
        value.get_ref().as_str().ok_or_else(wrong)
    }

    /// A string, or an array of them.
    pub(super) fn strings<'t>(&self, value: &'t Spanned<DeValue<'a>>, name: &str) -> Result<Vec<&'t str>, Fault> {
        match value.get_ref() {
            DeValue::Array(array) => array.iter().map(|value| self.string(value, name)).collect(),
            _ => Ok(vec![self.string(value, name)?]),
        }
    }

    pub(super) fn addresses(&self, value: &Spanned<DeValue<'a>>, name: &str) -> Result<Sources, Fault> {
        let address = |text: &str| {
            let address = mapping::address(text).map_err(|what| self.fault(value, format!("`{name}`: {what}")))?;
            let wrong = || self.fault(value, format!("`{name}`: `{text}` is not an IP address of this machine"));
            address.ok_or_else(wrong)
        };
        self.strings(value, name)?.into_iter().map(address).collect()
    }

    /// A whole number above 0, or a string with a unit, such as "60k".
    pub(super) fn count(&self, value: &Spanned<DeValue<'a>>, name: &str) -> Result<u64, Fault> {
        let wrong = |what: &str| self.fault(value, format!("`{name}` must be a count of at least 1{what}"));
        let count = match value.get_ref() {
            DeValue::Integer(integer) => {
                u64::from_str_radix(integer.as_str(), integer.radix()).map_err(|_| wrong(""))?
            }
            DeValue::String(text) => units::count(text).map_err(|error| wrong(&format!(": {error}")))?,
            _ => return Err(wrong("")),
        };
        if count == 0 { Err(wrong("")) } else { Ok(count) }
    }
}
