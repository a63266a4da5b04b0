//! One connection, served by a thread or process of its own that waits for it.
//!
//! Time limits are the socket's own (SO_RCVTIMEO, SO_SNDTIMEO). The receive time-out is set anew
//! only where the current one differs by a good part: a wait that ends too early looks at the limit
//! and waits again. A send waits for a part of its time-out, so that what the peer has acknowledged
//! is looked up in between.
//!
//! To end the server, its phase is set first, and then the socket's waits are made to end at once
//! (`plimsoll_sys::net::end_waits`), by a time-out too. A time-out set here may overwrite that one.
//! So the phase is looked at after a time-out is set and before a wait begins.

use std::cell::Cell;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use plimsoll_reactor::progress::{LOOKS, SendProgress, Sent, Verdict};
use plimsoll_reactor::worker_group::Phase;
use plimsoll_sys::net;

use super::conversation::{Conversation, ConversationState};
use super::environment::{Environment, Workspace};
use super::unsent::{Room, Unsent, reset_after};
use crate::service::{Output, Service};
use crate::totals::ConnectionTotals;

/// Every connection has one: small, as there may be thousands.
const INPUT_BYTES: usize = 16 * 1024;
/// The kernel counts a socket's time-outs in its own ticks; less than a millisecond might be none
/// at all.
const SHORTEST: Duration = Duration::from_millis(1);

/// Serves a blocking socket until it is over, adding to `counts` as it goes. A peer that takes
/// nothing for too long is an error of kind `TimedOut` without a number of the kernel's. After an
/// error or a panic the close of the socket is a reset.
pub(crate) fn serve<P: Service>(
    socket: impl AsFd,
    prototype: &P,
    mut workspace: Workspace,
    phase: impl Fn() -> Phase,
    counts: &mut ConnectionTotals,
) -> io::Result<()> {
    let _reset = ResetOnPanic(&socket);
    let mut conversation = Conversation::new(prototype, &workspace.environment);
    let outcome = converse(&socket, &mut conversation, &mut workspace, &phase);
    if let Err(error) = &outcome {
        reset_after(&socket, error);
    }
    *counts = conversation.counts;
    outcome
}

/// The peer would take an end of the stream for the end of all that is sent to it.
struct ResetOnPanic<S: AsFd>(S);

impl<S: AsFd> Drop for ResetOnPanic<S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // It can only fail where the connection is no more.
            let _ = net::reset_on_close(&self.0);
        }
    }
}

/// The error of a connection that is ended while some of its output is not in the kernel yet.
fn stopped() -> io::Error {
    io::ErrorKind::Interrupted.into()
}

