//! Echo messages: random payloads, and the check that what came back is what was sent.
//!
//! No connection stores its payload. All payloads are cut from one shared pool of random bytes, and
//! a message is named by where it starts in the pool: four bytes a connection, whatever the
//! message's size. What comes back is compared with the pool as it arrives.

/// What a payload is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alphabet {
    /// Letters and digits: for servers that treat messages as text.
    Text,
    /// Any byte.
    Bytes,
}

/// How closely an answer is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Every byte, and not one more.
    Full,
    /// The number of bytes.
    Length,
    /// At least that many bytes.
    None,
}

/// What an answer is, so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Right so far, and not whole.
    Partial,
    /// Complete and right.
    Complete,
    /// Wrong.
    Wrong,
}

/// Different starting places in the pool. An answer to another message of at least four bytes is
/// mistaken for the right one once in thousands of times at worst (the same place drawn twice), and
/// a pool stays small beside a processor's cache.
const PLACES: usize = 16 * 1024;

/// The messages of a run: all of one size.
#[derive(Clone, Debug)]
pub struct Messages {
    pool: Vec<u8>,
    size: usize,
    postfix: Vec<u8>,
    verification: Verification,
}

impl Messages {
    /// Messages of `size` bytes, to each of whose echoes the server appends `postfix`. The same
    /// seed gives the same messages.
    pub fn new(size: usize, alphabet: Alphabet, postfix: &[u8], verification: Verification, seed: u64) -> Messages {
        let mut state = seed;
        let pool = std::iter::repeat_with(|| next_random(&mut state).to_le_bytes())
            .flatten()
            .map(|byte| match alphabet {
                Alphabet::Text => LETTERS[usize::from(byte) % LETTERS.len()],
                Alphabet::Bytes => byte,
            })
            .take(size + PLACES - 1)
            .collect();
        Messages { pool, size, postfix: postfix.to_vec(), verification }
    }

    /// A message's name, from a random number.
    pub fn pick(&self, random: u64) -> u32 {
        (random % PLACES as u64) as u32
    }

    /// The bytes of a message.
    pub fn bytes(&self, message: u32) -> &[u8] {
        &self.pool[message as usize..][..self.size]
    }

    /// How many bytes the answer to a message has.
    pub fn answer_length(&self) -> usize {
        self.size + self.postfix.len()
    }

    /// What the answer to `message` is when `bytes` arrive after the first `received`, which were
    /// right.
    pub fn check(&self, message: u32, received: usize, bytes: &[u8]) -> Answer {
        let missing = self.answer_length().saturating_sub(received);
        if bytes.len() > missing && self.verification != Verification::None {
            return Answer::Wrong;
        }
        if self.verification == Verification::Full && !self.is_expected(message, received, bytes) {
            return Answer::Wrong;
        }
        if bytes.len() >= missing { Answer::Complete } else { Answer::Partial }
    }

    /// Whether `bytes` are those of the answer from `start` on, which they must not run beyond.
    fn is_expected(&self, message: u32, start: usize, bytes: &[u8]) -> bool {
        let echoed = &self.bytes(message)[start.min(self.size)..];
        let (echo, rest) = bytes.split_at(bytes.len().min(echoed.len()));
        let postfix_start = start.saturating_sub(self.size);
        echo == &echoed[..echo.len()] && rest == &self.postfix[postfix_start..][..rest.len()]
    }
}

const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): five lines, and good enough for bytes that only
/// need to differ.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn random_numbers_are_those_of_their_paper() {
        // From state 0, as the reference implementation of SplitMix64 has them.
        let mut state = 0;
        let drawn = [0; 3].map(|_| next_random(&mut state));
        assert_eq!(drawn, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }

    /// Hands an answer over in pieces and returns what it was taken for.
    fn receive(messages: &Messages, message: u32, answer: &[u8], piece: usize) -> Answer {
        let mut received = 0;
        for bytes in answer.chunks(piece) {
            match messages.check(message, received, bytes) {
                Answer::Partial => received += bytes.len(),
                end => return end,
            }
        }
        Answer::Partial
    }

    #[test]
    fn text_is_letters_and_digits_and_differs_from_message_to_message() {
        let messages = Messages::new(100, Alphabet::Text, b"", Verification::Full, 1);
        let (one, two) = (messages.bytes(messages.pick(1)), messages.bytes(messages.pick(2)));
        assert!(one.iter().chain(two).all(u8::is_ascii_alphanumeric));
        assert_ne!(one, two);
    }

    #[test]
    fn length_alone_takes_any_bytes_but_not_too_many() {
        let messages = Messages::new(4, Alphabet::Bytes, b"", Verification::Length, 1);
        assert_eq!(messages.check(0, 0, b"xxxx"), Answer::Complete);
        assert_eq!(messages.check(0, 0, b"xxxxx"), Answer::Wrong);
        let careless = Messages::new(4, Alphabet::Bytes, b"", Verification::None, 1);
        assert_eq!(careless.check(0, 0, b"xxxxx"), Answer::Complete);
    }

    #[test]
    fn an_answer_is_recognised_wherever_it_is_split() {
        let messages = Messages::new(37, Alphabet::Bytes, b":OK", Verification::Full, 3);
        let answer = [messages.bytes(5), b":OK"].concat();
        for piece in 1..=answer.len() {
            assert_eq!(receive(&messages, 5, &answer, piece), Answer::Complete, "in pieces of {piece}");
            assert_eq!(receive(&messages, 5, &answer[..answer.len() - 1], piece), Answer::Partial);
            for wrong in 0..answer.len() {
                let mut changed = answer.clone();
                changed[wrong] ^= 1;
                assert_eq!(receive(&messages, 5, &changed, piece), Answer::Wrong, "byte {wrong} in pieces of {piece}");
            }
        }
        assert_eq!(messages.check(5, 0, &[answer.as_slice(), b"x"].concat()), Answer::Wrong, "one byte too many");
    }

    proptest! {
        #[test]
        fn any_message_is_checked_alike_in_any_pieces(
            size in 1_usize..5000,
            postfix in prop::collection::vec(any::<u8>(), 0..20),
            seed: u64,
            random: u64,
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
            change in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let messages = Messages::new(size, Alphabet::Bytes, &postfix, Verification::Full, seed);
            let message = messages.pick(random);
            let mut answer = [messages.bytes(message), &postfix].concat();
            if let Some(place) = change {
                let place = place.index(answer.len());
                answer[place] = answer[place].wrapping_add(1);
            }
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(answer.len())).collect();
            cuts.extend([0, answer.len()]);
            cuts.sort_unstable();
            let mut verdict = Answer::Partial;
            for piece in cuts.windows(2) {
                verdict = messages.check(message, piece[0], &answer[piece[0]..piece[1]]);
                if verdict != Answer::Partial {
                    break;
                }
            }
            prop_assert_eq!(verdict, if change.is_some() { Answer::Wrong } else { Answer::Complete });
        }
    }
}
