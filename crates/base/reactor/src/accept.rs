//! Accepting: how connections find their worker, what a failure means, and when to try again. One
//! policy for every loop that accepts.
//!
//! The rule: a full table passes the accept token on, a full machine pauses, and a connection that
//! ended in the queue is skipped. Nothing here waits or calls the kernel; the time is an argument.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::{Duration, Instant};

use plimsoll_sys::descriptor;

/// How connections find their worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// There is one worker, and it accepts.
    Single,
    /// One accepts, and hands each connection to the worker with the fewest.
    Handoff,
    /// All accept from one listener, of which one wakes for each connection (EPOLLEXCLUSIVE).
    Exclusive,
    /// Each worker has a listener of its own, and the kernel spreads connections over them
    /// (SO_REUSEPORT).
    ReusePort,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Strategy; 4] = [Strategy::Single, Strategy::Handoff, Strategy::Exclusive, Strategy::ReusePort];

    /// Its name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Single => "single",
            Strategy::Handoff => "handoff",
            Strategy::Exclusive => "exclusive",
            Strategy::ReusePort => "reuseport",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A name that is no strategy's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownStrategy(String);

impl fmt::Display for UnknownStrategy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "there is no accept strategy `{}`; use one of single, handoff, exclusive, reuseport", self.0)
    }
}

impl std::error::Error for UnknownStrategy {}

impl FromStr for Strategy {
    type Err = UnknownStrategy;

    fn from_str(name: &str) -> Result<Strategy, UnknownStrategy> {
        Strategy::ALL
            .into_iter()
            .find(|strategy| strategy.name() == name)
            .ok_or_else(|| UnknownStrategy(name.to_owned()))
    }
}

/// What it means that an accept failed (accept(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection waits. It is no error.
    Empty,
    /// The listener was shut down, by this program.
    Closed,
    /// This table has no descriptor left: another may have.
    FullTable,
    /// The machine is out of descriptors, memory or entries for epoll: another table has no more.
    FullMachine,
    /// The connection ended in the queue. The next one may be well.
    Connection,
}

impl Failure {
    /// What this error means.
    pub fn of(error: &io::Error) -> Failure {
        if descriptor::is_full_table(error) {
            return Failure::FullTable;
        }
        match error.kind() {
            io::ErrorKind::WouldBlock => Failure::Empty,
            io::ErrorKind::InvalidInput => Failure::Closed,
            _ if descriptor::is_exhaustion(error) => Failure::FullMachine,
            _ => Failure::Connection,
        }
    }

    /// Whether accepting is to pause.
    pub fn pauses(self) -> bool {
        matches!(self, Failure::FullTable | Failure::FullMachine)
    }
}

/// After this, what failed is tried again even if nothing was given back here: whatever was short
/// may be free elsewhere.
const PAUSE: Duration = Duration::from_millis(100);

/// A pause of accepting, after something has run out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pause(Option<Instant>);

impl Pause {
    /// Accepts nothing for a moment.
    pub fn begin(&mut self, now: Instant) {
        self.begin_for(PAUSE, now);
    }

    /// Accepts nothing for so long.
    pub fn begin_for(&mut self, time: Duration, now: Instant) {
        self.0 = Some(now + time);
    }

    /// Something was given back: the pause, if there is one, is over at the next look.
    pub fn end_soon(&mut self, now: Instant) {
        if self.0.is_some() {
            self.0 = Some(now);
        }
    }

    /// Whether accepting pauses.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Until when, for a wait.
    pub fn until(&self) -> Option<Instant> {
        self.0
    }

    /// Ends a pause whose time is over, and says whether it did.
    pub fn ends(&mut self, now: Instant) -> bool {
        self.0.take_if(|until| now >= *until).is_some()
    }
}

/// Whose turn it is among several listeners. Where places are few, the queue of the listener that
/// always goes first would take them all, and clients of the others would never be served.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turns(usize);

