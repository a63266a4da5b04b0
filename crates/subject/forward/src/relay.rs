//! When a relayed connection reads, writes, passes an end on, and is over.
//!
//! The rule: each side sees what the other side did, in order, and nothing else. An end is passed
//! on after the last byte before it: a clean end by ending the write half, a reset by a reset. A
//! reset is passed on only where its direction had no clean end before, and only once the bytes
//! before it are sent, as the kernel drops unsent bytes with the connection. When one side can take
//! no more, the bytes that it had sent are still delivered to the other.
//!
//! Pure: no socket, no clock, no descriptor. The caller reports what a read or write did, and asks
//! for the next step.

/// How a stream of bytes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// That was all (FIN).
    Clean,
    /// It was cut off (RST, or the network gave up).
    Reset,
}

/// Why a write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The peer closed, having ended its own stream cleanly: what it sent before that can still be
    /// read to its end (EPIPE).
    Closed,
    /// The connection was cut off. Reading finds what arrived before, and then, as the error has
    /// been reported by now, what looks like a clean end.
    Reset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Open,
    /// Still read to its end, which is known to be no clean one.
    Cut,
    Ended(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sink {
    Open,
    Told(End),
    /// It takes no more.
    Severed,
}

/// What a direction does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Read from the source; nothing waits to be written.
    Read,
    /// Write what waits.
    Write,
    /// Tell the sink that the stream has ended, then [`Relay::told`].
    Tell(End),
    /// Nothing, until the source or the sink is ready, or ever.
    Wait,
}

/// Bytes on their way from one side to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Direction {
    source: Source,
    sink: Sink,
    /// Bytes read.
    pub(crate) read_bytes: u64,
    /// Bytes written.
    pub(crate) bytes: u64,
    /// Reads that returned bytes.
    pub(crate) reads: u64,
}

impl Direction {
    const NEW: Direction = Direction { source: Source::Open, sink: Sink::Open, read_bytes: 0, bytes: 0, reads: 0 };

    /// What to do, given the bytes that were read and not yet written, whether the source may have
    /// something to read, and whether the sink may have room.
    pub(crate) fn next(&self, pending: usize, readable: bool, writable: bool) -> Step {
        match (self.sink, pending, self.source) {
            (Sink::Told(_) | Sink::Severed, _, _) => Step::Wait,
            (Sink::Open, 0, Source::Ended(end)) => Step::Tell(end),
            (Sink::Open, 0, _) if readable => Step::Read,
            (Sink::Open, 1.., _) if writable => Step::Write,
            (Sink::Open, _, _) => Step::Wait,
        }
    }

    /// A read returned this many bytes.
    pub(crate) fn read(&mut self, bytes: usize) {
        self.read_bytes += bytes as u64;
        self.reads += 1;
    }

    /// A write took this many bytes.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Nothing moves in it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.sink != Sink::Open
    }

    /// Its source has ended, or its sink is gone: from now on only one half of the connection is
    /// open.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_over() || matches!(self.source, Source::Ended(_))
    }

    fn sever(&mut self) {
        if self.sink == Sink::Open {
            self.sink = Sink::Severed;
        }
    }
}

/// One of the two sides of a relayed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Who connected to the forwarder.
    Client,
    /// Whom the forwarder connected to.
    Server,
}

impl Side {
    pub(crate) fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It goes on.
    Lives,
    /// Both sides have got a clean end: closing loses nothing.
    Over,
    /// One side is gone, and the other has been given everything. It is closed, with a reset where
    /// its stream was cut off, once the kernel has delivered what it holds for it: closing
    /// earlier could drop that.
    Linger {
        /// The side that is left.
        survivor: Side,
        /// How its stream ended.
        end: End,
    },
    /// Both sides are gone.
    Dead,
    /// This machine failed to read or to write (errno(3)): both sides are reset.
    Failed(i32),
}

/// Both directions of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Relay {
    /// From the client to the server.
    pub(crate) up: Direction,
    /// From the server to the client.
    pub(crate) down: Direction,
    /// How it began to end, for the log.
    pub(crate) cause: Option<(Side, End)>,
    /// Why this machine failed to read or to write (errno(3)), although the connection lives.
    pub(crate) failure: Option<i32>,
}

impl Relay {
    pub(crate) const NEW: Relay = Relay { up: Direction::NEW, down: Direction::NEW, cause: None, failure: None };

    /// The direction whose source is `side`.
    pub(crate) fn from(&mut self, side: Side) -> &mut Direction {
        match side {
            Side::Client => &mut self.up,
            Side::Server => &mut self.down,
        }
    }

