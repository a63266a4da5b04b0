//! The threads engine: a thread for each connection, as the reports' clients have it. For
//! comparison and for fidelity, not for scale.
//!
//! A thread waits for its one socket with poll(2), so that it reads while it writes (a large echo
//! would deadlock otherwise) and is on time for the window's end. It keeps its own counts; nothing
//! is shared on the way of a request.

mod client;
mod connecting;
mod pace;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use plimsoll_reactor::worker_group::Phase;
use plimsoll_sys::{clock, process};

use crate::protocol::Protocol;
use crate::shared::{Shared, Team, ThreadResult, pin};
use client::Client;

/// Bytes of stack that a thread may come to use. Its buffer is on the heap; a TLS handshake has
/// deep frames. What is never touched costs address space only.
pub const STACK_BYTES: usize = 256 * 1024;
const READ_BYTES: usize = 16 * 1024;
/// How often a waiting thread checks whether the run is to stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The threads of a run.
pub(crate) struct Threads<P: Protocol> {
    shared: Arc<Shared<P>>,
    /// A [`Phase`].
    phase: Arc<AtomicU8>,
    members: Vec<JoinHandle<ThreadResult>>,
}

/// What a connection takes in memory: what its thread keeps, and the buffer that it reads into.
pub(crate) fn bytes_each<P: Protocol>() -> u64 {
    (size_of::<Client<'static, P>>() + READ_BYTES) as u64
}

impl<P: Protocol> Threads<P> {
    /// Starts a thread for each connection; they wait for the start. Fails where the machine has no
    /// room for so many.
    pub(crate) fn start(shared: &Arc<Shared<P>>) -> io::Result<Threads<P>> {
        let phase = Arc::new(AtomicU8::new(Phase::Run as u8));
        let mut threads = Threads { shared: Arc::clone(shared), phase, members: Vec::new() };
        if let Some(room) = process::make_room_for_threads().filter(|room| shared.config.connections > *room) {
            return Err(io::Error::other(format!(
                "there are memory mappings for {room} threads; raise vm.max_map_count, or use --engine epoll"
            )));
        }
        for number in 0..shared.config.connections {
            let (own, phase) = (Arc::clone(shared), Arc::clone(&threads.phase));
            let builder = thread::Builder::new().name(format!("connection {number}")).stack_size(STACK_BYTES);
            let spawned = builder.spawn(move || {
                // Where it is refused, what it costs is counted as the generator's own lag.
                let _ = clock::sharpen_timers();
                // Which CPUs there are was checked before the run.
                let _ = pin(&own.config, number);
                let result = Client::new(&own, &phase, number).live();
                own.control.news.raise();
                result
            });
            match spawned {
                Ok(member) => threads.members.push(member),
                Err(error) => {
                    threads.set_phase(Phase::Stop);
                    return Err(error);
                }
            }
        }
        Ok(threads)
    }

    pub(crate) fn join(self) -> Vec<ThreadResult> {
        let join =
            |member: JoinHandle<ThreadResult>| member.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause));
        self.members.into_iter().map(join).collect()
    }
}

impl<P: Protocol> Team for Threads<P> {
    fn wake(&self) {
        for member in &self.members {
            member.thread().unpark();
        }
    }

    fn is_finished(&self) -> bool {
        self.members.iter().all(JoinHandle::is_finished)
    }

    fn set_phase(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
        self.wake();
    }

    fn request(&self) -> &plimsoll_sys::event::Event {
        &self.shared.control.news
    }
}