impl Turns {
    /// Accepts at the first of `count` listeners that has a connection, or fails, beginning after
    /// the listener that was served last. `WouldBlock` where all are empty.
    pub fn accept<T>(&mut self, count: usize, mut accept: impl FnMut(usize) -> io::Result<T>) -> io::Result<T> {
        for step in 0..count {
            let listener = (self.0 + step) % count;
            match accept(listener) {
                Err(error) if Failure::of(&error) == Failure::Empty => {}
                outcome => {
                    self.0 = listener + 1;
                    return outcome;
                }
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Puts listeners in the order in which they are served, for a caller that knows without trying
    /// which of them have connections.
    pub fn order(&self, listeners: &mut [u32]) {
        listeners.sort_unstable();
        listeners.rotate_left(listeners.partition_point(|listener| (*listener as usize) < self.0));
    }

    /// A listener had its turn.
    pub fn had(&mut self, listener: u32) {
        self.0 = listener as usize + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_read_back_and_no_other() {
        for strategy in Strategy::ALL {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
        }
        let refused = "random".parse::<Strategy>().expect_err("there is none").to_string();
        assert!(refused.contains("`random`; use one of single, handoff, exclusive, reuseport"), "{refused}");
    }

    #[test]
    fn each_error_of_accept_means_what_the_manual_says() {
        // EAGAIN, EINVAL, EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOSPC, ECONNABORTED, EPROTO, EPERM
        for (number, failure) in [
            (11, Failure::Empty),
            (22, Failure::Closed),
            (24, Failure::FullTable),
            (23, Failure::FullMachine),
            (105, Failure::FullMachine),
            (12, Failure::FullMachine),
            (28, Failure::FullMachine),
            (103, Failure::Connection),
            (71, Failure::Connection),
            (1, Failure::Connection),
        ] {
            assert_eq!(Failure::of(&io::Error::from_raw_os_error(number)), failure, "{number}");
        }
    }

    #[test]
    fn accepting_pauses_where_something_has_run_out_and_not_otherwise() {
        let pausing = [Failure::FullTable, Failure::FullMachine];
        for failure in [Failure::Empty, Failure::Closed, Failure::FullTable, Failure::FullMachine, Failure::Connection]
        {
            assert_eq!(failure.pauses(), pausing.contains(&failure), "{failure:?}");
        }
    }

    #[test]
    fn a_listener_that_fails_has_had_its_turn() {
        let mut turns = Turns::default();
        let mut tried = Vec::new();
        for _ in 0..3 {
            let outcome = turns.accept(2, |listener| -> io::Result<()> {
                tried.push(listener);
                Err(io::Error::from_raw_os_error(24))
            });
            assert_eq!(outcome.expect_err("the table is full").raw_os_error(), Some(24));
        }
        assert_eq!(tried, [0, 1, 0]);
    }

    #[test]
    fn each_listener_has_its_turn_however_many_wait_at_another() {
        let (mut turns, mut waiting) = (Turns::default(), [3, 0, 2]);
        let mut accept = || {
            turns.accept(3, |listener| match waiting[listener] {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                _ => {
                    waiting[listener] -= 1;
                    Ok(listener)
                }
            })
        };
        let taken: Vec<usize> = std::iter::from_fn(|| accept().ok()).collect();
        assert_eq!(taken, [0, 2, 0, 2, 0]);
        assert_eq!(accept().expect_err("all are empty").kind(), io::ErrorKind::WouldBlock);
        let failed = turns.accept(0, |_| -> io::Result<()> { unreachable!("there is no listener") });
        assert_eq!(failed.expect_err("there is no listener").kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn listeners_that_are_known_to_be_ready_have_their_turns_too() {
        let mut turns = Turns::default();
        let mut taken = Vec::new();
        for _ in 0..4 {
            let mut ready = [40, 7, 19];
            turns.order(&mut ready);
            turns.had(ready[0]);
            taken.push(ready);
        }
        assert_eq!(taken, [[7, 19, 40], [19, 40, 7], [40, 7, 19], [7, 19, 40]]);
        // Of neighbours the next one is first.
        turns.had(4);
        let mut neighbours = [3, 4, 5];
        turns.order(&mut neighbours);
        assert_eq!(neighbours, [5, 3, 4]);
    }

    #[test]
    fn a_pause_ends_with_its_time_or_when_something_was_given_back() {
        let start = Instant::now();
        let mut pause = Pause::default();
        pause.end_soon(start);
        assert!(!pause.is_on() && !pause.ends(start));
        assert_eq!(pause.until(), None);
        pause.begin(start);
        assert!(!pause.ends(start) && pause.is_on());
        assert_eq!(pause.until(), Some(start + PAUSE));
        assert!(pause.ends(start + PAUSE) && !pause.is_on());
        pause.begin(start);
        pause.end_soon(start);
        assert!(pause.ends(start));
        assert!(!pause.ends(start), "it ends once");
    }
}
