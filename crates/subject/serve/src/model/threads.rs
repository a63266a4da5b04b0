//! A thread a connection: each waits for its own socket, and the kernel's scheduler does the rest.
//!
//! The rule: the simplest code there is, a loop of read and write. It costs a stack and a kernel
//! thread a connection, and a switch between threads a request.
//!
//! The classic mistakes are to leave stacks at their default size (8 MiB of address space each;
//! here 128 KiB, of which only the touched pages are memory), and to have no answer when a thread
//! cannot be made: here the connection in hand waits, accepting pauses, and both go on when one
//! ends.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use plimsoll_reactor::slab::{Key, Slab};
use plimsoll_reactor::worker_group::Phase;
use plimsoll_sys::event::Event;
use plimsoll_sys::{net, process, signal};

use crate::acceptor::{SpawnError, Spawner};
use crate::driver::blocking;
use crate::driver::environment::Workspace;
use crate::service::Service;
use crate::state::ServerState;
use crate::totals::{ConnectionTotals, Totals};

/// The deepest a connection's thread gets is a handful of frames; buffers are on the heap.
const STACK_BYTES: usize = 128 * 1024;

/// What the connections' threads share with the acceptor.
struct Shared {
    state: Arc<ServerState>,
    /// The open connections, so that the acceptor can end what their threads wait for.
    open: Mutex<Slab<Open>>,
    totals: Mutex<Totals>,
    /// A [`Phase`].
    phase: AtomicU8,
    /// Raised when a connection has ended.
    ended: Event,
}

struct Open {
    socket: Arc<OwnedFd>,
    /// Once it is known.
    thread: Option<JoinHandle<()>>,
}

pub(crate) struct Threads<P> {
    prototype: P,
    shared: Arc<Shared>,
    /// How many threads there may be at once.
    room: usize,
}

impl<P: Service> Threads<P> {
    pub(crate) fn new(prototype: P, state: Arc<ServerState>) -> io::Result<Threads<P>> {
        signal::make_interruptible()?;
        let shared = Shared {
            state,
            open: Mutex::default(),
            totals: Mutex::default(),
            phase: AtomicU8::new(Phase::Run as u8),
            ended: Event::new()?,
        };
        let room = process::make_room_for_threads().unwrap_or(usize::MAX);
        Ok(Threads { prototype, shared: Arc::new(shared), room })
    }
}

impl<P: Service> Spawner for Threads<P> {
    fn begin(&mut self, socket: OwnedFd, peer: SocketAddr) -> Result<(), SpawnError> {
        if self.open() >= self.room {
            let error = io::Error::other(format!("{} threads have all memory mappings", self.room));
            return Err(SpawnError { socket, error });
        }
        let socket = Arc::new(socket);
        let key = lock(&self.shared.open).insert(Open { socket: Arc::clone(&socket), thread: None });
        let (shared, service, held) = (Arc::clone(&self.shared), self.prototype.clone(), Arc::clone(&socket));
        let thread = thread::Builder::new().name("connection".to_owned()).stack_size(STACK_BYTES);
        let spawned = thread.spawn(move || {
            shared.state.opened(&mut lock(&shared.totals));
            let mut counts = ConnectionTotals::default();
            let workspace = Workspace::new(shared.state.root(), service.is_timed());
            let serving = || blocking::serve(&*held, &service, workspace, || shared.phase(), &mut counts);
            // A connection that panics must end like any other, or the server would wait for it for
            // ever.
            let outcome = panic::catch_unwind(AssertUnwindSafe(serving));
            shared.end(key, held, peer, &counts, outcome);
        });
        match spawned {
            Ok(thread) => {
                // Its connection may have ended already.
                if let Some(open) = lock(&self.shared.open).get_mut(key) {
                    open.thread = Some(thread);
                }
                Ok(())
            }
            Err(error) => {
                lock(&self.shared.open).remove(key);
                let socket = Arc::into_inner(socket).expect("the thread that would share it was not made");
                Err(SpawnError { socket, error })
            }
        }
    }

    fn ended(&self) -> BorrowedFd<'_> {
        self.shared.ended.as_fd()
    }

    fn collect(&mut self) -> io::Result<()> {
        self.shared.ended.lower();
        Ok(())
    }

    fn open(&self) -> usize {
        lock(&self.shared.open).len()
    }

    fn drain(&mut self) {
        self.shared.enter(Phase::Drain, net::Half::Read);
    }

    fn stop(&mut self) {
        self.shared.enter(Phase::Stop, net::Half::Both);
    }

    fn totals(self) -> Totals {
        // A thread that has said that it ended lets go of what it shares a few instructions later:
        // its last act, and the event is a descriptor.
        while Arc::strong_count(&self.shared) > 1 {
            thread::yield_now();
        }
        std::mem::take(&mut lock(&self.shared.totals))
    }
}

