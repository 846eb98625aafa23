//! Identity of an inode while it exists.

/// An inode, as the kernel identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Inode {
    /// Device of its filesystem, as `st_dev` of stat(2) has it.
    pub(crate) device: u64,
    pub(crate) number: u64,
}

impl Inode {
    /// From the kernel's own number of a device.
    pub(crate) fn reported(device: u32, number: u64) -> Inode {
        /// `MINORBITS` of include/linux/kdev_t.h.
        const MINOR_BITS: u32 = 20;
        let minor = device & ((1 << MINOR_BITS) - 1);
        Inode {
            device: libc::makedev(device >> MINOR_BITS, minor),
            number,
        }
    }
}
