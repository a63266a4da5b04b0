//! The flags about certificates, and what TLS makes of them.

use std::path::{Path, PathBuf};

use clap::Args;
use plimsoll_load::secure::{Security, Trust};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use super::url::Url;
use crate::outcome::usage;

#[derive(Args, Debug)]
pub(super) struct Flags {
    /// Accept any certificate.
    #[arg(short = 'k', long, conflicts_with = "cacert", help_heading = "HTTPS")]
    insecure: bool,
    /// A PEM file of the authorities to trust, in place of those that this machine trusts.
    #[arg(long, value_name = "FILE", help_heading = "HTTPS")]
    cacert: Option<PathBuf>,
    /// A PEM file with the client's certificate, for servers that ask for one.
    #[arg(long, value_name = "FILE", help_heading = "HTTPS")]
    cert: Option<PathBuf>,
    /// A PEM file with the key of --cert [default: the key is in the same file].
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "HTTPS")]
    key: Option<PathBuf>,
    /// Let connections resume earlier TLS sessions [default: every handshake is a full one].
    #[arg(long, help_heading = "HTTPS")]
    tls_resume: bool,
}

impl Flags {
    /// The first flag that was given, where any was.
    pub(super) fn any(&self) -> Option<&'static str> {
        let given = [
            ("--insecure", self.insecure),
            ("--cacert", self.cacert.is_some()),
            ("--cert", self.cert.is_some()),
            ("--tls-resume", self.tls_resume),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    pub(super) fn security(&self) -> anyhow::Result<Security> {
        let identity = match &self.cert {
            None => None,
            Some(path) => Some((certificates("--cert", path)?, key(self.key.as_ref().unwrap_or(path))?)),
        };
        Ok(Security { trust: self.trust()?, identity, resume: self.tls_resume })
    }

    fn trust(&self) -> anyhow::Result<Trust> {
        if self.insecure {
            return Ok(Trust::Anyone);
        }
        let mut roots = RootCertStore::empty();
        if let Some(path) = &self.cacert {
            for certificate in certificates("--cacert", path)? {
                if let Err(error) = roots.add(certificate) {
                    let shown = path.display();
                    return usage(format!("--cacert {shown}: {error}; name a PEM file of authorities' certificates"));
                }
            }
            return Ok(Trust::Roots(roots.into()));
        }
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return usage(
                "this machine trusts no certificate authority, so it can trust no server; install ca-certificates, \
                 name authorities with --cacert, or use --insecure",
            );
        }
        Ok(Trust::Roots(roots.into()))
    }
}

fn certificates(flag: &str, path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let why = match read {
        Ok(certificates) if !certificates.is_empty() => return Ok(certificates),
        Ok(_) => "it holds no certificate".to_owned(),
        Err(error) => error.to_string(),
    };
    usage(format!("{flag} {}: {why}; name a PEM file with a certificate", path.display()))
}

fn key(path: &Path) -> anyhow::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path).or_else(|error| {
        usage(format!("no key could be read from {}: {error}; name a PEM file with --key", path.display()))
    })
}

/// Whom a server has to prove to be.
pub(super) fn server_name(url: &Url) -> anyhow::Result<ServerName<'static>> {
    ServerName::try_from(url.host.clone()).or_else(|_| {
        usage(format!(
            "cannot fetch from `{}` by https: it is neither a host name nor an address; correct it",
            url.host
        ))
    })
}
