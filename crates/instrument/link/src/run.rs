//! The network between TAP devices, in real time: one event loop that reads frames, waits, and hands them on when they are due.
//!
//! Its rule: it never waits for anything but time, frames and signals. Reports go to a callback that must not block.

use std::io;
use std::time::{Duration, Instant, SystemTime};

use plimsoll_sys::clock;
use plimsoll_sys::epoll::{Epoll, Trigger};
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::signal::{Signal, Signals};
use plimsoll_sys::tap::{HEADER_BYTES, Offload, Tap};
use serde::Serialize;
use thiserror::Error;

use crate::config::Config;
use crate::frame::FRAME_BYTES;
use crate::network::{Delivery, Network};
use crate::queue::Counts;

/// Frames read from a device before the others have their turn and what is due is handed on.
const FRAMES_A_TURN: usize = 32;

/// Troubles closer together than this are one disturbance.
const DISTURBANCE_GAP: Duration = Duration::from_millis(100);

/// The key of the signals among the devices' numbers.
const SIGNALS: u64 = u64::MAX;

/// `File descriptor in bad state` (errno(3)).
const EBADFD: i32 = 77;

/// Why a network cannot be, or cannot go on.
#[derive(Debug, Error)]
pub enum LinkError {
    /// A device cannot be made.
    #[error("cannot make the TAP device `{name}`: {why}")]
    Device {
        /// Its name.
        name: String,
        /// What is missing, and how to get it.
        why: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A device went away: its namespace ended, or somebody deleted it.
    #[error(
        "the TAP device `{0}` is gone: its namespace ended, or it was deleted; start the link again with the hosts"
    )]
    Gone(String),
    /// The event loop failed.
    #[error("cannot wait for frames: {0}")]
    Wait(#[from] io::Error),
}

impl LinkError {
    /// Whether it is the environment that cannot run this, rather than something that failed.
    pub fn is_environment(&self) -> bool {
        matches!(self, LinkError::Device { .. })
    }
}

/// One direction of one link, and what has become of its packets.
#[derive(Clone, Debug, Serialize)]
pub struct WayCounts {
    /// Where packets come from.
    pub from: String,
    /// Where they go.
    pub to: String,
    /// What has become of them.
    #[serde(flatten)]
    pub counts: Counts,
}

/// What the link has to tell.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Report {
    /// The counts so far.
    Counters {
        /// Seconds since 1970.
        unix_s: f64,
        /// Each direction of each link.
        links: Vec<WayCounts>,
    },
    /// The emulator was late, or lost frames, and so was not the network that was asked for. Sent once it has been itself again for a tenth of a second.
    Disturbance {
        /// When it began: the first frame's due time, in seconds since 1970.
        from_unix_s: f64,
        /// When the last frame of it was handed over, or lost.
        to_unix_s: f64,
        /// Frames handed over late.
        late_frames: u64,
        /// Frames lost.
        lost_frames: u64,
        /// By how much the worst was late.
        worst_us: u64,
    },
}

/// The devices and the network between them.
pub struct Link {
    config: Config,
    network: Network,
    taps: Vec<Tap>,
    epoll: Epoll,
    trouble: Option<Trouble>,
}

#[derive(Debug)]
struct Trouble {
    from: Instant,
    to: Instant,
    late_frames: u64,
    lost_frames: u64,
    worst: Duration,
}

impl Link {
    /// Makes the devices. They are down, and where this process is: whoever wants them elsewhere moves them.
    pub fn open(config: Config) -> Result<Link, LinkError> {
        let offload = if config.whole_segments { Offload::Segmentation } else { Offload::Checksum };
        let mut taps = Vec::new();
        for name in &config.devices {
            taps.push(Tap::open(name, offload).map_err(|source| LinkError::Device {
                name: name.clone(),
                why: explain(&source),
                source,
            })?);
        }
        let epoll = Epoll::new(taps.len() + 1)?;
        for (number, tap) in taps.iter().enumerate() {
            epoll.add(tap, number as u64, Interest::READ, Trigger::Level)?;
        }
        Ok(Link { network: Network::new(&config), config, taps, epoll, trouble: None })
    }