impl Shared {
    fn end(
        &self,
        key: Key,
        socket: Arc<OwnedFd>,
        peer: SocketAddr,
        counts: &ConnectionTotals,
        outcome: thread::Result<io::Result<()>>,
    ) {
        {
            let mut totals = lock(&self.totals);
            match outcome {
                Ok(Ok(())) => {}
                // An error of a connection that was ended at once is the end's doing.
                Ok(Err(_)) if self.phase() == Phase::Stop => {}
                Ok(Err(error)) => totals.count_io_error(&error),
                Err(_) => totals.count_error("panic"),
            }
            self.state.closed(peer, counts, &mut totals);
        }
        // Counted and closed before the acceptor can see that it ended: its descriptor is free by
        // then.
        drop(socket);
        let mut open = lock(&self.open);
        drop(open.remove(key));
        drop(open);
        self.ended.raise();
    }

    fn phase(&self) -> Phase {
        Phase::from_number(self.phase.load(Ordering::SeqCst))
    }

    /// Has every thread learn of the server's end, by ending what it waits for.
    fn enter(&self, phase: Phase, half: net::Half) {
        self.phase.store(phase as u8, Ordering::SeqCst);
        let open = lock(&self.open);
        for key in open.keys() {
            let Open { socket, thread } = open.get(key).expect("its key was just listed");
            net::end_waits(socket, half);
            if let Some(thread) = thread {
                signal::interrupt(thread);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked held no half-made change: every change here is one call.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::service::{NextStep, Output, Processed, ServiceContext};

    /// A fault ends a test then, and a machine that is busy with something else does not.
    const PATIENCE: Duration = Duration::from_secs(300);

    #[derive(Clone)]
    struct Panics;

    impl Service for Panics {
        fn is_timed(&self) -> bool {
            false
        }

        fn send_timeout(&self) -> Option<Duration> {
            None
        }

        fn opened(&mut self, _context: &impl ServiceContext) -> Option<Instant> {
            None
        }

        fn receive(&mut self, _input: &[u8], _context: &mut impl ServiceContext, _output: &mut Output) -> Processed {
            panic!("on purpose")
        }

        fn expired(&mut self, _partial: bool, _context: &mut impl ServiceContext, _output: &mut Output) -> NextStep {
            NextStep::Close
        }
    }

    fn threads() -> Threads<Panics> {
        let state = Arc::new(ServerState::new(None, None, u64::MAX, Box::new(|_| {})));
        Threads::new(Panics, state).expect("an event")
    }

    fn connection() -> (TcpStream, OwnedFd, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        client.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let (socket, peer) = listener.accept().expect("a connection");
        (client, socket.into(), peer)
    }

    #[test]
    fn a_connection_waits_where_there_is_no_room_for_its_thread() {
        let mut threads = Threads { room: 1, ..threads() };
        let [(first, socket, peer), (_second, waiting, other)] = [connection(), connection()];
        assert!(threads.begin(socket, peer).is_ok(), "there is room for one");
        let SpawnError { socket, error } = threads.begin(waiting, other).expect_err("there is room for no other");
        assert_eq!(error.to_string(), "1 threads have all memory mappings");
        drop(first);
        let deadline = Instant::now() + PATIENCE;
        while threads.open() > 0 {
            assert!(Instant::now() < deadline, "the first does not end");
            thread::yield_now();
        }
        assert!(threads.begin(socket, other).is_ok(), "there is room again");
    }

    #[test]
    fn a_connection_that_panics_ends_and_is_counted() {
        let mut threads = threads();
        let (mut client, socket, peer) = connection();
        assert!(threads.begin(socket, peer).is_ok(), "a thread can be made");
        client.write_all(b"x").expect("the thread reads");
        let deadline = Instant::now() + PATIENCE;
        while threads.open() > 0 {
            assert!(Instant::now() < deadline, "the connection does not end");
            thread::yield_now();
        }
        assert_eq!(threads.totals().errors.get("panic"), Some(&1));
        let error = client.read(&mut [0]).expect_err("an end of the stream would say that all was sent");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
