//! Flags of open(2), as the flags of calls and descriptors are recorded; the same on all architectures of Linux.

/// Mask of the access mode.
pub const O_ACCMODE: i64 = 3;
/// Opened for reading.
pub const O_RDONLY: i64 = 0;
/// Opened for writing.
pub const O_WRONLY: i64 = 1;
/// Opened for both.
pub const O_RDWR: i64 = 2;
/// Emptied at the open.
pub const O_TRUNC: i64 = 0o1000;
/// Each write goes to the end.
pub const O_APPEND: i64 = 0o2000;
