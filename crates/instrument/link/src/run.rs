//! The network between TAP devices, in real time: one event loop that reads frames, waits, and
//! hands them on when they are due.
//!
//! Its rule: it never waits for anything but time, frames and signals. Reports go to a callback
//! that must not block.

use std::io;
use std::time::{Duration, Instant, SystemTime};

use plimsoll_sys::clock;
use plimsoll_sys::epoll::{Epoll, Trigger};
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::signal::{Signal, Signals};
use plimsoll_sys::tap::{HEADER_BYTES, Offload, Tap};
use thiserror::Error;

use crate::config::Config;
use crate::disturbance::{Disturbance, Disturbances};
use crate::frame::{FRAME_BYTES, Frame};
use crate::network::{Delivery, Network};
use crate::report::{Cost, DirectionCounts, Outcome, Report, Totals};
use crate::standby::Standby;

/// Frames read from a device before the other devices are read and frames that are due are handed
/// over.
const READS_PER_ROUND: usize = 32;

/// Frames handed over before the devices are read and signals are taken: more may fall due while
/// these are handed over.
const DELIVERIES_PER_ROUND: usize = 256;

/// How often the devices are asked what they dropped, at least.
const DROPS_EVERY: Duration = Duration::from_secs(1);

/// The key of the signals among the devices' numbers.
const SIGNALS: u64 = u64::MAX;

/// The key of the event by which the standby wakes this thread.
const STANDBY: u64 = u64::MAX - 1;

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
    /// A device went away: its namespace ended, or it was deleted.
    #[error(
        "the TAP device `{0}` is gone: its namespace ended, or it was deleted; start the link again with the hosts"
    )]
    Gone(String),
    /// A device cannot be read, though it is there.
    #[error("cannot read frames from the TAP device `{device}`: {source}; start the link again with the hosts")]
    Read {
        /// Its name.
        device: String,
        /// What the kernel said.
        source: io::Error,
    },
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

/// The devices and the network between them.
pub struct Link<'a> {
    config: Config,
    signals: &'a Signals,
    standby: Standby,
    network: Network,
    devices: Vec<Device>,
    epoll: Epoll,
    disturbances: Disturbances,
    /// When the devices were last asked what they dropped.
    drops_read: Instant,
    longest_round: Duration,
    /// CPU time of this thread, and its wait for a CPU, before it emulated.
    usage_before: [Duration; 2],
}

/// A TAP device, and the frames that it dropped because earlier ones were not read in time.
struct Device {
    tap: Tap,
    /// How many, as far as they are counted; `None` once they cannot be read.
    drops: Option<u64>,
}

