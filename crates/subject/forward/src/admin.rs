//! What `[admin]` shows by HTTP: `/metrics` (Prometheus' text format), `/healthz`, `/readyz`, and
//! the table as a page.
//!
//! It reads what event loops count anyway, in a thread with a descriptor table of its own: it
//! neither delays connections nor takes descriptors that they need.

mod browser;
mod clients;

use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use plimsoll_reactor::accept::{Failure, Pause};
use plimsoll_reactor::own_table;
use plimsoll_sys::passing;
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;

use self::clients::Clients;
use crate::inherited::Inherited;
use crate::route::Route;
use crate::shared::Shared;

/// A wait that the kernel refused is tried again after this.
const RETRY: Duration = Duration::from_millis(50);

/// The listener of the page and the metrics.
pub(crate) struct Admin {
    listener: TcpListener,
    /// Where the table has it.
    asked: SocketAddr,
    /// Where it is in truth: port 0 has become another.
    address: SocketAddr,
}

/// The thread that answers. It ends when this is dropped.
pub(crate) struct Running {
    /// Where the table has it.
    pub(crate) asked: SocketAddr,
    /// Where it is in truth.
    pub(crate) address: SocketAddr,
    pub(crate) listener: TcpListener,
    /// The thread has the listener by it, and learns of the end as it is closed.
    _mailbox: OwnedFd,
}

