//! Captures of given frames, in the formats that other programs write.

/// 1 700 000 000 s since 1970.
const EPOCH_NS: u64 = 1_700_000_000_000_000_000;

/// Time of packet `number`; packets are 1.000 237 ms apart.
pub(crate) fn time(number: usize) -> u64 {
    EPOCH_NS + number as u64 * 1_000_237
}

/// The classic format (pcap).
pub(crate) struct Pcap {
    pub(crate) is_big: bool,
    pub(crate) is_nano: bool,
    pub(crate) link_type: u16,
    /// Bytes kept of each frame.
    pub(crate) snap: usize,
}

impl Pcap {
    pub(crate) fn of(link_type: u16) -> Pcap {
        Pcap {
            is_big: false,
            is_nano: false,
            link_type,
            snap: 262_144,
        }
    }

    pub(crate) fn bytes(&self, frames: &[Vec<u8>]) -> Vec<u8> {
        let mut file = Vec::new();
        let number = |file: &mut Vec<u8>, number: u32| {
            file.extend(if self.is_big {
                number.to_be_bytes()
            } else {
                number.to_le_bytes()
            });
        };
        let magic = if self.is_nano {
            0xa1b2_3c4d
        } else {
            0xa1b2_c3d4
        };
        let versions = if self.is_big {
            0x0002_0004
        } else {
            0x0004_0002
        };
        for word in [
            magic,
            versions,
            0,
            0,
            self.snap as u32,
            self.link_type.into(),
        ] {
            number(&mut file, word);
        }
        for (at, frame) in frames.iter().enumerate() {
            let t_ns = time(at);
            let fraction = (t_ns % 1_000_000_000) as u32;
            let kept = &frame[..frame.len().min(self.snap)];
            number(&mut file, (t_ns / 1_000_000_000) as u32);
            number(
                &mut file,
                if self.is_nano {
                    fraction
                } else {
                    fraction / 1000
                },
            );
            number(&mut file, kept.len() as u32);
            number(&mut file, frame.len() as u32);
            file.extend(kept);
        }
        file
    }
}

/// The format of Wireshark (pcapng).
pub(crate) struct Pcapng {
    is_big: bool,
    file: Vec<u8>,
}

impl Pcapng {
    pub(crate) fn new(is_big: bool) -> Pcapng {
        let mut this = Pcapng {
            is_big,
            file: Vec::new(),
        };
        this.section();
        this
    }

    fn u16(&self, number: u16) -> [u8; 2] {
        if self.is_big {
            number.to_be_bytes()
        } else {
            number.to_le_bytes()
        }
    }

    fn u32(&self, number: u32) -> [u8; 4] {
        if self.is_big {
            number.to_be_bytes()
        } else {
            number.to_le_bytes()
        }
    }

    fn option(&self, body: &mut Vec<u8>, code: u16, value: &[u8]) {
        body.extend(self.u16(code));
        body.extend(self.u16(value.len() as u16));
        body.extend(value);
        body.resize(body.len().next_multiple_of(4), 0);
    }

    fn block(&mut self, kind: u32, body: &[u8]) {
        let length = self.u32(12 + body.len() as u32);
        self.file.extend(self.u32(kind));
        self.file.extend(length);
        self.file.extend(body);
        self.file.extend(length);
    }

    /// Begins another section, with interfaces of its own.
    pub(crate) fn section(&mut self) {
        let mut body = self.u32(0x1a2b_3c4d).to_vec();
        body.extend(self.u16(1));
        body.extend(self.u16(0));
        body.extend([0xff; 8]);
        self.option(&mut body, 4, b"a test");
        self.option(&mut body, 0, b"");
        self.block(0x0a0d_0d0a, &body);
    }

    /// Adds an interface whose times have the resolution `resolution` (`if_tsresol`).
    pub(crate) fn interface(&mut self, name: &str, link_type: u16, resolution: u8) {
        let mut body = self.u16(link_type).to_vec();
        body.extend([0, 0]);
        body.extend(self.u32(0));
        self.option(&mut body, 2, name.as_bytes());
        self.option(&mut body, 9, &[resolution]);
        self.option(&mut body, 0, b"");
        self.block(1, &body);
    }

    /// Adds a packet at `units` of its interface's resolution, with a comment and flags.
    pub(crate) fn packet(&mut self, interface: u32, units: u64, flags: u32, frame: &[u8]) {
        let mut body = self.u32(interface).to_vec();
        body.extend(self.u32((units >> 32) as u32));
        body.extend(self.u32(units as u32));
        body.extend(self.u32(frame.len() as u32));
        body.extend(self.u32(frame.len() as u32));
        body.extend(frame);
        body.resize(body.len().next_multiple_of(4), 0);
        self.option(&mut body, 1, "a comment – of a packet".as_bytes());
        let flags = self.u32(flags);
        self.option(&mut body, 2, &flags);
        self.option(&mut body, 0, b"");
        self.block(6, &body);
    }

    /// Adds a block of an unknown type.
    pub(crate) fn unknown(&mut self) {
        self.block(0x0bad_0bad, b"whatever");
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.file
    }
}
