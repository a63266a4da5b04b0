//! What another program says on standard input: a line with the instant at which requests begin,
//! and one, whatever is in it, once connections may close.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{RunError, kernel};
use crate::config::FURTHEST_START;

/// An instant in seconds since 1970 with nanoseconds has 20 characters.
const LONGEST: usize = 64;

/// Standard input, and what was read of it and not yet used.
pub(super) struct Input {
    file: File,
    read: Vec<u8>,
}

impl AsFd for Input {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Input {
    pub(super) fn open() -> io::Result<Input> {
        // Not through `std::io::Stdin`: its buffer could hold the line while poll(2) sees nothing.
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Input { file: File::from(input), read: Vec::new() })
    }

    /// Reads once, which does not block after poll(2) has found something to read. Returns the
    /// instant of the start, once its line is whole.
    pub(super) fn read_start(&mut self) -> Result<Option<SystemTime>, RunError> {
        let mut buffer = [0; LONGEST];
        match self.file.read(&mut buffer) {
            Ok(0) => return Err(RunError::StartGone),
            Ok(count) => self.read.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
            Err(error) => return Err(kernel("standard input cannot be read")(error)),
        }
        let start = instant(&self.read, SystemTime::now())?;
        if start.is_some() {
            self.take_line();
        }
        Ok(start)
    }

    /// Forgets the first line, if it is whole; whether it was.
    pub(super) fn take_line(&mut self) -> bool {
        let end = self.read.iter().position(|byte| *byte == b'\n');
        self.read.drain(..end.map_or(0, |end| end + 1));
        end.is_some()
    }

    /// Reads once, likewise. Whether a line is whole with it, or none can come any more.
    pub(super) fn read_any_line(&mut self) -> bool {
        let mut buffer = [0; LONGEST];
        match self.file.read(&mut buffer) {
            Ok(0) => true,
            Ok(count) => {
                // Of a line that nobody reads only its end matters.
                self.read = buffer[..count].to_vec();
                self.take_line()
            }
            Err(error) => error.kind() != io::ErrorKind::Interrupted,
        }
    }
}

/// The instant in the first line; `None` while the line is not whole.
fn instant(read: &[u8], now: SystemTime) -> Result<Option<SystemTime>, RunError> {
    let end = read.iter().position(|byte| *byte == b'\n');
    if end.is_none() && read.len() < LONGEST {
        return Ok(None);
    }
    let line = String::from_utf8_lossy(&read[..end.unwrap_or(read.len())]).trim().to_owned();
    let since = line.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match since.and_then(|since| UNIX_EPOCH.checked_add(since)).filter(|at| *at <= now + FURTHEST_START) {
        Some(at) => Ok(Some(at)),
        None => Err(RunError::BadStart { line }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_whole_line_is_the_instant() {
        let at = UNIX_EPOCH + Duration::from_millis(5_250);
        let now = UNIX_EPOCH + Duration::from_secs(7);
        for (read, found) in [("", None), ("5.2", None), ("5.25\n", Some(at)), (" 5.25 \r\n7\n", Some(at))] {
            assert_eq!(instant(read.as_bytes(), now).expect("no bad line"), found, "{read:?}");
        }
    }

    #[test]
    fn a_line_that_is_no_instant_is_refused() {
        let long = "1".repeat(LONGEST);
        let now = UNIX_EPOCH + Duration::from_secs(1_763_800_000);
        let milliseconds = "1763800000250\n";
        for read in ["\n", "soon\n", "-1\n", "nan\n", "inf\n", "1e300\n", "5 6\n", "\u{fffd}\n", milliseconds, &long] {
            assert!(matches!(instant(read.as_bytes(), now), Err(RunError::BadStart { .. })), "{read:?}");
        }
    }
}
