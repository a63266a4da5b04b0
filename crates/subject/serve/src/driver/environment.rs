//! What a driver answers when a service asks.

use std::cell::OnceCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use plimsoll_sys::clock;
use plimsoll_sys::file::{self, File, Root};

use crate::service::{CachedTime, Found, NotFound, Output, ServiceContext};

/// What the services of one loop can ask for.
#[derive(Debug)]
pub(crate) struct Environment {
    root: Option<Arc<Root>>,
    time: CachedTime,
    timed: bool,
    /// The file that was found last, and by which path.
    found: Option<Rc<File>>,
    found_by: Vec<u8>,
    /// It was found again since.
    found_again: bool,
    /// All of its bytes, once they were read for a request that found it again.
    whole: OnceCell<Vec<u8>>,
}

/// What every connection of a loop uses in its turn.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) environment: Environment,
    pub(crate) output: Output,
}

impl Workspace {
    pub(crate) fn new(root: Option<Arc<Root>>, timed: bool) -> Workspace {
        let time = CachedTime::new(Instant::now(), SystemTime::now());
        Workspace {
            environment: Environment {
                root,
                time,
                timed,
                found: None,
                found_by: Vec::new(),
                found_again: false,
                whole: OnceCell::new(),
            },
            output: Output::default(),
        }
    }
}

impl Environment {
    /// Reads the clock, if a service needs the time.
    pub(crate) fn look(&mut self) {
        if self.timed {
            self.time.advance(Instant::now(), SystemTime::now);
        }
    }

    /// Whether a service needs the time.
    pub(crate) fn timed(&self) -> bool {
        self.timed
    }

    /// When the clock was last read.
    pub(crate) fn now(&self) -> Instant {
        self.time.now
    }

    /// From now on the server is ending, and how its connections end depends on the time.
    pub(crate) fn drain(&mut self) {
        self.time.draining = true;
        self.timed = true;
        self.look();
    }

    /// Whether the server is ending.
    pub(crate) fn is_draining(&self) -> bool {
        self.time.draining
    }

    /// The file that was found last.
    pub(crate) fn file(&self) -> Rc<File> {
        Rc::clone(self.found.as_ref().expect("a service sends a file that it has found"))
    }

    /// All bytes of the file that was found last, if several requests of the round get it and it is
    /// no longer than `most`: then it is read once for all of them.
    pub(crate) fn shared_bytes(&self, most: u64) -> Option<&[u8]> {
        let file = self.found.as_deref().filter(|file| self.found_again && file.length <= most)?;
        if self.whole.get().is_none() {
            let (mut bytes, length) = (Vec::new(), file.length as usize);
            // A file that has shrunk, or cannot be read, is for each request to tell.
            if file.read_at(&mut bytes, 0, length).ok()? == length {
                let _ = self.whole.set(bytes);
            }
        }
        self.whole.get().map(Vec::as_slice)
    }

    /// Ends a round of the loop: closes the file that was opened last, once no connection sends it
    /// any more.
    ///
    /// Until then requests for its path use it: requests of one round may well get the same file,
    /// and opening it costs more than sending it.
    pub(crate) fn end_turn(&mut self) {
        self.forget_found();
    }

    fn forget_found(&mut self) {
        (self.found, self.found_again) = (None, false);
        self.whole.take();
    }
}

impl ServiceContext for Environment {
    fn time(&self) -> &CachedTime {
        &self.time
    }

    fn resolve(&mut self, path: &[u8]) -> Result<Found, NotFound> {
        if let Some(file) = self.found.as_ref().filter(|_| self.found_by == path) {
            self.found_again = true;
            return Ok(Found { length: file.length, modified: file.modified });
        }
        self.forget_found();
        match self.root.as_ref().ok_or(NotFound::Absent)?.resolve(path) {
            Ok(file::Found::File(file)) => {
                let found = Found { length: file.length, modified: file.modified };
                self.found = Some(Rc::new(file));
                self.found_by.clear();
                self.found_by.extend_from_slice(path);
                Ok(found)
            }
            Ok(file::Found::Folder) => Err(NotFound::Folder),
            Ok(file::Found::Special) => Err(NotFound::Forbidden),
            Err(error) => Err(match error.kind() {
                io::ErrorKind::PermissionDenied => NotFound::Forbidden,
                io::ErrorKind::InvalidFilename => NotFound::TooLong,
                _ if file::is_absent(&error) => NotFound::Absent,
                // It may be there: the machine, or its file system, has failed to tell.
                _ => NotFound::Unavailable,
            }),
        }
    }
}

