//! Packets in pcapng files (draft-ietf-opsawg-pcapng), which Wireshark reads and writes.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::time::Duration;

use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::{Block, PcapNgReader, PcapNgWriter};
use pcap_file::{DataLink, Endianness, PcapError};
use thiserror::Error;

use crate::statistics::{Outcome, Statistics};

/// Why a file cannot be read or written.
#[derive(Debug, Error)]
pub enum FileError {
    /// The file cannot be opened, read or written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It is not what it should be.
    #[error(
        "it is not a pcapng file, or damaged after {packets} packets ({error}); `editcap -F pcapng OLD NEW` converts \
         other captures"
    )]
    Damaged {
        /// Packets read before the damage.
        packets: u64,
        /// What is wrong.
        error: PcapError,
    },
    /// It is one of ours, and has no end.
    #[error(
        "it is not whole: its capture failed, was killed, or still runs, so these are the figures of {packets} packets \
         and not of all"
    )]
    BrokenOff {
        /// Packets that it holds.
        packets: u64,
    },
    /// Its packets are not Ethernet frames.
    #[error(
        "interface {0} of the file does not carry Ethernet frames, and only those are understood; capture on an \
         Ethernet interface"
    )]
    NotEthernet(u32),
}

/// Nanoseconds (the option if_tsresol).
const NANOSECONDS: u8 = 9;

/// The name of this program in its files (the option shb_userappl). They end with the kernel's
/// counts; a file that does not was broken off.
const APPLICATION: &str = "plimsoll capture";

/// Writes the packets of one interface. A file whose writer is dropped before it is
/// [finished](Writer::finish) is broken off.
pub struct Writer(PcapNgWriter<BufWriter<File>>);

impl Writer {
    /// Makes the file, or empties it. A FIFO without a reader is an error: signals wait until the
    /// capture runs, so nothing could end a wait for a reader.
    pub fn create(path: &Path, interface: &str, snap: u32) -> Result<Writer, FileError> {
        let file = BufWriter::with_capacity(1 << 20, plimsoll_sys::file::create(path)?);
        let application = SectionHeaderOption::UserApplication(Cow::Borrowed(APPLICATION));
        // The order of bytes is fixed, as it shapes a time below.
        let section = SectionHeaderBlock {
            endianness: Endianness::Little,
            options: vec![application],
            ..SectionHeaderBlock::default()
        };
        let mut writer = PcapNgWriter::with_section_header(file, section).map_err(writing)?;
        let options = vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed(interface)),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ];
        writer
            .write_pcapng_block(InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: snap, options })
            .map_err(writing)?;
        Ok(Writer(writer))
    }

    /// Writes a packet of `length` bytes, of which `bytes` were captured, seen at `time` since
    /// 1970.
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
            // The format has the high half first; the crate writes one number of 64 bits, low half
            // first.
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

/// The statistics of a file, of all its interfaces together. A damaged file gives those of the
/// packets that can be read, or an error if there are none.
pub fn summarise(path: &Path, interval: Duration) -> Result<Outcome<FileError>, FileError> {
    summarise_bytes(File::open(path)?, interval)
}

/// The statistics of a file's bytes.
pub fn summarise_bytes(bytes: impl Read, interval: Duration) -> Result<Outcome<FileError>, FileError> {
    let mut reading = Reading { statistics: Statistics::new(interval), drops: Drops::default(), packets: 0 };
    let failure = reading.follow(bytes).err();
    match failure {
        Some(failure) if reading.packets == 0 => Err(failure),
        failure => Ok(Outcome { summary: reading.statistics.summary(reading.drops.total), failure }),
    }
}

/// What was read of a file so far.
struct Reading {
    statistics: Statistics,
    drops: Drops,
    packets: u64,
}

impl Reading {
    fn follow(&mut self, bytes: impl Read) -> Result<(), FileError> {
        let mut reader = PcapNgReader::new(bytes).map_err(|error| self.damage(error))?;
        let mut section = Section::of(reader.section());
        while let Some(block) = reader.next_block() {
            let outcome = match block {
                Ok(block) => section.block(block, &mut self.statistics, &mut self.drops),
                Err(error) => Err(Fault::Unreadable(error)),
            };
            match outcome {
                Ok(is_packet) => self.packets += u64::from(is_packet),
                Err(fault) => {
                    self.drops.end_section(&section);
                    return Err(match fault {
                        Fault::NotEthernet(interface) => FileError::NotEthernet(interface),
                        Fault::Malformed(what) => self.damage(PcapError::InvalidField(what)),
                        Fault::Unreadable(error) => self.damage(error),
                    });
                }
            }
        }
        self.drops.end_section(&section);
        if section.is_broken_off() { Err(FileError::BrokenOff { packets: self.packets }) } else { Ok(()) }
    }

    fn damage(&self, error: PcapError) -> FileError {
        match error {
            PcapError::IoError(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => FileError::Io(error),
            error => FileError::Damaged { packets: self.packets, error },
        }
    }
}

/// What is wrong with a block.
enum Fault {
    NotEthernet(u32),
    Malformed(&'static str),
    Unreadable(PcapError),
}

/// Packets that were lost to the capture, of all sections; `None` where the file does not say.
#[derive(Debug, Default)]
struct Drops {
    total: Option<u64>,
}

impl Drops {
    /// Adds what a section says of its interfaces.
    fn end_section(&mut self, section: &Section) {
        for drops in section.interfaces.iter().filter_map(Interface::drops) {
            self.total = Some(self.total.unwrap_or(0).saturating_add(drops));
        }
    }
}

/// A section of a file, with the interfaces described so far: a further section numbers its own
/// anew.
#[derive(Debug)]
struct Section {
    interfaces: Vec<Interface>,
    is_little_endian: bool,
    /// Whether this program wrote it.
    is_ours: bool,
}

/// An interface of a section.
#[derive(Debug)]
struct Interface {
    resolution: Resolution,
    /// Bytes kept of each packet; 0 is all.
    snap: u32,
    /// Drops since the beginning of the capture, from the last statistics of the interface.
    counted: Option<u64>,
    /// Drops that packets report: each reports the drops since the packet before it.
    between_packets: Option<u64>,
}

impl Interface {
    /// The interface's own statistics have all drops, packets only the drops before them.
    fn drops(&self) -> Option<u64> {
        self.counted.or(self.between_packets)
    }

