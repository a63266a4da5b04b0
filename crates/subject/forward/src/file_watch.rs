//! Whether a file has changed since it was read.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A file is looked at this often, however often it is asked about.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What a file holds, looked at from time to time.
pub struct FileWatch {
    path: PathBuf,
    /// What was in it when a table was last wanted, and at the last look: a hash.
    read: Option<u64>,
    seen: Option<u64>,
    /// When it was last looked at.
    looked: Option<Instant>,
}

impl FileWatch {
    /// Begins to watch a file. To be called before it is first read, so that no change falls in
    /// between.
    pub fn begin(path: PathBuf) -> FileWatch {
        let now = content(&path);
        FileWatch { path, read: now, seen: now, looked: None }
    }

    /// Whether the file's content has changed since this last returned true. A file that is being
    /// written changes from one look to the next, so two looks in a row have to find the same.
    pub(crate) fn has_changed(&mut self, at: Instant) -> bool {
        if self.looked.is_some_and(|looked| at < looked + LOOK_EVERY) {
            return false;
        }
        self.looked = Some(at);
        let now = content(&self.path);
        let settled = now == self.seen;
        self.seen = now;
        // A file that is gone is about to be replaced.
        let changed = settled && now.is_some() && now != self.read;
        if changed {
            self.read = now;
        }
        changed
    }
}

/// A hash of what a file holds: its times and its length may stay the same when that changes.
fn content(path: &Path) -> Option<u64> {
    let bytes = std::fs::read(path).ok()?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_changed_when_two_looks_find_the_same_new_content() {
        let path = std::env::temp_dir().join(format!("plimsoll-watch-{}", std::process::id()));
        let write = |text: &str| std::fs::write(&path, text).expect("the folder can be written to");
        write("one");
        let mut watch = FileWatch::begin(path.clone());
        let mut at = Instant::now();
        let mut has_changed = || {
            at += LOOK_EVERY;
            // The one who asks may do so for reasons of its own, many times.
            watch.has_changed(at) || watch.has_changed(at) || watch.has_changed(at + LOOK_EVERY / 2)
        };
        assert!(!has_changed());
        write("tw");
        assert!(!has_changed(), "it may be half of it");
        write("two");
        assert!(!has_changed());
        assert!(has_changed(), "of the same length, and whatever its time");
        assert!(!has_changed());
        std::fs::remove_file(&path).expect("it is there");
        assert!(!has_changed() && !has_changed());
        write("two");
        assert!(!has_changed() && !has_changed(), "it holds what was read");
        std::fs::remove_file(&path).expect("it is there");
    }
}
