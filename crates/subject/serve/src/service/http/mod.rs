//! HTTP/1.0 and HTTP/1.1 for files (RFC 9110, RFC 9112): GET and HEAD, persistent connections,
//! pipelining, ranges, preconditions.
//!
//! The rule: one request after the other, answered in order. A connection is in one of three
//! states:
//!
//! | state | waits for | until |
//! |---|---|---|
//! | idle | the first byte of a request | the keep-alive timeout |
//! | head | the rest of a head, which the driver keeps | the request timeout, from its first byte |
//! | body | the rest of a body, to discard it | the request timeout, from the head's end |
//!
//! After an answer that ends the connection, the service is not called any more. A request that
//! cannot be parsed ends the connection, as it is unknown where the next one begins.

mod body;
mod precondition;
mod range;
mod request;
mod response;
mod stamp;
mod status;
mod syntax;
mod target;

use std::sync::Arc;
use std::time::{Duration, Instant};

use body::Body;
use precondition::Verdict;
use range::Wanted;
use request::{Method, ParsedHead, Request};
use response::Answer;
use stamp::Validators;
use status::Status;
use target::Target;

use super::{Chunk, NextStep, NotFound, Output, Processed, Service, ServiceContext};

/// The newest version that the server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A connection a request.
    Http10,
    /// Connections persist.
    Http11,
}

/// What an HTTP server is to be.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The newest version that it speaks.
    pub version: Version,
    /// How long a connection may be without a request.
    pub keep_alive_timeout: Duration,
    /// How long a request may take to arrive.
    pub request_timeout: Duration,
    /// How long a peer may acknowledge nothing of an answer.
    pub send_timeout: Duration,
    /// Whether `/bytes/N` and `/burn/DURATION/N` are answered without a file.
    pub synthetic: bool,
    /// CPU time burnt for each answer.
    pub work: Duration,
    /// And for each answer about one of these files, named by their paths beneath the root.
    pub work_paths: Vec<(Vec<u8>, Duration)>,
}

impl Settings {
    /// CPU time burnt for an answer about a file, beside that of each answer.
    fn work_of(&self, path: &[u8]) -> Duration {
        self.work_paths.iter().filter(|(of, _)| of == path).map(|(_, work)| *work).sum()
    }
}

/// After this much output a turn ends, so that pipelined requests cannot pile answers up.
const OUTPUT_BYTES: usize = 16 * 1024;
/// After this many requests a turn ends, so that one who pipelines does not keep the others
/// waiting.
const REQUESTS: u64 = 16;
/// Synthetic bodies up to this size are written beside their head, and go out with it.
const SMALL_BODY: u64 = 4 * 1024;

/// The server's side of an HTTP connection.
#[derive(Clone, Debug)]
pub struct Http {
    settings: Arc<Settings>,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// No request has begun; until when one is waited for: an empty line does not change it.
    Idle(Option<Instant>),
    Head {
        until: Instant,
        is_visible: bool,
    },
    Body {
        until: Instant,
        body: Body,
    },
}

impl Http {
    /// A server for files, and what else the settings say.
    pub fn new(settings: Settings) -> Http {
        Http { settings: Arc::new(settings), state: State::Idle(None) }
    }
}

impl Service for Http {
    fn is_timed(&self) -> bool {
        true
    }

    fn send_timeout(&self) -> Option<Duration> {
        Some(self.settings.send_timeout)
    }

    fn opened(&mut self, context: &impl ServiceContext) -> Option<Instant> {
        Some(context.time().now + self.settings.request_timeout)
    }

