//! What a connection could not send yet.

use std::io;
use std::os::fd::AsFd;

use plimsoll_sys::net;

/// Bytes that wait for room in the socket. It has a buffer only while there are any: an idle connection holds none.
#[derive(Debug, Default)]
pub(super) struct Unsent(Option<Box<Waiting>>);

#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    sent: usize,
}

impl Unsent {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Sends `bytes` after what waits already, as far as there is room, and keeps the rest. Returns how many bytes of either were sent.
    pub(super) fn send(&mut self, socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
        if let Some(waiting) = &mut self.0 {
            waiting.bytes.extend_from_slice(bytes);
            return self.flush(socket);
        }
        let sent = send_some(socket, bytes)?;
        if sent < bytes.len() {
            self.0 = Some(Box::new(Waiting { bytes: bytes[sent..].to_vec(), sent: 0 }));
        }
        Ok(sent)
    }

    /// Sends what waits, as far as there is room. Returns how many bytes were sent.
    pub(super) fn flush(&mut self, socket: impl AsFd) -> io::Result<usize> {
        let Some(waiting) = &mut self.0 else { return Ok(0) };
        let sent = send_some(socket, &waiting.bytes[waiting.sent..])?;
        waiting.sent += sent;
        if waiting.sent == waiting.bytes.len() {
            self.0 = None;
        }
        Ok(sent)
    }
}

/// 0 where there is no room.
fn send_some(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    match net::write(socket, bytes) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        outcome => outcome,
    }
}
