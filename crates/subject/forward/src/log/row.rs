//! What one row says, as text.

use std::fmt::Write;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::ending::Ending;
use crate::relay::Direction;
use crate::route::Route;
use crate::table::LogFormat;

pub(super) const CONNECTION_HEADER: &str =
    "opened,closed,listen,client,server,reads_up,reads_down,bytes_up,bytes_down,duration_us,end,error";
/// port_fwd's columns, and whose descriptors they are: each table of each worker has its own.
pub(super) const TRANSFER_HEADER: &str = "time,receive_fd,send_fd,requests,bytes,worker,table";

/// A connection that has ended.
pub(crate) struct ConnectionRow {
    pub(crate) opened: Instant,
    pub(crate) closed: Instant,
    pub(crate) route: Arc<Route>,
    pub(crate) client: Peer,
    pub(crate) server: Peer,
    pub(crate) up: Direction,
    pub(crate) down: Direction,
    pub(crate) end: Ending,
    /// Why it could not be led anywhere: errno(3) in lower case.
    pub(crate) error: Option<&'static str>,
}

/// The other end of a connection, in a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Never connected.
    #[default]
    None,
    Tcp(SocketAddr),
    /// A Unix socket; of a client the path is not known.
    Unix(Option<PathBuf>),
}

/// Which event loop: the number of its worker, and of its table among that worker's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopNumber {
    pub(crate) worker: usize,
    pub(crate) table: usize,
}

/// A read that was relayed.
pub(crate) struct TransferRow {
    pub(crate) time: Instant,
    pub(crate) by: LoopNumber,
    pub(crate) receive: RawFd,
    pub(crate) send: RawFd,
    /// Reads from this source so far.
    pub(crate) requests: u64,
    /// Bytes from this source so far.
    pub(crate) bytes: u64,
}

impl ConnectionRow {
    pub(super) fn write(&self, line: &mut String, format: LogFormat, clock: &Clock) {
        let (opened, closed) = (Timestamp(clock.unix(self.opened)), Timestamp(clock.unix(self.closed)));
        let duration_us = (self.closed - self.opened).as_micros();
        let (up, down, end, error) = (&self.up, &self.down, self.end.name(), self.error.unwrap_or_default());
        let listen = self.route.listen().to_string();
        // Writing to a string cannot fail.
        let _ = match format {
            LogFormat::Csv => write!(
                line,
                "{opened},{closed},{},{},{},{},{},{},{},{duration_us},{end},{error}",
                Quoted(&listen),
                Quoted(&self.client.text()),
                Quoted(&self.server.text()),
                up.reads,
                down.reads,
                up.bytes,
                down.bytes,
            ),
            LogFormat::Json => write!(
                line,
                "{{\"opened\":\"{opened}\",\"closed\":\"{closed}\",\"listen\":{},\"client\":{},\"server\":{},\"\
                 reads_up\":{},\"reads_down\":{},\"bytes_up\":{},\"bytes_down\":{},\"duration_us\":{duration_us},\"\
                 end\":\"{end}\",\"error\":\"{error}\"}}",
                JsonText(&listen),
                JsonText(&self.client.text()),
                JsonText(&self.server.text()),
                up.reads,
                down.reads,
                up.bytes,
                down.bytes,
            ),
        };
    }
}

impl TransferRow {
    pub(super) fn write(&self, line: &mut String, clock: &Clock) {
        let time = Timestamp(clock.unix(self.time));
        let TransferRow { receive, send, requests, bytes, by: LoopNumber { worker, table }, .. } = self;
        let _ = write!(line, "{time},{receive},{send},{requests},{bytes},{worker},{table}");
    }
}

impl Peer {
    fn text(&self) -> String {
        match self {
            Peer::None => String::new(),
            Peer::Tcp(address) => address.to_string(),
            Peer::Unix(None) => "unix:".to_owned(),
            Peer::Unix(Some(path)) => format!("unix:{}", path.display()),
        }
    }
}

/// Ties the monotonic clock, in which connections are timed, to the time of day.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    instant: Instant,
    unix: Duration,
}

impl Clock {
    pub(super) fn now() -> Clock {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Clock { instant: Instant::now(), unix }
    }

    /// Time since 1970 at `instant`.
    pub(crate) fn unix(&self, instant: Instant) -> Duration {
        match instant.checked_duration_since(self.instant) {
            Some(after) => self.unix + after,
            None => self.unix.saturating_sub(self.instant - instant),
        }
    }
}

/// Time since 1970 as RFC 3339 has it, in UTC, with microseconds.
struct Timestamp(Duration);

impl std::fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0.as_secs();
        let (year, month, day) = civil(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let micros = self.0.subsec_micros();
        write!(formatter, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar (whose 400 years
/// have 146,097 days).
fn civil(days: u64) -> (u64, u64, u64) {
    // Years are counted from March, so that the day a leap year has more is its last.
    let since_march_0 = days + 719_468;
    let (era, of_era) = (since_march_0 / 146_097, since_march_0 % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// A field of CSV, quoted where it must be (RFC 4180): the path of a Unix socket may have anything
/// in it.
struct Quoted<'a>(&'a str);

impl std::fmt::Display for Quoted<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.contains([',', '"', '\n', '\r']) {
            write!(formatter, "\"{}\"", self.0.replace('"', "\"\""))
        } else {
            formatter.write_str(self.0)
        }
    }
}

/// A string of JSON (RFC 8259, section 7).
struct JsonText<'a>(&'a str);

impl std::fmt::Display for JsonText<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(formatter, "\\{character}")?,
                '\u{0}'..='\u{1f}' => write!(formatter, "\\u{:04x}", character as u32)?,
                _ => formatter.write_char(character)?,
            }
        }
        formatter.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_the_dates_that_the_calendar_gives_them() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (20_000, (2024, 10, 4)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(civil(days), date, "day {days}");
        }
    }

    #[test]
    fn a_moment_is_written_to_the_microsecond() {
        assert_eq!(Timestamp(Duration::from_micros(1_000_000_000_000_007)).to_string(), "2001-09-09T01:46:40.000007Z");
    }

    #[test]
    fn what_would_break_a_row_is_quoted() {
        assert_eq!(Quoted("unix:/a,b\"c").to_string(), "\"unix:/a,b\"\"c\"");
        assert_eq!(JsonText("a\"b\\c\n").to_string(), r#""a\"b\\c\u000a""#);
    }
}
