//! Replaces the current table by one that was read anew.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use plimsoll_sys::net;

use super::{Coordinator, send, send_listeners};
use crate::acceptor::Acceptor;
use crate::admin::Admin;
use crate::error::Error;
use crate::inherited::Inherited;
use crate::listeners::Listener;
use crate::message::{MOST, Message};
use crate::reload;
use crate::shared::ListenerNumber;
use crate::table::{Listen, LogTarget};
use crate::upgrade::Entrance;

impl Coordinator {
    /// Whether an event loop still has listeners open that are no longer in the table.
    fn is_leaving(&self) -> bool {
        self.shared.left.load(Ordering::Acquire) < self.leaves
            || self.acceptor.as_ref().is_some_and(Acceptor::is_leaving)
    }

    /// Takes over a table that was read anew, once the listeners that the last one closed are
    /// closed everywhere.
    pub(super) fn reload_if_wanted(&mut self) -> io::Result<()> {
        let Some(reloader) = &mut self.reloader else { return Ok(()) };
        reloader.look();
        self.waiting = self.waiting.take().or_else(|| reloader.outcome());
        // What a process that takes over was sent stays as it is until that has answered.
        if self.is_leaving() || self.entrance.as_ref().is_some_and(Entrance::is_asked) {
            return Ok(());
        }
        let Some(outcome) = self.waiting.take() else { return Ok(()) };
        self.reload(outcome)?;
        // Connections queued at listeners that are removed.
        match &mut self.acceptor {
            Some(acceptor) => acceptor.accept(&self.listeners, &self.shared, self.group.request()),
            None => Ok(()),
        }
    }

    /// Puts a new table in the place of the old one, or says why not.
    fn reload(&mut self, outcome: reload::Outcome) -> io::Result<()> {
        let changed = outcome.and_then(|(table, routes, notes)| {
            let change = self.listeners.change(routes, self.sets, &mut Inherited::default());
            let change = change.map_err(|(listen, source)| Error::Listen { listen, source }.to_string())?;
            Ok((table, notes, change))
        });
        let (table, notes, change) = match changed {
            Ok(changed) => changed,
            Err(why) => {
                self.shared.reloads[1].fetch_add(1, Ordering::Relaxed);
                (self.say)(&format!("the table is refused, and the former one goes on: {why}"));
                return Ok(());
            }
        };
        notes.iter().for_each(|note| (self.say)(note));
        change.say_left_out(&self.say);
        self.follow_log(table.log);
        self.follow_admin(table.admin);
        self.shared.publish(self.listeners.routes());
        self.shared.limit.set_most(table.max_connections.unwrap_or(u64::MAX));
        // Numbers are given in order, so that what was opened now is from the first of them on.
        let first = change.opened.first().copied().unwrap_or(ListenerNumber::MAX);
        let opened: Vec<&Listener> = self.listeners.iter().filter(|listener| listener.number >= first).collect();
        let counts = (opened.len(), change.closed.len());
        change.closed.iter().for_each(Listener::unlink);
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.change(&opened, change.closed)?;
        } else {
            let closed: Vec<ListenerNumber> = change.closed.iter().map(|listener| listener.number).collect();
            for (worker, mailbox) in self.group.mailboxes() {
                send(mailbox, &Message::Routes, &[])?;
                send_listeners(mailbox, worker, &opened)?;
                for numbers in closed.chunks(MOST) {
                    self.leaves += 1;
                    send(mailbox, &Message::Leave(numbers.to_vec()), &[])?;
                }
            }
        }
        self.shared.reloads[0].fetch_add(1, Ordering::Relaxed);
        let count = self.listeners.iter().count();
        (self.say)(&format!("the table is reloaded: {count} listeners, {} new, {} gone", counts.0, counts.1));
        Ok(())
    }

    /// Has the log written where the new table says, unless the command line says where.
    fn follow_log(&mut self, log: Option<LogTarget>) {
        let Some(former) = self.log.as_mut().filter(|former| **former != log) else { return };
        match self.writer.retarget(log.as_ref()) {
            Ok(()) => *former = log,
            Err((path, source)) => {
                (self.say)(&format!("{}; the former log goes on", Error::Log { path, source }));
            }
        }
    }

    /// Has the page and the metrics where the new table says.
    fn follow_admin(&mut self, asked: Option<SocketAddr>) {
        if self.admin.as_ref().map(|admin| admin.asked) == asked {
            return;
        }
        let Some(asked) = asked else {
            self.admin = None;
            return;
        };
        let open = |address| Admin::bind(address, &mut Inherited::default())?.start(&self.shared);
        let (mut opened, mut outcome) = (open(asked), "goes on as it was".to_owned());
        let is_taken = opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse);
        // `0.0.0.0:9100` and `127.0.0.1:9100` cannot be open at once.
        if let Some(former) = self.admin.take_if(|former| is_taken && former.address.port() == asked.port()) {
            // At once: the thread that answers closes its descriptor of the listener later.
            net::stop_listening(&former.listener);
            opened = open(asked);
            if opened.is_err() {
                match open(former.address) {
                    Ok(again) => self.admin = Some(again),
                    Err(error) => outcome = format!("is closed, as {} cannot be opened again: {error}", former.address),
                }
            }
        }
        match opened {
            Ok(admin) => self.admin = Some(admin),
            Err(source) => {
                (self.say)(&format!("{}; `[admin]` {outcome}", Error::Listen { listen: Listen::Tcp(asked), source }));
            }
        }
    }
}
