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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use plimsoll_reactor::slab::{Key, Slab};
use plimsoll_sys::event::Event;
use plimsoll_sys::net;

use crate::acceptor::{SpawnError, Spawner};
use crate::driver::blocking;
use crate::driver::environment::Workspace;
use crate::service::Service;
use crate::state::ServerState;
use crate::totals::{Exchange, Totals};

/// The deepest a connection's thread gets is a handful of frames; buffers are on the heap.
const STACK_BYTES: usize = 128 * 1024;

/// What the connections' threads share with the one that accepts.
struct Shared {
    state: Arc<ServerState>,
    /// Each open connection's socket, so that the acceptor can end what a thread waits for.
    open: Mutex<Slab<Arc<OwnedFd>>>,
    totals: Mutex<Totals>,
    /// Whether all were ended at once: what their sockets say then is no fault of theirs.
    stopped: AtomicBool,
    /// Raised when a connection has ended.
    ended: Event,
}

pub(crate) struct Threads<P> {
    prototype: P,
    shared: Arc<Shared>,
}

impl<P: Service> Threads<P> {
    pub(crate) fn new(prototype: P, state: Arc<ServerState>) -> io::Result<Threads<P>> {
        let shared = Shared {
            state,
            open: Mutex::default(),
            totals: Mutex::default(),
            stopped: AtomicBool::new(false),
            ended: Event::new()?,
        };
        Ok(Threads { prototype, shared: Arc::new(shared) })
    }
}

impl<P: Service> Spawner for Threads<P> {
    fn begin(&mut self, socket: OwnedFd, peer: SocketAddr) -> Result<(), SpawnError> {
        let socket = Arc::new(socket);
        let key = lock(&self.shared.open).insert(Arc::clone(&socket));
        let (shared, service, held) = (Arc::clone(&self.shared), self.prototype.clone(), Arc::clone(&socket));
        let thread = thread::Builder::new().name("connection".to_owned()).stack_size(STACK_BYTES);
        let spawned = thread.spawn(move || {
            shared.state.opened(&mut lock(&shared.totals));
            let mut exchange = Exchange::default();
            let workspace = Workspace::new(shared.state.root(), service.is_timed());
            let serving = || blocking::serve(&*held, &service, workspace, &mut exchange);
            // A connection that panics must end like any other, or the server would wait for it for
            // ever.
            let outcome = panic::catch_unwind(AssertUnwindSafe(serving));
            shared.end(key, held, peer, &exchange, outcome);
        });
        spawned.map(drop).map_err(|error| {
            lock(&self.shared.open).remove(key);
            SpawnError { socket: Arc::into_inner(socket).expect("the thread that would share it was not made"), error }
        })
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
        self.shared.shut_down(net::Half::Read);
    }

    fn stop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.shared.shut_down(net::Half::Both);
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
        exchange: &Exchange,
        outcome: thread::Result<io::Result<()>>,
    ) {
        {
            let mut totals = lock(&self.totals);
            match outcome {
                Ok(Ok(())) => {}
                Ok(Err(_)) if self.stopped.load(Ordering::Relaxed) => {}
                Ok(Err(error)) => totals.count_io_error(&error),
                Err(_) => totals.count_error("panic"),
            }
            self.state.closed(peer, exchange, &mut totals);
        }
        // Counted and closed before the acceptor can see that it ended: its descriptor is free by
        // then.
        drop(socket);
        let mut open = lock(&self.open);
        drop(open.remove(key));
        drop(open);
        self.ended.raise();
    }

    fn shut_down(&self, half: net::Half) {
        let open = lock(&self.open);
        for key in open.keys() {
            net::shutdown(open.get(key).expect("its key was just listed").as_fd(), half);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked held no half-made change: every change here is one call.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    use super::*;
    use crate::service::{Next, Output, Outside, Turn};

    #[derive(Clone)]
    struct Panics;

    impl Service for Panics {
        fn is_timed(&self) -> bool {
            false
        }

        fn send_timeout(&self) -> Option<std::time::Duration> {
            None
        }

        fn opened(&mut self, _outside: &impl Outside) -> Option<Instant> {
            None
        }

        fn receive(&mut self, _input: &[u8], _outside: &mut impl Outside, _output: &mut Output) -> Turn {
            panic!("on purpose")
        }

        fn expired(&mut self, _partial: bool, _outside: &mut impl Outside, _output: &mut Output) -> Next {
            Next::Close
        }
    }

    #[test]
    fn a_connection_that_panics_ends_and_is_counted() {
        let state = Arc::new(ServerState::new(None, None, u64::MAX, Box::new(|_| {})));
        let mut threads = Threads::new(Panics, state).expect("an event");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut client = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        let (socket, peer) = listener.accept().expect("a connection");
        assert!(threads.begin(socket.into(), peer).is_ok(), "a thread can be made");
        client.write_all(b"x").expect("the thread reads");
        let deadline = Instant::now() + std::time::Duration::from_secs(60);
        while threads.open() > 0 {
            assert!(Instant::now() < deadline, "the connection does not end");
            thread::yield_now();
        }
        assert_eq!(threads.totals().errors.get("panic"), Some(&1));
    }
}
