//! What a link reports: what has become of its packets, what emulating costs, and when it was not
//! the network that was asked for.

use serde::Serialize;

use crate::queue::Counts;

/// One direction of one link, and what has become of its packets.
#[derive(Clone, Debug, Serialize)]
pub struct DirectionCounts {
    /// Where packets come from.
    pub from: String,
    /// Where they go.
    pub to: String,
    /// What has become of them.
    #[serde(flatten)]
    pub counts: Counts,
}

/// What emulating costs, since the link began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Packets that the hosts have sent.
    pub packets: u64,
    /// CPU time of the thread that emulates, in seconds.
    pub cpu_s: f64,
    /// The same over the packets.
    pub cpu_us_per_packet: f64,
    /// CPU time of the second thread, which wakes the first where its own CPU does not, in seconds.
    pub standby_cpu_s: f64,
    /// For how long the thread was ready and had no CPU, in seconds; 0 where the kernel does not
    /// count it. Frames that come meanwhile wait in their devices: the wait is part of their delay,
    /// and no frame counts as late for it.
    pub run_queue_wait_s: f64,
    /// The longest time that the thread was busy between two waits, for which frames wait in their
    /// devices likewise, in microseconds.
    pub longest_round_us: u64,
}

/// Everything that is counted.
#[derive(Clone, Debug, Serialize)]
pub struct Totals {
    /// Each direction of each link.
    pub links: Vec<DirectionCounts>,
    /// What emulating costs.
    pub emulator: Cost,
    /// The devices whose drops cannot be read ([`Report::DropsUnknown`]): frames that they lost are
    /// in no count.
    pub drops_unknown: Vec<String>,
}

/// What a link came to, and what ended it, unless that was a signal.
#[derive(Debug)]
pub struct Outcome<E> {
    /// Everything that was counted until then.
    pub totals: Totals,
    /// What ended it.
    pub failure: Option<E>,
}

/// What the link reports.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Report {
    /// The counts so far.
    Counters {
        /// Seconds since 1970.
        unix_s: f64,
        /// Whether they hold late or lost frames of which it is not told yet when: a disturbance is
        /// under way.
        disturbed: bool,
        /// The counts.
        #[serde(flatten)]
        totals: Totals,
    },
    /// The kernel refuses precise timers, so frames may be handed over up to 50 us late.
    TimersCoarse {
        /// Why.
        why: String,
    },
    /// What a device dropped cannot be read, so frames that the emulator did not read in time are
    /// not counted.
    DropsUnknown {
        /// The device.
        device: String,
        /// Why.
        why: String,
    },
    /// The emulator was late, or lost frames, and so was not the network that was asked for. Sent
    /// once that has been over for a tenth of a second.
    Disturbance {
        /// When it began: the first late frame's due time, or the latest time before the first
        /// loss, in seconds since 1970.
        from_unix_s: f64,
        /// When the last frame of it was handed over, or was lost at the latest.
        to_unix_s: f64,
        /// Frames handed over late.
        late_frames: u64,
        /// Frames lost.
        lost_frames: u64,
        /// By how much the worst was late.
        worst_us: u64,
    },
}
