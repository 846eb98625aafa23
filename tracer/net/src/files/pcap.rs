//! The classic format of tcpdump
//! (<https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcap/>).

use flowtrace_schema::Way;

use super::event::{Event, FileError, Frame, Interface, LONGEST_FRAME};
use super::input::Input;

/// A file after its header.
#[derive(Debug)]
pub(super) struct Reader {
    is_big: bool,
    /// Nanoseconds in one unit of the second field.
    fraction_ns: i64,
    /// Minor version: before 3 the two lengths of a record had the other order, and in 3 either order.
    minor: u16,
    /// Returned before the first frame.
    interface: Option<Interface>,
}

impl Reader {
    /// Reads the header of a file that begins with `magic`.
    pub(super) fn begin(magic: [u8; 4], input: &mut Input) -> Result<Reader, FileError> {
        let (is_big, fraction_ns) = match (u32::from_be_bytes(magic), u32::from_le_bytes(magic)) {
            (0xa1b2_c3d4, _) => (true, 1000),
            (0xa1b2_3c4d, _) => (true, 1),
            (_, 0xa1b2_c3d4) => (false, 1000),
            (_, 0xa1b2_3c4d) => (false, 1),
            (0xa1b2_cd34, _) | (_, 0xa1b2_cd34) => {
                return Err(FileError::NotACapture(
                    "it is a pcap file of Kuznetzov's modified format".into(),
                ));
            }
            _ => {
                return Err(FileError::NotACapture(format!(
                    "it is no pcap or pcapng file (it begins with {})",
                    magic.map(|byte| format!("{byte:02x}")).join(" ")
                )));
            }
        };
        let Some(header) = input.peek(24)? else {
            return Err(FileError::NotACapture(
                "it is shorter than the header of a pcap file".into(),
            ));
        };
        let number = |at: usize| number(&header[at..], is_big);
        let (major, minor) = match (number(4), is_big) {
            (both, true) => ((both >> 16) as u16, both as u16),
            (both, false) => (both as u16, (both >> 16) as u16),
        };
        if major != 2 {
            return Err(FileError::NotACapture(format!(
                "it is a pcap file of version {major}.{minor}, and only version 2 is read"
            )));
        }
        let snap_length = Some(number(16)).filter(|&length| length > 0);
        let link_type = number(20) as u16;
        input.take(24);
        Ok(Reader {
            is_big,
            fraction_ns,
            minor,
            interface: Some(Interface {
                name: None,
                host: None,
                link_type,
                snap_length,
            }),
        })
    }

    pub(super) fn next(&mut self, input: &mut Input) -> Result<Event, FileError> {
        if let Some(interface) = self.interface.take() {
            return Ok(Event::Interface(interface));
        }
        let offset = input.offset();
        let damaged = |what: String| FileError::Damaged { what, offset };
        let Some(header) = input.peek(16)? else {
            return match input.is_empty() {
                true => Ok(Event::End),
                false => Err(damaged("the file ends amid a record".into())),
            };
        };
        let number = |at: usize| number(&header[at..], self.is_big);
        let (seconds, fraction) = (i64::from(number(0)), i64::from(number(4)));
        let (mut captured, mut original) = (number(8), number(12));
        if self.minor < 3 || self.minor == 3 && captured > original {
            (captured, original) = (original, captured);
        }
        let length = captured as usize;
        if length > LONGEST_FRAME {
            return Err(damaged(format!("a record claims {captured} bytes")));
        }
        if input.peek(16 + length)?.is_none() {
            return Err(damaged("the file ends amid a record".into()));
        }
        input.take(16 + length);
        Ok(Event::Frame(Frame {
            unix_ns: seconds * 1_000_000_000 + fraction * self.fraction_ns,
            interface: 0,
            wire_bytes: original.max(captured),
            way: Way::Unknown,
            length,
            behind: 0,
        }))
    }
}

fn number(bytes: &[u8], is_big: bool) -> u32 {
    let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
    if is_big {
        u32::from_be_bytes(bytes)
    } else {
        u32::from_le_bytes(bytes)
    }
}
