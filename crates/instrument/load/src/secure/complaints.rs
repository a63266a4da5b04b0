//! What goes wrong with TLS, in words: the cause, and what to do about it.

use std::sync::{Mutex, PoisonError};

use rustls::{AlertDescription, CertificateError, Error};

use crate::protocol::Complaint;

/// Different causes that are kept. More of them would be a peer's invention.
const MOST_CAUSES: usize = 16;

/// What went wrong over all connections of a run. Touched by failures only.
#[derive(Debug, Default)]
pub(super) struct Complaints(Mutex<Vec<Complaint>>);

impl Complaints {
    pub(super) fn add(&self, error: &Error) {
        let (message, remedy) = explain(error);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(complaint) = known.iter_mut().find(|complaint| complaint.message == message) {
            complaint.count += 1;
        } else if known.len() < MOST_CAUSES {
            known.push(Complaint { message, remedy, count: 1 });
        }
    }

    /// The commonest cause first.
    pub(super) fn all(&self) -> Vec<Complaint> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.sort_by_key(|complaint| std::cmp::Reverse(complaint.count));
        all
    }
}

const TRUST: &str = "name the authority that signed it with --cacert FILE, or use --insecure to accept any certificate";
const SERVER: &str = "correct the server's certificate, or use --insecure to accept any certificate";
const IDENTITY: &str = "give a client certificate that the server accepts (--cert FILE, --key FILE)";
const ADDRESS: &str = "correct the address or the port, or use http:// in place of https://";
const LOG: &str = "see what the server's log says about it";

/// The cause and its remedy. Times are left out, so that one cause stays one cause for as long as a
/// run lasts.
fn explain(error: &Error) -> (String, &'static str) {
    match error {
        Error::InvalidCertificate(error) => explain_certificate(error),
        Error::AlertReceived(alert) => {
            let remedy = match alert {
                AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied => IDENTITY,
                _ => LOG,
            };
            (format!("the server sent the alert {alert:?}"), remedy)
        }
        Error::InvalidMessage(_) => {
            ("the server does not speak TLS there, or sent a damaged record".to_owned(), ADDRESS)
        }
        other => (other.to_string(), LOG),
    }
}

fn explain_certificate(error: &CertificateError) -> (String, &'static str) {
    match error {
        CertificateError::UnknownIssuer => {
            ("no trusted authority signed the server's certificate (UnknownIssuer)".to_owned(), TRUST)
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("the server's certificate has expired (Expired)".to_owned(), SERVER)
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("the server's certificate is not valid yet (NotValidYet)".to_owned(), SERVER)
        }
        CertificateError::NotValidForNameContext { expected, presented } => (
            format!(
                "the server's certificate is not for {}, but for {} (NotValidForName)",
                expected.to_str(),
                if presented.is_empty() {
                    "no name".to_owned()
                } else {
                    presented.iter().map(|name| plain(name)).collect::<Vec<_>>().join(", ")
                }
            ),
            "ask for a name that the certificate is for, with --connect-to where that name leads elsewhere, or use \
             --insecure",
        ),
        other => (format!("the server's certificate is not acceptable ({other:?})"), SERVER),
    }
}

/// A name of a certificate without the type that rustls writes around it: `DnsName("localhost")`,
/// `IpAddress(127.0.0.1)`.
fn plain(name: &str) -> &str {
    let inner = name.strip_suffix(')').and_then(|rest| rest.split_once('(')).map_or(name, |(_, inner)| inner);
    inner.trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::{ServerName, UnixTime};
    use std::time::Duration;

    fn expired(at: u64) -> Error {
        let instant = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        Error::InvalidCertificate(CertificateError::ExpiredContext { time: instant(at), not_after: instant(1) })
    }

    #[test]
    fn one_cause_is_counted_as_one_whenever_it_comes() {
        let complaints = Complaints::default();
        complaints.add(&Error::AlertReceived(AlertDescription::CertificateRequired));
        complaints.add(&expired(7));
        complaints.add(&expired(8));
        let all = complaints.all();
        assert_eq!(all.iter().map(|complaint| complaint.count).collect::<Vec<_>>(), [2, 1]);
        assert!(all[0].message.contains("expired") && all[1].remedy.contains("--cert"), "{all:?}");
    }

    #[test]
    fn a_certificate_for_another_name_says_both_names() {
        let expected = ServerName::try_from("a.example").expect("a name");
        let presented = vec!["DnsName(\"b.example\")".to_owned(), "IpAddress(192.0.2.1)".to_owned()];
        let error = Error::InvalidCertificate(CertificateError::NotValidForNameContext { expected, presented });
        let (message, remedy) = explain(&error);
        assert!(message.contains("not for a.example, but for b.example, 192.0.2.1"), "{message}");
        assert!(remedy.contains("--connect-to"), "{remedy}");
    }
}
