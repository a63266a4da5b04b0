//! The blocks of a pcapng file (draft-ietf-opsawg-pcapng), as far as the figures need them.
//!
//! An option that the figures do not need is skipped, whatever it holds. Other programs write
//! options that the format does not allow, and Wireshark reads their files all the same. The crate
//! that writes our own files refuses to read them.

use std::io::{self, BufReader, Read};
use std::time::Duration;

/// A block of our own files: interface statistics end this section, or else it was broken off. Its
/// kind is one for local use (the format's section 3.2), so its text says whose it is. The tools of
/// Wireshark copy neither this block nor the statistics, so a copy is not taken for broken off.
pub(super) const ENDS_WITH_STATISTICS: (u32, &[u8]) = (0x8070_6c6d, b"plimsoll: statistics end this section");

/// What the figures need of a block.
#[derive(Debug)]
pub(super) enum Block<'a> {
    /// A section begins, and numbers its interfaces from 0.
    Section,
    /// [`ENDS_WITH_STATISTICS`].
    EndsWithStatistics,
    /// The next interface of the section.
    Interface {
        link_type: u16,
        /// Bytes kept of each packet; 0 is all.
        snap: u32,
        resolution: Resolution,
    },
    Packet {
        interface: u32,
        /// In the units of the interface.
        time: u64,
        /// What was kept of it.
        bytes: &'a [u8],
        length: u32,
        /// Packets that were dropped since the packet before it, where that is known.
        drops_before: Option<u64>,
    },
    /// A packet of the section's first interface, without a time.
    SimplePacket {
        /// What was kept of it, and padding.
        bytes: &'a [u8],
        length: u32,
    },
    /// What an interface has counted since the beginning of the capture.
    Statistics {
        interface: u32,
        /// Packets that were dropped, where that is known.
        drops: Option<u64>,
    },
    /// Nothing that the figures need.
    Other,
}

/// What is wrong with a file.
#[derive(Debug)]
pub(super) enum Fault {
    Io(io::Error),
    NotPcapng,
    /// It ends within a block.
    CutShort,
    Malformed(&'static str),
    /// A packet is of this interface, whose packets are not Ethernet frames.
    NotEthernet(u32),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Fault::CutShort,
            _ => Fault::Io(error),
        }
    }
}

/// Kinds of blocks. That of a section header is the same in either byte order.
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
/// Obsolete since 2004, but tools of then wrote it.
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// Options, by the names of the format.
const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;
const EPB_DROPCOUNT: u16 = 4;
const ISB_IFDROP: u16 = 5;
const ISB_OSDROP: u16 = 7;

/// What a section header begins with, in the byte order of the section.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Kind, length, and the length once more.
const SMALLEST_BLOCK: usize = 12;
/// Bounds the memory. Packets have at most 256 KiB.
const LARGEST_BLOCK: usize = 64 << 20;

/// Reads a file block by block.
pub(super) struct Blocks<R> {
    file: BufReader<R>,
    /// All of the block that was read last.
    block: Vec<u8>,
    /// The byte order of the section; `None` before the first.
    is_big_endian: Option<bool>,
}

impl<R: Read> Blocks<R> {
    pub(super) fn new(file: R) -> Blocks<R> {
        Blocks { file: BufReader::with_capacity(1 << 20, file), block: Vec::new(), is_big_endian: None }
    }

    /// The next block, or `None` where the file ends behind a block.
    pub(super) fn next(&mut self) -> Result<Option<Block<'_>>, Fault> {
        self.block.clear();
        match (&mut self.file).take(SMALLEST_BLOCK as u64).read_to_end(&mut self.block)? {
            0 if self.is_big_endian.is_some() => return Ok(None),
            SMALLEST_BLOCK => {}
            _ if self.is_big_endian.is_some() || self.may_begin_a_file() => return Err(Fault::CutShort),
            _ => return Err(Fault::NotPcapng),
        }
        if self.block.starts_with(&SECTION_HEADER.to_le_bytes()) {
            self.is_big_endian = match Fields::new(&self.block[8..], false).u32()? {
                BYTE_ORDER_MAGIC => Some(false),
                swapped if swapped.swap_bytes() == BYTE_ORDER_MAGIC => Some(true),
                _ => return Err(Fault::Malformed("a section has no byte order")),
            };
        }
        let is_big_endian = self.is_big_endian.ok_or(Fault::NotPcapng)?;
        let mut head = Fields::new(&self.block, is_big_endian);
        let (kind, length) = (head.u32()?, head.u32()? as usize);
        if length < SMALLEST_BLOCK || !length.is_multiple_of(4) {
            return Err(Fault::Malformed("a block has a length that none can have"));
        }
        if length > LARGEST_BLOCK {
            return Err(Fault::Malformed("a block is longer than 64 MiB"));
        }
        self.block.resize(length, 0);
        self.file.read_exact(&mut self.block[SMALLEST_BLOCK..])?;
        let (body, end) = self.block[8..].split_at(length - SMALLEST_BLOCK);
        if Fields::new(end, is_big_endian).u32()? as usize != length {
            return Err(Fault::Malformed("a block does not end with its length"));
        }
        block(kind, Fields::new(body, is_big_endian)).map(Some)
    }

    /// Whether what was read may be the beginning of a section header.
    fn may_begin_a_file(&self) -> bool {
        self.block.iter().zip(SECTION_HEADER.to_le_bytes()).all(|(read, wanted)| *read == wanted)
    }
}

