//! Packets in pcapng files (draft-ietf-opsawg-pcapng), which Wireshark reads and writes.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::pcapng::{Block, PcapNgReader, PcapNgWriter};
use pcap_file::{DataLink, Endianness, PcapError};
use thiserror::Error;

use crate::statistics::{Statistics, Summary};

/// Why a file cannot be read or written.
#[derive(Debug, Error)]
pub enum FileError {
    /// The file cannot be opened, read or written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It is not what it should be.
    #[error(
        "it is not a pcapng file, or damaged after {packets} packets ({error}); `editcap -F pcapng OLD NEW` converts other captures"
    )]
    Damaged {
        /// Packets read before the damage.
        packets: u64,
        /// What is wrong.
        error: PcapError,
    },
    /// Its packets are not Ethernet frames.
    #[error(
        "interface {0} of the file does not carry Ethernet frames, and only those are understood; capture on an Ethernet interface"
    )]
    NotEthernet(u32),
}

/// Nanoseconds (the option if_tsresol).
const NANOSECONDS: u8 = 9;

/// Writes the packets of one interface.
pub struct Writer(PcapNgWriter<BufWriter<File>>);

impl Writer {
    /// Makes the file; what was in it is lost.
    pub fn create(path: &Path, interface: &str, snap: u32) -> Result<Writer, FileError> {
        let file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        // The order of bytes is fixed, as it shapes a time below.
        let mut writer = PcapNgWriter::with_endianness(file, Endianness::Little).map_err(writing)?;
        let options = vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed(interface)),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ];
        writer
            .write_pcapng_block(InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: snap, options })
            .map_err(writing)?;
        Ok(Writer(writer))
    }

    /// Writes a packet of `length` bytes, of which `bytes` were captured, seen at `time` since 1970.
    pub fn packet(&mut self, time: Duration, bytes: &[u8], length: u32) -> Result<(), FileError> {
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: time,
            original_len: length,
            data: Cow::Borrowed(bytes),
            options: Vec::new(),
        };
        self.0.write_pcapng_block(block).map_err(writing)?;
        Ok(())
    }

    /// Writes what the kernel counted by `time` since 1970, and all that is not yet in the file.
    pub fn finish(mut self, time: Duration, received: u64, drops: u64) -> Result<(), FileError> {
        let block = InterfaceStatisticsBlock {
            interface_id: 0,
            // The format wants the high half first; the crate writes one number of 64 bits, low half first.
            timestamp: (time.as_nanos() as u64).rotate_left(32),
            options: vec![InterfaceStatisticsOption::IsbIfRecv(received), InterfaceStatisticsOption::IsbOsDrop(drops)],
        };
        self.0.write_pcapng_block(block).map_err(writing)?;
        Ok(self.0.get_mut().flush()?)
    }
}

fn writing(error: PcapError) -> FileError {
    match error {
        PcapError::IoError(error) => FileError::Io(error),
        error => FileError::Damaged { packets: 0, error },
    }
}

/// The statistics of a file, of all its interfaces together.
pub fn summarise(path: &Path, interval: Duration) -> Result<Summary, FileError> {
    let mut statistics = Statistics::new(interval);
    let mut packets = 0;
    let damaged = |packets, error| match error {
        PcapError::IoError(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => FileError::Io(error),
        error => FileError::Damaged { packets, error },
    };
    let file = BufReader::new(File::open(path)?);
    let mut reader = PcapNgReader::new(file).map_err(|error| damaged(0, error))?;
    let mut drops: Option<u64> = None;
    let mut resolutions: Vec<Resolution> = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.map_err(|error| damaged(packets, error))? {
            // A further section numbers its interfaces anew.
            Block::SectionHeader(_) => resolutions.clear(),
            Block::InterfaceDescription(interface) => {
                if interface.linktype != DataLink::ETHERNET {
                    return Err(FileError::NotEthernet(resolutions.len() as u32));
                }
                resolutions.push(Resolution::of(&interface.options));
            }
            Block::EnhancedPacket(packet) => {
                let resolution = resolutions.get(packet.interface_id as usize);
                let resolution = resolution.ok_or_else(|| {
                    damaged(packets, PcapError::InvalidField("a packet names an interface that is not described"))
                })?;
                // The crate takes the file's units of time for nanoseconds, whatever they are.
                let time = resolution.time(packet.timestamp.as_nanos() as u64);
                statistics.packet(time, &packet.data, packet.original_len);
                packets += 1;
            }
            Block::InterfaceStatistics(counted) => {
                for option in &counted.options {
                    if let InterfaceStatisticsOption::IsbOsDrop(count) | InterfaceStatisticsOption::IsbIfDrop(count) =
                        option
                    {
                        drops = Some(drops.unwrap_or(0).saturating_add(*count));
                    }
                }
            }
            _ => {}
        }
    }
    Ok(statistics.summary(drops))
}

/// What a unit of an interface's times is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Resolution {
    units_a_second: u64,
    offset_s: u64,
}

impl Resolution {
    fn of(options: &[InterfaceDescriptionOption<'_>]) -> Resolution {
        // Microseconds unless it says otherwise.
        let mut resolution = Resolution { units_a_second: 1_000_000, offset_s: 0 };
        for option in options {
            match option {
                // The highest bit tells powers of two from powers of ten.
                InterfaceDescriptionOption::IfTsResol(power) if power & 0x80 == 0 => {
                    resolution.units_a_second = 10_u64.saturating_pow(u32::from(*power));
                }
                InterfaceDescriptionOption::IfTsResol(power) => {
                    resolution.units_a_second = 2_u64.saturating_pow(u32::from(power & 0x7f));
                }
                InterfaceDescriptionOption::IfTsOffset(seconds) => resolution.offset_s = *seconds,
                _ => {}
            }
        }
        resolution
    }

    fn time(self, units: u64) -> Duration {
        let seconds = (units / self.units_a_second).saturating_add(self.offset_s);
        let part = u128::from(units % self.units_a_second) * 1_000_000_000 / u128::from(self.units_a_second);
        Duration::new(seconds, part as u32)
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
