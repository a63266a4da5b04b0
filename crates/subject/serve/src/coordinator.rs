//! The workers of a server with event loops: starts them, hands connections over where that is
//! asked for, adds tables, and ends them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use plimsoll_reactor::accept::Strategy;
use plimsoll_reactor::shutdown::{Shutdown, Step};
use plimsoll_reactor::worker_group::{Growth, LoopHandle, Phase, Requests, TableInit, WorkerGroup};
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::signal::{Signal, Signals};
use plimsoll_sys::{descriptor, net};

use crate::accept::ConnectionSource;
use crate::accept::handoff::Handoff;
use crate::config::Config;
use crate::state::ServerState;
use crate::totals::Totals;

/// Runs an event loop, and counts the descriptors that it leaves open in its thread's table.
fn counted(run: impl FnOnce() -> io::Result<Totals>) -> io::Result<Totals> {
    let before = descriptor::count_open();
    let mut totals = run()?;
    totals.leaked.descriptors += descriptor::count_open().saturating_sub(before) as u64;
    Ok(totals)
}

/// What workers are run with.
pub(crate) struct Coordinator<'a> {
    pub(crate) listeners: Vec<Vec<OwnedFd>>,
    pub(crate) growth: Growth,
    pub(crate) signals: &'a Signals,
    pub(crate) config: &'a Config,
    pub(crate) state: &'a ServerState,
}

impl Coordinator<'_> {
    /// Runs the workers, adding tables as connections need them.
    pub(crate) fn run(
        mut self,
        table: impl Fn(&LoopHandle, ConnectionSource<'_>) -> io::Result<Totals> + Send + Sync + 'static,
    ) -> io::Result<Totals> {
        let (accept, workers) = (self.config.accept, self.config.workers);
        let mut handoff = None;
        if accept == Strategy::Handoff {
            let (acceptor, ends) = Handoff::new(self.listeners.remove(0), workers)?;
            self.listeners = ends;
            handoff = Some(acceptor);
        }
        let source = Arc::new(std::mem::take(&mut self.listeners));
        let (shared, queues) = (Arc::clone(&source), handoff.as_ref().map(Handoff::queues));
        let mut needed = self.state.descriptors();
        needed.extend(source.iter().flatten().map(AsRawFd::as_raw_fd));
        let mut group = WorkerGroup::new(workers, self.growth, move |handle| {
            let worker = handle.worker();
            let source = match &queues {
                Some(queues) => ConnectionSource::Handed(&shared[worker], &queues[worker]),
                None if accept == Strategy::Exclusive => ConnectionSource::Shared(&shared[0]),
                None => ConnectionSource::Own(&shared[worker]),
            };
            (worker, counted(|| table(&handle, source)))
        })?
        .with_table_init(TableInit::Only(needed))
        .with_setup();
        for worker in 0..workers {
            group.add_table(worker)?;
        }
        let mut totals = Totals::default();
        let stop_listening = || match accept {
            Strategy::Handoff => {}
            _ => source.iter().flatten().for_each(net::stop_listening),
        };
        let outcome = self.attend(&mut group, handoff.as_mut(), stop_listening, &mut totals);
        if outcome.is_err() {
            // Connections are reset where the end of the process would look like the end of output.
            group.set_phase(Phase::Stop);
        }
        totals.connections_per_worker = vec![0; workers];
        let parts = group.join();
        if let Some(handoff) = handoff {
            handoff.finish(self.state);
        }
        outcome?;
        for (worker, part) in parts {
            let part = part?;
            totals.connections_per_worker[worker] += part.connections;
            totals.add(&part);
        }
        Ok(totals)
    }

    /// Does what the event loops and the signals ask for, until every loop has ended.
    fn attend(
        &self,
        group: &mut WorkerGroup<(usize, io::Result<Totals>)>,
        mut handoff: Option<&mut Handoff>,
        stop_listening: impl Fn(),
        totals: &mut Totals,
    ) -> io::Result<()> {
        let mut shutdown = Shutdown::new(self.config.drain);
        let mut is_short = false;
        while !group.is_finished() {
            let own = [self.signals.as_raw_fd(), group.request().as_fd().as_raw_fd()];
            let mut places: Vec<Place> = own.map(|descriptor| Place::new(descriptor, Interest::READ)).to_vec();
            let mut until = shutdown.until();
            if let Some(handoff) = handoff.as_ref().filter(|_| shutdown.is_running()) {
                places.extend(handoff.places());
                until = handoff.paused_until();
            }
            until = until.into_iter().chain(group.retry_at()).min();
            let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
            if let Some(error) = poll::wait_or_retry(&mut places, timeout)? {
                totals.count_io_error(&error);
            }
            let mut steps = Vec::new();
            while let Some(signal) = self.signals.next() {
                if matches!(signal, Signal::Interrupt | Signal::Terminate) {
                    steps.extend(shutdown.on_signal(Instant::now()));
                }
            }
            steps.extend(shutdown.on_time(Instant::now()));
            if shutdown.is_running() && group.any_finished() {
                // A loop that was not asked to stop ends only when it cannot go on.
                steps.extend(shutdown.stop());
            }
            for step in steps {
                if let Some(handoff) = &mut handoff {
                    // Before the workers look for what they were handed last.
                    totals.add(&handoff.close(self.state));
                }
                // In this order: a loop that finds its listener shut down knows why.
                group.set_phase(if step == Step::Drain { Phase::Drain } else { Phase::Stop });
                stop_listening();
            }
            // The request may have been raised since the wait: the return value says so.
            let Requests { raised, refused } = group.process_requests();
            if let Some(handoff) = handoff.as_mut().filter(|_| shutdown.is_running()) {
                if raised {
                    handoff.on_wake();
                }
                handoff.accept(self.state, group.request());
            } else if raised {
                // A place may be free that a loop waits for.
                group.wake();
            }
            // Once, however often it is tried again.
            let was_short = std::mem::replace(&mut is_short, refused.is_some());
            if let Some(error) = refused.filter(|_| !was_short) {
                totals.count_io_error(&error);
                self.state.notify_once(
                    "table",
                    &format!(
                        "accepting pauses, as no descriptor table can be added: {error}; raise `ulimit -n` or `ulimit \
                         -u`"
                    ),
                );
            }
        }
        Ok(())
    }
}
