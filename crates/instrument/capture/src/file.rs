//! Packets in pcapng files (draft-ietf-opsawg-pcapng), which Wireshark reads and writes.

mod blocks;

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::blocks::unknown::UnknownBlock;
use pcap_file::{DataLink, Endianness, PcapError};
use thiserror::Error;

use crate::statistics::{Outcome, Statistics};
use blocks::{Block, Blocks, ENDS_WITH_STATISTICS, Fault, Resolution};

/// Why a file cannot be read or written.
#[derive(Debug, Error)]
pub enum FileError {
    /// The file cannot be opened, read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is another thing.
    #[error("it is not a pcapng file; `editcap -F pcapng OLD NEW` converts other captures")]
    NotPcapng,
    /// It ends within a block, or a section of it that should end with statistics does not.
    #[error(
        "it is cut short: its capture failed, was killed or still runs, or it was not copied whole; {packets} packets \
         of it can be read"
    )]
    CutShort {
        /// Packets that it holds.
        packets: u64,
    },
    /// It breaks the rules of the format.
    #[error("it is damaged after {packets} packets: {what}; copy it again, or capture again")]
    Damaged {
        /// Packets read before the damage.
        packets: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// Its packets are not Ethernet frames.
    #[error(
        "the packets of its interface {0} are not Ethernet frames, and only those are understood; capture on an \
         Ethernet interface"
    )]
    NotEthernet(u32),
}

/// Nanoseconds (the option if_tsresol).
const NANOSECONDS: u8 = 9;

/// Ethernet (the link types of tcpdump.org).
const ETHERNET: u16 = 1;

/// The name of this program in its files (the option shb_userappl).
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
        // Not before the interface: editcap would refuse the file.
        let (kind, text) = ENDS_WITH_STATISTICS;
        writer.write_pcapng_block(UnknownBlock::new(kind, text.len() as u32, text)).map_err(writing)?;
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
        error => FileError::Io(io::Error::other(error)),
    }
}

/// The statistics of a file, of all its interfaces together. A damaged file gives those of the
/// packets that can be read, or an error if there are none.
pub fn summarise(path: &Path, interval: Duration) -> Result<Outcome<FileError>, FileError> {
    summarise_bytes(File::open(path)?, interval)
}

/// The statistics of a file's bytes.
pub fn summarise_bytes(bytes: impl Read, interval: Duration) -> Result<Outcome<FileError>, FileError> {
    let mut reading =
        Reading { statistics: Statistics::new(interval), packets: 0, drops: Some(0), is_cut_short: false };
    let failure = reading.follow(bytes).err();
    match failure {
        Some(failure) if reading.packets == 0 => Err(failure),
        failure => Ok(Outcome { summary: reading.statistics.summary(reading.drops), failure }),
    }
}

/// What was read of a file so far.
struct Reading {
    statistics: Statistics,
    packets: u64,
    /// Packets that were lost to the capture, of the sections that are over; `None` where one
    /// interface does not say.
    drops: Option<u64>,
    /// Whether one of the sections that are over was broken off.
    is_cut_short: bool,
}

impl Reading {
    fn follow(&mut self, bytes: impl Read) -> Result<(), FileError> {
        let mut section = Section::default();
        let outcome = self.blocks(bytes, &mut section);
        self.end_section(&section);
        let packets = self.packets;
        match outcome {
            Ok(()) if self.is_cut_short => Err(FileError::CutShort { packets }),
            Ok(()) => Ok(()),
            Err(Fault::Io(error)) => Err(FileError::Io(error)),
            Err(Fault::NotPcapng) => Err(FileError::NotPcapng),
            Err(Fault::CutShort) => Err(FileError::CutShort { packets }),
            Err(Fault::Malformed(what)) => Err(FileError::Damaged { packets, what }),
            Err(Fault::NotEthernet(interface)) => Err(FileError::NotEthernet(interface)),
        }
    }

    fn blocks(&mut self, bytes: impl Read, section: &mut Section) -> Result<(), Fault> {
        let mut blocks = Blocks::new(bytes);
        while let Some(block) = blocks.next()? {
            match block {
                Block::Section => {
                    self.end_section(section);
                    *section = Section::default();
                }
                Block::EndsWithStatistics => section.ends_with_statistics = true,
                Block::Interface { link_type, snap, resolution } => {
                    let interface = Interface { link_type, snap, resolution, counted: None, between_packets: None };
                    section.interfaces.push(interface);
                }
                Block::Packet { interface, time, bytes, length, drops_before } => {
                    let interface = section.ethernet(interface)?;
                    let time = interface.resolution.time(time)?;
                    interface.note_drops_before(drops_before);
                    self.statistics.packet(time, bytes, length);
                    self.packets += 1;
                }
                Block::SimplePacket { bytes, length } => {
                    // It does not say how much was kept.
                    let snap = section.ethernet(0)?.snap;
                    let kept = if snap == 0 { length } else { length.min(snap) };
                    if bytes.len() < kept as usize {
                        return Err(Fault::Malformed("a simple packet is shorter than it says"));
                    }
                    self.statistics.untimed_packet(length);
                    self.packets += 1;
                }
                Block::Statistics { interface, drops } => {
                    // Each counts from the beginning of the capture, so the last statistics hold
                    // for all before them.
                    let interface = section.interface(interface)?;
                    interface.counted = drops.or(interface.counted);
                }
                Block::Other => {}
            }
        }
        Ok(())
    }

    fn end_section(&mut self, section: &Section) {
        self.is_cut_short |= section.is_cut_short();
        for interface in &section.interfaces {
            self.drops = self.drops.zip(interface.drops()).map(|(sum, drops)| sum.saturating_add(drops));
        }
    }
}

/// A section of a file, with the interfaces described so far.
#[derive(Debug, Default)]
struct Section {
    /// Whether it says so.
    ends_with_statistics: bool,
    interfaces: Vec<Interface>,
}

impl Section {
    fn is_cut_short(&self) -> bool {
        self.ends_with_statistics && self.interfaces.iter().all(|interface| interface.counted.is_none())
    }

    fn interface(&mut self, number: u32) -> Result<&mut Interface, Fault> {
        let interface = self.interfaces.get_mut(number as usize);
        interface.ok_or(Fault::Malformed("a block names an interface that is not described"))
    }

    /// The interface of a packet.
    fn ethernet(&mut self, number: u32) -> Result<&mut Interface, Fault> {
        let interface = self.interface(number)?;
        if interface.link_type == ETHERNET { Ok(interface) } else { Err(Fault::NotEthernet(number)) }
    }
}

/// An interface of a section.
#[derive(Debug)]
struct Interface {
    link_type: u16,
    /// Bytes kept of each packet; 0 is all.
    snap: u32,
    resolution: Resolution,
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

    fn note_drops_before(&mut self, drops: Option<u64>) {
        if let Some(drops) = drops {
            self.between_packets = Some(self.between_packets.unwrap_or(0).saturating_add(drops));
        }
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