    /// A read from `side` found the end of its stream, or an error.
    pub(crate) fn ended(&mut self, side: Side, end: End) {
        let direction = self.from(side);
        let end = if direction.source == Source::Cut { End::Reset } else { end };
        direction.source = Source::Ended(end);
        self.note(side, end);
        if end == End::Reset {
            // It takes nothing any more either.
            self.from(side.other()).sever();
        }
    }

    /// A write to `side` was refused, or the kernel reports that the connection with it has failed.
    /// What it had sent can still be read.
    pub(crate) fn refused(&mut self, side: Side, refusal: Refusal) {
        self.from(side.other()).sever();
        let direction = self.from(side);
        if refusal == Refusal::Reset {
            if direction.source == Source::Open {
                direction.source = Source::Cut;
            }
            self.note(side, End::Reset);
        } else {
            self.note(side, End::Clean);
        }
    }

    /// The sink of the direction from `side` has got its end.
    pub(crate) fn told(&mut self, side: Side, end: End) {
        self.from(side).sink = Sink::Told(end);
    }

    /// Grows with each byte and each end, and not otherwise.
    pub(crate) fn progress(&self) -> u64 {
        let of = |direction: &Direction| {
            direction.read_bytes + direction.bytes + u64::from(direction.is_ending()) + u64::from(direction.is_over())
        };
        of(&self.up) + of(&self.down)
    }

    /// Whether the connection goes on.
    pub(crate) fn verdict(&self) -> Verdict {
        if let Some(errno) = self.failure {
            return Verdict::Failed(errno);
        }
        match (self.up.sink, self.down.sink) {
            (Sink::Told(End::Reset), _) => Verdict::Linger { survivor: Side::Server, end: End::Reset },
            (_, Sink::Told(End::Reset)) => Verdict::Linger { survivor: Side::Client, end: End::Reset },
            (Sink::Told(End::Clean), Sink::Told(End::Clean)) => Verdict::Over,
            (Sink::Told(End::Clean), Sink::Severed) => Verdict::Linger { survivor: Side::Server, end: End::Clean },
            (Sink::Severed, Sink::Told(End::Clean)) => Verdict::Linger { survivor: Side::Client, end: End::Clean },
            (Sink::Severed, Sink::Severed) => Verdict::Dead,
            (Sink::Open, _) | (_, Sink::Open) => Verdict::Lives,
        }
    }

