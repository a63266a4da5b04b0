//! A hierarchical timer wheel: setting, cancelling and expiring a timer costs the same however many
//! there are.
//!
//! Eight levels of 64 slots; a slot of one level spans all of the level below. A timer is at the
//! level of the highest digit (to base 64) in which its tick differs from now, and moves down as
//! its time comes nearer (Varghese and Lauck, SOSP 1987, scheme 7). A bitmap for each level finds
//! the next occupied slot without looking at the empty ones. Timers never fire early; they fire at
//! most one tick late.

use std::time::{Duration, Instant};

/// 2^14 ns, about 16 us: below what a wait can be woken to, so the wheel is not what makes a timer
/// late.
const TICK_BITS: u32 = 14;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Together with the tick, 2^62 ns: more than a century. Longer timers are set to that.
const LEVELS: usize = 8;
const LAST_TICK: u64 = (1 << (SLOT_BITS as usize * LEVELS)) - 1;
const NONE: u32 = u32::MAX;

/// Names a set timer until it fires or is cancelled. Using it afterwards is the caller's mistake:
/// the number may name another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer(u32);

#[derive(Debug)]
struct Entry {
    key: u64,
    tick: u64,
    next: u32,
    /// The entry before it in its slot, or `HEAD | slot` where it is the first.
    previous: u32,
}

/// Marks a `previous` that names a slot of the wheel.
const HEAD: u32 = 1 << 31;

/// The timers of one event loop.
#[derive(Debug)]
pub struct Wheel {
    origin: Instant,
    now: u64,
    /// Up to which tick timers have fired, or are firing: one that is set now fires after it.
    reached: u64,
    heads: Box<[u32; SLOTS * LEVELS]>,
    occupied: [u64; LEVELS],
    entries: Vec<Entry>,
    free: u32,
    length: usize,
}

impl Wheel {
    /// A wheel without timers, whose time begins at `now`.
    pub fn new(now: Instant) -> Wheel {
        Wheel {
            origin: now,
            now: 0,
            reached: 0,
            heads: Box::new([NONE; SLOTS * LEVELS]),
            occupied: [0; LEVELS],
            entries: Vec::new(),
            free: NONE,
            length: 0,
        }
    }

    /// How many timers are set.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no timer is set.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Sets a timer that hands `key` to [`Wheel::next_due`] once `deadline` has come.
    pub fn set(&mut self, deadline: Instant, key: u64) -> Timer {
        let index = if self.free == NONE {
            self.entries.push(Entry { key, tick: 0, next: NONE, previous: NONE });
            self.entries.len() as u32 - 1
        } else {
            let index = self.free;
            self.free = self.entries[index as usize].next;
            index
        };
        // Rounded up, so that it never fires early.
        let ahead = deadline.saturating_duration_since(self.origin).as_nanos().div_ceil(1 << TICK_BITS);
        let tick = u64::try_from(ahead).unwrap_or(LAST_TICK).clamp(self.reached + 1, LAST_TICK);
        self.entries[index as usize].key = key;
        self.entries[index as usize].tick = tick;
        self.link(index);
        self.length += 1;
        Timer(index)
    }

    /// Takes back a timer that has not fired.
    pub fn cancel(&mut self, timer: Timer) {
        self.unlink(timer.0);
        self.release(timer.0);
    }