/// Shorter times are spun by the wall clock: the CPU clock takes a system call, of a few hundred
/// nanoseconds: a microsecond would be half as long again, and 20 us 3 % longer.
const BY_WALL_CLOCK: Duration = Duration::from_micros(50);
/// Where more than this lies between two looks at the wall clock, others or an interrupt had the
/// CPU meanwhile, or a look takes that long here. What is shorter counts as burnt.
const AWAY: Duration = Duration::from_micros(2);

/// Burns CPU time of the calling thread.
pub(crate) fn burn(time: Duration) {
    let left = if time < BY_WALL_CLOCK { spin(time, Instant::now) } else { time };
    if !left.is_zero() {
        let until = clock::thread_cpu_time() + left;
        while clock::thread_cpu_time() < until {
            std::hint::spin_loop();
        }
    }
}

/// Spins until that time has passed by a clock; returns what is left of it where the clock does
/// not tell how much of that the thread had the CPU.
fn spin(time: Duration, mut look: impl FnMut() -> Instant) -> Duration {
    let (mut left, mut last) = (time, look());
    while !left.is_zero() {
        let now = look();
        let passed = now - last;
        if passed > AWAY {
            break;
        }
        left = left.saturating_sub(passed);
        last = now;
    }
    left
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// CPU time of this thread that something takes.
    fn cost(what: impl FnOnce()) -> Duration {
        let before = clock::thread_cpu_time();
        what();
        clock::thread_cpu_time() - before
    }

    #[test]
    fn what_is_burnt_is_what_was_asked_for_and_a_few_looks_at_the_clock() {
        const TIMES: u32 = 10_000;
        let look = cost(|| {
            (0..TIMES).for_each(|_| {
                std::hint::black_box(Instant::now());
            });
        }) / TIMES;
        // Interrupts, and threads that run for a moment on the same CPU, move it by up to a fifth.
        for micros in [1, 2, 20] {
            let asked = Duration::from_micros(micros);
            let burnt = cost(|| (0..TIMES).for_each(|_| burn(asked))) / TIMES;
            assert!(burnt >= asked * 90 / 100, "{burnt:?} for {asked:?}");
            assert!(burnt <= asked * 130 / 100 + 4 * look, "{burnt:?} for {asked:?}, a look takes {look:?}");
        }
    }

    #[test]
    fn the_wall_clock_is_left_for_the_cpu_clock_where_it_does_not_tell_who_had_the_cpu() {
        let begun = Instant::now();
        // What is left after looks that lie so many nanoseconds apart.
        for (apart, left) in [(&[400][..], 0), (&[3000], 1000), (&[400, 400, 90_000], 200)] {
            let mut steps = apart.iter().chain(std::iter::repeat(&apart[apart.len() - 1]));
            let mut now = begun;
            let mut look = || {
                let seen = now;
                now += Duration::from_nanos(*steps.next().expect("without end"));
                seen
            };
            assert_eq!(spin(Duration::from_nanos(1000), &mut look), Duration::from_nanos(left), "{apart:?}");
        }
    }

    #[test]
    fn a_small_file_that_several_requests_of_a_round_get_is_read_once_for_all() {
        let folder = std::env::temp_dir().join(format!("plimsoll-shared-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder can be made");
        for (name, bytes) in [("small", &b"small"[..]), ("large", b"larger than six")] {
            fs::write(folder.join(name), bytes).expect("a file can be written");
        }
        let root = Root::open(&folder).expect("it was made");
        let mut environment = Workspace::new(Some(Arc::new(root)), false).environment;
        let find = |environment: &mut Environment, path: &[u8]| environment.resolve(path).expect("it is there");
        find(&mut environment, b"small");
        assert_eq!(environment.shared_bytes(6), None, "it may be the only one");
        find(&mut environment, b"small");
        assert_eq!(environment.shared_bytes(6), Some(&b"small"[..]));
        fs::write(folder.join("small"), b"other").expect("a file can be written");
        assert_eq!(environment.shared_bytes(6), Some(&b"small"[..]), "it was read");
        find(&mut environment, b"large");
        find(&mut environment, b"large");
        assert_eq!(environment.shared_bytes(6), None);
        // The file that was found before it is found anew, and its bytes are its own.
        find(&mut environment, b"small");
        find(&mut environment, b"small");
        assert_eq!(environment.shared_bytes(6), Some(&b"other"[..]));
        environment.end_turn();
        assert_eq!(environment.shared_bytes(6), None);
        // One that has shrunk since it was found is not whole.
        find(&mut environment, b"small");
        find(&mut environment, b"small");
        fs::write(folder.join("small"), b"").expect("a file can be written");
        assert_eq!(environment.shared_bytes(6), None);
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