/// Reads the body of a block.
fn block(kind: u32, mut body: Fields<'_>) -> Result<Block<'_>, Fault> {
    Ok(match kind {
        SECTION_HEADER => Block::Section,
        INTERFACE_DESCRIPTION => {
            let (link_type, _reserved, snap) = (body.u16()?, body.u16()?, body.u32()?);
            let mut resolution = Resolution::default();
            while let Some((code, value)) = body.option()? {
                match code {
                    IF_TSRESOL => resolution.units_a_second = units_a_second(u8::from_le_bytes(value.exactly()?)),
                    IF_TSOFFSET => resolution.offset_s = i64::from_le_bytes(value.exactly()?),
                    _ => {}
                }
            }
            Block::Interface { link_type, snap, resolution }
        }
        PACKET => {
            let (interface, drops) = (body.u16()?, body.u16()?);
            // All ones where the count is not known.
            let drops_before = Some(u64::from(drops)).filter(|_| drops != u16::MAX);
            let (time, bytes, length) = body.packet()?;
            Block::Packet { interface: u32::from(interface), time, bytes, length, drops_before }
        }
        SIMPLE_PACKET => Block::SimplePacket { length: body.u32()?, bytes: body.bytes },
        INTERFACE_STATISTICS => {
            let (interface, _time) = (body.u32()?, body.time()?);
            let mut drops: Option<u64> = None;
            while let Some((code, value)) = body.option()? {
                if [ISB_IFDROP, ISB_OSDROP].contains(&code) {
                    let more = u64::from_le_bytes(value.exactly()?);
                    drops = Some(drops.unwrap_or(0).saturating_add(more));
                }
            }
            Block::Statistics { interface, drops }
        }
        ENHANCED_PACKET => {
            let interface = body.u32()?;
            let (time, bytes, length) = body.packet()?;
            let mut drops_before = None;
            while let Some((code, value)) = body.option()? {
                if code == EPB_DROPCOUNT {
                    drops_before = Some(u64::from_le_bytes(value.exactly()?));
                }
            }
            Block::Packet { interface, time, bytes, length, drops_before }
        }
        kind if kind == ENDS_WITH_STATISTICS.0 && body.bytes.starts_with(ENDS_WITH_STATISTICS.1) => {
            Block::EndsWithStatistics
        }
        _ => Block::Other,
    })
}

/// What is left of a block, or the value of an option.
struct Fields<'a> {
    bytes: &'a [u8],
    is_big_endian: bool,
}

impl<'a> Fields<'a> {
    fn new(bytes: &'a [u8], is_big_endian: bool) -> Fields<'a> {
        Fields { bytes, is_big_endian }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let short = Fault::Malformed("a block is too short for what it holds");
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(short)?;
        self.bytes = rest;
        Ok(taken)
    }

    /// The bytes of a number, the lowest first.
    fn number<const WIDTH: usize>(&mut self) -> Result<[u8; WIDTH], Fault> {
        let mut number = [0; WIDTH];
        number.copy_from_slice(self.take(WIDTH)?);
        if self.is_big_endian {
            number.reverse();
        }
        Ok(number)
    }

    fn u16(&mut self) -> Result<u16, Fault> {
        self.number().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Fault> {
        self.number().map(u32::from_le_bytes)
    }

    /// The bytes of a number that is all there is, the lowest first.
    fn exactly<const WIDTH: usize>(mut self) -> Result<[u8; WIDTH], Fault> {
        match self.bytes.len() == WIDTH {
            true => self.number(),
            false => Err(Fault::Malformed("an option has a length that it cannot have")),
        }
    }

    /// A time, whose high half comes first in either byte order.
    fn time(&mut self) -> Result<u64, Fault> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    /// The time of a packet, what was kept of it, and its length.
    fn packet(&mut self) -> Result<(u64, &'a [u8], u32), Fault> {
        let (time, kept, length) = (self.time()?, self.u32()?, self.u32()?);
        Ok((time, self.padded(kept as usize)?, length))
    }

    fn padded(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let bytes = self.take(count)?;
        self.take(count.next_multiple_of(4) - count)?;
        Ok(bytes)
    }

    /// The code and value of the next option, or `None` at their end.
    fn option(&mut self) -> Result<Option<(u16, Fields<'a>)>, Fault> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let (code, length) = (self.u16()?, self.u16()?);
        let value = Fields::new(self.padded(usize::from(length))?, self.is_big_endian);
        Ok((code != 0).then_some((code, value)))
    }
}

/// What the times of an interface count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resolution {
    units_a_second: u128,
    /// From 1970 to the time 0.
    offset_s: i64,
}

impl Default for Resolution {
    /// Microseconds since 1970.
    fn default() -> Resolution {
        Resolution { units_a_second: 1_000_000, offset_s: 0 }
    }
}

/// The highest bit is set for powers of two, and clear for powers of ten. A power that is too large
/// for the number has units that are too short for any time in nanoseconds.
fn units_a_second(power: u8) -> u128 {
    let base: u128 = if power & 0x80 == 0 { 10 } else { 2 };
    base.saturating_pow(u32::from(power & 0x7f))
}

/// Times are counted from this long before 1970, more than the age of the universe, as an offset
/// may be negative.
const BEFORE_1970_S: u64 = 1 << 60;

impl Resolution {
    /// A time since [`BEFORE_1970_S`].
    pub(super) fn time(self, units: u64) -> Result<Duration, Fault> {
        let units = u128::from(units);
        let seconds = (units / self.units_a_second) as u64;
        let part = units % self.units_a_second * 1_000_000_000 / self.units_a_second;
        let seconds = seconds.checked_add(BEFORE_1970_S).and_then(|seconds| seconds.checked_add_signed(self.offset_s));
        let seconds = seconds.ok_or(Fault::Malformed("a packet has a time that is too far from 1970"))?;
        Ok(Duration::new(seconds, part as u32))
    }
}
