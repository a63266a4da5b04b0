//! One connection, served by a thread or process of its own that waits for it.

use std::io;
use std::os::fd::AsFd;

use plimsoll_sys::net;

use crate::service::{Chunk, Service};
use crate::totals::Exchange;

/// Every connection has one: small, as there may be thousands.
const INPUT_BYTES: usize = 16 * 1024;

/// Serves a blocking socket until its peer ends the stream, adding to `exchange` as it goes.
pub(crate) fn serve(socket: impl AsFd, service: &mut impl Service, exchange: &mut Exchange) -> io::Result<()> {
    let mut input = vec![0; INPUT_BYTES];
    let mut output = Vec::new();
    loop {
        let length = net::read(&socket, &mut input)?;
        if length == 0 {
            return Ok(());
        }
        exchange.requests += 1;
        exchange.bytes_received += length as u64;
        service.receive(&input[..length], &mut output);
        for chunk in output.drain(..) {
            let Chunk::Input(range) = chunk;
            write_all(&socket, &input[range], exchange)?;
        }
    }
}

fn write_all(socket: impl AsFd, mut bytes: &[u8], exchange: &mut Exchange) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = net::write(&socket, bytes)?;
        exchange.bytes_sent += sent as u64;
        bytes = &bytes[sent..];
    }
    Ok(())
}
