//! The format of Wireshark
//! (<https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/>).

use flowtrace_schema::Way;

use super::event::{Event, FileError, Frame, Interface, LONGEST_FRAME, Statistics};
use super::input::Input;

mod blocks;

use blocks::{Clock, Options, Order};

/// Begin of the description in which flowtrace names the host of an interface.
const HOST_DESCRIPTION: &str = "flowtrace host: ";

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

/// Longest block whose content is read; others are left out.
const LONGEST_BLOCK: usize = LONGEST_FRAME + (1 << 20);
/// Most interfaces of one file.
const MOST_INTERFACES: usize = 4096;
/// Longest text that is kept.
const LONGEST_TEXT: usize = 255;

/// A file between two of its blocks.
#[derive(Debug, Default)]
pub(super) struct Reader {
    order: Order,
    /// Interfaces of earlier sections.
    before: usize,
    /// Interfaces of this section.
    interfaces: Vec<Known>,
    /// Time of the last packet, for packets without.
    last_ns: i64,
}

/// An interface of the section.
#[derive(Clone, Copy, Debug)]
struct Known {
    clock: Clock,
    snap_length: u32,
}

/// Text for the version of a section, if that version is not read.
fn other_version(order: &Order, version: &[u8]) -> Option<String> {
    let (major, minor) = (order.u16(version, 0)?, order.u16(version, 2)?);
    let is_read = matches!((major, minor), (1, 0 | 2));
    (!is_read).then(|| format!("version {major}.{minor} of pcapng, and only 1.0 is read"))
}

impl Reader {
    /// Begins a file, from which nothing has been taken yet.
    pub(super) fn begin(input: &mut Input) -> Result<Reader, FileError> {
        if let Some(head) = input.peek(16)?
            && let Some(order) = Order::of_section(&head[8..12])
            && let Some(other) = other_version(&order, &head[12..16])
        {
            return Err(FileError::NotACapture(format!("it is a file of {other}")));
        }
        Ok(Reader::default())
    }

    pub(super) fn next(&mut self, input: &mut Input) -> Result<Event, FileError> {
        loop {
            let offset = input.offset();
            let damaged = |what: &str| FileError::Damaged {
                what: what.to_owned(),
                offset,
            };
            let Some(head) = input.peek(12)? else {
                return match input.is_empty() {
                    true => Ok(Event::End),
                    false => Err(damaged("the file ends amid a block")),
                };
            };
            let is_section = head[..4] == SECTION.to_be_bytes();
            if is_section {
                self.order = Order::of_section(&head[8..12])
                    .ok_or_else(|| damaged("a section of no known byte order"))?;
            }
            let kind = self.order.u32(head, 0).unwrap_or(0);
            let length = self.order.u32(head, 4).unwrap_or(0) as usize;
            if length < 12 || !length.is_multiple_of(4) {
                return Err(damaged("a block contradicts its length"));
            }
            if length > LONGEST_BLOCK {
                if !input.skip(length as u64)? {
                    return Err(damaged("the file ends amid a block"));
                }
                if matches!(kind, PACKET | OLD_PACKET | SIMPLE_PACKET) {
                    return Ok(Event::Broken);
                }
                continue;
            }
            let Some(block) = input.peek(length)? else {
                return Err(damaged("the file ends amid a block"));
            };
            if self.order.u32(block, length - 4) != Some(length as u32) {
                return Err(damaged("a block contradicts its length"));
            }
            let body = &block[8..length - 4];
            if is_section {
                if let Some(other) = other_version(&self.order, body.get(4..8).unwrap_or(&[])) {
                    return Err(damaged(&format!("a section is of {other}")));
                }
                self.section();
                input.take(length);
                continue;
            }
            let event = match kind {
                INTERFACE if self.before + self.interfaces.len() >= MOST_INTERFACES => {
                    return Err(damaged("too many interfaces"));
                }
                INTERFACE => self.interface(body),
                STATISTICS => self.statistics(body),
                PACKET => self.packet(body),
                OLD_PACKET => self.old_packet(body),
                SIMPLE_PACKET => self.simple_packet(body),
                _ => None,
            };
            input.take(length);
            match event {
                Some(event) => return Ok(event),
                // A known kind of block, and yet unreadable.
                None if (INTERFACE..=PACKET).contains(&kind) && kind != 4 => {
                    return Ok(Event::Broken);
                }
                None => {}
            }
        }
    }

    fn section(&mut self) {
        self.before += self.interfaces.len();
        self.interfaces.clear();
    }

