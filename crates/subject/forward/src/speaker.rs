//! Messages for the person who runs the forwarder, written by a thread of their own.
//!
//! If standard error is a pipe without a reader, it fills, and the next write waits for ever. Event
//! loops report why connections fail: handing a message over never waits. If too many wait to be
//! written, it is dropped and counted.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Say;

/// Sentences that wait at most.
const MOST: usize = 1024;
/// How long the last ones may take to be said when the forwarder ends.
const LAST_SENTENCES: Duration = Duration::from_secs(2);

/// The thread that says them. When this is dropped it says what waits, and ends.
pub(crate) struct Speaker(Arc<Shared>);

#[derive(Default)]
struct Shared {
    waiting: Mutex<SentenceQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct SentenceQueue {
    sentences: VecDeque<String>,
    /// Since one was said last.
    dropped: u64,
    /// One is being said.
    speaks: bool,
    ends: bool,
}

impl Speaker {
    /// Starts the thread. Sentences for it are handed to what comes with it.
    pub(crate) fn start(say: Say) -> io::Result<(Speaker, Say)> {
        let shared = Arc::new(Shared::default());
        let (speaker, hand_over) = (Speaker(Arc::clone(&shared)), Arc::clone(&shared));
        std::thread::Builder::new().name("speaker".to_owned()).spawn(move || shared.speak(&say))?;
        Ok((speaker, Box::new(move |sentence| hand_over.add(sentence))))
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        self.0.lock().ends = true;
        self.0.changed.notify_all();
        let is_left = |waiting: &mut SentenceQueue| waiting.speaks || !waiting.sentences.is_empty();
        drop(self.0.changed.wait_timeout_while(self.0.lock(), LAST_SENTENCES, is_left));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, SentenceQueue> {
        // Nothing panics while it is held.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, sentence: &str) {
        let mut waiting = self.lock();
        if waiting.sentences.len() < MOST {
            waiting.sentences.push_back(sentence.to_owned());
            self.changed.notify_all();
        } else {
            waiting.dropped += 1;
        }
    }

    fn speak(&self, say: &Say) {
        let mut waiting = self.lock();
        loop {
            while waiting.sentences.is_empty() {
                if waiting.ends {
                    return;
                }
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            let Some(sentence) = waiting.sentences.pop_front() else { continue };
            let dropped = std::mem::take(&mut waiting.dropped);
            waiting.speaks = true;
            drop(waiting);
            say(&sentence);
            if dropped > 0 {
                say(&format!("{dropped} messages were dropped, as standard error was not read"));
            }
            waiting = self.lock();
            waiting.speaks = false;
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn who_hands_sentences_over_never_waits_and_what_is_dropped_is_said() {
        let (listen, heard) = sync_channel::<String>(0);
        let (speaker, say) = Speaker::start(Box::new(move |sentence| {
            let _ = listen.send(sentence.to_owned());
        }))
        .expect("a thread");
        say("first");
        // The thread writes the first one as soon as there is a reader, and nothing before.
        assert_eq!(heard.recv().as_deref(), Ok("first"));
        (0..2 * MOST).for_each(|number| say(&number.to_string()));
        let said: Vec<String> = (0..=MOST).map_while(|_| heard.recv().ok()).collect();
        assert_eq!(said[0], "0");
        let told = said.iter().find(|sentence| sentence.contains("messages were dropped")).expect("some were dropped");
        let dropped: usize = told.split(' ').next().and_then(|count| count.parse().ok()).expect("a count");
        assert!((MOST - 1..=MOST).contains(&dropped), "{told}");
        drop(heard);
        drop(speaker);
    }
}