    fn note_drops_before(&mut self, drops: u64) {
        self.between_packets = Some(self.between_packets.unwrap_or(0).saturating_add(drops));
    }
}

impl Section {
    fn of(header: &SectionHeaderBlock<'_>) -> Section {
        Section {
            interfaces: Vec::new(),
            is_little_endian: header.endianness == Endianness::Little,
            is_ours: header.options.contains(&SectionHeaderOption::UserApplication(Cow::Borrowed(APPLICATION))),
        }
    }

    fn is_broken_off(&self) -> bool {
        self.is_ours && self.interfaces.iter().all(|interface| interface.counted.is_none())
    }

    fn interface(&mut self, number: u32) -> Result<&mut Interface, Fault> {
        let interface = self.interfaces.get_mut(number as usize);
        interface.ok_or(Fault::Malformed("a block names an interface that is not described"))
    }

    /// Takes in a block; whether it was a packet.
    fn block(&mut self, block: Block<'_>, statistics: &mut Statistics, drops: &mut Drops) -> Result<bool, Fault> {
        match block {
            Block::SectionHeader(header) => {
                drops.end_section(self);
                *self = Section::of(&header);
            }
            Block::InterfaceDescription(interface) => {
                if interface.linktype != DataLink::ETHERNET {
                    return Err(Fault::NotEthernet(self.interfaces.len() as u32));
                }
                let (resolution, snap) = (Resolution::of(&interface.options), interface.snaplen);
                self.interfaces.push(Interface { resolution, snap, counted: None, between_packets: None });
            }
            Block::EnhancedPacket(packet) => {
                let interface = self.interface(packet.interface_id)?;
                for option in &packet.options {
                    if let EnhancedPacketOption::DropCount(drops) = option {
                        interface.note_drops_before(*drops);
                    }
                }
                // The crate takes the file's units of time for nanoseconds, whatever they are.
                let time = interface.resolution.time(packet.timestamp.as_nanos() as u64);
                statistics.packet(time, &packet.data, packet.original_len);
                return Ok(true);
            }
            // Obsolete since 2004, but tools of then wrote it.
            Block::Packet(packet) => {
                let is_little_endian = self.is_little_endian;
                let interface = self.interface(u32::from(packet.interface_id))?;
                // All ones where the count is not known.
                if packet.drop_count != u16::MAX {
                    interface.note_drops_before(u64::from(packet.drop_count));
                }
                // The high half comes first; the crate reads one number of 64 bits.
                let units = if is_little_endian { packet.timestamp.rotate_left(32) } else { packet.timestamp };
                statistics.packet(interface.resolution.time(units), &packet.data, packet.original_len);
                return Ok(true);
            }
            Block::SimplePacket(packet) => {
                // It is of the first interface, without a time and without the length that was
                // kept.
                let snap = self.interface(0)?.snap;
                let kept = if snap == 0 { packet.original_len } else { packet.original_len.min(snap) };
                if packet.data.len() < kept as usize {
                    return Err(Fault::Malformed("a simple packet is shorter than it says"));
                }
                statistics.untimed_packet(packet.original_len);
                return Ok(true);
            }
            Block::InterfaceStatistics(counted) => {
                let interface = self.interface(counted.interface_id)?;
                let drops = counted.options.iter().filter_map(|option| match option {
                    InterfaceStatisticsOption::IsbOsDrop(count) | InterfaceStatisticsOption::IsbIfDrop(count) => {
                        Some(*count)
                    }
                    _ => None,
                });
                // Each counts from the beginning of the capture, so the last statistics hold for
                // all before them.
                interface.counted = drops.reduce(u64::saturating_add).or(interface.counted);
            }
            _ => {}
        }
        Ok(false)
    }
}

/// What a unit of an interface's times is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Resolution {
    units_a_second: u64,
    /// May be before 1970.
    offset_s: i64,
}

impl Resolution {
    fn of(options: &[InterfaceDescriptionOption<'_>]) -> Resolution {
        // Microseconds unless it says otherwise.
        let mut resolution = Resolution { units_a_second: 1_000_000, offset_s: 0 };
        for option in options {
            match option {
                // The highest bit is set for powers of two, and clear for powers of ten.
                InterfaceDescriptionOption::IfTsResol(power) if power & 0x80 == 0 => {
                    resolution.units_a_second = 10_u64.saturating_pow(u32::from(*power));
                }
                InterfaceDescriptionOption::IfTsResol(power) => {
                    resolution.units_a_second = 2_u64.saturating_pow(u32::from(power & 0x7f));
                }
                // It has a sign (the format's section 4.2), which the crate leaves out.
                InterfaceDescriptionOption::IfTsOffset(seconds) => resolution.offset_s = *seconds as i64,
                _ => {}
            }
        }
        resolution
    }

    fn time(self, units: u64) -> Duration {
        let seconds = (units / self.units_a_second).saturating_add_signed(self.offset_s);
        let part = u128::from(units % self.units_a_second) * 1_000_000_000 / u128::from(self.units_a_second);
        Duration::new(seconds, part as u32)
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