    /// The first end is the cause, unless a reset comes later: it is what lost bytes.
    fn note(&mut self, side: Side, end: End) {
        let replaces = match self.cause {
            None => true,
            Some((_, former)) => former == End::Clean && end == End::Reset,
        };
        if replaces {
            self.cause = Some((side, end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_before_an_end_are_written_before_it_is_told() {
        for end in [End::Clean, End::Reset] {
            let mut relay = Relay::NEW;
            relay.up.read(10);
            assert_eq!((relay.up.read_bytes, relay.up.reads), (10, 1));
            assert!(!relay.up.is_ending());
            relay.ended(Side::Client, end);
            assert!(relay.up.is_ending() && !relay.up.is_over());
            assert_eq!(relay.up.next(10, true, false), Step::Wait);
            assert_eq!(relay.up.next(10, false, true), Step::Write);
            relay.up.wrote(4);
            assert_eq!(relay.up.next(6, true, true), Step::Write);
            relay.up.wrote(6);
            assert_eq!(relay.up.bytes, 10);
            assert_eq!(relay.up.next(0, false, false), Step::Tell(end));
        }
    }

    #[test]
    fn progress_is_a_step_for_each_byte_and_for_each_end() {
        let mut relay = Relay::NEW;
        assert_eq!(relay.progress(), 0);
        relay.up.read(5);
        relay.down.read(7);
        assert_eq!(relay.progress(), 12);
        relay.up.wrote(3);
        relay.down.wrote(2);
        assert_eq!(relay.progress(), 17);
        relay.ended(Side::Client, End::Clean);
        assert_eq!(relay.progress(), 18);
        relay.told(Side::Client, End::Clean);
        assert_eq!(relay.progress(), 19);
        relay.ended(Side::Server, End::Clean);
        relay.told(Side::Server, End::Clean);
        assert_eq!(relay.progress(), 21);
    }

    #[test]
    fn after_one_clean_end_the_other_direction_lives_until_its_own() {
        let mut relay = Relay::NEW;
        relay.ended(Side::Client, End::Clean);
        relay.told(Side::Client, End::Clean);
        assert_eq!(relay.verdict(), Verdict::Lives);
        assert_eq!(relay.down.next(0, true, true), Step::Read);
        relay.ended(Side::Server, End::Clean);
        relay.told(Side::Server, End::Clean);
        assert_eq!(relay.verdict(), Verdict::Over);
        assert_eq!(relay.cause, Some((Side::Client, End::Clean)));
    }

    #[test]
    fn a_reset_after_a_clean_end_is_not_passed_on_as_a_reset() {
        let mut relay = Relay::NEW;
        relay.ended(Side::Client, End::Clean);
        relay.told(Side::Client, End::Clean);
        relay.refused(Side::Client, Refusal::Reset);
        assert_eq!(relay.verdict(), Verdict::Linger { survivor: Side::Server, end: End::Clean });
        assert_eq!(relay.cause, Some((Side::Client, End::Reset)));
    }

    #[test]
    fn what_a_side_sent_before_it_was_cut_off_is_delivered_and_then_its_reset() {
        let mut relay = Relay::NEW;
        relay.up.read(5);
        relay.refused(Side::Server, Refusal::Reset);
        assert_eq!(relay.up.next(5, true, true), Step::Wait);
        assert_eq!(relay.down.next(0, true, true), Step::Read);
        relay.down.read(3);
        relay.down.wrote(3);
        // The kernel has reported the reset to the write, and reports a clean end to the read.
        relay.ended(Side::Server, End::Clean);
        assert_eq!(relay.down.next(0, false, true), Step::Tell(End::Reset));
        relay.told(Side::Server, End::Reset);
        assert_eq!(relay.verdict(), Verdict::Linger { survivor: Side::Client, end: End::Reset });
    }

    #[test]
    fn a_side_that_closed_cleanly_and_takes_no_more_is_no_reset() {
        let mut relay = Relay::NEW;
        relay.up.read(5);
        relay.refused(Side::Server, Refusal::Closed);
        relay.ended(Side::Server, End::Clean);
        assert_eq!(relay.down.next(0, false, true), Step::Tell(End::Clean));
        relay.told(Side::Server, End::Clean);
        assert_eq!(relay.verdict(), Verdict::Linger { survivor: Side::Client, end: End::Clean });
    }

    /// What may happen to a connection, in any order.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Arrive(Side, usize),
        End(Side, End),
        Refuse(Side, Refusal),
        Room(Side, usize),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let side = || prop_oneof![Just(Side::Client), Just(Side::Server)];
        let end = prop_oneof![Just(End::Clean), Just(End::Reset)];
        let refusal = prop_oneof![Just(Refusal::Closed), Just(Refusal::Reset)];
        prop::collection::vec(
            prop_oneof![
                6 => (side(), 1_usize..100).prop_map(|(side, bytes)| Event::Arrive(side, bytes)),
                6 => (side(), 1_usize..100).prop_map(|(side, bytes)| Event::Room(side, bytes)),
                2 => (side(), end).prop_map(|(side, end)| Event::End(side, end)),
                1 => (side(), refusal).prop_map(|(side, refusal)| Event::Refuse(side, refusal)),
            ],
            0..60,
        )
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_before_an_end_and_no_clean_end_becomes_a_reset(events in events()) {
            let mut relay = Relay::NEW;
            let (mut read, mut written) = ([0_u64; 2], [0_u64; 2]);
            let mut pending = [0_usize; 2];
            let mut told: [Option<End>; 2] = [None, None];
            for event in events {
                match event {
                    Event::Arrive(side, bytes)
                        if relay.from(side).next(pending[side as usize], true, false) == Step::Read =>
                    {
                        relay.from(side).read(bytes);
                        read[side as usize] += bytes as u64;
                        pending[side as usize] += bytes;
                    }
                    Event::End(side, end)
                        if relay.from(side).next(pending[side as usize], true, false) == Step::Read =>
                    {
                        relay.ended(side, end);
                    }
                    Event::Room(side, bytes)
                        if relay.from(side.other()).next(pending[side.other() as usize], false, true) == Step::Write =>
                    {
                        let from = side.other();
                        let bytes = bytes.min(pending[from as usize]);
                        relay.from(from).wrote(bytes);
                        written[from as usize] += bytes as u64;
                        pending[from as usize] -= bytes;
                    }
                    Event::Refuse(side, refusal) if !relay.from(side.other()).is_over() => relay.refused(side, refusal),
                    _ => {}
                }
                for side in [Side::Client, Side::Server] {
                    if let Step::Tell(end) = relay.from(side).next(pending[side as usize], true, true) {
                        let (read, written) = (read[side as usize], written[side as usize]);
                        prop_assert_eq!(read, written, "everything before the end is out");
                        prop_assert_eq!(told[side as usize], None, "one end a direction");
                        told[side as usize] = Some(end);
                        relay.told(side, end);
                    }
                }
                if let Verdict::Linger { survivor, end: End::Reset } = relay.verdict() {
                    prop_assert_eq!(told[survivor.other() as usize], Some(End::Reset));
                }
                if relay.verdict() != Verdict::Lives {
                    break;
                }
            }
            prop_assert_eq!(relay.up.bytes, written[0]);
            prop_assert_eq!(relay.down.bytes, written[1]);
        }
    }
}
