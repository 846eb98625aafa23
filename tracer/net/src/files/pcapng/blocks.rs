//! The parts of blocks: numbers of either byte order, options, and the units of time.

/// Byte order of a section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Little,
    Big,
}

impl Order {
    /// Byte order by the magic number of a section.
    pub(super) fn of_section(magic: &[u8]) -> Option<Order> {
        match magic {
            [0x1a, 0x2b, 0x3c, 0x4d] => Some(Order::Big),
            [0x4d, 0x3c, 0x2b, 0x1a] => Some(Order::Little),
            _ => None,
        }
    }

    pub(super) fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = bytes.get(at..at + 2)?.try_into().ok()?;
        Some(match self {
            Order::Little => u16::from_le_bytes(bytes),
            Order::Big => u16::from_be_bytes(bytes),
        })
    }

    pub(super) fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(match self {
            Order::Little => u32::from_le_bytes(bytes),
            Order::Big => u32::from_be_bytes(bytes),
        })
    }

    pub(super) fn u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
        Some(match self {
            Order::Little => u64::from_le_bytes(bytes),
            Order::Big => u64::from_be_bytes(bytes),
        })
    }

    pub(super) fn i64(self, bytes: &[u8], at: usize) -> Option<i64> {
        self.u64(bytes, at).map(u64::cast_signed)
    }
}

/// The options of a block: codes and values, up to the first that is cut.
pub(super) struct Options<'a> {
    order: Order,
    bytes: &'a [u8],
}

impl<'a> Options<'a> {
    pub(super) fn of(order: Order, bytes: &'a [u8]) -> Self {
        Options { order, bytes }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let code = self.order.u16(self.bytes, 0)?;
        let length = usize::from(self.order.u16(self.bytes, 2)?);
        if code == 0 {
            return None;
        }
        let value = self.bytes.get(4..4 + length)?;
        let padded = 4 + length.next_multiple_of(4);
        self.bytes = self.bytes.get(padded..).unwrap_or_default();
        Some((code, value))
    }
}

/// Unit and offset of the timestamps of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    unit: Unit,
    /// Seconds to add.
    pub(super) offset_s: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// Nanoseconds in a unit.
    Nanoseconds(u64),
    /// Units in a nanosecond.
    Parts(u128),
    /// A unit is 2^-n seconds.
    Binary(u32),
}

impl Default for Clock {
    fn default() -> Self {
        Clock {
            unit: Unit::Nanoseconds(1000),
            offset_s: 0,
        }
    }
}

impl Clock {
    /// Sets the unit by the option `if_tsresol`.
    pub(super) fn set_resolution(&mut self, resolution: u8) {
        let exponent = u32::from(resolution & 0x7f);
        self.unit = if resolution & 0x80 != 0 {
            Unit::Binary(exponent)
        } else if exponent <= 9 {
            Unit::Nanoseconds(10u64.pow(9 - exponent))
        } else {
            Unit::Parts(10u128.checked_pow(exponent - 9).unwrap_or(u128::MAX))
        };
    }

    /// A timestamp as ns since 1970.
    pub(super) fn unix_ns(self, units: u64) -> i64 {
        let ns = match self.unit {
            Unit::Nanoseconds(each) => match units.checked_mul(each) {
                Some(ns) => ns.into(),
                None => u128::from(units) * u128::from(each),
            },
            Unit::Parts(parts) => u128::from(units) / parts,
            Unit::Binary(exponent) => (u128::from(units) * 1_000_000_000) >> exponent.min(127),
        };
        let ns = i64::try_from(ns).unwrap_or(i64::MAX);
        ns.saturating_add(self.offset_s.saturating_mul(1_000_000_000))
    }
}
