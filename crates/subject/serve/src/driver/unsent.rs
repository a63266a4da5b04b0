//! What a connection could not send yet.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::rc::Rc;

use plimsoll_sys::file::File;
use plimsoll_sys::net::{self, Follows};

use super::environment::Environment;
use crate::service::{Chunk, Output};

/// Files up to this size are read and sent with their head, in one call: copying as little costs
/// less than a call more.
const SMALL_FILE: u64 = 8 * 1024;
/// Bytes of a body sent in a row before other connections have their turn: as much as nginx sends
/// (`sendfile_max_chunk`), and more than a socket's buffer takes.
const BODY_TURN: u64 = 2 << 20;
/// Pieces sent with one call.
const PARTS: usize = 16;

/// Bytes that wait for room in the socket. It has a buffer only while there are any: an idle
/// connection holds none.
#[derive(Debug, Default)]
pub(crate) struct Unsent(Option<Box<UnsentData>>);

/// How the loop learns of room in a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// For as long as there is some: a send that takes less than all may end the connection's turn.
    LevelTriggered,
    /// Once, when there is some again after a send that found none: the turn ends with such a send.
    /// What took less than all may have had another reason, such as a file that shrank.
    EdgeTriggered,
}

#[derive(Debug)]
struct UnsentData {
    bytes: Vec<u8>,
    sent: usize,
    body: Option<Body>,
    /// There was no room in the socket, and not only no time.
    blocked: bool,
}

/// What is sent from elsewhere than memory of the connection's own, after everything else.
#[derive(Debug)]
pub(crate) enum Body {
    File { file: Rc<File>, offset: u64, left: u64 },
    Repeated { pattern: &'static [u8], position: usize, left: u64 },
}

impl Body {
    /// The body that a chunk describes; `None` for a chunk that is bytes.
    pub(crate) fn of(chunk: &Chunk, environment: &Environment) -> Option<Body> {
        match *chunk {
            Chunk::File { offset, length } => Some(Body::File { file: environment.file(), offset, left: length }),
            Chunk::Repeated { pattern, offset, length } => {
                Some(Body::Repeated { pattern, position: (offset % pattern.len() as u64) as usize, left: length })
            }
            _ => None,
        }
    }

    pub(crate) fn left(&self) -> u64 {
        match self {
            Body::File { left, .. } | Body::Repeated { left, .. } => *left,
        }
    }

    /// Sends at most `most` bytes; returns how many, 0 where there is no room, and how many were
    /// asked for.
    fn send(&mut self, socket: impl AsFd, most: u64) -> io::Result<(usize, usize)> {
        match self {
            Body::File { file, offset, left } => {
                let asked = most.min(*left) as usize;
                match file.send(socket, *offset, asked) {
                    Ok(0) => Err(shrunk()),
                    Ok(sent) => {
                        *offset += sent as u64;
                        *left -= sent as u64;
                        Ok((sent, asked))
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok((0, asked)),
                    Err(error) => Err(error),
                }
            }
            Body::Repeated { pattern, position, left } => {
                let length = (pattern.len() - *position).min(most.min(*left) as usize);
                let follows = if length as u64 == *left { Follows::Nothing } else { Follows::More };
                let sent = send_some(socket, &[IoSlice::new(&pattern[*position..*position + length])], follows)?;
                *position = (*position + sent) % pattern.len();
                *left -= sent as u64;
                Ok((sent, length))
            }
        }
    }

    /// Appends the next bytes to `bytes`, at most `most`, for a caller that cannot send them from
    /// where they are.
    pub(crate) fn read(&mut self, bytes: &mut Vec<u8>, most: usize) -> io::Result<()> {
        let start = bytes.len();
        match self {
            Body::File { file, offset, left } => {
                let length = (*left).min(most as u64) as usize;
                if file.read_at(bytes, *offset, length)? < length {
                    return Err(shrunk());
                }
                *offset += length as u64;
                *left -= length as u64;
            }
            Body::Repeated { pattern, position, left } => {
                while bytes.len() - start < most && *left > 0 {
                    let room = (most - (bytes.len() - start)).min(pattern.len() - *position).min(*left as usize);
                    bytes.extend_from_slice(&pattern[*position..*position + room]);
                    *position = (*position + room) % pattern.len();
                    *left -= room as u64;
                }
            }
        }
        Ok(())
    }
}

/// The file has fewer bytes than the answer's head has promised: only closing the connection shows
/// that to the peer.
fn shrunk() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file shrank while it was sent")
}

/// Whether an error has to end a connection by a reset. The peer would take an end of the stream
/// for the end of all output. Where a file shrank, the answer's head says how much is missing.
pub(crate) fn needs_reset(error: &io::Error) -> bool {
    error.kind() != io::ErrorKind::UnexpectedEof
}

/// Makes the close of a connection that this error ends a reset, where that is needed.
pub(super) fn reset_after(socket: impl AsFd, error: &io::Error) {
    if needs_reset(error) {
        // It can only fail where the connection is no more.
        let _ = net::reset_on_close(socket);
    }
}

impl Unsent {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether it waits for room in the socket.
    pub(super) fn is_blocked(&self) -> bool {
        self.0.as_ref().is_some_and(|waiting| waiting.blocked)
    }

    /// What waits to be sent: bytes, and then a body.
    pub(crate) fn new(bytes: Vec<u8>, body: Body) -> Unsent {
        Unsent(Some(Box::new(UnsentData { bytes, sent: 0, body: Some(body), blocked: false })))
    }

