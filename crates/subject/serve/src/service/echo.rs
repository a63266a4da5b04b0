//! Echo (RFC 862): every byte goes back as it came. Where messages have an end, something can be
//! appended to the reply to each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Chunk, NextStep, Output, Processed, Service, ServiceContext};

/// How an echo server differs from the plainest.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// What is appended to the reply to each message, and how a message is known.
    pub postfix: Option<(&'static [u8], Boundary)>,
    /// CPU time burnt for each reply.
    pub work: Duration,
    /// Close after this long without a byte.
    pub idle_timeout: Option<Duration>,
}

/// Where a message ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// After this many bytes; never 0.
    Size(u64),
    /// After these bytes; never none.
    End(Vec<u8>),
}

/// Sends back what it receives.
#[derive(Clone, Debug, Default)]
pub struct Echo {
    /// `None` for the plainest.
    settings: Option<Arc<PreparedSettings>>,
    /// Bytes of the message seen so far, or bytes of its end matched so far.
    progress: u64,
    /// The last turn ended before its input did, so the next one is the rest of the same read.
    interrupted: bool,
}

/// After this many appended bytes a turn ends: a peer that sends many small messages and reads
/// nothing must not make the server hold the answers to all.
const APPENDED_BYTES: usize = 64 * 1024;

#[derive(Debug)]
struct PreparedSettings {
    settings: Settings,
    /// By how many bytes of the end are matched: how many are when the next byte is another (Knuth,
    /// Morris, Pratt 1977).
    fallback: Vec<usize>,
}

impl Echo {
    /// An echo with these settings.
    pub fn new(settings: Settings) -> Echo {
        if settings.postfix.is_none() && settings.work.is_zero() && settings.idle_timeout.is_none() {
            return Echo::default();
        }
        let fallback = match &settings.postfix {
            Some((_, Boundary::End(end))) => fallback(end),
            _ => Vec::new(),
        };
        Echo { settings: Some(Arc::new(PreparedSettings { settings, fallback })), progress: 0, interrupted: false }
    }

    /// Where the message that goes on at the beginning of `input` ends, if it does.
    fn message_end(&mut self, boundary: &Boundary, fallback: &[usize], input: &[u8]) -> Option<usize> {
        match boundary {
            Boundary::Size(size) => {
                let left = size - self.progress;
                if left > input.len() as u64 {
                    self.progress += input.len() as u64;
                    return None;
                }
                self.progress = 0;
                Some(left as usize)
            }
            Boundary::End(end) => {
                let mut matched = self.progress as usize;
                for (position, byte) in input.iter().enumerate() {
                    while matched > 0 && end[matched] != *byte {
                        matched = fallback[matched];
                    }
                    matched += usize::from(end[matched] == *byte);
                    if matched == end.len() {
                        self.progress = 0;
                        return Some(position + 1);
                    }
                }
                self.progress = matched as u64;
                None
            }
        }
    }
}

impl Service for Echo {
    fn is_timed(&self) -> bool {
        self.settings.as_ref().is_some_and(|prepared| prepared.settings.idle_timeout.is_some())
    }

    fn send_timeout(&self) -> Option<Duration> {
        self.settings.as_ref()?.settings.idle_timeout
    }

    fn opened(&mut self, context: &impl ServiceContext) -> Option<Instant> {
        Some(context.time().now + self.send_timeout()?)
    }

    fn receive(&mut self, input: &[u8], context: &mut impl ServiceContext, output: &mut Output) -> Processed {
        let is_read = !input.is_empty() && !std::mem::take(&mut self.interrupted);
        let mut processed =
            Processed { consumed: input.len(), requests: u64::from(is_read), next: NextStep::Receive(None) };
        let Some(prepared) = self.settings.clone() else {
            output.chunks.push(Chunk::Input(0..input.len()));
            return processed;
        };
        processed.next = NextStep::Receive(self.opened(context));
        let Some((postfix, boundary)) = &prepared.settings.postfix else {
            output.chunks.push(Chunk::Input(0..input.len()));
            output.burn = prepared.settings.work;
            return processed;
        };
        let (mut start, mut appended) = (0, 0);
        while start < input.len() {
            if appended >= APPENDED_BYTES {
                self.interrupted = true;
                return Processed { consumed: start, next: NextStep::Send, ..processed };
            }
            let Some(length) = self.message_end(boundary, &prepared.fallback, &input[start..]) else {
                output.chunks.push(Chunk::Input(start..input.len()));
                break;
            };
            output.chunks.push(Chunk::Input(start..start + length));
            output.chunks.push(Chunk::Static(postfix));
            output.burn += prepared.settings.work;
            start += length;
            appended += postfix.len();
        }
        processed
    }