fn converse<P: Service>(
    socket: &impl AsFd,
    conversation: &mut Conversation<P>,
    workspace: &mut Workspace,
    phase: &impl Fn() -> Phase,
) -> io::Result<()> {
    let mut input = vec![0; INPUT_BYTES];
    let sender = Sender::new(socket, conversation.send_timeout(), phase)?;
    let mut send = |input: &[u8], output: &mut Output, environment: &Environment, counts: &mut ConnectionTotals| {
        sender.send(input, output, environment, counts).map(|()| true)
    };
    let mut in_place = None;
    loop {
        workspace.environment.end_turn();
        let now_in = phase();
        if now_in != Phase::Run && !workspace.environment.is_draining() {
            workspace.environment.drain();
            conversation.hasten(workspace.environment.now());
        }
        let draining = workspace.environment.is_draining();
        match conversation.state {
            ConversationState::Resuming if now_in == Phase::Stop => return Err(stopped()),
            _ if now_in == Phase::Stop => return Ok(()),
            ConversationState::Receiving | ConversationState::Discarding => {}
            ConversationState::Resuming => {
                conversation.serve(&[], workspace, &mut send)?;
                continue;
            }
            ConversationState::Closing => {
                if draining || net::has_unread(socket) {
                    conversation.close_in_stages();
                }
                if conversation.state == ConversationState::Closing {
                    return Ok(());
                }
                continue;
            }
            ConversationState::Lingering => {
                net::shutdown(socket, net::Half::Write);
                // The last send may have taken a while.
                workspace.environment.look();
                conversation.discard(workspace.environment.now(), draining);
            }
        }
        // What has arrived is there: the read waits for nothing else. A peer whose bytes come one
        // by one, each before a wait ends, has no more time than another.
        let overdue = conversation.is_overdue(workspace.environment.now());
        let at_once = (draining || overdue) && conversation.state == ConversationState::Receiving;
        let read = if at_once {
            net::read_at_once(socket, &mut input)
        } else {
            set_receive_timeout(socket, conversation.until, workspace.environment.now(), &mut in_place)?;
            if phase() != now_in {
                in_place = None;
                continue;
            }
            net::read(socket, &mut input)
        };
        workspace.environment.look();
        match read {
            Ok(0) => return Ok(()),
            Ok(length) => {
                conversation.received(length, draining);
                if conversation.state != ConversationState::Discarding {
                    conversation.serve(&input[..length], workspace, &mut send)?;
                } else {
                    look_when_due(socket, conversation, draining)?;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if conversation.state == ConversationState::Discarding {
                    look_when_due(socket, conversation, draining)?;
                } else if at_once && draining {
                    conversation.nothing_arrives();
                } else if phase() != now_in {
                    in_place = None;
                } else if conversation.until.is_none_or(|until| Instant::now() >= until) {
                    conversation.expire(workspace, &mut send)?;
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Looks at what the peer has acknowledged while input is discarded, if it is time to.
fn look_when_due<P: Service>(socket: &impl AsFd, conversation: &mut Conversation<P>, draining: bool) -> io::Result<()> {
    let now = Instant::now();
    if conversation.until.is_some_and(|until| now < until) {
        return Ok(());
    }
    conversation.look(now, net::unacknowledged(socket)?, draining)
}

/// Has a read wait until then, or so, given how long it would wait so far.
fn set_receive_timeout(
    socket: &impl AsFd,
    until: Option<Instant>,
    now: Instant,
    in_place: &mut Option<Duration>,
) -> io::Result<()> {
    let Some(until) = until else { return Ok(()) };
    let wait = until.saturating_duration_since(now).max(SHORTEST);
    if in_place.is_none_or(|place| place.abs_diff(wait) > wait / 8) {
        net::set_receive_timeout(socket, Some(wait))?;
        *in_place = Some(wait);
    }
    Ok(())
}

/// Sends a turn's output whole, for as long as the peer takes it.
struct Sender<'a, S, F> {
    socket: &'a S,
    timeout: Option<Duration>,
    /// The socket's time-out of sending.
    in_place: Cell<Duration>,
    phase: &'a F,
}

impl<'a, S: AsFd, F: Fn() -> Phase> Sender<'a, S, F> {
    fn new(socket: &'a S, timeout: Option<Duration>, phase: &'a F) -> io::Result<Sender<'a, S, F>> {
        let sender = Sender { socket, timeout, in_place: Cell::new(Duration::MAX), phase };
        if let Some(timeout) = timeout {
            sender.wait_at_most(timeout / LOOKS)?;
        }
        Ok(sender)
    }

    fn send(
        &self,
        input: &[u8],
        output: &mut Output,
        environment: &Environment,
        counts: &mut ConnectionTotals,
    ) -> io::Result<()> {
        // A process closes its socket late as it ends: what it has sent must not wait for that.
        output.ends = false;
        let mut unsent = Unsent::default();
        unsent.send(self.socket, input, output, environment, Room::LevelTriggered, &mut counts.bytes_sent)?;
        if unsent.is_empty() {
            return Ok(());
        }
        let mut waiting = self.timeout.map(|timeout| {
            // Output began to wait before the call above, which waits too.
            let progress = SendProgress::begin(environment.now());
            (progress, timeout, progress.next_look(environment.now(), timeout))
        });
        loop {
            if let Some((progress, timeout, look_at)) = &mut waiting {
                let now = Instant::now();
                if now >= *look_at {
                    let sent = Sent::new(counts.bytes_sent, net::unacknowledged(self.socket)?);
                    match progress.look(now, sent, *timeout) {
                        Verdict::LookAgain(at) => *look_at = at,
                        // The peer does not take what the kernel holds for it either: it is reset.
                        Verdict::GiveUp => return Err(io::ErrorKind::TimedOut.into()),
                    }
                }
                self.wait_at_most(look_at.saturating_duration_since(now))?;
            }
            if (self.phase)() == Phase::Stop {
                return Err(stopped());
            }
            unsent.flush(self.socket, Room::LevelTriggered, &mut counts.bytes_sent)?;
            if unsent.is_empty() {
                return Ok(());
            }
        }
    }

    /// Makes a send wait no longer than this, unless the current time-out is about as long.
    fn wait_at_most(&self, longest: Duration) -> io::Result<()> {
        let wait = send_wait(longest, self.in_place.get());
        if wait != self.in_place.replace(wait) {
            net::set_send_timeout(self.socket, Some(wait))?;
        }
        Ok(())
    }
}

/// The time-out of a send that is to wait no longer than `longest`: the current one if it is short
/// enough. The kernel's timers are late by up to an eighth (kernel/time/timer.c).
fn send_wait(longest: Duration, in_place: Duration) -> Duration {
    let wait = (longest * 8 / 9).max(SHORTEST);
    if (wait / 2..=wait).contains(&in_place) { in_place } else { wait }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    /// When a peer is given up that acknowledges a last byte right after a send begins, where the
    /// kernel ends each wait an eighth late.
    fn given_up_after(timeout: Duration) -> Duration {
        let start = Instant::now();
        let mut in_place = send_wait(timeout / LOOKS, Duration::MAX);
        let mut now = start + in_place + in_place / 8;
        let mut progress = SendProgress::begin(start);
        let mut look_at = progress.next_look(start, timeout);
        loop {
            if now >= look_at {
                match progress.look(now, Sent { acknowledged: 1, unacknowledged: 1 }, timeout) {
                    Verdict::LookAgain(at) => look_at = at,
                    Verdict::GiveUp => return now - start,
                }
            }
            in_place = send_wait(look_at.saturating_duration_since(now), in_place);
            now += in_place + in_place / 8;
        }
    }

    #[test]
    fn a_send_waits_for_a_part_of_its_time_out_from_the_first_on() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let socket = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        let sent_for = |timeout| {
            let sender = Sender::new(&socket, timeout, &|| Phase::Run).expect("a socket takes it");
            assert_eq!(sender.timeout, timeout);
            socket.write_timeout().expect("a socket has one")
        };
        assert_eq!(sent_for(None), None);
        let timeout = Duration::from_secs(60);
        let wait = sent_for(Some(timeout)).expect("it is set");
        assert!(wait <= timeout / LOOKS && wait >= timeout / LOOKS / 2, "{wait:?}");
    }

    #[test]
    fn a_peer_is_given_up_in_time_although_the_kernel_is_late() {
        for timeout in [1, 60, 3600].map(Duration::from_secs) {
            let after = given_up_after(timeout);
            let latest = timeout + timeout / LOOKS + 10 * SHORTEST;
            assert!(after >= timeout && after <= latest, "{after:?} of {timeout:?}");
        }
    }
}
