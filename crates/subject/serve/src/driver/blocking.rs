//! One connection, served by a thread or process of its own that waits for it.
//!
//! Time limits are the socket's own (SO_RCVTIMEO, SO_SNDTIMEO). That of receiving is set anew only
//! where the one in place is another by a good part: a wait that ends too early looks at the limit
//! and waits on. A send waits for a part of its time-out, so that what the peer has taken is looked
//! up in between.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use plimsoll_reactor::progress::{LOOKS, SendProgress, Sent, Verdict};
use plimsoll_sys::net;

use super::conversation::{Conversation, Stage};
use super::environment::{Environment, Workspace};
use super::unsent::{Room, Unsent, reset_after};
use crate::service::{Output, Service};
use crate::totals::Exchange;

/// Every connection has one: small, as there may be thousands.
const INPUT_BYTES: usize = 16 * 1024;
/// The kernel counts a socket's time-outs in its own ticks; less than a millisecond might be none
/// at all.
const SHORTEST: Duration = Duration::from_millis(1);

/// Serves a blocking socket until it is over, adding to `exchange` as it goes. A peer that takes
/// nothing for too long is an error of kind `TimedOut` without a number of the kernel's. After an
/// error the close of the socket is a reset.
pub(crate) fn serve<P: Service>(
    socket: impl AsFd,
    prototype: &P,
    mut workspace: Workspace,
    exchange: &mut Exchange,
) -> io::Result<()> {
    let mut conversation = Conversation::new(prototype, &workspace.environment);
    let outcome = converse(&socket, &mut conversation, &mut workspace);
    if let Err(error) = &outcome {
        reset_after(&socket, error);
    }
    *exchange = conversation.exchange;
    outcome
}

fn converse<P: Service>(
    socket: &impl AsFd,
    conversation: &mut Conversation<P>,
    workspace: &mut Workspace,
) -> io::Result<()> {
    let mut input = vec![0; INPUT_BYTES];
    let sender = Sender::new(socket, conversation.send_timeout())?;
    let mut send = |input: &[u8], output: &mut Output, environment: &Environment, exchange: &mut Exchange| {
        sender.send(input, output, environment, exchange).map(|()| true)
    };
    let mut in_place = None;
    loop {
        workspace.environment.end_turn();
        match conversation.stage {
            Stage::Receiving | Stage::Discarding => {}
            Stage::Resuming => {
                conversation.serve(&[], workspace, &mut send)?;
                continue;
            }
            Stage::Closing => return Ok(()),
            Stage::Lingering => {
                net::shutdown(socket, net::Half::Write);
                conversation.discard(Instant::now());
            }
        }
        set_receive_timeout(socket, conversation.until, workspace.environment.now(), &mut in_place)?;
        let read = net::read(socket, &mut input);
        workspace.environment.look();
        match read {
            Ok(0) => return Ok(()),
            Ok(length) => {
                conversation.exchange.bytes_received += length as u64;
                if conversation.stage != Stage::Discarding {
                    conversation.serve(&input[..length], workspace, &mut send)?;
                } else if conversation.until.is_some_and(|until| Instant::now() >= until) {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if conversation.until.is_none_or(|until| Instant::now() >= until) {
                    conversation.expire(workspace, &mut send)?;
                }
            }
            Err(error) => return Err(error),
        }
    }
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
struct Sender<'a, S> {
    socket: &'a S,
    timeout: Option<Duration>,
}

impl<S: AsFd> Sender<'_, S> {
    fn new(socket: &S, timeout: Option<Duration>) -> io::Result<Sender<'_, S>> {
        if let Some(timeout) = timeout {
            net::set_send_timeout(socket, Some((timeout / LOOKS).max(SHORTEST)))?;
        }
        Ok(Sender { socket, timeout })
    }

    fn send(
        &self,
        input: &[u8],
        output: &mut Output,
        environment: &Environment,
        exchange: &mut Exchange,
    ) -> io::Result<()> {
        let mut unsent = Unsent::default();
        exchange.bytes_sent += unsent.send(self.socket, input, output, environment, Room::Told)?;
        if unsent.is_empty() {
            return Ok(());
        }
        let mut waiting = self.timeout.map(|timeout| {
            let now = Instant::now();
            let progress = SendProgress::begin(now);
            (progress, timeout, progress.next_look(now, timeout))
        });
        while !unsent.is_empty() {
            exchange.bytes_sent += unsent.flush(self.socket, Room::Told)?;
            let Some((progress, timeout, look_at)) = &mut waiting else { continue };
            let now = Instant::now();
            if now < *look_at {
                continue;
            }
            let sent = Sent::new(exchange.bytes_sent, net::unacknowledged(self.socket)?);
            match progress.look(now, sent, *timeout) {
                Verdict::LookAgain(at) => *look_at = at,
                // The peer does not take what the kernel holds for it either: it is reset.
                Verdict::GiveUp => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        Ok(())
    }
}
