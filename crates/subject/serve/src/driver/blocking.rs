//! One connection, served by a thread or process of its own that waits for it.
//!
//! Time limits are the socket's own (SO_RCVTIMEO, SO_SNDTIMEO), set anew only where the one in place is another by a good part: a wait that ends too early looks at the limit and
//! waits on.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use plimsoll_sys::net;

use super::surroundings::{Desk, Surroundings};
use super::talk::{Stage, Talk};
use super::unsent::Unsent;
use crate::service::{Output, Service};
use crate::totals::Exchange;

/// Every connection has one: small, as there may be thousands.
const INPUT_BYTES: usize = 16 * 1024;

/// Serves a blocking socket until it is over, adding to `exchange` as it goes.
pub(crate) fn serve<P: Service>(
    socket: impl AsFd,
    prototype: &P,
    mut desk: Desk,
    exchange: &mut Exchange,
) -> io::Result<()> {
    let mut talk = Talk::new(prototype, &desk.surroundings);
    let outcome = converse(&socket, &mut talk, &mut desk, prototype.patience());
    *exchange = talk.exchange;
    outcome
}

fn converse<P: Service>(
    socket: &impl AsFd,
    talk: &mut Talk<P>,
    desk: &mut Desk,
    patience: Option<Duration>,
) -> io::Result<()> {
    let mut input = vec![0; INPUT_BYTES];
    let mut unsent = Unsent::default();
    let mut send = |input: &[u8], output: &mut Output, surroundings: &Surroundings, exchange: &mut Exchange| {
        exchange.bytes_sent += unsent.send(socket, input, output, surroundings)?;
        while !unsent.is_empty() {
            match unsent.flush(socket)? {
                0 => return Err(io::ErrorKind::TimedOut.into()),
                sent => exchange.bytes_sent += sent,
            }
        }
        Ok(true)
    };
    if patience.is_some() {
        net::set_timeout(socket, patience)?;
    }
    let mut in_place = patience;
    loop {
        desk.surroundings.end_turn();
        match talk.stage {
            Stage::Receiving | Stage::Discarding => {}
            Stage::Resuming => {
                talk.serve(&[], desk, &mut send)?;
                continue;
            }
            Stage::Closing => return Ok(()),
            Stage::Lingering => {
                net::shutdown(socket, net::Half::Write);
                talk.discard(Instant::now());
            }
        }
        if let Some(until) = talk.until {
            let wait = until.saturating_duration_since(desk.surroundings.now()).max(Duration::from_millis(1));
            if in_place.is_none_or(|place| place.abs_diff(wait) > wait / 8) {
                net::set_receive_timeout(socket, Some(wait))?;
                in_place = Some(wait);
            }
        }
        let read = net::read(socket, &mut input);
        desk.surroundings.look();
        match read {
            Ok(0) => return Ok(()),
            Ok(length) => {
                talk.exchange.bytes_received += length as u64;
                if talk.stage != Stage::Discarding {
                    talk.serve(&input[..length], desk, &mut send)?;
                } else if talk.until.is_some_and(|until| Instant::now() >= until) {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if talk.until.is_none_or(|until| Instant::now() >= until) {
                    talk.expire(desk, &mut send)?;
                }
            }
            Err(error) => return Err(error),
        }
    }
}
