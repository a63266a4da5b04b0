//! Whether a connection moves bulk, or small messages to and fro: judged by how many bytes go one
//! way before bytes go the other way.
//!
//! Reading bulk less often finds more bytes at each read. It would only delay a short message:
//! nothing more comes until that is answered. Pure.

/// The runs of bytes in one direction that a connection has moved last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BulkDetector {
    /// The present run first. A small message against a stream's direction begins two new runs, so
    /// three are kept: one of the stream's is among them.
    runs: [u64; 3],
    downward: bool,
    /// All that was taken from the client, and from the server, up to now.
    taken: [u64; 2],
}

/// Three runs of less than this in all are small messages. Up to a third of it a message costs no
/// more to relay at once than what realm takes for it, and up to three quarters less time; from
/// half of it a delay costs hardly any time (docs/results/forward-bulk.txt).
const BULK_BYTES: u64 = 1024 * 1024;

impl BulkDetector {
    /// Takes note of how much was taken in all from the client, and from the server, and says
    /// whether that is more than before.
    pub(crate) fn note(&mut self, taken: [u64; 2]) -> bool {
        let before = std::mem::replace(&mut self.taken, taken);
        for (downward, before, taken) in [(false, before[0], taken[0]), (true, before[1], taken[1])] {
            if taken > before {
                if downward != self.downward {
                    self.downward = downward;
                    self.runs = [0, self.runs[0], self.runs[1]];
                }
                self.runs[0] += taken - before;
            }
        }
        before != self.taken
    }

    /// Whether it is worth while to wait for more.
    pub(crate) fn is_bulk(&self) -> bool {
        self.runs.iter().sum::<u64>() >= BULK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    /// Whether each of many exchanges is bulk after its upward and its downward half; each half
    /// comes in two parts.
    fn bulk_halves(up: u64, down: u64) -> Vec<[bool; 2]> {
        let (mut detector, mut taken) = (BulkDetector::default(), [0, 0]);
        let halves = (0..100).map(|_| {
            [(0, up), (1, down)].map(|(side, bytes)| {
                for part in [bytes / 3, bytes - bytes / 3] {
                    taken[side] += part;
                    detector.note(taken);
                }
                detector.is_bulk()
            })
        });
        halves.collect()
    }

    #[test]
    fn short_messages_to_and_fro_are_no_bulk_however_many() {
        for kib in [1, 64, 256, 340] {
            assert!(bulk_halves(kib * KIB, kib * KIB).iter().all(|halves| *halves == [false; 2]), "{kib} KiB");
        }
    }

    #[test]
    fn long_messages_to_and_fro_are_bulk_from_the_second() {
        for kib in [512, 1024, 4096] {
            assert!(bulk_halves(kib * KIB, kib * KIB)[1..].iter().all(|halves| *halves == [true; 2]), "{kib} KiB");
        }
    }

    #[test]
    fn a_stream_one_way_is_bulk_from_its_first_mebibyte_whatever_small_comes_the_other_way() {
        let mut detector = BulkDetector::default();
        for packet in 1..1000 {
            detector.note([0, packet * 64 * KIB]);
            assert_eq!(detector.is_bulk(), packet >= 16, "packet {packet}");
        }
        assert!(bulk_halves(13, 1024 * KIB)[1..].iter().all(|halves| *halves == [true; 2]));
    }

    #[test]
    fn it_says_whether_bytes_were_taken_from_either_side() {
        let mut detector = BulkDetector::default();
        let noted = [[0, 0], [7, 0], [7, 0], [7, 1], [8, 2], [8, 2]].map(|taken| detector.note(taken));
        assert_eq!(noted, [false, true, false, true, true, false]);
    }

    #[test]
    fn both_ways_at_once_is_bulk() {
        let mut detector = BulkDetector::default();
        for turn in 1..10 {
            detector.note([turn * 512 * KIB; 2]);
        }
        assert!(detector.is_bulk());
    }
}