    /// How long to wait from `now` for the next timer to be due, or to move nearer; `None` without
    /// timers.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let (_, tick) = self.next_slot()?;
        Some((self.origin + Duration::from_nanos(tick << TICK_BITS)).saturating_duration_since(now))
    }

    /// Fires the first timer that is due by `now`, and returns its key; to be called until there is
    /// none.
    ///
    /// One at a time, as what is done about one may cancel others that are due as well. A timer
    /// that is set meanwhile is not due by `now`, however early its deadline.
    pub fn next_due(&mut self, now: Instant) -> Option<u64> {
        let target = (now.saturating_duration_since(self.origin).as_nanos() >> TICK_BITS) as u64;
        self.reached = self.reached.max(target);
        while let Some((slot, tick)) = self.next_slot().filter(|(_, tick)| *tick <= target) {
            self.now = tick;
            if slot < SLOTS {
                let index = self.heads[slot];
                self.unlink(index);
                self.release(index);
                return Some(self.entries[index as usize].key);
            }
            // The slot of a higher level begins: its timers move down.
            while self.heads[slot] != NONE {
                let index = self.heads[slot];
                self.unlink(index);
                self.link(index);
            }
        }
        self.now = self.reached;
        None
    }

    /// The occupied slot that comes first, and the tick it begins at. A lower level's slots all
    /// come before a higher one's.
    fn next_slot(&self) -> Option<(usize, u64)> {
        let level = self.occupied.iter().position(|bits| *bits != 0)?;
        let slot = self.occupied[level].trailing_zeros();
        let shift = SLOT_BITS * level as u32;
        let above = self.now >> shift >> SLOT_BITS << SLOT_BITS;
        Some((level * SLOTS + slot as usize, (above | u64::from(slot)) << shift))
    }

    fn link(&mut self, index: u32) {
        let tick = self.entries[index as usize].tick;
        let level = (63 - ((tick ^ self.now) | 1).leading_zeros()) / SLOT_BITS;
        let slot = (tick >> (SLOT_BITS * level)) as usize % SLOTS;
        self.occupied[level as usize] |= 1 << slot;
        let head = level as usize * SLOTS + slot;
        let first = std::mem::replace(&mut self.heads[head], index);
        if first != NONE {
            self.entries[first as usize].previous = index;
        }
        self.entries[index as usize].next = first;
        self.entries[index as usize].previous = HEAD | head as u32;
    }

    fn unlink(&mut self, index: u32) {
        let Entry { next, previous, .. } = self.entries[index as usize];
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        if previous & HEAD == 0 {
            self.entries[previous as usize].next = next;
        } else {
            let head = (previous ^ HEAD) as usize;
            self.heads[head] = next;
            if next == NONE {
                self.occupied[head / SLOTS] &= !(1 << (head % SLOTS));
            }
        }
    }

    fn release(&mut self, index: u32) {
        self.entries[index as usize].next = self.free;
        self.free = index;
        self.length -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: Duration = Duration::from_nanos(1 << TICK_BITS);

    #[test]
    fn a_timer_fires_once_not_early_and_at_most_a_tick_late() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        assert!(wheel.is_empty());
        wheel.set(start + Duration::from_millis(5), 7);
        assert!(!wheel.is_empty());
        assert_eq!(wheel.next_due(start + Duration::from_micros(4999)), None);
        assert_eq!(wheel.next_due(start + Duration::from_millis(5) + TICK), Some(7));
        assert!(wheel.is_empty());
        assert_eq!(wheel.next_due(start + Duration::from_secs(5)), None);
    }

    #[test]
    fn a_wait_ends_at_the_next_deadline() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        assert_eq!(wheel.wait(start), None);
        wheel.set(start + 9 * TICK, 2);
        let first = wheel.set(start + 5 * TICK, 1);
        assert_eq!([0, 2, 7].map(|ticks| wheel.wait(start + ticks * TICK)), [5, 3, 0].map(|ticks| Some(ticks * TICK)));
        wheel.cancel(first);
        assert_eq!(wheel.wait(start), Some(9 * TICK));
    }

    #[test]
    fn a_deadline_in_the_past_fires_at_the_next_tick() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        let now = start + Duration::from_secs(1);
        assert_eq!(wheel.next_due(now), None);
        wheel.set(start, 1);
        assert_eq!(wheel.next_due(now + TICK), Some(1));
    }

    #[test]
    fn a_due_timer_can_be_taken_back_by_what_is_done_about_another() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        let timers = [1, 2, 3].map(|key| wheel.set(start + Duration::from_millis(key), key));
        let now = start + Duration::from_secs(1);
        assert_eq!(wheel.next_due(now), Some(1));
        wheel.cancel(timers[1]);
        wheel.set(start, 4);
        assert_eq!(wheel.next_due(now), Some(3));
        assert_eq!(wheel.next_due(now), None);
        assert_eq!(wheel.next_due(now + TICK), Some(4));
        assert!(wheel.is_empty());
    }

    #[test]
    fn the_furthest_deadline_is_kept() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        wheel.set(start + Duration::from_secs(200 * 365 * 86400), 1);
        assert!(wheel.wait(start).is_some());
        assert_eq!(wheel.len(), 1);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Set(u64),
        Cancel(prop::sample::Index),
        Pass(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Magnitudes spread over the levels, so that timers cascade.
        let nanos = (0_u32..45).prop_flat_map(|bits| 0..1_u64 << bits);
        prop::collection::vec(
            prop_oneof![
                3 => nanos.clone().prop_map(Step::Set),
                1 => any::<prop::sample::Index>().prop_map(Step::Cancel),
                2 => nanos.prop_map(Step::Pass),
            ],
            0..200,
        )
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_sorted_list(steps in steps()) {
            let start = Instant::now();
            let mut wheel = Wheel::new(start);
            let mut model: Vec<(u64, u64, Timer)> = Vec::new();
            let mut now = 0;
            for (key, step) in (0..).zip(steps) {
                match step {
                    Step::Set(ahead) => {
                        let deadline = now + ahead;
                        // What the wheel promises: the next tick after now and not before the
                        // deadline.
                        let tick = deadline.div_ceil(1 << TICK_BITS).max((now >> TICK_BITS) + 1);
                        model.push((tick, key, wheel.set(start + Duration::from_nanos(deadline), key)));
                    }
                    Step::Cancel(pick) if !model.is_empty() => {
                        let (_, _, timer) = model.swap_remove(pick.index(model.len()));
                        wheel.cancel(timer);
                    }
                    Step::Cancel(_) => {}
                    Step::Pass(by) => {
                        now += by;
                        let mut want = Vec::new();
                        let instant = start + Duration::from_nanos(now);
                        let mut due: Vec<u64> = std::iter::from_fn(|| wheel.next_due(instant)).collect();
                        model.retain(|(tick, key, _)| {
                            let fires = *tick <= now >> TICK_BITS;
                            if fires { want.push((*tick, *key)); }
                            !fires
                        });
                        let tick_of = |key| want.iter().find(|(_, other)| *other == key).map(|(tick, _)| tick);
                        prop_assert!(due.iter().map(|key| tick_of(*key)).is_sorted());
                        due.sort_unstable();
                        let mut want: Vec<u64> = want.into_iter().map(|(_, key)| key).collect();
                        want.sort_unstable();
                        prop_assert_eq!(due, want);
                    }
                }
                prop_assert_eq!(wheel.len(), model.len());
                let soonest = model.iter().map(|(tick, _, _)| (tick << TICK_BITS) - now.min(tick << TICK_BITS)).min();
                let wait = wheel.wait(start + Duration::from_nanos(now));
                prop_assert_eq!(wait.is_some(), soonest.is_some());
                prop_assert!(wait.is_none_or(|wait| wait.as_nanos() as u64 <= soonest.unwrap_or(0)));
            }
        }
    }
}