    fn receive(&mut self, input: &[u8], context: &mut impl ServiceContext, output: &mut Output) -> Processed {
        let now = context.time().now;
        let mut processed = Processed { consumed: 0, requests: 0, next: NextStep::Send };
        loop {
            let rest = &input[processed.consumed..];
            if let State::Body { until, body } = &mut self.state {
                let until = *until;
                match body.discard(rest) {
                    Err(_) => return Processed { next: NextStep::Linger, ..processed },
                    Ok(taken) => processed.consumed += taken,
                }
                if !body.is_over() {
                    return Processed { next: NextStep::Receive(Some(until)), ..processed };
                }
                self.state = State::Idle(None);
                continue;
            }
            if rest.is_empty() || (rest == b"\r" && matches!(self.state, State::Idle(_))) {
                let until = match self.state {
                    State::Idle(Some(until)) => until,
                    _ => now + self.settings.keep_alive_timeout,
                };
                self.state = State::Idle(Some(until));
                return Processed { next: NextStep::Receive(Some(until)), ..processed };
            }
            let empty_line = ["\r\n", "\n"].into_iter().find(|line| rest.starts_with(line.as_bytes()));
            if let (State::Idle(_), Some(line)) = (&self.state, empty_line) {
                // It is no part of the request that follows (RFC 9112, section 2.2): a client that
                // sends one more after its last is idle.
                processed.consumed += line.len();
                continue;
            }
            let (request, length) = match request::parse(rest) {
                ParsedHead::Complete(request, length) => (request, length),
                ParsedHead::Partial => {
                    let until = match self.state {
                        State::Head { until, .. } => until,
                        _ => now + self.settings.request_timeout,
                    };
                    self.state = State::Head { until, is_visible: !request::is_head(rest) };
                    return Processed { next: NextStep::Receive(Some(until)), ..processed };
                }
                ParsedHead::Bad(status) => {
                    self.refuse(status, !request::is_head(rest), context, output);
                    return Processed { requests: processed.requests + 1, next: NextStep::Linger, ..processed };
                }
            };
            processed.consumed += length;
            processed.requests += 1;
            let more = processed.consumed < input.len();
            let persists = self.persists(&request) && (more || !context.time().draining);
            let handler = RequestHandler { settings: &self.settings, request: &request, persists, context, output };
            let persists = handler.answer();
            if !persists {
                let next = if more || !request.body.is_over() { NextStep::Linger } else { NextStep::Close };
                return Processed { next, ..processed };
            }
            self.state = if request.body.is_over() {
                State::Idle(None)
            } else {
                State::Body { until: now + self.settings.request_timeout, body: request.body }
            };
            let last = output.chunks.last();
            if matches!(last, Some(Chunk::File { .. } | Chunk::Repeated { .. }))
                || output.bytes.len() >= OUTPUT_BYTES
                || processed.requests >= REQUESTS
                || !output.burn.is_zero()
            {
                return processed;
            }
        }
    }

    fn expired(&mut self, partial: bool, context: &mut impl ServiceContext, output: &mut Output) -> NextStep {
        // An idle connection has nothing to answer; one whose body does not come has its answer
        // already (RFC 9110, section 15.5.9).
        if !partial || matches!(self.state, State::Body { .. }) {
            return NextStep::Close;
        }
        let is_visible = !matches!(self.state, State::Head { is_visible: false, .. });
        self.refuse(Status::REQUEST_TIMEOUT, is_visible, context, output);
        NextStep::Linger
    }
}

impl Http {
    /// Whether the connection is to go on after this request (RFC 9112, section 9.3).
    fn persists(&self, request: &Request<'_>) -> bool {
        self.settings.version == Version::Http11
            && match request.minor {
                0 => request.keep_alive && !request.close,
                _ => !request.close,
            }
    }

    /// Answers bytes that are no request, with a sentence that is visible unless they begin as a
    /// HEAD (RFC 9110, section 9.3.2).
    fn refuse(&self, status: Status, is_visible: bool, context: &impl ServiceContext, output: &mut Output) {
        let persistence = response::Persistence::Closes;
        Answer::begin(output, self.settings.version, status, context.time().date(), persistence).text(is_visible);
    }
}

/// One request and all that its answer needs.
struct RequestHandler<'a, O> {
    settings: &'a Settings,
    request: &'a Request<'a>,
    persists: bool,
    context: &'a mut O,
    output: &'a mut Output,
}