impl Admin {
    /// Listens, unless the listener is inherited.
    pub(crate) fn bind(asked: SocketAddr, inherited: &mut Inherited) -> io::Result<Admin> {
        let listener = inherited.take_at(asked)?.map_or_else(|| TcpListener::bind(asked), |own| Ok(own.into()))?;
        listener.set_nonblocking(true)?;
        Ok(Admin { asked, address: listener.local_addr()?, listener })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins to answer.
    pub(crate) fn start(self, shared: &Arc<Shared>) -> io::Result<Running> {
        let shared = Arc::downgrade(shared);
        let mailbox = own_table::spawn("admin", move |mailbox| {
            if let Ok(listener) = receive(&mailbox) {
                answer_all(listener, &mailbox, &shared);
            }
        })?;
        passing::send(&mailbox, b".", &[self.listener.as_fd()])?;
        let Admin { asked, address, listener } = self;
        Ok(Running { asked, address, listener, _mailbox: mailbox })
    }
}

/// Takes the listener, which is the first message.
fn receive(mailbox: &OwnedFd) -> io::Result<TcpListener> {
    let mut sockets = Vec::new();
    loop {
        poll::wait_or_retry(&mut [Place::new(mailbox.as_raw_fd(), Interest::READ)], None)?;
        match passing::receive(mailbox, &mut [0], &mut sockets) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            outcome => {
                outcome?;
                return sockets.pop().map(TcpListener::from).ok_or_else(|| io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// Answers until the mailbox is closed, and then those that were accepted before it.
fn answer_all(listener: TcpListener, mailbox: &OwnedFd, shared: &Weak<Shared>) {
    let (mut clients, mut pause) = (Clients::default(), Pause::default());
    let mut listener = Some(listener);
    while listener.is_some() || !clients.is_empty() {
        // What waits beyond the most stays in the kernel's queue.
        let accepts = listener.as_ref().filter(|_| !pause.is_on() && clients.have_room());
        let mut places: Vec<Place> = clients.places().collect();
        places.extend(accepts.map(|listener| Place::new(listener.as_raw_fd(), Interest::READ)));
        places.extend(listener.as_ref().map(|_| Place::new(mailbox.as_raw_fd(), Interest::READ)));
        let until = clients.until().into_iter().chain(pause.until()).min();
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        if poll::wait(&mut places, timeout).is_err() {
            std::thread::sleep(RETRY);
        }
        let now = Instant::now();
        let ends = listener.is_some() && places.last().is_some_and(Place::readable);
        pause.ends(now);
        if let Some(listener) = accepts.filter(|_| !ends) {
            match listener.accept().and_then(|(stream, _)| stream.set_nonblocking(true).map(|()| stream)) {
                Ok(stream) => clients.add(stream, now),
                Err(error) if matches!(Failure::of(&error), Failure::Empty | Failure::Connection) => {}
                // What waits stays in the queue, as where no descriptor is left: waiting for it
                // would spin.
                Err(_) => pause.begin(now),
            }
        }
        listener = listener.filter(|_| !ends);
        let Some(shared) = shared.upgrade() else { return };
        clients.serve(now, |head| answer(head, &shared));
    }
}

/// The answer to a request with this head.
fn answer(head: &[u8], shared: &Shared) -> Vec<u8> {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let (status, kind, body) = match (method, path) {
        _ if browser::asks_by_a_name(head) => {
            let why = "browsers are answered by address alone: put the address, or localhost, in place of the name\n";
            ("421 Misdirected Request", "text/plain", why.to_owned())
        }
        ("GET" | "HEAD", "/metrics") => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", metrics(shared)),
        ("GET" | "HEAD", "/") => ("200 OK", "text/html; charset=utf-8", page(shared)),
        ("GET" | "HEAD", "/healthz") => ("200 OK", "text/plain", "ok\n".to_owned()),
        ("GET" | "HEAD", "/readyz") if shared.draining.load(Ordering::Relaxed) => {
            ("503 Service Unavailable", "text/plain", "draining\n".to_owned())
        }
        ("GET" | "HEAD", "/readyz") => ("200 OK", "text/plain", "ready\n".to_owned()),
        ("GET" | "HEAD", _) => {
            ("404 Not Found", "text/plain", "/, /metrics, /healthz and /readyz are here\n".to_owned())
        }
        _ => ("405 Method Not Allowed", "text/plain", "only GET and HEAD\n".to_owned()),
    };
    let length = body.len();
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nCache-Control: no-store\r\nAllow: \
         GET, HEAD\r\nConnection: close\r\n\r\n"
    );
    if method != "HEAD" {
        answer += &body;
    }
    answer.into_bytes()
}

/// The routes in the order of their listening addresses.
fn in_order(shared: &Shared) -> Vec<Arc<Route>> {
    let mut routes: Vec<(u32, Arc<Route>)> =
        shared.routes().iter().map(|(number, route)| (*number, Arc::clone(route))).collect();
    routes.sort_by_key(|(number, _)| *number);
    routes.into_iter().map(|(_, route)| route).collect()
}

fn metrics(shared: &Shared) -> String {
    let (mut text, routes) = (String::new(), in_order(shared));
    let mut family = |name: &str, kind: &str, help: &str, lines: &[(String, u64)]| {
        let _ = write!(text, "# HELP plimsoll_forward_{name} {help}\n# TYPE plimsoll_forward_{name} {kind}\n");
        for (labels, value) in lines {
            let _ = writeln!(text, "plimsoll_forward_{name}{labels} {value}");
        }
    };
    let listens = |route: &Route| format!("listen=\"{}\"", Label(&route.listen().to_string()));
    let each = |count: &dyn Fn(&Route) -> u64| -> Vec<(String, u64)> {
        routes.iter().map(|route| (format!("{{{}}}", listens(route)), count(route))).collect()
    };
    let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    family("connections_total", "counter", "Connections accepted.", &each(&|route| load(&route.counts.accepted)));
    family("connections", "gauge", "Connections open.", &each(&|route| load(&route.counts.open)));
    let bytes: Vec<(String, u64)> = routes
        .iter()
        .flat_map(|route| {
            [("up", &route.counts.bytes_up), ("down", &route.counts.bytes_down)]
                .map(|(direction, count)| (format!("{{{},direction=\"{direction}\"}}", listens(route)), load(count)))
        })
        .collect();
    family("bytes_total", "counter", "Bytes written: up to servers, down to clients.", &bytes);
    let ends: Vec<(String, u64)> = routes
        .iter()
        .flat_map(|route| {
            let labels = listens(route);
            let ends: Vec<_> = route.counts.ends().collect();
            ends.into_iter().map(move |(end, count)| (format!("{{{labels},end=\"{}\"}}", end.name()), count))
        })
        .collect();
    family("ends_total", "counter", "Connections that ended, by how.", &ends);
    let servers = |count: &dyn Fn(&Route, &crate::route::Server) -> u64| -> Vec<(String, u64)> {
        let of = |route: &Arc<Route>| {
            let labels = listens(route);
            let of_server = |server: &Arc<crate::route::Server>| {
                let target = server.target.to_string();
                (format!("{{{labels},server=\"{}\"}}", Label(&target)), count(route, server))
            };
            route.distinct_servers().iter().map(of_server).collect::<Vec<_>>()
        };
        routes.iter().flat_map(of).collect()
    };
    let open = servers(&|_, server| server.open.load(Ordering::Relaxed) as u64);
    family("server_connections", "gauge", "Connections open to a server.", &open);
    let up = servers(&|route, server| u64::from(!route.is_down(server)));
    family("server_up", "gauge", "Whether the checks of a server succeed, or it has none.", &up);
    let reloads = [("done", 0), ("refused", 1)]
        .map(|(outcome, place)| (format!("{{outcome=\"{outcome}\"}}"), load(&shared.reloads[place])));
    family("reloads_total", "counter", "Tables that came after the first.", &reloads);
    let dropped = [(String::new(), shared.log.missing())];
    let help = "Rows that a log was too slow for, or its disk too full.";
    family("log_rows_dropped_total", "counter", help, &dropped);
    let most = shared.limit.most();
    if most != u64::MAX {
        family("connections_limit", "gauge", "max_connections.", &[(String::new(), most)]);
    }
    text
}

/// The table as it is now; the browser asks again every two seconds.
fn page(shared: &Shared) -> String {
    let mut rows = String::new();
    for route in in_order(shared) {
        let servers: Vec<String> = route
            .distinct_servers()
            .iter()
            .map(|server| {
                let state = if route.is_down(server) { " (down)" } else { "" };
                format!("{}{state}: {}", server.target, server.open.load(Ordering::Relaxed))
            })
            .collect();
        let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        let counts = &route.counts;
        let _ = writeln!(
            rows,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            Html(&route.listen().to_string()),
            Html(&servers.join(", ")),
            load(&counts.open),
            load(&counts.accepted),
            load(&counts.bytes_up),
            load(&counts.bytes_down),
        );
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" \
         content=\"2\"><title>plimsoll forward</title><style>body{{font-family:sans-serif}}td,th{{padding:.2em \
         .8em;text-align:left}}</style></head><body><h1>plimsoll forward</h1><p>{} connections open, {} at most so \
         far.</p><table>\n<tr><th>listens at</th><th>leads to: open</th><th>open</th><th>accepted</th><th>bytes \
         up</th><th>bytes down</th></tr>\n{rows}</table></body></html>\n",
        shared.limit.open(),
        shared.limit.peak()
    )
}

/// The value of a label, as Prometheus' text format escapes it.
struct Label<'a>(&'a str);

impl std::fmt::Display for Label<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '\\' => formatter.write_str("\\\\"),
            '"' => formatter.write_str("\\\""),
            '\n' => formatter.write_str("\\n"),
            character => formatter.write_char(character),
        })
    }
}

/// Text in a page: the path of a Unix socket may have anything in it.
struct Html<'a>(&'a str);

impl std::fmt::Display for Html<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '<' => formatter.write_str("&lt;"),
            '>' => formatter.write_str("&gt;"),
            '&' => formatter.write_str("&amp;"),
            '"' => formatter.write_str("&quot;"),
            '\'' => formatter.write_str("&#39;"),
            character => formatter.write_char(character),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_path_may_hold_breaks_neither_the_page_nor_a_label() {
        assert_eq!(Html("unix:/<b>'\"&").to_string(), "unix:/&lt;b&gt;&#39;&quot;&amp;");
        assert_eq!(Label("unix:/a\"b\\c\n").to_string(), "unix:/a\\\"b\\\\c\\n");
    }
}
