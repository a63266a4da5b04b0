//! Up to when everything that came has been handled. A time-out needs that of what came before it:
//! a generator that was stopped, or had no CPU, would otherwise take answers that lie there for
//! lost. Pure.

/// Events that a connection may have at once: what came, and with a ring its sends.
const EVENTS_EACH: usize = 4;
/// Events that a wait brings at least, where there are so many: a ring's (IO_LOCAL_TW_DEFAULT_MAX).
const EVENTS_A_WAIT: usize = 20;

/// Instants in nanoseconds from the run's origin.
#[derive(Debug)]
pub(super) struct Backlog {
    /// Turns that the events of all connections take.
    turns: usize,
    /// What came before this instant is handled.
    handled: u64,
    /// A loop that always has more to handle counts turns: since when, and how many are left until
    /// what was there then is handled.
    counted: Option<(u64, usize)>,
}

impl Backlog {
    /// That of a loop with so many connections.
    pub(super) fn of(connections: usize) -> Backlog {
        let turns = (EVENTS_EACH * connections).div_ceil(EVENTS_A_WAIT);
        Backlog { turns, handled: 0, counted: None }
    }

    /// A turn has handled events of a wait that was entered at this instant; `has_more` says that
    /// more may have been there.
    pub(super) fn pass_turn(&mut self, entered: u64, has_more: bool) {
        match self.counted {
            _ if !has_more => (self.handled, self.counted) = (entered, None),
            Some((since, left @ 2..)) => self.counted = Some((since, left - 1)),
            Some((since, _)) => (self.handled, self.counted) = (since, None),
            None => {}
        }
    }

    /// Whether everything that came before `deadline` is handled. If it is not, turns are counted
    /// from the first one whose wait was `entered` after that.
    pub(super) fn is_handled(&mut self, deadline: u64, entered: u64) -> bool {
        let is_handled = self.handled >= deadline;
        if !is_handled && entered >= deadline {
            self.counted.get_or_insert((entered, self.turns));
        }
        is_handled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_leaves_nothing_has_handled_what_came_before_its_wait() {
        let mut backlog = Backlog::of(10);
        backlog.pass_turn(100, false);
        assert!(backlog.is_handled(100, 100) && !backlog.is_handled(101, 100));
        backlog.pass_turn(110, true);
        assert!(!backlog.is_handled(101, 110), "more may have been there");
        backlog.pass_turn(120, false);
        assert!(backlog.is_handled(101, 120));
    }

    #[test]
    fn a_loop_that_always_has_more_has_handled_it_after_as_many_turns_as_all_events_take() {
        // Forty events of ten connections, of which a turn handles twenty.
        let mut backlog = Backlog::of(10);
        backlog.pass_turn(90, true);
        assert!(!backlog.is_handled(100, 90));
        let handled = [100, 110, 120, 130].map(|entered| {
            backlog.pass_turn(entered, true);
            backlog.is_handled(100, entered)
        });
        assert_eq!(handled, [false, false, true, true]);
        // It is asked seldom, and turns go on in between.
        for (deadline, entered, handled) in [(200, 200, false), (200, 300, true), (250, 300, false), (250, 400, true)] {
            (entered - 50..=entered).for_each(|entered| backlog.pass_turn(entered, true));
            assert_eq!(backlog.is_handled(deadline, entered), handled, "{deadline} at {entered}");
        }
    }
}
