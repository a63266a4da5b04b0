//! How many connections are open in a whole server, were at most, and may be.

use std::sync::atomic::{AtomicU64, Ordering};

/// A limit that all event loops of a server share. A place is taken before a connection is
/// accepted, so that several loops together never pass the limit.
#[derive(Debug)]
pub struct ConnectionLimit {
    /// Taken by connections, and by accepts that may bring one.
    places: AtomicU64,
    most: AtomicU64,
    open: AtomicU64,
    peak: AtomicU64,
}

impl ConnectionLimit {
    /// At most so many at a time; `u64::MAX` for any number.
    pub fn new(most: u64) -> ConnectionLimit {
        ConnectionLimit {
            places: AtomicU64::new(0),
            most: AtomicU64::new(most),
            open: AtomicU64::new(0),
            peak: AtomicU64::new(0),
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
        let acquired = self.places.fetch_add(1, Ordering::Relaxed) < self.most.load(Ordering::Relaxed);
        if !acquired {
            self.release();
        }
        acquired
    }

    /// Takes a place, if there is one and `allows` agrees: it is asked with the number of places
    /// that are left. Several loops together are refused as one would be.
    pub fn acquire_if(&self, mut allows: impl FnMut(u64) -> bool) -> bool {
        let most = self.most();
        let take = |places: u64| (places < most && allows(most - places)).then_some(places + 1);
        self.places.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Takes a place even where there is none: the connection is there already.
    pub fn force(&self) {
        self.places.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives back a place that no connection has.
    pub fn release(&self) {
        self.places.fetch_sub(1, Ordering::Relaxed);
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

    /// Places that are taken. Once nothing is open any more, each is one that was never given back.
    pub fn taken(&self) -> u64 {
        self.places.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

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