impl<'a> Link<'a> {
    /// Makes the devices. They are down and in this process's namespace: the caller moves them to
    /// their hosts. The calling thread is to move the frames, until one of these signals.
    pub fn open(config: Config, signals: &'a Signals) -> Result<Link<'a>, LinkError> {
        let offload = if config.whole_segments { Offload::Segmentation } else { Offload::Checksum };
        let mut devices = Vec::new();
        for name in &config.devices {
            let refused = |source| LinkError::Device { name: name.clone(), why: explain(&source), source };
            let mut tap = Tap::open(name, offload).map_err(refused)?;
            // A device that was there before has drops of its own. A counter that cannot be read
            // now is reported as the link begins.
            let drops = tap.transmit_drops().unwrap_or(0);
            devices.push(Device { tap, drops: Some(drops) });
        }
        let epoll = Epoll::new(devices.len() + 2)?;
        for (number, device) in devices.iter().enumerate() {
            epoll.add(&device.tap, number as u64, Interest::READ, Trigger::Level)?;
        }
        epoll.add(signals, SIGNALS, Interest::READ, Trigger::Level)?;
        let standby = Standby::start()?;
        epoll.add(standby.event(), STANDBY, Interest::READ, Trigger::Level)?;
        let network = Network::new(&config);
        Ok(Link {
            network,
            config,
            signals,
            standby,
            devices,
            epoll,
            disturbances: Disturbances::default(),
            drops_read: Instant::now(),
            longest_round: Duration::ZERO,
            usage_before: usage(),
        })
    }

    /// Moves frames until a signal to end comes, or it cannot go on. `report` is called with the
    /// counts every `interval`, and with each disturbance.
    pub fn run(mut self, interval: Option<Duration>, mut report: impl FnMut(Report)) -> Outcome<LinkError> {
        let ended = self.carry(interval, &mut report);
        let failure = ended.and(self.read_drops(&mut report)).err();
        self.disturbances.take().into_iter().for_each(|each| report(disturbance(each)));
        Outcome { totals: self.totals(), failure }
    }

    fn carry(&mut self, interval: Option<Duration>, report: &mut impl FnMut(Report)) -> Result<(), LinkError> {
        // A thread's timers may fire up to 50 us late by default (PR_SET_TIMERSLACK), which would
        // be the link's delay.
        if let Err(error) = clock::sharpen_timers() {
            report(Report::TimersCoarse { why: error.to_string() });
        }
        let mut next_report = interval.map(|interval| Instant::now() + interval);
        let mut buffer = vec![0; FRAME_BYTES];
        let mut ready: Vec<u64> = Vec::new();
        self.read_drops(report)?;
        let mut woken = Instant::now();
        loop {
            let now = Instant::now();
            self.longest_round = self.longest_round.max(now - woken);
            let next_drops = self.drops_read + DROPS_EVERY;
            let wake = [self.network.next_due(), next_report, self.disturbances.ends_at(), Some(next_drops)];
            let timeout = wake.into_iter().flatten().min().map(|wake| wake.saturating_duration_since(now));
            ready.clear();
            self.standby.waits(self.network.next_due());
            ready.extend(self.epoll.wait(timeout)?.map(|event| event.key));
            self.standby.runs();
            woken = Instant::now();
            self.hand_over()?;
            for key in &ready {
                match *key {
                    SIGNALS if ended(self.signals) => return Ok(()),
                    SIGNALS => {}
                    STANDBY => {
                        self.standby.event().lower();
                    }
                    device => self.take_in(device as usize, &mut buffer)?,
                }
            }
            self.hand_over()?;
            let now = Instant::now();
            let is_report_due = next_report.is_some_and(|at| at <= now);
            if is_report_due || next_drops <= now {
                self.read_drops(report)?;
            }
            self.disturbances.take_over(now).into_iter().for_each(|each| report(disturbance(each)));
            if let (Some(at), Some(interval), true) = (&mut next_report, interval, is_report_due) {
                *at = (*at + interval).max(now);
                let disturbed = self.disturbances.is_open();
                report(Report::Counters { unix_s: unix_s(now), disturbed, totals: self.totals() });
            }
        }
    }

    /// Reads what a device has to send.
    fn take_in(&mut self, device: usize, buffer: &mut [u8]) -> Result<(), LinkError> {
        let mut header = [0; HEADER_BYTES];
        for _ in 0..READS_PER_ROUND {
            match self.devices[device].tap.receive(&mut header, buffer) {
                Ok(length) => {
                    let frame = self.network.buffers.frame(header, &buffer[..length]);
                    self.network.send(Instant::now(), device, frame);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    let device = self.config.devices[device].clone();
                    let is_gone = source.raw_os_error() == Some(EBADFD);
                    return Err(if is_gone { LinkError::Gone(device) } else { LinkError::Read { device, source } });
                }
            }
        }
        Ok(())
    }

    /// Hands over frames that are due, a round's worth at most.
    fn hand_over(&mut self) -> Result<(), LinkError> {
        let devices = &self.devices;
        let send = |device: usize, frame: &Frame| devices[device].tap.send(&frame.header, &frame.bytes);
        hand_over(&mut self.network, &mut self.disturbances, Instant::now, send)
            .map_err(|device| LinkError::Gone(self.config.devices[device].clone()))
    }

    /// Asks each device what it dropped since it was last asked.
    fn read_drops(&mut self, report: &mut impl FnMut(Report)) -> Result<(), LinkError> {
        let since = self.drops_read;
        for number in 0..self.devices.len() {
            let device = &mut self.devices[number];
            let Some(before) = device.drops else { continue };
            match device.tap.transmit_drops() {
                Ok(drops) => {
                    device.drops = Some(drops);
                    let new = drops.saturating_sub(before);
                    if new > 0 {
                        self.network.never_read(number, new);
                        self.disturbances.lost(since, Instant::now(), new);
                    }
                }
                // The next read of the device says so as well, and says which it is.
                Err(error) if error.raw_os_error() == Some(EBADFD) => {}
                Err(error) => {
                    device.drops = None;
                    let device = self.config.devices[number].clone();
                    report(Report::DropsUnknown { device, why: error.to_string() });
                }
            }
            // Many devices take their time, in which frames fall due.
            self.hand_over()?;
        }
        self.drops_read = Instant::now();
        Ok(())
    }

    fn totals(&self) -> Totals {
        let [cpu, run_queue_wait] = usage();
        let [cpu_before, wait_before] = self.usage_before;
        let packets = self.network.sent_by_hosts();
        let cpu_s = (cpu - cpu_before).as_secs_f64();
        let emulator = Cost {
            packets,
            cpu_s,
            cpu_us_per_packet: cpu_s * 1e6 / packets.max(1) as f64,
            standby_cpu_s: self.standby.cpu_time().as_secs_f64(),
            run_queue_wait_s: run_queue_wait.saturating_sub(wait_before).as_secs_f64(),
            longest_round_us: self.longest_round.as_micros() as u64,
        };
        let devices = self.devices.iter().zip(&self.config.devices);
        let drops_unknown =
            devices.filter(|(device, _)| device.drops.is_none()).map(|(_, name)| name.clone()).collect();
        Totals { links: self.counts(), emulator, drops_unknown }
    }

    fn counts(&self) -> Vec<DirectionCounts> {
        let names = self.config.links.iter().map(|link| link.ends.map(|end| self.config.name(end).to_owned()));
        let pairs = names.zip(self.network.counts());
        pairs
            .flat_map(|([one, other], [forward, reverse])| {
                [
                    DirectionCounts { from: one.clone(), to: other.clone(), counts: forward },
                    DirectionCounts { from: other, to: one, counts: reverse },
                ]
            })
            .collect()
    }
}

/// CPU time of this thread so far, and for how long it was ready and had none.
fn usage() -> [Duration; 2] {
    [clock::thread_cpu_time(), clock::thread_run_queue_wait()]
}

/// Hands over frames that are due, a round's worth at most, by `send`; notes which were late or
/// refused. An error is the number of a device that is gone.
fn hand_over(
    network: &mut Network,
    disturbances: &mut Disturbances,
    mut clock: impl FnMut() -> Instant,
    mut send: impl FnMut(usize, &Frame) -> io::Result<()>,
) -> Result<(), usize> {
    let mut now = clock();
    for _ in 0..DELIVERIES_PER_ROUND {
        let Some(delivery) = network.deliver(now) else { break };
        let Delivery { device, due, ref frame, .. } = delivery;
        let refusal = send(device, frame).err();
        if network.delivered(now, delivery, refusal.is_none()).is_some() {
            disturbances.late(due, now);
        }
        if let Some(error) = refusal {
            disturbances.lost(due, now, 1);
            // EBADFD: the interface behind the descriptor has been deleted. Any other refusal is of
            // this frame: the interface may just be down.
            if error.raw_os_error() == Some(EBADFD) {
                return Err(device);
            }
        }
        // Read anew for each frame: handing over runs the receiver's protocol stack, and frames
        // fall due meanwhile.
        now = clock();
    }
    match network.take_faults() {
        0 => {}
        lost => disturbances.lost(now, now, lost),
    }
    Ok(())
}

fn disturbance(Disturbance { from, to, late_frames, lost_frames, worst }: Disturbance) -> Report {
    Report::Disturbance {
        from_unix_s: unix_s(from),
        to_unix_s: unix_s(to),
        late_frames,
        lost_frames,
        worst_us: worst.as_micros() as u64,
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
    // Opening /dev/net/tun is refused by its mode, and making a device for want of a capability.
    const EACCES: Option<i32> = Some(13);
    const ENODEV: Option<i32> = Some(19);
    match error.kind() {
        _ if error.raw_os_error() == EACCES => {
            "this user may not open /dev/net/tun; run as root, or let all open it (chmod a+rw /dev/net/tun)".to_owned()
        }
        _ if error.raw_os_error() == ENODEV => "the kernel has no TAP devices; load the kernel module `tun`".to_owned(),
        io::ErrorKind::NotFound => "/dev/net/tun is missing; load the kernel module `tun`".to_owned(),
        io::ErrorKind::PermissionDenied => "it needs CAP_NET_ADMIN; run as root, or in a user and network namespace \
                                            of your own (unshare -rn)"
            .to_owned(),
        io::ErrorKind::ResourceBusy => {
            "an interface of this name is in use; end the other program, or choose another name".to_owned()
        }
        io::ErrorKind::InvalidInput => {
            "an interface of this name exists and is no TAP device; choose another name".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
