//! How many connections are open in a whole server, were at most, and may be.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use plimsoll_sys::event::Event;

/// A limit that all event loops of a server share. A place is taken before a connection is
/// accepted, so that several loops together never pass the limit. A loop that finds none is woken
/// when another loop gives one back.
#[derive(Debug)]
pub struct ConnectionLimit {
    /// Taken by connections, and by accepts that may bring one.
    places: AtomicU64,
    most: AtomicU64,
    open: AtomicU64,
    peak: AtomicU64,
    /// Raised when a place is free. Their owners close them, in their own descriptor tables.
    awaiting: Mutex<Vec<Weak<Event>>>,
    is_awaited: AtomicBool,
}

impl ConnectionLimit {
    /// At most so many at a time; `u64::MAX` for any number.
    pub fn new(most: u64) -> ConnectionLimit {
        ConnectionLimit {
            places: AtomicU64::new(0),
            most: AtomicU64::new(most),
            open: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            awaiting: Mutex::default(),
            is_awaited: AtomicBool::new(false),
        }
    }

    /// Changes the limit. Connections past a lower one stay.
    pub fn set_most(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// How many there may be.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Whether there is a limit that accepting has to mind.
    pub fn is_limited(&self) -> bool {
        self.most.load(Ordering::Relaxed) < u64::MAX
    }

    /// Takes a place, if there is one.
    pub fn acquire(&self) -> bool {
        self.acquire_if(|_| true)
    }

    /// Takes a place, if there is one and `allows` agrees: it is asked with the number of places
    /// that are left. Several loops together are refused as one would be.
    pub fn acquire_if(&self, mut allows: impl FnMut(u64) -> bool) -> bool {
        let most = self.most();
        let take = |places: u64| (places < most && allows(most - places)).then_some(places + 1);
        self.places.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
    }

    /// Takes a place even where there is none: the connection is there already.
    pub fn force(&self) {
        self.places.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives back a place that no connection has.
    pub fn release(&self) {
        self.places.fetch_sub(1, Ordering::SeqCst);
        if self.is_awaited.load(Ordering::SeqCst) {
            self.wake_all();
        }
    }

    /// Raises `wake` once, as soon as a place is free. The loop that gives a place back raises it,
    /// so its descriptor has to be in the tables of all.
    pub fn await_place(&self, wake: &Arc<Event>) {
        self.await_release(wake);
        if self.places.load(Ordering::SeqCst) < self.most() {
            self.wake_all();
        }
    }

    /// Raises `wake` once, with the next place that is given back, whether there are others or not.
    /// A place may have been given back just before, so the caller looks once more after this.
    pub fn await_release(&self, wake: &Arc<Event>) {
        {
            let mut awaiting = self.awaiting.lock().unwrap_or_else(PoisonError::into_inner);
            let wake = Arc::downgrade(wake);
            if !awaiting.iter().any(|other| other.ptr_eq(&wake)) {
                awaiting.push(wake);
            }
        }
        // A place that was given back before this is found by the next look. A later one raises
        // `wake`.
        self.is_awaited.store(true, Ordering::SeqCst);
    }

    fn wake_all(&self) {
        let mut awaiting = self.awaiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_awaited.store(false, Ordering::SeqCst);
        awaiting.drain(..).filter_map(|wake| wake.upgrade()).for_each(|wake| wake.raise());
    }

    /// A connection has taken its place.
    pub fn opened(&self) {
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        self.peak.fetch_max(open, Ordering::Relaxed);
    }

    /// A connection has left its place.
    pub fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.release();
    }

    /// How many connections are open.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// How many were open at one moment, at most.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Places that are taken. Once nothing is open any more, each was never given back.
    pub fn taken(&self) -> u64 {
        self.places.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};
    use std::thread;
    use std::time::Duration;

    use plimsoll_sys::poll;
    use plimsoll_sys::readiness::Interest;

    use super::*;
    use crate::interleavings::interleavings;

    /// A loop that wants one place, and waits where it finds none.
    struct Waiter {
        wake: Arc<Event>,
        /// What it has done: looked, asked to be woken, looked once more.
        steps: usize,
        has_place: bool,
    }

    impl Waiter {
        fn step(&mut self, limit: &ConnectionLimit) {
            match (self.has_place, self.steps % 3) {
                (true, _) => {}
                (false, 1) => limit.await_release(&self.wake),
                (false, _) => self.has_place = limit.acquire(),
            }
            self.steps += 1;
        }
    }

    #[test]
    fn nobody_waits_beside_a_free_place_in_whatever_order_loops_wait_and_places_are_given_back() {
        // Two loops that take three steps each, and two places that are given back.
        for order in interleavings(&[3, 3, 2]) {
            let limit = ConnectionLimit::new(2);
            assert!(limit.acquire() && limit.acquire());
            let mut waiters =
                [0; 2].map(|_| Waiter { wake: Arc::new(Event::new().expect("an event")), steps: 0, has_place: false });
            for party in &order {
                match waiters.get_mut(*party) {
                    Some(waiter) => waiter.step(&limit),
                    None => limit.release(),
                }
            }
            // Who has no place by now sleeps until it is woken.
            for waiter in &mut waiters {
                while !waiter.has_place && waiter.wake.lower() {
                    (0..3).for_each(|_| waiter.step(&limit));
                }
                assert!(waiter.has_place, "{order:?}: it sleeps beside a free place");
            }
            assert_eq!(limit.taken(), 2, "{order:?}");
        }
    }

    #[test]
    fn several_loops_together_never_pass_the_limit_and_give_every_place_back() {
        let (limit, passed) = (ConnectionLimit::new(3), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        if limit.acquire() {
                            limit.opened();
                            passed.fetch_or(limit.open() > 3, Ordering::Relaxed);
                            limit.closed();
                        }
                    }
                });
            }
        });
        assert!(!passed.into_inner());
        assert!((1..=3).contains(&limit.peak()));
        assert_eq!((limit.open(), limit.taken()), (0, 0));
    }

    #[test]
    fn what_is_open_is_counted_and_so_is_the_most_that_was() {
        let limit = ConnectionLimit::new(u64::MAX);
        for open in 1..=3 {
            assert!(limit.acquire());
            limit.opened();
            assert_eq!((limit.open(), limit.peak(), limit.taken()), (open, open, open));
        }
        limit.closed();
        limit.closed();
        assert_eq!((limit.open(), limit.peak(), limit.taken()), (1, 3, 1));
    }

    #[test]
    fn a_place_is_taken_only_where_the_caller_agrees_to_what_is_left() {
        let limit = ConnectionLimit::new(3);
        let mut asked = Vec::new();
        while limit.acquire_if(|left| {
            asked.push(left);
            left > 1
        }) {}
        assert_eq!((asked, limit.taken()), (vec![3, 2, 1], 2));
        assert!(limit.acquire() && !limit.acquire_if(|_| true), "there is none");
    }

    #[test]
    fn whoever_finds_no_place_is_woken_once_by_the_next_that_is_given_back() {
        let (limit, wakes) = (ConnectionLimit::new(1), [0; 2].map(|_| Arc::new(Event::new().expect("an event"))));
        let raised = |wake: &Arc<Event>| {
            let mut place = [poll::Place::new(wake.as_fd().as_raw_fd(), Interest::READ)];
            poll::wait(&mut place, Some(Duration::ZERO)).expect("a wait");
            wake.lower();
            place[0].readable()
        };
        assert!(limit.acquire() && !limit.acquire());
        wakes.iter().chain(&wakes).for_each(|wake| limit.await_place(wake));
        assert_eq!([raised(&wakes[0]), raised(&wakes[1])], [false; 2]);
        limit.release();
        assert_eq!([raised(&wakes[0]), raised(&wakes[1])], [true; 2]);
        assert!(limit.acquire());
        limit.release();
        assert_eq!([raised(&wakes[0]), raised(&wakes[1])], [false; 2], "neither waits any more");
        limit.await_place(&wakes[0]);
        assert!(raised(&wakes[0]), "one was given back before it waited");
    }

    #[test]
    fn whoever_is_refused_the_places_that_are_left_is_woken_by_the_next_that_is_given_back() {
        let (limit, wake) = (ConnectionLimit::new(3), Arc::new(Event::new().expect("an event")));
        assert!(limit.acquire() && !limit.acquire_if(|left| left > 2));
        limit.await_release(&wake);
        assert!(!wake.lower(), "nothing was given back yet");
        limit.release();
        assert!(wake.lower() && limit.acquire_if(|left| left > 2));
        limit.release();
        assert!(!wake.lower(), "it waits no more");
    }

    #[test]
    fn nobody_misses_a_place_however_waits_and_ends_follow_each_other() {
        let limit = ConnectionLimit::new(1);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let wake = Arc::new(Event::new().expect("an event"));
                    for _ in 0..2_000 {
                        while !limit.acquire() {
                            limit.await_place(&wake);
                            let mut place = [poll::Place::new(wake.as_fd().as_raw_fd(), Interest::READ)];
                            poll::wait(&mut place, Some(Duration::from_secs(60))).expect("a wait");
                            assert!(place[0].readable(), "it is not woken");
                            wake.lower();
                        }
                        limit.opened();
                        limit.closed();
                    }
                });
            }
        });
        assert_eq!(limit.taken(), 0);
    }

    #[test]
    fn a_lower_limit_holds_for_the_next_and_not_for_those_that_are_there() {
        let limit = ConnectionLimit::new(u64::MAX);
        assert!(!limit.is_limited() && limit.acquire() && limit.acquire());
        limit.set_most(2);
        assert!(limit.is_limited() && !limit.acquire());
        limit.force();
        assert_eq!(limit.taken(), 3);
        limit.release();
        limit.set_most(3);
        assert!(limit.acquire());
    }
}
