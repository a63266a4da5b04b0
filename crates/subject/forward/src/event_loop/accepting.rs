//! The listeners of a table: taken over from the coordinator, waited for while it is this table's
//! turn, left when they are closed.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use plimsoll_reactor::accept::Failure;
use plimsoll_sys::epoll::Trigger;
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::{descriptor, net, passing};

use super::{EventLoop, HANDOFF, Listener, OTHER_DESCRIPTORS, key_of};
use crate::limit::Room;
use crate::message::{MESSAGE_BYTES, Message};
use crate::shared::ListenerNumber;

impl EventLoop<'_> {
    pub(super) fn read_messages(&mut self) -> io::Result<()> {
        let Some(mailbox) = self.handle.mailbox() else { return Ok(()) };
        let (mut message, mut descriptors) = ([0; MESSAGE_BYTES], Vec::new());
        loop {
            let length = match passing::receive(mailbox, &mut message, &mut descriptors) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    self.totals.count_error(&error);
                    (self.shared.say)(&format!("a worker cannot take a new listener: {error}; raise `ulimit -n`"));
                    descriptors.clear();
                    if descriptor::is_full_table(&error) {
                        // The message is gone. Another table, which is sent every listener, accepts
                        // in place of this one, until connections here have ended.
                        self.lacks_listeners = true;
                        self.report_full()?;
                    }
                    continue;
                }
            };
            match Message::from_bytes(&message[..length]) {
                Some(Message::Listen(numbers)) => self.listen(numbers, &mut descriptors)?,
                Some(Message::Leave(numbers)) => {
                    self.leave(&numbers)?;
                    self.shared.left.fetch_add(1, Ordering::AcqRel);
                    self.handle.request_attention();
                }
                Some(Message::Forget(numbers)) => numbers.into_iter().try_for_each(|number| self.forget(number))?,
                Some(Message::Routes) => {
                    let routes = self.shared.routes();
                    for (number, listener) in &mut self.listeners {
                        if let Some(route) = routes.get(number) {
                            listener.route = Arc::clone(route);
                        }
                    }
                }
                Some(Message::Handoff) => {
                    self.handoff = descriptors.pop();
                    // Where connections are handed over there is nothing else to wait for.
                    self.listening = false;
                    self.follow_turn()?;
                }
                None => return Ok(()),
            }
        }
    }

    fn listen(&mut self, numbers: Vec<ListenerNumber>, sockets: &mut Vec<OwnedFd>) -> io::Result<()> {
        let routes = self.shared.routes();
        for (number, socket) in numbers.into_iter().zip(sockets.drain(..)) {
            // A listener without a route has been closed again since. A table that lacked some is
            // sent all.
            let Some(route) = routes.get(&number).filter(|_| !self.listeners.contains_key(&number)) else { continue };
            self.listeners.insert(number, Listener { socket, route: Arc::clone(route) });
            if self.listening {
                self.wait_for(number)?;
            }
        }
        self.follow_turn()
    }

    /// Takes connections queued at these listeners, and closes them. The kernel has accepted these
    /// already, so they are taken whatever the limits, by any table that has a descriptor left.
    pub(super) fn leave(&mut self, numbers: &[ListenerNumber]) -> io::Result<()> {
        for &number in numbers {
            self.accept_last(number);
            self.forget(number)?;
        }
        Ok(())
    }

    /// Closes a listener as it is.
    fn forget(&mut self, number: ListenerNumber) -> io::Result<()> {
        let waited = self.waiting.iter().position(|waiting| *waiting == number);
        waited.map(|place| self.waiting.swap_remove(place));
        if let Some(listener) = self.listeners.remove(&number)
            && self.listening
            && waited.is_none()
        {
            // Others hold the open file too, so closing would leave it reporting (epoll(7)).
            self.epoll.remove(&listener.socket)?;
        }
        Ok(())
    }

    fn accept_last(&mut self, number: ListenerNumber) {
        while let Some(listener) = self.listeners.get(&number) {
            match net::accept_prepared(&listener.socket) {
                Ok((socket, address)) => {
                    let route = Arc::clone(&listener.route);
                    self.shared.limit.force();
                    self.open(socket, address, route);
                }
                Err(error) => {
                    let failure = Failure::of(&error);
                    if matches!(failure, Failure::Empty | Failure::Closed) {
                        return;
                    }
                    self.totals.count_error(&error);
                    if failure.pauses() {
                        return;
                    }
                }
            }
        }
    }

    fn trigger(&self) -> Trigger {
        if self.shared.exclusive { Trigger::Exclusive } else { Trigger::Level }
    }

    /// Waits for the listeners while it is this table's turn and nothing is exhausted, and not
    /// otherwise.
    pub(super) fn follow_turn(&mut self) -> io::Result<()> {
        let listen = !self.draining && self.handle.holds_accept_token() && !self.full && !self.pause.is_on();
        if listen == self.listening {
            return Ok(());
        }
        let mut numbers: Vec<_> =
            self.listeners.keys().copied().filter(|number| !self.waiting.contains(number)).collect();
        // epoll reports ready listeners in this order, and the first may take all places.
        self.turns.order(&mut numbers);
        for number in numbers {
            if listen {
                self.wait_for(number)?;
            } else {
                self.epoll.remove(&self.listeners[&number].socket)?;
            }
        }
        match &self.handoff {
            Some(handoff) if listen => match self.epoll.add(handoff, HANDOFF, Interest::READ, Trigger::Level) {
                Err(error) if descriptor::is_exhaustion(&error) => {
                    self.totals.count_error(&error);
                    self.pause.begin(self.now);
                    return Ok(());
                }
                added => added?,
            },
            Some(handoff) => self.epoll.remove(handoff)?,
            None => {}
        }
        self.listening = listen;
        Ok(())
    }

    /// Begins to wait for a listener; where the machine is short of what that takes, after a
    /// moment.
    fn wait_for(&mut self, number: ListenerNumber) -> io::Result<()> {
        let Some(listener) = self.listeners.get(&number) else { return Ok(()) };
        match self.epoll.add(&listener.socket, key_of(number), Interest::READ, self.trigger()) {
            Err(error) if descriptor::is_exhaustion(&error) => {
                self.totals.count_error(&error);
                self.waiting.push(number);
                self.wait.begin(self.now);
                Ok(())
            }
            added => added,
        }
    }

    /// Waits for a listener no longer, until a connection ends or a moment has passed: its rule has
    /// its part, or all rules together have theirs.
    fn make_wait(&mut self, number: ListenerNumber) -> io::Result<()> {
        if let Some(listener) = self.listeners.get(&number).filter(|_| !self.waiting.contains(&number)) {
            self.epoll.remove(&listener.socket)?;
            self.waiting.push(number);
        }
        self.wait.begin(self.now);
        Ok(())
    }

    /// Waits for those listeners again.
    pub(super) fn end_waiting(&mut self) -> io::Result<()> {
        let mut numbers = std::mem::take(&mut self.waiting);
        self.turns.order(&mut numbers);
        if self.listening { numbers.into_iter().try_for_each(|number| self.wait_for(number)) } else { Ok(()) }
    }

    /// How many connections this table has descriptors for.
    pub(super) fn capacity(&self) -> usize {
        let listeners = if self.lacks_listeners { self.shared.routes().len() } else { self.listeners.len() };
        let taken = OTHER_DESCRIPTORS + listeners + 2 * self.most_pipes;
        (self.descriptors.saturating_sub(taken) / 2).max(1)
    }

    pub(super) fn accept(&mut self, number: ListenerNumber, most: usize) -> io::Result<()> {
        for _ in 0..most {
            if !self.listening {
                return Ok(());
            }
            if self.connections.len() >= self.capacity() {
                return self.report_full();
            }
            let Some(listener) = self.listeners.get(&number) else { return Ok(()) };
            match self.shared.take_place(&listener.route, self.now, self.handle.request()) {
                Room::Taken => {}
                // Quiet listeners are left alone: there may be thousands, and each place that
                // becomes free would cost calls for all.
                Room::KeptForOthers | Room::Full => {
                    self.awaits_place = true;
                    return self.make_wait(number);
                }
            }
            match net::accept_prepared(&listener.socket) {
                Ok((socket, address)) => {
                    let route = Arc::clone(&listener.route);
                    self.turns.had(number);
                    self.open(socket, address, route);
                }
                Err(error) => {
                    self.shared.limit.release();
                    let failure = Failure::of(&error);
                    match failure {
                        Failure::Empty => return Ok(()),
                        // A listener that another thread has shut down would be reported for ever.
                        Failure::Closed => return self.make_wait(number),
                        _ => {}
                    }
                    self.totals.count_error(&error);
                    if failure.pauses() {
                        return self.pause_exhausted(failure);
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes connections that the acceptor has handed over to this worker.
    pub(super) fn take_handed(&mut self, most: usize) -> io::Result<()> {
        for _ in 0..most {
            let (true, Some(handoff), Some(queue)) = (self.listening, &self.handoff, self.queue) else { return Ok(()) };
            if self.connections.len() >= self.capacity() {
                return self.report_full();
            }
            match queue.take(handoff) {
                // The acceptor has taken its place.
                Ok((socket, (address, route))) => self.open(socket, address, route),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    self.totals.count_error(&error);
                    return self.pause_exhausted(Failure::of(&error));
                }
            }
        }
        Ok(())
    }

    /// Takes what has been handed over, for the last time: whatever the limits, by whichever table
    /// has a descriptor left.
    pub(super) fn close_handoff(&mut self) -> io::Result<()> {
        while let (Some(handoff), Some(queue)) = (&self.handoff, self.queue) {
            match queue.take(handoff) {
                Ok((socket, (address, route))) => self.open(socket, address, route),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.totals.count_error(&error);
                    break;
                }
            }
        }
        if let Some(handoff) = self.handoff.take()
            && self.listening
        {
            // The coordinator holds the open file too, so closing would leave it reporting
            // (epoll(7)).
            self.epoll.remove(&handoff)?;
        }
        Ok(())
    }

    /// Reports that this table has room again, where it was full, and has its listeners sent that
    /// it had no room for.
    pub(super) fn report_room_if_any(&mut self) {
        if self.full && self.connections.len() < self.capacity() {
            self.full = false;
            if std::mem::take(&mut self.lacks_listeners) {
                self.shared.ask_for_listeners(self.handle.worker(), self.handle.table());
                self.handle.request_attention();
            }
            self.handle.report_room();
        }
    }

    fn report_full(&mut self) -> io::Result<()> {
        self.full = true;
        self.handle.report_full();
        self.follow_turn()
    }

    /// Pauses; and where it is this table that is full, another may have room. Where the machine
    /// is, none has.
    fn pause_exhausted(&mut self, failure: Failure) -> io::Result<()> {
        if failure == Failure::FullTable {
            self.handle.report_full();
        }
        self.pause.begin(self.now);
        self.follow_turn()
    }
}
