//! A context and a driver in memory, for tests of services.

use std::collections::HashMap;
use std::time::{Instant, SystemTime};

use super::{CachedTime, Chunk, Found, NextStep, NotFound, Output, Service, ServiceContext};

/// Files whose every byte is the number of its place, and a clock that stands still.
#[derive(Clone, Debug)]
pub(super) struct TestContext {
    pub(super) files: HashMap<&'static str, Result<Found, NotFound>>,
    pub(super) time: CachedTime,
}

impl Default for TestContext {
    fn default() -> TestContext {
        TestContext { files: HashMap::new(), time: CachedTime::new(Instant::now(), SystemTime::UNIX_EPOCH) }
    }
}

impl ServiceContext for TestContext {
    fn time(&self) -> &CachedTime {
        &self.time
    }

    fn resolve(&mut self, path: &[u8]) -> Result<Found, NotFound> {
        let path = std::str::from_utf8(path).map_err(|_| NotFound::Absent)?;
        self.files.get(path).copied().unwrap_or(Err(NotFound::Absent))
    }
}

/// All that a service sends when its input comes in these pieces.
pub(super) fn sent(service: impl Service, pieces: &[&[u8]], context: TestContext) -> Vec<u8> {
    converse(service, pieces, context).0
}

/// The same, and what happens next.
pub(super) fn converse(mut service: impl Service, pieces: &[&[u8]], mut context: TestContext) -> (Vec<u8>, NextStep) {
    let (mut sent, mut held, mut output) = (Vec::new(), Vec::new(), Output::default());
    let mut next = NextStep::Receive(service.opened(&context));
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        held.extend_from_slice(piece);
        loop {
            let processed = service.receive(&held, &mut context, &mut output);
            output.chunks.drain(..).for_each(|chunk| append(&mut sent, chunk, &held, &output.bytes));
            output.clear();
            held.drain(..processed.consumed);
            next = processed.next;
            if next != NextStep::Send {
                break;
            }
        }
        if !matches!(next, NextStep::Receive(_)) {
            break;
        }
    }
    (sent, next)
}

fn append(sent: &mut Vec<u8>, chunk: Chunk, input: &[u8], written: &[u8]) {
    match chunk {
        Chunk::Input(range) => sent.extend_from_slice(&input[range]),
        Chunk::Written(range) => sent.extend_from_slice(&written[range]),
        Chunk::Static(bytes) => sent.extend_from_slice(bytes),
        Chunk::File { offset, length } => sent.extend((offset..offset + length).map(|place| place as u8)),
        Chunk::Repeated { pattern, offset, length } => {
            let from = (offset % pattern.len() as u64) as usize;
            sent.extend(pattern.iter().cycle().skip(from).take(length as usize));
        }
    }
}
