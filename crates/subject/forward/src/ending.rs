//! How a relayed connection ended.

use std::io;

/// How a relayed connection ended, as the connection log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ending {
    /// The client ended its stream first, and the server followed.
    ClientClosed,
    /// The server ended its stream first, and the client followed.
    ServerClosed,
    /// The client reset the connection.
    ClientReset,
    /// The server reset the connection.
    ServerReset,
    /// No byte for as long as `idle_timeout`.
    Idle,
    /// One half had ended, and the other brought no byte for as long as `half_close`.
    HalfClose,
    /// Bytes waited for a side that acknowledged none for as long as `send_timeout`.
    SendTimeout,
    /// Every destination refused.
    ConnectRefused,
    /// No destination answered in time.
    ConnectTimeout,
    /// Connecting failed for another reason: no route, no port, no name.
    ConnectFailed,
    /// The client may not connect: `allow` or `deny`.
    Denied,
    /// A proxy that is to send a PROXY header sent something else.
    ProxyHeader,
    /// The rule's `limit` was reached, or this machine refused a call: it had no descriptor, or no
    /// memory, for the connection.
    Limit,
    /// Cut off at the end of the drain.
    Drained,
}

impl Ending {
    /// All of them, in the order of their numbers.
    pub const ALL: [Ending; 14] = [
        Ending::ClientClosed,
        Ending::ServerClosed,
        Ending::ClientReset,
        Ending::ServerReset,
        Ending::Idle,
        Ending::HalfClose,
        Ending::SendTimeout,
        Ending::ConnectRefused,
        Ending::ConnectTimeout,
        Ending::ConnectFailed,
        Ending::Denied,
        Ending::ProxyHeader,
        Ending::Limit,
        Ending::Drained,
    ];

    /// Its name in logs and totals.
    pub fn name(self) -> &'static str {
        match self {
            Ending::ClientClosed => "client_closed",
            Ending::ServerClosed => "server_closed",
            Ending::ClientReset => "client_reset",
            Ending::ServerReset => "server_reset",
            Ending::Idle => "idle",
            Ending::HalfClose => "half_close",
            Ending::SendTimeout => "send_timeout",
            Ending::ConnectRefused => "connect_refused",
            Ending::ConnectTimeout => "connect_timeout",
            Ending::ConnectFailed => "connect_failed",
            Ending::Denied => "denied",
            Ending::ProxyHeader => "proxy_header",
            Ending::Limit => "limit",
            Ending::Drained => "drained",
        }
    }

    /// What a failed attempt to connect means where no destination is left to try.
    pub(crate) fn of_connect(error: &io::Error) -> Ending {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Ending::ConnectRefused,
            io::ErrorKind::TimedOut => Ending::ConnectTimeout,
            _ if plimsoll_sys::descriptor::is_exhaustion(error) => Ending::Limit,
            _ => Ending::ConnectFailed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stands_at_its_number_and_has_a_name_of_its_own() {
        let names: std::collections::HashSet<&str> = Ending::ALL.iter().map(|ending| ending.name()).collect();
        assert_eq!(names.len(), Ending::ALL.len());
        assert!(Ending::ALL.iter().enumerate().all(|(number, ending)| *ending as usize == number));
    }

    #[test]
    fn a_failed_connect_means_what_its_error_does() {
        // ECONNREFUSED, ETIMEDOUT, EMFILE, ENOMEM, EHOSTUNREACH, EADDRNOTAVAIL
        for (number, ending) in [
            (111, Ending::ConnectRefused),
            (110, Ending::ConnectTimeout),
            (24, Ending::Limit),
            (12, Ending::Limit),
            (113, Ending::ConnectFailed),
            (99, Ending::ConnectFailed),
        ] {
            assert_eq!(Ending::of_connect(&io::Error::from_raw_os_error(number)), ending, "{number}");
        }
    }
}
