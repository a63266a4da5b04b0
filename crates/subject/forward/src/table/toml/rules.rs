//! `[defaults]` and `[forward]`: the rules, and what each has where it says nothing.

use std::path::PathBuf;

use plimsoll_measure::units;
use toml::Spanned;
use toml::de::DeValue;

use super::values::{Key, Reader};
use crate::table::{
    Access, Balance, Check, Fault, Limits, Listen, Network, Pattern, ProxyVersion, Quota, Rule, Sources, mapping,
};

#[derive(Clone, Debug, Default)]
pub(super) struct Defaults {
    limits: Limits,
    pub(super) max_connections: Option<u64>,
    source: Sources,
}

impl<'a> Reader<'a> {
    pub(super) fn defaults(&self, value: &Spanned<DeValue<'a>>) -> Result<Defaults, Fault> {
        let mut defaults = Defaults::default();
        for (key, value) in self.pairs(self.table(value, "[defaults]")?) {
            match key.name {
                "max_connections" => defaults.max_connections = Some(self.count(value, key.name)?),
                "source" => defaults.source = self.addresses(value, key.name)?,
                _ if self.limit(&mut defaults.limits, &key, value)? => {}
                _ => {
                    return Err(key.unknown(
                        "`connect_timeout`, `idle_timeout`, `half_close`, `send_timeout`, `resolve_every`, \
                         `max_connections` and `source`",
                    ));
                }
            }
        }
        Ok(defaults)
    }

    /// Sets the limit that `key` names, if it names one.
    fn limit(&self, limits: &mut Limits, key: &Key<'_>, value: &Spanned<DeValue<'a>>) -> Result<bool, Fault> {
        let limit = match key.name {
            "connect_timeout" => &mut limits.connect,
            "idle_timeout" => &mut limits.idle,
            "half_close" => &mut limits.half_close,
            "send_timeout" => &mut limits.send,
            "resolve_every" => &mut limits.resolve,
            _ => return Ok(false),
        };
        *limit = self.duration(value, key.name)?;
        Ok(true)
    }

    pub(super) fn rule(
        &self,
        key: &Key<'_>,
        value: &Spanned<DeValue<'a>>,
        defaults: &Defaults,
    ) -> Result<Vec<Rule>, Fault> {
        let mut to = None;
        // What stands for each address that the key names; its own listener and destinations come
        // last.
        let mut settings = Rule::new(Listen::Unix(PathBuf::new()), Vec::new(), key.place);
        (settings.limits, settings.source) = (defaults.limits, defaults.source.clone());
        if let DeValue::Table(table) = value.get_ref() {
            for (key, value) in self.pairs(table) {
                match key.name {
                    "to" => to = Some(self.strings(value, "to")?),
                    _ => self.setting(&mut settings, &key, value)?,
                }
            }
        } else {
            to = Some(self.strings(value, key.name)?);
        }
        let to = to.unwrap_or_default();
        if to.is_empty() {
            return Err(Fault::new(key.place, format!("`{}` leads nowhere; add a destination to `to`", key.name)));
        }
        let rules = mapping::expand(key.name, &to, key.place)
            .map_err(|what| Fault::new(key.place, format!("cannot read the rule `{}`: {what}", key.name)))?;
        if settings.mode.is_some() && rules.iter().any(|rule| matches!(rule.listen, Listen::Tcp(_))) {
            return Err(Fault::new(key.place, "`mode` is for a Unix socket; leave it out"));
        }
        let rule = |rule: Rule| Rule { listen: rule.listen, wildcard: rule.wildcard, to: rule.to, ..settings.clone() };
        Ok(rules.into_iter().map(rule).collect())
    }

