//! `--upgrade PATH`: a new process takes over the listening sockets of the one that runs.
//!
//! The running process waits at a Unix socket. The new one connects, and is sent every listening
//! socket (SCM_RIGHTS). Once its event loops accept it says which of them it has; the old process
//! stops accepting there, lets its connections end, and ends. No socket is closed in between, so no
//! client is refused. Until that message the old process goes on as before, and still does if the
//! new one ends.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_reactor::accept::Pause;
use plimsoll_sys::passing;
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::unix::{self, Name};

use crate::inherited::{Inherited, Owner};
use crate::table::Listen;

/// How long one side waits for the next message of the other: each is sent at once.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// The last message of the running process.
const END: &[u8] = b".";
/// More sockets than a process may have (fs.nr_open is 2^20 unless told otherwise).
const LONGEST_ANSWER: usize = 1 << 20;

/// The running process, as the new one sees it.
pub(crate) struct Predecessor {
    socket: OwnedFd,
    /// Where the sockets listen that it has sent, in order.
    sent: Vec<Listen>,
    /// Which of them this process has taken: 1, or 0.
    taken: Vec<u8>,
}

impl Predecessor {
    /// Takes the sockets of the process that waits at `path`; `None` if no process does.
    pub(crate) fn find(path: &Path, inherited: &mut Inherited) -> io::Result<Option<Predecessor>> {
        loop {
            let socket = match unix::connect_for_messages(path) {
                Ok(socket) => socket,
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            match Predecessor::ask(socket, inherited) {
                // It no longer waits there, and has not accepted this connection (unix_release_sock
                // in the kernel's af_unix.c): perhaps another process waits there by now.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
                outcome => return outcome.map(Some),
            }
        }
    }

    /// Takes the sockets that come over a connection to the process that has them.
    fn ask(socket: OwnedFd, inherited: &mut Inherited) -> io::Result<Predecessor> {
        let (mut sent, mut message, mut sockets) = (Vec::new(), [0; passing::MOST], Vec::new());
        loop {
            let length = receive(&socket, &mut message, &mut sockets)?;
            if sockets.is_empty() {
                // The end, and no end of the connection.
                return match &message[..length] == END {
                    true => Ok(Predecessor { socket, sent, taken: Vec::new() }),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
            for (owner, socket) in message[..length].iter().zip(sockets.drain(..)) {
                sent.push(inherited.add(socket, if *owner == b'm' { Owner::Another } else { Owner::This })?);
            }
        }
    }

    /// Takes note of which of its sockets are in use here.
    pub(crate) fn note(&mut self, inherited: &Inherited) {
        self.taken = self.sent.iter().map(|listen| u8::from(inherited.is_taken(listen))).collect();
    }

    /// Sends it that this process accepts now, and at which of its sockets.
    pub(crate) fn release(self) -> io::Result<()> {
        send(&self.socket, &[END, &self.taken].concat(), &[])
    }
}

/// Where a process that takes over asks.
pub(crate) struct Entrance {
    listener: OwnedFd,
    name: Name,
    asking: Option<OwnedFd>,
    /// There is no descriptor for a new process's connection.
    pause: Pause,
    is_left: bool,
}

impl Entrance {
    /// Waits at a path where no other process waits.
    pub(crate) fn open(path: &Path) -> io::Result<Entrance> {
        let listener = unix::listen_for_messages(path)?;
        Ok(Entrance { listener, name: Name::of(path), asking: None, pause: Pause::default(), is_left: false })
    }

    /// Waits there in place of the process that did.
    pub(crate) fn replace(path: &Path) -> io::Result<Entrance> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let mut entrance = Entrance::open(Path::new(&beside))?;
        std::fs::rename(&beside, path)?;
        entrance.name = Name::of(path);
        Ok(entrance)
    }

    /// What to wait for, but for a pause.
    pub(crate) fn place(&self) -> Option<Place> {
        let waits = self.asking.as_ref().or((!self.pause.is_on()).then_some(&self.listener));
        waits.map(|socket| Place::new(socket.as_raw_fd(), Interest::READ))
    }

    /// Until when no connection is taken, if it pauses.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.pause.until()
    }

    /// Whether a new process has the sockets and has not yet said at which of them it accepts.
    pub(crate) fn is_asked(&self) -> bool {
        self.asking.is_some()
    }

    /// Sends `sockets` to a new process that asks. Returns at which of them it accepts, once it
    /// says so.
    pub(crate) fn attend(&mut self, sockets: &[(BorrowedFd<'_>, Owner)]) -> io::Result<Option<Vec<bool>>> {
        let Some(asking) = &self.asking else {
            let now = Instant::now();
            if self.pause.is_on() && !self.pause.ends(now) {
                return Ok(None);
            }
            let asking = match unix::accept(&self.listener) {
                Ok(asking) => asking,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => {
                    // It stays in the queue, so that waiting for it would spin.
                    self.pause.begin(now);
                    return Err(error);
                }
            };
            send_all(&asking, sockets)?;
            self.asking = Some(asking);
            return Ok(None);
        };
        let mut answer = vec![0; LONGEST_ANSWER];
        let length = match passing::receive(asking, &mut answer, &mut Vec::new()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            outcome => outcome.unwrap_or(0),
        };
        self.asking = None;
        match answer[..length].strip_prefix(END) {
            Some(taken) if taken.len() == sockets.len() => {
                self.is_left = true;
                Ok(Some(taken.iter().map(|taken| *taken == 1).collect()))
            }
            _ => Err(io::Error::other("the process that asked for the listeners has gone without taking them")),
        }
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        if !self.is_left {
            self.name.remove();
        }
    }
}

fn send_all(to: &OwnedFd, sockets: &[(BorrowedFd<'_>, Owner)]) -> io::Result<()> {
    for part in sockets.chunks(passing::MOST) {
        let owners: Vec<u8> =
            part.iter().map(|(_, owner)| if *owner == Owner::Another { b'm' } else { b'o' }).collect();
        let part: Vec<BorrowedFd<'_>> = part.iter().map(|(socket, _)| *socket).collect();
        send(to, &owners, &part)?;
    }
    send(to, END, &[])
}

fn send(to: &OwnedFd, message: &[u8], sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    wait_until(to, Interest::WRITE, || passing::send(to, message, sockets))
}

fn receive(from: &OwnedFd, message: &mut [u8], sockets: &mut Vec<OwnedFd>) -> io::Result<usize> {
    wait_until(from, Interest::READ, || passing::receive(from, message, sockets))
}

/// Tries until it would not block, for as long as the other side may take.
fn wait_until<T>(socket: &OwnedFd, interest: Interest, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let until = Instant::now() + LONGEST_WAIT;
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "the other process does not answer"));
                }
                poll::wait_or_retry(&mut [Place::new(socket.as_fd().as_raw_fd(), interest)], Some(left))?;
            }
            outcome => return outcome,
        }
    }
}