    fn expired(&mut self, _partial: bool, _context: &mut impl ServiceContext, _output: &mut Output) -> NextStep {
        NextStep::Close
    }
}

fn fallback(end: &[u8]) -> Vec<usize> {
    let mut table = vec![0; end.len() + 1];
    let mut matched = 0;
    for position in 1..end.len() {
        while matched > 0 && end[matched] != end[position] {
            matched = table[matched];
        }
        matched += usize::from(end[matched] == end[position]);
        table[position + 1] = matched;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::tests_context::{TestContext, sent};
    use super::*;
    use proptest::prelude::*;

    fn postfixed(bytes: &[u8], boundary: &Boundary) -> Vec<u8> {
        let mut answer = Vec::new();
        let mut message = 0;
        for byte in bytes {
            answer.push(*byte);
            message += 1;
            let ended = match boundary {
                Boundary::Size(size) => message == *size,
                Boundary::End(end) => answer.ends_with(end) && message >= end.len() as u64,
            };
            if ended {
                answer.extend(b":OK");
                message = 0;
            }
        }
        answer
    }

    fn boundaries() -> impl Strategy<Value = Boundary> {
        prop_oneof![
            (1_u64..20).prop_map(Boundary::Size),
            // Few letters, so that ends overlap themselves and each other.
            prop::collection::vec(0_u8..2, 1..5).prop_map(Boundary::End),
        ]
    }

    #[test]
    fn a_turn_appends_a_bounded_number_of_bytes_however_many_messages_arrive() {
        static POSTFIX: [u8; 10_000] = [b'+'; 10_000];
        let settings = Settings { postfix: Some((&POSTFIX, Boundary::Size(1))), ..Settings::default() };
        let (mut echo, mut context, input) = (Echo::new(settings), TestContext::default(), [7; 50_000]);
        let (mut taken, mut requests) = (0, 0);
        loop {
            let mut output = Output::default();
            let processed = echo.receive(&input[taken..], &mut context, &mut output);
            let postfixes = output.chunks.iter().filter(|chunk| matches!(chunk, Chunk::Static(_))).count();
            assert!(postfixes * POSTFIX.len() < APPENDED_BYTES + POSTFIX.len(), "{postfixes} in one turn");
            assert!(postfixes > 0, "each turn gets on");
            taken += processed.consumed;
            requests += processed.requests;
            if processed.next != NextStep::Send {
                break;
            }
        }
        assert_eq!((taken, requests), (input.len(), 1), "a read is one request, however many turns it takes");
    }

    proptest! {
        #[test]
        fn bytes_come_back_whole_and_in_order_wherever_the_input_is_split(
            bytes in prop::collection::vec(any::<u8>(), 1..300),
        ) {
            for split in 0..=bytes.len() {
                let sent = sent(Echo::default(), &[&bytes[..split], &bytes[split..]], TestContext::default());
                prop_assert_eq!(sent, bytes.clone());
            }
        }

        #[test]
        fn each_message_gets_its_postfix_wherever_the_input_is_split(
            bytes in prop::collection::vec(0_u8..2, 1..60),
            boundary in boundaries(),
        ) {
            let settings = Settings { postfix: Some((b":OK", boundary.clone())), ..Settings::default() };
            for split in 0..=bytes.len() {
                let pieces = [&bytes[..split], &bytes[split..]];
                let sent = sent(Echo::new(settings.clone()), &pieces, TestContext::default());
                prop_assert_eq!(sent, postfixed(&bytes, &boundary));
            }
        }
    }
}