    /// Sends a turn's output, as far as there is room, and keeps the rest; nothing may wait
    /// already. Adds to `sent` how many bytes were sent, also where an error follows them.
    pub(super) fn send(
        &mut self,
        socket: impl AsFd,
        input: &[u8],
        output: &mut Output,
        environment: &Environment,
        room: Room,
        sent: &mut u64,
    ) -> io::Result<()> {
        debug_assert!(self.is_empty(), "a service is asked again only when everything is sent");
        let body = take_body(output, environment)?;
        let follows = if body.is_some() || output.ends { Follows::More } else { Follows::Nothing };
        let mut chunks = output.chunks.as_slice();
        while !chunks.is_empty() {
            let (now, later) = chunks.split_at(chunks.len().min(PARTS));
            let part = |place: usize| now.get(place).map_or(&[][..], |chunk| bytes_of(chunk, input, &output.bytes));
            let length: usize = (0..now.len()).map(|place| part(place).len()).sum();
            let follows = if later.is_empty() { follows } else { Follows::More };
            let taken = match now {
                [_] => send_some(&socket, &[IoSlice::new(part(0))], follows)?,
                _ => {
                    let parts: [IoSlice<'_>; PARTS] = std::array::from_fn(|place| IoSlice::new(part(place)));
                    send_some(&socket, &parts[..now.len()], follows)?
                }
            };
            *sent += taken as u64;
            if taken < length {
                let mut bytes = Vec::with_capacity(length - taken);
                for chunk in chunks {
                    bytes.extend_from_slice(bytes_of(chunk, input, &output.bytes));
                }
                self.0 = Some(Box::new(UnsentData { bytes, sent: taken, body, blocked: true }));
                return Ok(());
            }
            chunks = later;
        }
        let Some(body) = body else { return Ok(()) };
        if output.ends {
            net::hold_last_packet(&socket)?;
        }
        self.0 = Some(Box::new(UnsentData { bytes: Vec::new(), sent: 0, body: Some(body), blocked: false }));
        self.flush(socket, room, sent)
    }

    /// Sends what waits, as far as there is room and time. Adds to `sent` how many bytes were sent,
    /// also where an error follows them.
    pub(crate) fn flush(&mut self, socket: impl AsFd, room: Room, sent: &mut u64) -> io::Result<()> {
        let Some(waiting) = &mut self.0 else { return Ok(()) };
        waiting.blocked = false;
        if waiting.sent < waiting.bytes.len() {
            let follows = if waiting.body.is_some() { Follows::More } else { Follows::Nothing };
            let taken = send_some(&socket, &[IoSlice::new(&waiting.bytes[waiting.sent..])], follows)?;
            waiting.sent += taken;
            *sent += taken as u64;
            if waiting.sent < waiting.bytes.len() {
                waiting.blocked = true;
                return Ok(());
            }
            waiting.bytes = Vec::new();
            waiting.sent = 0;
        }
        if let Some(body) = &mut waiting.body {
            let mut turn = BODY_TURN;
            while body.left() > 0 && turn > 0 {
                let (taken, asked) = body.send(&socket, turn)?;
                turn -= taken as u64;
                *sent += taken as u64;
                // A call on a full socket is no small one: sendfile(2) looks up a pipe's worth of
                // pages before it finds no room.
                if taken == 0 || (taken < asked && room == Room::LevelTriggered) {
                    waiting.blocked = true;
                    return Ok(());
                }
            }
            if body.left() > 0 {
                return Ok(());
            }
        }
        self.0 = None;
        Ok(())
    }
}

/// Takes the body off the end of a turn's chunks. A small file becomes bytes like all others.
pub(crate) fn take_body(output: &mut Output, environment: &Environment) -> io::Result<Option<Body>> {
    let Some(mut body) = output.chunks.last().and_then(|chunk| Body::of(chunk, environment)) else {
        return Ok(None);
    };
    output.chunks.pop();
    if let Body::File { offset, left, .. } = body
        && left <= SMALL_FILE
    {
        let start = output.bytes.len();
        match environment.shared_bytes(SMALL_FILE) {
            Some(whole) => output.bytes.extend_from_slice(&whole[offset as usize..(offset + left) as usize]),
            None => body.read(&mut output.bytes, SMALL_FILE as usize)?,
        }
        let end = output.bytes.len();
        match output.chunks.last_mut() {
            Some(Chunk::Written(range)) if range.end == start => range.end = end,
            _ => output.chunks.push(Chunk::Written(start..end)),
        }
        return Ok(None);
    }
    Ok(Some(body))
}

/// The bytes of a chunk that is bytes.
pub(crate) fn bytes_of<'a>(chunk: &Chunk, input: &'a [u8], written: &'a [u8]) -> &'a [u8] {
    match chunk {
        Chunk::Input(range) => &input[range.clone()],
        Chunk::Written(range) => &written[range.clone()],
        Chunk::Static(bytes) => bytes,
        Chunk::File { .. } | Chunk::Repeated { .. } => &[],
    }
}

/// 0 where there is no room.
fn send_some(socket: impl AsFd, parts: &[IoSlice<'_>], follows: Follows) -> io::Result<usize> {
    match net::write_parts(socket, parts, follows) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        outcome => outcome,
    }
}
