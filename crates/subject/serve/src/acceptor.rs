//! The loop of the models that give each connection a thread or a process: accept, hand over, and
//! wait for the next.
//!
//! A connection that cannot be handed over is kept, and accepting pauses until another connection
//! ends or a short time has passed. When descriptors run out, connections stay in the listeners'
//! queues. Whether threads or processes serve is the [`Spawner`]'s business.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use plimsoll_reactor::accept::{Failure, Pause, Turns};
use plimsoll_reactor::shutdown::{Shutdown, Step};
use plimsoll_sys::net;
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::signal::{Signal, Signals};

use crate::accept::{Accepted, accept_within_limit};
use crate::state::ServerState;
use crate::totals::Totals;

/// Starts a thread or a process for each connection.
pub(crate) trait Spawner {
    /// Has a connection served, by one more of them.
    fn begin(&mut self, socket: OwnedFd, peer: SocketAddr) -> Result<(), SpawnError>;

    /// Readable when one of them has ended.
    fn ended(&self) -> BorrowedFd<'_>;

    /// Collects threads or processes that have ended.
    fn collect(&mut self) -> io::Result<()>;

    /// How many connections are being served.
    fn open(&self) -> usize;

    /// Has each finish what has arrived, and end.
    fn drain(&mut self);

    /// Ends them at once.
    fn stop(&mut self);

    /// The counts of all that have ended.
    fn totals(self) -> Totals;
}

/// A connection for which no thread or process could be started.
pub(crate) struct SpawnError {
    pub(crate) socket: OwnedFd,
    pub(crate) error: io::Error,
}

/// Connections accepted in a row before ended threads or processes are collected.
const ACCEPT_BATCH: usize = 64;

/// Serves until SIGTERM or SIGINT, then drains for at most `drain`; a second signal ends it at
/// once.
pub(crate) fn run<S: Spawner>(
    listeners: Vec<OwnedFd>,
    signals: &Signals,
    mut spawner: S,
    drain: Duration,
    state: &ServerState,
) -> io::Result<Totals> {
    let mut acceptor = Acceptor {
        listeners,
        turns: Turns::default(),
        in_hand: None,
        pause: Pause::default(),
        totals: Totals::default(),
        state,
    };
    let mut shutdown = Shutdown::new(drain);
    loop {
        let until = shutdown.until().or(acceptor.pause.until().filter(|_| shutdown.is_running()));
        let mut places = vec![place(signals.as_fd()), place(spawner.ended())];
        if !acceptor.pause.is_on() {
            places.extend(acceptor.listeners.iter().map(|listener| place(listener.as_fd())));
        }
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        if let Some(error) = poll::wait_or_retry(&mut places, timeout)? {
            acceptor.totals.count_io_error(&error);
        }
        let mut steps = Vec::new();
        while let Some(signal) = signals.next() {
            match signal {
                Signal::Child => {
                    spawner.collect()?;
                    acceptor.pause.end_soon(Instant::now());
                }
                Signal::Interrupt | Signal::Terminate => steps.extend(shutdown.on_signal(Instant::now())),
                Signal::Hangup => {}
            }
        }
        steps.extend(shutdown.on_time(Instant::now()));
        for step in steps {
            acceptor.close();
            match step {
                Step::Drain => spawner.drain(),
                Step::Stop => spawner.stop(),
            }
        }
        if places[1].readable() {
            spawner.collect()?;
            acceptor.pause.end_soon(Instant::now());
        }
        if !shutdown.is_running() && spawner.open() == 0 {
            break;
        }
        acceptor.pause.ends(Instant::now());
        acceptor.accept(&mut spawner);
    }
    let mut totals = acceptor.totals;
    totals.add(&spawner.totals());
    Ok(totals)
}

struct Acceptor<'a> {
    listeners: Vec<OwnedFd>,
    turns: Turns,
    in_hand: Option<(OwnedFd, SocketAddr)>,
    pause: Pause,
    totals: Totals,
    state: &'a ServerState,
}

impl Acceptor<'_> {
    fn accept(&mut self, spawner: &mut impl Spawner) {
        if let Some((socket, peer)) = self.in_hand.take_if(|_| !self.pause.is_on()) {
            self.hand_over(spawner, socket, peer);
        }
        for _ in 0..ACCEPT_BATCH {
            if self.pause.is_on() {
                return;
            }
            let Acceptor { listeners, turns, state, .. } = self;
            let accept = |listener: usize| net::accept(&listeners[listener], net::Mode::Blocking);
            match accept_within_limit(state, || turns.accept(listeners.len(), accept)) {
                Accepted::Connection(socket, peer) => self.hand_over(spawner, socket, peer),
                Accepted::Nothing => return,
                Accepted::PastLimit => self.pause(),
                Accepted::Failed(error) => {
                    self.totals.count_io_error(&error);
                    if Failure::of(&error).pauses() {
                        self.pause();
                    }
                }
            }
        }
    }

    fn hand_over(&mut self, spawner: &mut impl Spawner, socket: OwnedFd, peer: SocketAddr) {
        if let Err(SpawnError { socket, error }) = spawner.begin(socket, peer) {
            self.totals.count_error("spawn");
            self.state.notify_once(
                "spawn",
                &format!(
                    "accepting pauses, as no thread or process can be started: {error}; raise `ulimit -u`, \
                     kernel.pid_max or, for threads, vm.max_map_count"
                ),
            );
            self.in_hand = Some((socket, peer));
            self.pause();
        }
    }

    fn pause(&mut self) {
        self.pause.begin(Instant::now());
    }

    fn close(&mut self) {
        self.listeners.clear();
        if self.in_hand.take().is_some() {
            self.state.release();
        }
    }
}

fn place(descriptor: BorrowedFd<'_>) -> Place {
    Place::new(descriptor.as_raw_fd(), Interest::READ)
}
