//! Reasons for failures, said while the forwarder runs: each once, and then how often it came back.
//!
//! [`Digest`] is pure: time is an argument.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Say;

/// The same sentence is said at most this often.
const EVERY: Duration = Duration::from_secs(10);
/// Sentences remembered at most: there are as many as rules times servers times causes.
const REMEMBERED: usize = 4096;

/// Which sentences were said when, and how often they were held back since.
#[derive(Debug, Default)]
pub(crate) struct Digest(HashMap<String, (Instant, u64)>);

impl Digest {
    /// What to say of something that happened now, if anything.
    pub(crate) fn add(&mut self, sentence: &str, now: Instant) -> Option<String> {
        if let Some((said, held_back)) = self.0.get_mut(sentence) {
            if now.saturating_duration_since(*said) < EVERY {
                *held_back += 1;
                return None;
            }
            let again = match std::mem::replace(held_back, 0) {
                0 => String::new(),
                count => format!(" ({count} more since it was last said)"),
            };
            *said = now;
            return Some(format!("{sentence}{again}"));
        }
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        self.0.insert(sentence.to_owned(), (now, 0));
        Some(sentence.to_owned())
    }
}

/// Says reasons for failures.
pub(crate) struct Failures {
    digest: Mutex<Digest>,
    say: Arc<Say>,
}

impl Failures {
    pub(crate) fn new(say: Arc<Say>) -> Failures {
        Failures { digest: Mutex::default(), say }
    }

    /// Something failed for this reason.
    pub(crate) fn report(&self, sentence: &str, now: Instant) {
        let said = self.digest.lock().unwrap_or_else(PoisonError::into_inner).add(sentence, now);
        if let Some(sentence) = said {
            (self.say)(&sentence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_said_once_in_a_while_with_how_often_it_came_back() {
        let (mut digest, start) = (Digest::default(), Instant::now());
        assert_eq!(digest.add("refused", start).as_deref(), Some("refused"));
        assert_eq!(digest.add("refused", start + EVERY / 2), None);
        assert_eq!(digest.add("no route", start + EVERY / 2).as_deref(), Some("no route"));
        assert_eq!(digest.add("refused", start + EVERY * 3 / 4), None);
        let again = digest.add("refused", start + EVERY);
        assert_eq!(again.as_deref(), Some("refused (2 more since it was last said)"));
        assert_eq!(digest.add("refused", start + EVERY * 2).as_deref(), Some("refused"));
    }

    #[test]
    fn what_is_reported_is_said_unless_it_was_just_now() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let (heard, now) = (Arc::clone(&said), Instant::now());
        let say = move |sentence: &str| heard.lock().expect("nobody panics").push(sentence.to_owned());
        let failures = Failures::new(Arc::new(Box::new(say)));
        for sentence in ["refused", "refused", "no route"] {
            failures.report(sentence, now);
        }
        assert_eq!(*said.lock().expect("nobody panics"), ["refused", "no route"]);
    }

    #[test]
    fn it_remembers_a_bounded_number_of_sentences() {
        let (mut digest, now) = (Digest::default(), Instant::now());
        for number in 0..3 * REMEMBERED {
            assert!(digest.add(&number.to_string(), now).is_some());
        }
        assert!(digest.0.len() <= REMEMBERED);
    }
}