    fn setting(&self, rule: &mut Rule, key: &Key<'_>, value: &Spanned<DeValue<'a>>) -> Result<(), Fault> {
        match key.name {
            "balance" => rule.balance = self.balance(value)?,
            "source" => rule.source = self.addresses(value, key.name)?,
            "mode" => rule.mode = Some(self.mode(value)?),
            "allow" | "deny" => {
                let patterns: Vec<Pattern> =
                    self.networks(value, key.name)?.into_iter().map(Pattern::Network).collect();
                if rule.access.is_empty() {
                    rule.access.push(Access::default());
                }
                let access = &mut rule.access[0];
                if key.name == "allow" { access.allow = patterns } else { access.deny = patterns }
            }
            "check" => rule.check = Some(self.check(value)?),
            "limit" => rule.quota = self.quota(value)?,
            "send_proxy" => {
                rule.send_proxy = Some(match self.string(value, key.name)? {
                    "v1" => ProxyVersion::V1,
                    "v2" => ProxyVersion::V2,
                    other => return Err(self.fault(value, format!("`{other}` is no PROXY header; write v1 or v2"))),
                });
            }
            "accept_proxy" => rule.accept_proxy = self.accept_proxy(value)?,
            _ if self.limit(&mut rule.limits, key, value)? => {}
            _ => {
                return Err(key.unknown(
                    "`to`, `balance`, `source`, `mode`, `allow`, `deny`, `check`, `limit`, `send_proxy`, \
                     `accept_proxy`, `connect_timeout`, `idle_timeout`, `half_close`, `send_timeout` and \
                     `resolve_every`",
                ));
            }
        }
        Ok(())
    }

    fn balance(&self, value: &Spanned<DeValue<'a>>) -> Result<Balance, Fault> {
        const KNOWN: &str = "write round-robin, least-connections, source-hash or first";
        match self.string(value, "balance")? {
            "round-robin" => Ok(Balance::RoundRobin),
            "first" => Ok(Balance::First),
            "least-connections" => Ok(Balance::LeastConnections),
            "source-hash" => Ok(Balance::SourceHash),
            other => Err(self.fault(value, format!("`{other}` is no way to balance; {KNOWN}"))),
        }
    }

    /// Permissions in octal, as chmod(1) takes them.
    fn mode(&self, value: &Spanned<DeValue<'a>>) -> Result<u32, Fault> {
        let text = self.string(value, "mode")?;
        let mode = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| u32::from_str_radix(text, 8).ok()).flatten();
        mode.filter(|mode| *mode <= 0o777).ok_or_else(|| {
            self.fault(value, format!("`{text}` are no permissions; write them in octal, such as \"0660\""))
        })
    }

    fn check(&self, value: &Spanned<DeValue<'a>>) -> Result<Check, Fault> {
        let mut check = Check::default();
        for (key, value) in self.pairs(self.table(value, "check")?) {
            let times = || {
                let count = self.count(value, key.name)?;
                u32::try_from(count).map_err(|_| self.fault(value, format!("`{}` is too large", key.name)))
            };
            match key.name {
                "every" => check.every = self.duration(value, "every")?,
                "timeout" => check.timeout = self.duration(value, "timeout")?,
                "fall" => check.fall = times()?,
                "rise" => check.rise = times()?,
                _ => return Err(key.unknown("`every`, `timeout`, `fall` and `rise`")),
            }
        }
        Ok(check)
    }

    fn quota(&self, value: &Spanned<DeValue<'a>>) -> Result<Quota, Fault> {
        let mut quota = Quota::default();
        for (key, value) in self.pairs(self.table(value, "limit")?) {
            match key.name {
                "connections" => quota.connections = Some(self.count(value, "connections")?),
                "rate" => {
                    let text = self.string(value, "rate")?;
                    let rate = text.strip_suffix("/s").and_then(|count| units::rate(count).ok());
                    quota.rate = Some(rate.filter(|rate| *rate > 0.0).ok_or_else(|| {
                        self.fault(value, format!("`{text}` is no rate; write connections a second, such as 100/s"))
                    })?);
                }
                "bandwidth" => {
                    let text = self.string(value, "bandwidth")?;
                    let bytes = text.strip_suffix("/s").and_then(|size| units::size(size).ok());
                    quota.bandwidth = Some(bytes.filter(|bytes| *bytes > 0).ok_or_else(|| {
                        self.fault(value, format!("`{text}` is no bandwidth; write bytes a second, such as 50MB/s"))
                    })?);
                }
                _ => return Err(key.unknown("`connections`, `rate` and `bandwidth`")),
            }
        }
        Ok(quota)
    }

    fn accept_proxy(&self, value: &Spanned<DeValue<'a>>) -> Result<Vec<Network>, Fault> {
        let mut from = Vec::new();
        for (key, value) in self.pairs(self.table(value, "accept_proxy")?) {
            match key.name {
                "from" => from = self.networks(value, "from")?,
                _ => return Err(key.unknown("`from`")),
            }
        }
        if from.is_empty() {
            return Err(
                self.fault(value, "`accept_proxy` has an empty `from`; list the proxies there, or leave it out")
            );
        }
        Ok(from)
    }
}
