//! A segment as a capture recorded it.

/// TCP flag FIN.
pub const FIN: u8 = 0x01;

/// TCP flag SYN.
pub const SYN: u8 = 0x02;

/// TCP flag RST.
pub const RST: u8 = 0x04;

/// TCP flag PSH.
pub const PSH: u8 = 0x08;

/// TCP flag ACK.
pub const ACK: u8 = 0x10;

/// Index of a process (host, process or endpoint, as the run was loaded).
pub type Node = u16;

/// One segment as one capture recorded it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// Time on the common scale, ns.
    pub t_ns: i64,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Payload, bytes.
    pub payload: u32,
    /// Length on the wire, bytes.
    pub wire: u32,
    /// Receive window, bytes as far as the scale is known.
    pub window: u32,
    /// Connection.
    pub flow: u32,
    /// Sender.
    pub src: Node,
    /// Receiver.
    pub dst: Node,
    /// TCP flags.
    pub flags: u8,
    /// True if the payload was on the wire before.
    pub is_again: bool,
}

impl Packet {
    /// True if the segment carries payload for the first time, which makes it a data packet in all
    /// methods.
    pub fn is_data(&self) -> bool {
        self.payload > 0 && !self.is_again && self.flags & (SYN | RST) == 0
    }

    /// Sequence number after its payload.
    pub fn end_seq(&self) -> u32 {
        let control = u32::from(self.flags & SYN != 0) + u32::from(self.flags & FIN != 0);
        self.seq.wrapping_add(self.payload).wrapping_add(control)
    }
}
