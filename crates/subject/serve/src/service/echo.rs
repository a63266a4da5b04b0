//! Echo (RFC 862): every byte goes back as it came.

use super::{Chunk, Service};

/// Sends back what it receives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Service for Echo {
    fn receive(&mut self, input: &[u8], output: &mut Vec<Chunk>) {
        output.push(Chunk::Input(0..input.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sent(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut echo, mut sent, mut output) = (Echo, Vec::new(), Vec::new());
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            echo.receive(piece, &mut output);
            for chunk in output.drain(..) {
                let Chunk::Input(range) = chunk;
                sent.extend_from_slice(&piece[range]);
            }
        }
        sent
    }

    proptest! {
        #[test]
        fn bytes_come_back_whole_and_in_order_wherever_the_input_is_split(bytes in prop::collection::vec(any::<u8>(), 1..300)) {
            for split in 0..=bytes.len() {
                prop_assert_eq!(sent(&[&bytes[..split], &bytes[split..]]), bytes.clone());
            }
        }
    }
}
