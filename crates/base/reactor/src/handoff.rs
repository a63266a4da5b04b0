//! Connections handed from one acceptor to many workers: each to the one that has fewest.
//!
//! Workers have descriptor tables of their own, so a connection crosses as a message with its
//! descriptor (SCM_RIGHTS), which gets a new number in the receiving table. What is known of the
//! connection waits in the worker's queue meanwhile. Both are first in, first out, and one table of
//! a worker runs at a time, so they meet again.
//!
//! The rule: the acceptor never waits for a worker. A worker whose socket pair is full gets nothing
//! more. If all are full, the accepted connection waits until one has room, and further connections
//! wait in the listeners' queues. A full table takes no message, as it would lose the descriptor:
//! it reports that it is full, and another table of the worker takes the message.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_sys::poll::Place;
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::{descriptor, passing};

use crate::accept::Pause;

/// After this a connection is offered again for which the machine had no message: a pair that has
/// room does not report when there is one.
const RETRY: Duration = Duration::from_millis(10);

/// A worker's side: what is known of the connections on their way to it, in order, and how many it
/// has.
#[derive(Debug)]
pub struct HandoffQueue<T> {
    /// Those on their way included.
    load: AtomicU64,
    waiting: Mutex<VecDeque<T>>,
}

impl<T> HandoffQueue<T> {
    fn new() -> HandoffQueue<T> {
        HandoffQueue { load: AtomicU64::new(0), waiting: Mutex::default() }
    }

