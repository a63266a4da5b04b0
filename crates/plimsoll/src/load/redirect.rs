//! Follows the redirects of a URL before the run, so that each measured request has one answer.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use plimsoll_sys::net;
use plimsoll_wire::http::head::{HeadError, ResponseHead};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::request::{Destination, Template};
use super::resolve::{ConnectTo, Family, resolve};
use super::tls;
use super::url::Url;
use crate::outcome::usage;

/// Redirects in a row before they are taken for a circle.
const MOST_REDIRECTS: usize = 10;

/// How a server is reached.
pub(super) struct Route<'a> {
    pub(super) connect_to: &'a [ConnectTo],
    pub(super) family: Family,
    pub(super) tls: &'a tls::Flags,
    pub(super) timeout: Duration,
}

/// The URL at the end of all redirects from this one. Each is asked for once.
pub(super) fn follow(given: &Url, route: &Route<'_>, template: &Template<'_>) -> anyhow::Result<Url> {
    let mut url = given.clone();
    for _ in 0..=MOST_REDIRECTS {
        let ResponseHead { status, location } =
            ask(&url, given, route, template).with_context(|| format!("cannot look up where {url} leads"))?;
        let Some(location) = location.filter(|_| [301, 302, 303, 307, 308].contains(&status)) else { return Ok(url) };
        let next = url.join(&location);
        // Other methods become GET on the way (RFC 9110, section 15.4), which would be another
        // load.
        if !["GET", "HEAD"].contains(&template.method()) && ![307, 308].contains(&status) {
            return usage(format!(
                "{url} answers {} with {status}, which leads to a GET of {next}; load that URL without a body, or \
                 leave --follow out",
                template.method()
            ));
        }
        url = Url::parse(&next)?;
    }
    usage(format!(
        "{given} leads to more than {MOST_REDIRECTS} redirects in a row; correct the server, or give the URL that is \
         meant"
    ))
}

/// Sends one request for a URL which the given one leads to, and reads the head of its answer.
fn ask(url: &Url, given: &Url, route: &Route<'_>, template: &Template<'_>) -> anyhow::Result<ResponseHead> {
    let server = resolve(&ConnectTo::reach(route.connect_to, &url.host, url.port), route.family)?;
    let timeout = route.timeout;
    let mut stream = connect(&server.addresses, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let request = template.render(url, Destination::of(url, given));
    if !url.secure {
        return exchange(&mut stream, &request, timeout);
    }
    let config: ClientConfig = route.tls.security()?.client_config()?;
    let connection = ClientConnection::new(Arc::new(config), tls::server_name(url)?)?;
    exchange(&mut StreamOwned::new(connection, stream), &request, timeout)
}

/// Connects to the first address that accepts, as the run loads all of them.
fn connect(addresses: &[SocketAddr], timeout: Duration) -> io::Result<TcpStream> {
    let mut outcome = Err(io::Error::from(io::ErrorKind::AddrNotAvailable));
    for address in addresses {
        outcome = net::connect_within(address, timeout);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn exchange(stream: &mut (impl Read + Write), request: &[u8], timeout: Duration) -> anyhow::Result<ResponseHead> {
    let deadline = Instant::now() + timeout;
    stream.write_all(request)?;
    stream.flush()?;
    let (mut bytes, mut part) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed the connection without an answer",
            )
            .into());
        }
        bytes.extend_from_slice(&part[..count]);
        match ResponseHead::read(&bytes) {
            Ok(head) => return Ok(head),
            Err(HeadError::Partial) if Instant::now() < deadline => {}
            Err(HeadError::Partial) => return Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn an_address_that_refuses_is_passed_over_for_the_next() {
        let listener = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = |listener: &TcpListener| listener.local_addr().expect("it is bound");
        let (gone, there) = (address(&listener()), listener());
        let time = Duration::from_secs(30);
        let connected = connect(&[gone, address(&there)], time).expect("one accepts");
        assert_eq!(connected.peer_addr().expect("it is connected"), address(&there));
        assert!(connect(&[gone], time).is_err());
    }
}
