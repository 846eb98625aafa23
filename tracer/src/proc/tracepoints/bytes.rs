//! Numbers in a record of an eBPF program.

pub(super) fn word(record: &[u8], at: usize) -> Option<u64> {
    let bytes = record.get(at..at + 8)?;
    bytes.try_into().ok().map(u64::from_ne_bytes)
}

pub(super) fn half(record: &[u8], at: usize) -> Option<u32> {
    let bytes = record.get(at..at + 4)?;
    bytes.try_into().ok().map(u32::from_ne_bytes)
}
