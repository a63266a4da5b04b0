//! A file, or standard output, that whole rows are added to.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Gathered before it is written.
const ENOUGH_BYTES: usize = 64 * 1024;

pub(super) struct Output {
    file: File,
    /// None: standard output, which cannot be opened anew.
    path: Option<PathBuf>,
    header: &'static str,
    gathered: Vec<u8>,
    /// A write failed within a row, whose beginning is in the file.
    torn: bool,
}

impl Output {
    /// Opens a file to add to.
    pub(super) fn open(path: &Path, header: &'static str) -> io::Result<Output> {
        Ok(Output::new(append(path)?, Some(path.to_owned()), header))
    }

    pub(super) fn stdout(header: &'static str) -> io::Result<Output> {
        Ok(Output::new(File::from(io::stdout().as_fd().try_clone_to_owned()?), None, header))
    }

    fn new(file: File, path: Option<PathBuf>, header: &'static str) -> Output {
        Output { file, path, header, gathered: Vec::with_capacity(2 * ENOUGH_BYTES), torn: false }
    }

    /// Writes the header where the file is empty: an unwritable one is met at the start.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        let is_empty = self.path.is_none() || self.file.metadata()?.len() == 0;
        if is_empty && !self.header.is_empty() { writeln!(self.file, "{}", self.header) } else { Ok(()) }
    }

    /// Adds a row, and says whether enough is gathered.
    pub(super) fn add(&mut self, row: &str) -> bool {
        self.gathered.extend_from_slice(row.as_bytes());
        self.gathered.push(b'\n');
        self.gathered.len() >= ENOUGH_BYTES
    }

    /// Writes what is gathered. Where that fails, returns how many rows are lost, and why.
    pub(super) fn flush(&mut self) -> Option<(u64, io::Error)> {
        let mut rest = &self.gathered[..];
        let mut failed = None;
        if self.torn && !rest.is_empty() {
            failed = self.file.write_all(b"\n").err();
            self.torn = failed.is_some();
        }
        while failed.is_none() && !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => failed = Some(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => failed = Some(error),
            }
        }
        let lost = rest.iter().filter(|byte| **byte == b'\n').count() as u64;
        let written = self.gathered.len() - rest.len();
        self.torn |= failed.is_some() && written > 0 && self.gathered[written - 1] != b'\n';
        self.gathered.clear();
        failed.map(|error| (lost, error))
    }

    /// Opens the file at the same path anew, which may be another by now.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        self.file = append(path)?;
        self.torn = false;
        self.begin()
    }
}

fn append(path: &Path) -> io::Result<File> {
    plimsoll_sys::file::append(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_a_full_disk_does_not_take_are_counted() {
        let file = File::options().write(true).open("/dev/full").expect("every Linux has /dev/full");
        let mut output = Output::new(file, None, "");
        output.add("one");
        output.add("two");
        let (lost, error) = output.flush().expect("the disk is full");
        assert_eq!(lost, 2);
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(output.flush().is_none(), "nothing is left to write");
    }

    #[test]
    fn a_file_has_one_header_however_often_it_is_opened_and_moved_away() {
        let path = std::env::temp_dir().join(format!("plimsoll-output-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        for _ in 0..2 {
            let mut output = Output::open(&path, "a,b").expect("the folder can be written to");
            output.begin().expect("the file can be written to");
            output.add("1,2");
            assert!(output.flush().is_none());
        }
        assert_eq!(std::fs::read_to_string(&path).expect("it was written"), "a,b\n1,2\n1,2\n");
        let mut output = Output::open(&path, "a,b").expect("the folder can be written to");
        std::fs::remove_file(&path).expect("it is there");
        output.reopen().expect("the folder can be written to");
        output.add("3,4");
        assert!(output.flush().is_none());
        assert_eq!(std::fs::read_to_string(&path).expect("it was written"), "a,b\n3,4\n");
        std::fs::remove_file(&path).expect("it is there");
    }
}