    /// Carries frames until a signal to end comes, and returns the final counts. `report` is called with the counts every `interval`, and with each disturbance.
    pub fn run(
        mut self,
        signals: &Signals,
        interval: Option<Duration>,
        mut report: impl FnMut(Report),
    ) -> Result<Vec<WayCounts>, LinkError> {
        self.epoll.add(signals, SIGNALS, Interest::READ, Trigger::Level)?;
        // A thread's timers may fire up to 50 us late by default (PR_SET_TIMERSLACK), which would be the link's delay.
        clock::sharpen_timers();
        let mut next_report = interval.map(|interval| Instant::now() + interval);
        let mut buffer = vec![0; FRAME_BYTES];
        let mut ready: Vec<u64> = Vec::new();
        loop {
            let now = Instant::now();
            let settled = self.trouble.as_ref().map(|trouble| trouble.to + DISTURBANCE_GAP);
            let wake = [self.network.next_due(), next_report, settled].into_iter().flatten().min();
            ready.clear();
            let timeout = wake.map(|wake| wake.saturating_duration_since(now));
            ready.extend(self.epoll.wait(timeout)?.map(|event| event.key));
            self.hand_over()?;
            for key in &ready {
                match *key {
                    SIGNALS if ended(signals) => {
                        self.tell_trouble(&mut report);
                        return Ok(self.counts());
                    }
                    SIGNALS => {}
                    device => self.take_in(device as usize, &mut buffer)?,
                }
            }
            self.hand_over()?;
            let now = Instant::now();
            if settled.is_some_and(|settled| settled <= now) {
                self.tell_trouble(&mut report);
            }
            if let (Some(at), Some(interval)) = (&mut next_report, interval)
                && *at <= now
            {
                *at = (*at + interval).max(now);
                report(Report::Counters { unix_s: unix_s(now), links: self.counts() });
            }
        }
    }

    /// Reads what a device has to send.
    fn take_in(&mut self, device: usize, buffer: &mut [u8]) -> Result<(), LinkError> {
        let mut header = [0; HEADER_BYTES];
        for _ in 0..FRAMES_A_TURN {
            match self.taps[device].receive(&mut header, buffer) {
                Ok(length) => {
                    let frame = self.network.buffers.frame(header, &buffer[..length]);
                    self.network.send(Instant::now(), device, frame);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(LinkError::Gone(self.config.devices[device].clone())),
            }
        }
        Ok(())
    }

    /// Hands over every frame that is due.
    fn hand_over(&mut self) -> Result<(), LinkError> {
        let mut now = Instant::now();
        while let Some(delivery) = self.network.deliver(now) {
            let Delivery { device, due, ref frame, .. } = delivery;
            let refusal = self.taps[device].send(&frame.header, &frame.bytes).err();
            let late = self.network.delivered(now, delivery, refusal.is_none());
            if late.is_some() || refusal.is_some() {
                self.note_trouble(due, now, late, u64::from(refusal.is_some()));
            }
            // EBADFD: the interface behind the descriptor has been deleted. Any other refusal is of this frame: the interface may just be down.
            if refusal.is_some_and(|error| error.raw_os_error() == Some(EBADFD)) {
                return Err(LinkError::Gone(self.config.devices[device].clone()));
            }
            // Taken anew for each: handing over runs the receiver's protocol stack, and what falls due meanwhile is not to wait for another turn.
            now = Instant::now();
        }
        match self.network.take_faults() {
            0 => {}
            lost => self.note_trouble(now, now, None, lost),
        }
        Ok(())
    }

    fn note_trouble(&mut self, from: Instant, to: Instant, late: Option<Duration>, lost_frames: u64) {
        let none = Trouble { from, to, late_frames: 0, lost_frames: 0, worst: Duration::ZERO };
        let trouble = self.trouble.get_or_insert(none);
        trouble.to = to;
        trouble.late_frames += u64::from(late.is_some());
        trouble.lost_frames += lost_frames;
        trouble.worst = trouble.worst.max(late.unwrap_or_default());
    }

    fn tell_trouble(&mut self, report: &mut impl FnMut(Report)) {
        if let Some(trouble) = self.trouble.take() {
            report(Report::Disturbance {
                from_unix_s: unix_s(trouble.from),
                to_unix_s: unix_s(trouble.to),
                late_frames: trouble.late_frames,
                lost_frames: trouble.lost_frames,
                worst_us: trouble.worst.as_micros() as u64,
            });
        }
    }

    fn counts(&self) -> Vec<WayCounts> {
        let names = self.config.links.iter().map(|link| link.ends.map(|end| self.config.name(end).to_owned()));
        let pairs = names.zip(self.network.counts());
        pairs
            .flat_map(|([one, other], [there, back])| {
                [
                    WayCounts { from: one.clone(), to: other.clone(), counts: there },
                    WayCounts { from: other, to: one, counts: back },
                ]
            })
            .collect()
    }
}

fn ended(signals: &Signals) -> bool {
    std::iter::from_fn(|| signals.next()).any(|signal| matches!(signal, Signal::Terminate | Signal::Interrupt))
}

/// Seconds since 1970 at an instant of the recent past.
fn unix_s(instant: Instant) -> f64 {
    let wall = SystemTime::now() - instant.elapsed();
    wall.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn explain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "/dev/net/tun is missing; load the kernel module `tun`".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "it needs CAP_NET_ADMIN; run as root, or in a user and network namespace of your own (unshare -rn)"
                .to_owned()
        }
        io::ErrorKind::ResourceBusy => {
            "an interface of this name is in use; end the other program, or choose another name".to_owned()
        }
        io::ErrorKind::InvalidInput => {
            "an interface of this name exists and is no TAP device; choose another name".to_owned()
        }
        _ => error.to_string(),
    }
}
