//! A thread a connection: each waits for its own socket, and the kernel's scheduler does the rest.
//!
//! The rule: the simplest code there is, a loop of read and write. It costs a stack and a kernel thread a connection, and a switch between
//! threads a request.
//!
//! The classic mistakes are to leave stacks at their default size (8 MiB of address space each; here 128 KiB, of which only the touched pages are memory), and to
//! have no answer when a thread cannot be made: here the connection in hand waits, accepting pauses, and both go on when one ends.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use plimsoll_reactor::slab::{Key, Slab};
use plimsoll_sys::event::Event;
use plimsoll_sys::net;

use crate::acceptor::{NotBegun, Staff};
use crate::driver::blocking;
use crate::driver::surroundings::Desk;
use crate::ledger::Ledger;
use crate::service::Service;
use crate::totals::{Exchange, Totals};

/// The deepest a connection's thread gets is a handful of frames; buffers are on the heap.
const STACK_BYTES: usize = 128 * 1024;

/// What the connections' threads share with the one that accepts.
struct Shared {
    ledger: Arc<Ledger>,
    /// Each open connection's socket, so that the acceptor can end what a thread waits for.
    open: Mutex<Slab<Arc<OwnedFd>>>,
    totals: Mutex<Totals>,
    /// Raised when a connection has ended.
    ended: Event,
}

pub(crate) struct Threads<P> {
    prototype: P,
    shared: Arc<Shared>,
}

impl<P: Service> Threads<P> {
    pub(crate) fn new(prototype: P, ledger: Arc<Ledger>) -> io::Result<Threads<P>> {
        let shared = Shared { ledger, open: Mutex::default(), totals: Mutex::default(), ended: Event::new()? };
        Ok(Threads { prototype, shared: Arc::new(shared) })
    }
}

impl<P: Service> Staff for Threads<P> {
    fn begin(&mut self, socket: OwnedFd, peer: SocketAddr) -> Result<(), NotBegun> {
        let socket = Arc::new(socket);
        let key = lock(&self.shared.open).insert(Arc::clone(&socket));
        let (shared, service, held) = (Arc::clone(&self.shared), self.prototype.clone(), Arc::clone(&socket));
        let thread = thread::Builder::new().name("connection".to_owned()).stack_size(STACK_BYTES);
        let spawned = thread.spawn(move || {
            shared.ledger.opened(&mut lock(&shared.totals));
            let mut exchange = Exchange::default();
            let desk = Desk::new(shared.ledger.root(), service.is_timed());
            let outcome = blocking::serve(&*held, &service, desk, &mut exchange);
            shared.end(key, held, peer, &exchange, outcome);
        });
        spawned.map(drop).map_err(|error| {
            lock(&self.shared.open).remove(key);
            NotBegun { socket: Arc::into_inner(socket).expect("the thread that would share it was not made"), error }
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
        self.shared.shut_down(net::Half::Both);
    }

    fn totals(self) -> Totals {
        std::mem::take(&mut lock(&self.shared.totals))
    }
}

impl Shared {
    fn end(&self, key: Key, socket: Arc<OwnedFd>, peer: SocketAddr, exchange: &Exchange, outcome: io::Result<()>) {
        {
            let mut totals = lock(&self.totals);
            if let Err(error) = outcome {
                totals.count_io_error(&error);
            }
            self.ledger.closed(peer, exchange, &mut totals);
        }
        // Counted before the acceptor can see that it ended, and closed before that is said, so that its descriptor is free.
        let listed = lock(&self.open).remove(key);
        drop((listed, socket));
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