impl<O: ServiceContext> RequestHandler<'_, O> {
    /// Writes the answer, and returns whether the connection goes on.
    fn answer(mut self) -> bool {
        self.output.burn += self.settings.work;
        match self.request.method {
            Method::Get | Method::Head => {}
            Method::Other => {
                self.persists &= self.request.body.is_acceptable();
                self.status(Status::NOT_IMPLEMENTED);
                return self.persists;
            }
            // The body may be long: the connection ends, so that it need not be read.
            Method::Known => {
                self.persists &= self.request.body.is_over();
                let visible = self.has_body();
                self.begin(Status::METHOD_NOT_ALLOWED).field("Allow", "GET, HEAD").text(visible);
                return self.persists;
            }
        }
        if !self.request.body.is_acceptable() {
            self.persists = false;
            self.status(Status::CONTENT_TOO_LARGE);
            return false;
        }
        // HTTP/1.0 has no interim answers (RFC 9110, section 15.2).
        let has_interim = self.settings.version == Version::Http11;
        if has_interim && self.request.expects_continue && !self.request.body.is_over() {
            response::go_on(self.output);
        }
        let start = self.output.bytes.len();
        match target::read(self.request.target, self.settings.synthetic, &mut self.output.bytes) {
            Target::Bad => {
                self.output.bytes.truncate(start);
                self.status(Status::BAD_REQUEST);
            }
            Target::Synthetic { length, burn } => {
                self.output.burn += burn;
                self.synthetic(length);
            }
            Target::Path => self.file(start),
        }
        self.persists
    }

    fn synthetic(&mut self, length: u64) {
        const KIND: &str = "text/plain; charset=utf-8";
        if self.is_settled_by_preconditions(None) {
            return;
        }
        let wanted = self.wanted(None, length);
        self.content(wanted, length, KIND, None, |offset, length| Chunk::Repeated {
            pattern: response::PATTERN,
            offset,
            length,
        });
    }

    /// Answers with the file whose path is at the end of the output's bytes, from `start` on.
    fn file(&mut self, start: usize) {
        let found = self.context.resolve(&self.output.bytes[start..]);
        let work = self.settings.work_of(&self.output.bytes[start..]);
        let kind = target::kind(&self.output.bytes[start..]);
        self.output.bytes.truncate(start);
        let found = match found {
            Ok(found) => found,
            Err(NotFound::Folder) => return self.redirect(),
            Err(NotFound::Absent) => return self.status(Status::NOT_FOUND),
            Err(NotFound::Forbidden) => return self.status(Status::FORBIDDEN),
            Err(NotFound::TooLong) => return self.status(Status::URI_TOO_LONG),
            Err(NotFound::Unavailable) => return self.status(Status::SERVICE_UNAVAILABLE),
        };
        self.output.burn += work;
        let stamp = Validators::new(found.length, found.modified, self.context.time().wall());
        if self.is_settled_by_preconditions(Some(&stamp)) {
            return;
        }
        let wanted = self.wanted(Some(&stamp), found.length);
        self.content(wanted, found.length, kind, Some(&stamp), |offset, length| Chunk::File { offset, length });
    }

    /// Answers without a body where the preconditions want that, and returns whether they do.
    fn is_settled_by_preconditions(&mut self, stamp: Option<&Validators>) -> bool {
        match precondition::evaluate(self.request, stamp) {
            Verdict::Failed => self.status(Status::PRECONDITION_FAILED),
            Verdict::NotModified => {
                let answer = self.begin(Status::NOT_MODIFIED);
                stamp.into_iter().fold(answer, Answer::stamp).end();
            }
            Verdict::Send => return false,
        }
        true
    }

    /// Which part of so many bytes is asked for.
    fn wanted(&self, stamp: Option<&Validators>, length: u64) -> Wanted {
        match self.request.range {
            Some(range) if precondition::range_applies(self.request, stamp) => range::read(range, length),
            _ => Wanted::Whole,
        }
    }

    /// Answers with a body, or the wanted part of it.
    fn content(
        &mut self,
        wanted: Wanted,
        total: u64,
        kind: &str,
        stamp: Option<&Validators>,
        chunk: impl FnOnce(u64, u64) -> Chunk,
    ) {
        // A range is defined for GET alone (RFC 9110, section 14.2).
        let wanted = if self.request.method == Method::Get { wanted } else { Wanted::Whole };
        let visible = self.has_body();
        let (offset, length, mut head) = match wanted {
            Wanted::Whole => (0, total, self.begin(Status::OK)),
            Wanted::Part(first, last) => {
                let head = self.begin(Status::PARTIAL_CONTENT).content_range(Some((first, last)), total);
                (first, last - first + 1, head)
            }
            Wanted::Nothing => {
                self.begin(Status::RANGE_NOT_SATISFIABLE).content_range(None, total).text(visible);
                return;
            }
        };
        head = head.field("Content-Type", kind).length(length).field("Accept-Ranges", "bytes");
        if let Some(stamp) = stamp {
            head = head.stamp(stamp);
        }
        head.end();
        if !visible || length == 0 {
            return;
        }
        match chunk(offset, length) {
            Chunk::Repeated { pattern, offset, length } if length <= SMALL_BODY => {
                response::repeat(self.output, pattern, offset, length);
            }
            chunk => self.output.chunks.push(chunk),
        }
    }

    /// A folder is asked for with a slash at its end, or relative links in its index would lead
    /// elsewhere.
    fn redirect(&mut self) {
        let (path, query) = target::split(self.request.target);
        if path.ends_with('/') {
            // It is the index that is a folder.
            return self.status(Status::NOT_FOUND);
        }
        let visible = self.has_body();
        // One slash in front: with two, the rest would be read as another host's name.
        let path = path.trim_start_matches('/');
        self.begin(Status::MOVED_PERMANENTLY).location(&["/", path, "/", query]).text(visible);
    }

    fn status(&mut self, status: Status) {
        let visible = self.has_body();
        self.begin(status).text(visible);
    }

    fn begin(&mut self, status: Status) -> Answer<'_> {
        let persistence = match (self.persists, self.request.minor) {
            (false, _) => response::Persistence::Closes,
            (true, 0) => response::Persistence::KeptAlive,
            (true, _) => response::Persistence::Unsaid,
        };
        Answer::begin(self.output, self.settings.version, status, self.context.time().date(), persistence)
    }

    fn has_body(&self) -> bool {
        self.request.method != Method::Head
    }
}

#[cfg(test)]
mod tests;