    /// Takes a connection that was handed over through `end`. `WouldBlock` where there is none.
    pub fn take(&self, end: impl AsFd) -> io::Result<(OwnedFd, T)> {
        descriptor::check_room(&end)?;
        let mut descriptors = Vec::with_capacity(1);
        match passing::receive(&end, &mut [0], &mut descriptors) {
            Ok(1..) => {}
            // The acceptor has gone, and with it whatever could come.
            Ok(0) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => {
                if descriptor::is_full_table(&error) {
                    // The message is gone, and the connection with it.
                    self.waiting().pop_front();
                    self.left();
                }
                return Err(error);
            }
        }
        let known = self.waiting().pop_front();
        descriptors.pop().zip(known).ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// One of the worker's connections is over.
    pub fn left(&self) {
        self.load.fetch_sub(1, Ordering::Relaxed);
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<T>> {
        // Nothing panics while it is held.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The acceptor's side.
#[derive(Debug)]
pub struct Dispatcher<T> {
    /// By worker.
    ends: Vec<OwnedFd>,
    queues: Arc<[HandoffQueue<T>]>,
    in_hand: Option<(OwnedFd, T)>,
    pause: Pause,
}

impl<T> Dispatcher<T> {
    /// A dispatcher for so many workers, and by worker the end at which its connections arrive.
    pub fn new(workers: usize) -> io::Result<(Dispatcher<T>, Vec<OwnedFd>)> {
        let pairs = (0..workers).map(|_| passing::pair()).collect::<io::Result<Vec<_>>>()?;
        let (ends, taken) = pairs.into_iter().unzip();
        let queues = (0..workers).map(|_| HandoffQueue::new()).collect();
        Ok((Dispatcher { ends, queues, in_hand: None, pause: Pause::default() }, taken))
    }

    /// The workers' side, by worker.
    pub fn queues(&self) -> Arc<[HandoffQueue<T>]> {
        Arc::clone(&self.queues)
    }

    /// How many connections the workers have, those on their way included.
    pub fn load(&self) -> u64 {
        let handed: u64 = self.queues.iter().map(|queue| queue.load.load(Ordering::Relaxed)).sum();
        handed + u64::from(self.in_hand.is_some())
    }

    /// How many connections were handed over that no worker has taken.
    pub fn unclaimed(&self) -> usize {
        self.queues.iter().map(|queue| queue.waiting().len()).sum()
    }

    /// What to wait for, but for a pause: what connections come from, or where one is in hand, a
    /// worker that can take it.
    pub fn places(&self, listeners: impl IntoIterator<Item = RawFd>) -> Vec<Place> {
        let place = |interest| move |descriptor| Place::new(descriptor, interest);
        match (&self.in_hand, self.pause.until()) {
            (_, Some(_)) => Vec::new(),
            (Some(_), None) => self.ends.iter().map(AsRawFd::as_raw_fd).map(place(Interest::WRITE)).collect(),
            (None, None) => listeners.into_iter().map(place(Interest::READ)).collect(),
        }
    }

    /// Until when nothing is accepted, if it is not.
    pub fn paused_until(&self) -> Option<Instant> {
        self.pause.until()
    }

    /// Whether another connection may be accepted: no pause, and none that still waits for a
    /// worker. What is in hand is offered again first; an error is its end.
    pub fn is_free(&mut self, now: Instant) -> io::Result<bool> {
        if self.pause.is_on() && !self.pause.ends(now) {
            return Ok(false);
        }
        if let Some((socket, known)) = self.in_hand.take() {
            self.dispatch(socket, known, now)?;
        }
        Ok(self.in_hand.is_none())
    }

    /// Hands a connection, and what is known of it, to the worker with the fewest that takes it;
    /// where none does it stays in hand. An error is its end.
    pub fn dispatch(&mut self, socket: OwnedFd, mut known: T, now: Instant) -> io::Result<()> {
        let (mut refused, mut is_short) = (0_u64, false);
        let load = |worker: &usize| self.queues[*worker].load.load(Ordering::Relaxed);
        // A bit a worker that has refused: past 64 of them, those are not asked after the first
        // has.
        while let Some(worker) =
            (0..self.ends.len()).filter(|worker| refused >> worker.min(&63) & 1 == 0).min_by_key(load)
        {
            let queue = &self.queues[worker];
            // Before the message, so that who takes that finds this.
            queue.waiting().push_back(known);
            let Err(error) = passing::send(&self.ends[worker], &[0], &[socket.as_fd()]) else {
                queue.load.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            };
            // Only the dispatcher adds, so the last is the one that it has just added.
            let Some(taken_back) = queue.waiting().pop_back() else { return Err(error) };
            known = taken_back;
            if !is_full(&error) {
                return Err(error);
            }
            is_short |= error.kind() != io::ErrorKind::WouldBlock;
            refused |= 1 << worker.min(63);
        }
        self.in_hand = Some((socket, known));
        if is_short {
            self.pause.begin_for(RETRY, now);
        }
        Ok(())
    }

    /// Accepts nothing for a moment.
    pub fn pause(&mut self, now: Instant) {
        self.pause.begin(now);
    }

    /// What was short may be free again: a pause, if there is one, is over.
    pub fn resume(&mut self, now: Instant) {
        self.pause.end_soon(now);
    }

    /// Closes the connection in hand, and returns whether there was one.
    pub fn discard_pending(&mut self) -> bool {
        self.in_hand.take().is_some()
    }
}

/// The pair is full, or the user has as many descriptors on their way as it may (unix(7),
/// ETOOMANYREFS).
fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || descriptor::is_exhaustion(error)
        || descriptor::is_too_many_passed(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interleavings::interleavings;
    use std::os::unix::net::UnixStream;

    #[test]
    fn connections_are_counted_and_come_in_order_however_handing_over_taking_and_ending_alternate() {
        // Four are handed over; the worker takes what there is four times, and ends one twice.
        for order in interleavings(&[4, 4, 2]) {
            let (mut dispatcher, ends) = Dispatcher::<u64>::new(1).expect("a pair");
            let queues = dispatcher.queues();
            let (mut handed, mut taken, mut ended) = (0, Vec::new(), 0);
            for party in &order {
                match party {
                    0 => {
                        let (_, far) = UnixStream::pair().expect("a pair of sockets");
                        dispatcher.dispatch(far.into(), handed, Instant::now()).expect("the pair is whole");
                        handed += 1;
                    }
                    1 => taken.extend(queues[0].take(&ends[0]).ok().map(|(_, number)| number)),
                    _ if ended < taken.len() as u64 => {
                        queues[0].left();
                        ended += 1;
                    }
                    _ => {}
                }
                assert_eq!(dispatcher.load(), handed - ended, "{order:?}");
                assert_eq!(dispatcher.unclaimed() as u64, handed - taken.len() as u64, "{order:?}");
            }
            assert!(taken.iter().copied().eq(0..taken.len() as u64), "{order:?}: {taken:?}");
        }
    }

    /// Whether each place is ready now.
    fn are_ready(mut places: Vec<Place>) -> Vec<[bool; 2]> {
        plimsoll_sys::poll::wait(&mut places, Some(Duration::ZERO)).expect("the places are open");
        places.iter().map(|place| [place.readable(), place.writable()]).collect()
    }

    #[test]
    fn it_waits_for_connections_or_for_a_worker_and_in_a_pause_for_neither() {
        let (mut dispatcher, ends) = Dispatcher::<u64>::new(1).expect("a pair");
        let (listener, connecting) = UnixStream::pair().expect("a pair of sockets");
        let listeners = [listener.as_raw_fd()];
        let now = Instant::now();
        assert_eq!(are_ready(dispatcher.places(listeners)), [[false, false]], "no connection waits");
        plimsoll_sys::net::write(&connecting, b"x").expect("there is room");
        assert_eq!(are_ready(dispatcher.places(listeners)), [[true, false]]);

        dispatcher.pause(now);
        let until = dispatcher.paused_until().expect("it pauses");
        assert!(until > now && dispatcher.places(listeners).is_empty());
        assert!(!dispatcher.is_free(now).expect("no pair is broken"));
        dispatcher.resume(now);
        assert!(dispatcher.is_free(now).expect("no pair is broken"));
        assert_eq!(dispatcher.paused_until(), None);
        assert!(!dispatcher.discard_pending(), "none is in hand");

        let mut handed = 0;
        while dispatcher.is_free(now).expect("no pair is broken") {
            let (_, far) = UnixStream::pair().expect("a pair of sockets");
            dispatcher.dispatch(far.into(), handed, now).expect("the pair is whole");
            handed += 1;
        }
        assert_eq!((dispatcher.load(), dispatcher.unclaimed() as u64), (handed, handed - 1), "one is in hand");
        assert_eq!(are_ready(dispatcher.places(listeners)), [[false, false]], "the worker has no room");
        while dispatcher.queues()[0].take(&ends[0]).is_ok() {}
        assert_eq!(are_ready(dispatcher.places(listeners)), [[false, true]]);
        assert!(dispatcher.discard_pending());
        assert_eq!(dispatcher.load(), handed - 1);
    }

    #[test]
    fn a_worker_is_full_where_its_pair_or_the_machine_has_no_room_and_else_broken() {
        // EAGAIN, ETOOMANYREFS, EMFILE, ENFILE, ENOBUFS, ENOMEM; EPIPE, ECONNRESET
        for (number, full) in
            [(11, true), (109, true), (24, true), (23, true), (105, true), (12, true), (32, false), (104, false)]
        {
            assert_eq!(is_full(&io::Error::from_raw_os_error(number)), full, "{number}");
        }
        let (mut dispatcher, ends) = Dispatcher::<u64>::new(1).expect("a pair");
        drop(ends);
        let (_, far) = UnixStream::pair().expect("a pair of sockets");
        dispatcher.dispatch(far.into(), 0, Instant::now()).expect_err("the worker has gone");
        assert_eq!((dispatcher.load(), dispatcher.unclaimed()), (0, 0));
    }

    #[test]
    fn every_connection_arrives_whole_and_in_order_at_the_least_loaded_and_a_full_worker_blocks_nobody() {
        const COUNT: usize = 700;
        let (mut dispatcher, ends) = Dispatcher::<usize>::new(2).expect("two pairs");
        let queues = dispatcher.queues();
        let mut theirs = Vec::new();
        let (mut seen, mut in_hand) = ([Vec::new(), Vec::new()], false);
        let take_all = |seen: &mut [Vec<usize>; 2]| {
            for (worker, end) in ends.iter().enumerate() {
                while let Ok((socket, number)) = queues[worker].take(end) {
                    plimsoll_sys::net::write(&socket, &number.to_ne_bytes()).expect("there is room");
                    seen[worker].push(number);
                }
            }
        };
        for number in 0..COUNT {
            let (near, far) = UnixStream::pair().expect("a pair of sockets");
            theirs.push(near);
            if !dispatcher.is_free(Instant::now()).expect("no pair is broken") {
                in_hand = true;
                let loads: Vec<u64> = queues.iter().map(|queue| queue.load.load(Ordering::Relaxed)).collect();
                assert!(loads[0].abs_diff(loads[1]) <= 1 && loads[0] > 10, "{loads:?}");
                take_all(&mut seen);
                assert!(dispatcher.is_free(Instant::now()).expect("no pair is broken"), "somebody has room again");
            }
            dispatcher.dispatch(far.into(), number, Instant::now()).expect("no pair is broken");
        }
        assert!(in_hand, "a bound that {COUNT} connections do not reach");
        take_all(&mut seen);
        assert!(dispatcher.is_free(Instant::now()).expect("no pair is broken"));
        take_all(&mut seen);
        assert!(seen.iter().all(|order| order.is_sorted()));
        assert_eq!(seen[0].len() + seen[1].len(), COUNT);
        for (number, mut near) in theirs.into_iter().enumerate() {
            let mut told = [0; size_of::<usize>()];
            std::io::Read::read_exact(&mut near, &mut told).expect("it was taken");
            assert_eq!(usize::from_ne_bytes(told), number, "what was known came with its connection");
        }
    }
}