    fn interface(&mut self, body: &[u8]) -> Option<Event> {
        let link_type = self.order.u16(body, 0)?;
        let snap_length = self.order.u32(body, 4)?;
        let mut clock = Clock::default();
        let (mut name, mut host) = (None, None);
        for (code, value) in Options::of(self.order, &body[8..]) {
            match (code, value) {
                (2, name_of) => name = Some(text(name_of)),
                (3, about) => host = about.strip_prefix(HOST_DESCRIPTION.as_bytes()).map(text),
                (9, &[resolution, ..]) => clock.set_resolution(resolution),
                (14, _) => clock.offset_s = self.order.i64(value, 0).unwrap_or(0),
                _ => {}
            }
        }
        self.interfaces.push(Known { clock, snap_length });
        Some(Event::Interface(Interface {
            name,
            host,
            link_type,
            snap_length: Some(snap_length).filter(|&length| length > 0),
        }))
    }

    fn statistics(&self, body: &[u8]) -> Option<Event> {
        let interface = self.number_of(self.order.u32(body, 0)?)?;
        let mut statistics = Statistics::default();
        for (code, value) in Options::of(self.order, body.get(12..)?) {
            let Some(count) = self.order.u64(value, 0) else {
                continue;
            };
            match code {
                4 => statistics.received = Some(count),
                // Dropped by the interface, or because the system had no buffers.
                5 | 7 => {
                    let sum = statistics.dropped.unwrap_or(0).saturating_add(count);
                    statistics.dropped = Some(sum);
                }
                _ => {}
            }
        }
        Some(Event::Statistics(interface, statistics))
    }

    fn packet(&mut self, body: &[u8]) -> Option<Event> {
        let interface = self.order.u32(body, 0)?;
        let captured = self.order.u32(body, 12)? as usize;
        let original = self.order.u32(body, 16)?;
        let options = body.get(20 + captured.checked_next_multiple_of(4)?..);
        let flags = Options::of(self.order, options.unwrap_or_default())
            .find(|(code, _)| *code == 2)
            .and_then(|(_, value)| self.order.u32(value, 0));
        let way = match flags.map(|flags| flags & 3) {
            Some(1) => Way::In,
            Some(2) => Way::Out,
            _ => Way::Unknown,
        };
        let unix_ns = self.time(interface, body, 4)?;
        self.frame(interface, unix_ns, (captured, original), 20, way, body)
    }

    fn old_packet(&mut self, body: &[u8]) -> Option<Event> {
        let interface = self.order.u16(body, 0)?.into();
        let captured = self.order.u32(body, 12)? as usize;
        let original = self.order.u32(body, 16)?;
        let unix_ns = self.time(interface, body, 4)?;
        self.frame(
            interface,
            unix_ns,
            (captured, original),
            20,
            Way::Unknown,
            body,
        )
    }

    fn simple_packet(&mut self, body: &[u8]) -> Option<Event> {
        let original = self.order.u32(body, 0)?;
        let snap_length = self.interfaces.first()?.snap_length;
        let whole = (original as usize).min(body.len() - 4);
        let captured = match snap_length {
            0 => whole,
            most => whole.min(most as usize),
        };
        self.frame(0, self.last_ns, (captured, original), 4, Way::Unknown, body)
    }

    /// The time at `at`, ns since 1970.
    fn time(&mut self, interface: u32, body: &[u8], at: usize) -> Option<i64> {
        let (high, low) = (self.order.u32(body, at)?, self.order.u32(body, at + 4)?);
        let clock = self.interfaces.get(interface as usize)?.clock;
        self.last_ns = clock.unix_ns(u64::from(high) << 32 | u64::from(low));
        Some(self.last_ns)
    }

    fn frame(
        &self,
        interface: u32,
        unix_ns: i64,
        (captured, original): (usize, u32),
        at: usize,
        way: Way,
        body: &[u8],
    ) -> Option<Event> {
        if captured > LONGEST_FRAME || at + captured > body.len() {
            return None;
        }
        Some(Event::Frame(Frame {
            unix_ns,
            interface: self.number_of(interface)?,
            wire_bytes: original.max(captured as u32),
            way,
            length: captured,
            // The rest of the body, and the length that ends the block.
            behind: body.len() - at - captured + 4,
        }))
    }

    /// The number of an interface of the section in the whole file.
    fn number_of(&self, interface: u32) -> Option<usize> {
        let interface = interface as usize;
        (interface < self.interfaces.len()).then_some(self.before + interface)
    }
}

/// A text of the file, cut where it is too long.
fn text(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(LONGEST_TEXT)];
    String::from_utf8_lossy(bytes)
        .trim_end_matches('\0')
        .to_owned()
}
