//! The flags of `load http`, and the requests they make.

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use plimsoll_load::http::Http;
use plimsoll_load::secure::Security;
use rustls::pki_types::ServerName;

use super::common::Common;
use super::redirect::{self, Route};
use super::request::Destination;
use super::resolve::ConnectTo;
use super::url::Url;
use super::{request, tls};
use crate::outcome::{note, usage};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// What to fetch: `http://HOST:PORT/PATH` or `https://...`. Connections go to all servers, and
    /// to all addresses of a name, in turn; each fetches the URLs of its own server in turn.
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    #[command(flatten)]
    request: request::Form,
    /// Look up where each URL leads before the run, and load that; to another server without
    /// Authorization, Cookie and Proxy-Authorization [default: a redirect counts as the answer].
    #[arg(long, help_heading = "HTTP")]
    follow: bool,
    /// Connect to ADDR:PORT for URLs of HOST:PORT (repeatable). An empty part matches any, or
    /// changes nothing.
    #[arg(long, value_name = "HOST:PORT:ADDR:PORT", value_parser = ConnectTo::parse, help_heading = "HTTP")]
    connect_to: Vec<ConnectTo>,
    #[command(flatten)]
    tls: tls::Flags,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Where requests go, and what they are.
pub(super) struct Plan {
    pub(super) targets: Vec<SocketAddr>,
    pub(super) protocol: Http,
    /// Whom the targets have to prove to be, and how; `None` is plain HTTP.
    pub(super) security: Option<(Vec<ServerName<'static>>, Security)>,
}

/// A server, and the requests that its connections send in turn.
struct Server {
    /// HOST:PORT, as its URLs have it.
    url: Url,
    requests: Vec<Vec<u8>>,
}

impl Arguments {
    pub(super) fn plan(&self) -> anyhow::Result<Plan> {
        let template = self.request.template(self.common.reconnect)?;
        let urls = self.urls.iter().map(|url| Url::parse(url)).collect::<anyhow::Result<Vec<_>>>()?;
        let urls = urls.into_iter().map(|url| self.destination(url, &template)).collect::<anyhow::Result<Vec<_>>>()?;
        let secure = urls[0].0.secure;
        if urls.iter().any(|(url, _)| url.secure != secure) {
            return usage("http:// and https:// in one run would be measured as one; load them in two runs");
        }
        if let Some(flag) = self.tls.any().filter(|_| !secure && !self.follow) {
            return usage(format!("{flag} is about https, and the URLs are http://; leave it out, or write https://"));
        }
        let mut servers: Vec<Server> = Vec::new();
        for (url, destination) in urls {
            let request = template.render(&url, destination);
            match servers.iter_mut().find(|server| server.url.server() == url.server()) {
                Some(server) => server.requests.push(request),
                None => servers.push(Server { url, requests: vec![request] }),
            }
        }
        self.deal(servers, secure, &template)
    }

    /// The URL that is loaded where this one is given, and whose server it is.
    fn destination(&self, given: Url, template: &request::Template<'_>) -> anyhow::Result<(Url, Destination)> {
        if !self.follow {
            return Ok((given, Destination::Named));
        }
        let route = Route {
            connect_to: &self.connect_to,
            family: self.common.family,
            tls: &self.tls,
            timeout: self.common.timeout,
        };
        let end = redirect::follow(&given, &route, template)?;
        let (destination, credentials) = (Destination::of(&end, &given), template.credentials());
        if destination == Destination::Other && !credentials.is_empty() {
            // A load without them may be another one: --quiet does not hide that.
            note(&format!(
                "{given} leads to {end}, which is loaded without {}, as it is another server; load {end} itself if it \
                 is to have them",
                credentials.join(", ")
            ));
        } else if end != given {
            self.common.output.note(&format!("{given} leads to {end}, which is loaded"));
        }
        Ok((end, destination))
    }

    /// Assigns connections to the addresses of all servers in turn. Each sends the requests of its
    /// own server in turn.
    fn deal(&self, servers: Vec<Server>, secure: bool, template: &request::Template<'_>) -> anyhow::Result<Plan> {
        let reach = |url: &Url| ConnectTo::reach(&self.connect_to, &url.host, url.port);
        let addresses: Vec<String> = servers.iter().map(|server| reach(&server.url)).collect();
        let dealt = self.common.deal(&addresses)?;
        let mut names = Vec::new();
        if secure {
            for (place, _) in &dealt {
                names.push(tls::server_name(&servers[*place].url)?);
            }
        }
        let security = if secure { Some((names, self.tls.security()?)) } else { None };
        let requests: Vec<Arc<[Vec<u8>]>> = servers.into_iter().map(|server| server.requests.into()).collect();
        let requests = dealt.iter().map(|(place, _)| Arc::clone(&requests[*place])).collect();
        let targets = dealt.into_iter().map(|(_, address)| address).collect();
        let protocol = Http::new(requests, template.method() == "HEAD").ending_connections(template.ends_connections());
        Ok(Plan { targets, protocol, security })
    }
}
