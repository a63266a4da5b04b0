//! What has happened, as the caller sees it, out of what the kernel says: a number that names the
//! request, a result and flags.

use std::collections::hash_map::Entry;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use io_uring::cqueue;

use super::arrival::{Adoption, read_address};
use super::kind::Kind;
use super::{Buffer, Payload, Ring, Slot};

/// Something that has happened.
#[derive(Debug)]
pub enum Completion {
    /// The watched descriptor was raised.
    Woken {
        /// Whether the watch stays active; if not, it has to be requested again.
        more: bool,
    },
    /// An accept ended. Successful or not it has to be asked for again.
    Accepted {
        /// The listener, by the number that the accept was asked for under.
        listener: u32,
        /// The connection.
        outcome: io::Result<(Slot, SocketAddr)>,
    },
    /// Something can be taken from a descriptor that was watched once, by the number it was watched
    /// under.
    Ready(u32),
    /// A socket from outside is in the table, or could not be put there and is closed.
    Adopted(io::Result<(Slot, SocketAddr)>),
    /// A socket has a number in the thread's own table too, or cannot have one.
    Installed {
        /// Where.
        slot: Slot,
        /// The number. Calls on an accepted socket never wait; one from outside the ring is as it
        /// was made.
        outcome: io::Result<OwnedFd>,
    },
    /// A socket has room for what is to be sent, or has failed.
    Room(Slot),
    /// A connect ended.
    Connected {
        /// Where.
        slot: Slot,
        /// Whether the socket is connected.
        outcome: io::Result<()>,
    },
    /// Bytes arrived, or with `None` the end of the stream.
    Received {
        /// Where.
        slot: Slot,
        /// What. An error of ENOBUFS says that the pool was empty: see [`is_out_of_buffers`].
        outcome: io::Result<Option<Buffer>>,
        /// Whether the receive stays active; if not, it has to be requested again.
        more: bool,
    },
    /// A send ended.
    Sent {
        /// Where.
        slot: Slot,
        /// How many bytes of the payload were sent.
        outcome: io::Result<usize>,
        /// The memory that the kernel has released.
        payload: Payload,
    },
    /// How many bytes the kernel holds for a socket's peer.
    Unacknowledged {
        /// Where.
        slot: Slot,
        /// How many. Before Linux 6.7 it is an error.
        outcome: io::Result<usize>,
    },
    /// The socket is closed; its slot may be another's from now on.
    Closed(Slot),
}

/// Whether a receive ended only because the pool had no buffer: it is to be asked for again when
/// one is back.
pub fn is_out_of_buffers(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Whether a request ended because it was cancelled.
pub fn is_cancelled(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ECANCELED)
}

impl Ring {
    pub(super) fn interpret(&mut self, entry: &cqueue::Entry) -> Option<Completion> {
        let number = entry.user_data() as u32;
        let outcome = match entry.result() {
            result @ 0.. => Ok(result as usize),
            error => Err(io::Error::from_raw_os_error(-error)),
        };
        let slot = Slot(number);
        match Kind::of(entry.user_data())? {
            Kind::Wake => Some(Completion::Woken { more: cqueue::more(entry.flags()) }),
            Kind::Accept => {
                let place = &mut self.accepts[number as usize];
                let listener = place.waiting.take().expect("an accept completes once");
                let outcome = outcome.map(|index| (Slot(index as u32), read_address(&place.address)));
                Some(Completion::Accepted { listener, outcome })
            }
            Kind::Receive => {
                let buffer = cqueue::buffer_select(entry.flags());
                // Some kernels give a receive that finds nothing its buffer with the error (io_recv
                // in io_uring/net.c recycles it only later ones): it is free again.
                let length = *outcome.as_ref().unwrap_or(&0);
                let received = self.received(buffer, length);
                let outcome = outcome.map(|_| received);
                Some(Completion::Received { slot, outcome, more: cqueue::more(entry.flags()) })
            }
            Kind::Send => {
                let (slot, payload) =
                    self.in_flight[number as usize].take().expect("what is in_flight comes back once");
                self.free_ids.push(number);
                Some(Completion::Sent { slot, outcome, payload })
            }
            Kind::Close => Some(Completion::Closed(slot)),
            Kind::Ready => Some(Completion::Ready(number)),
            Kind::Adopt => {
                let Adoption { number, peer, socket } =
                    self.adoptions[number as usize].take().expect("what is adopted comes once");
                drop(socket);
                Some(Completion::Adopted(outcome.map(|_| (Slot(*number as u32), peer))))
            }
            Kind::Install => Some(Completion::Installed { slot, outcome: outcome.map(installed) }),
            Kind::Room => Some(Completion::Room(slot)),
            Kind::Connect => {
                let connecting = self.connecting[slot.index()].take().expect("a connect completes once");
                Some(Completion::Connected { slot, outcome: outcome.and_then(|_| connecting.outcome()) })
            }
            Kind::End => {
                if let Entry::Occupied(mut place) = self.ending.entry(number) {
                    place.get_mut().left -= 1;
                    if place.get().left == 0 {
                        self.after_ends.extend(place.remove().then);
                    }
                }
                None
            }
            Kind::Unacknowledged => Some(Completion::Unacknowledged { slot, outcome }),
            Kind::Aside => None,
        }
    }

    /// What a receive of `length` bytes brought, in the buffer that the kernel chose.
    fn received(&mut self, buffer: Option<u16>, length: usize) -> Option<Buffer> {
        let buffer = buffer.map(|id| self.pool.take(id, length));
        // The end of the stream may come with a buffer, with nothing in it.
        if length > 0 {
            return buffer;
        }
        if let Some(buffer) = buffer {
            self.pool.recycle(buffer);
        }
        None
    }
}

/// Takes over the number that a socket was given in the thread's table.
fn installed(number: usize) -> OwnedFd {
    // SAFETY: the kernel has just made this number for us (io_uring_prep_fixed_fd_install(3)), so
    // nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(number as RawFd) }
}
