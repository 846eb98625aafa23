//! The layout of the records of tracer/bpf/processes.bpf.c, as in tracer/bpf/events.h; a test compares both.

/// The constants of the programs (`config`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Config {
    /// Bytes of the ring.
    pub(super) ring_bytes: u32,
    /// True if all processes of the machine are reported.
    pub(super) all: bool,
    /// True if open files are reported, and calls that open them.
    pub(super) with_files: bool,
    /// True if opens of directories are reported, too.
    pub(super) with_directories: bool,
    /// Bytes of the arguments of an exec that are reported.
    pub(super) arguments_max: u32,
    /// Flags with which an open changes something.
    pub(super) change_flags: u32,
}

impl Config {
    pub(super) fn bytes(self) -> Vec<u8> {
        let flags = [self.all, self.with_files, self.with_directories, false].map(u8::from);
        let words = [
            self.ring_bytes,
            u32::from_ne_bytes(flags),
            self.arguments_max,
            self.change_flags,
        ];
        words.into_iter().flat_map(u32::to_ne_bytes).collect()
    }
}

/// Kinds of records.
pub(super) const FORKED: u32 = 1;
pub(super) const EXECUTED: u32 = 2;
pub(super) const ENDED: u32 = 3;
/// Parts of an exec, which come before its record. Each part may come in several records.
pub(super) const EXECUTABLE: u32 = 4;
pub(super) const DIRECTORY: u32 = 5;
pub(super) const ARGUMENTS: u32 = 6;
pub(super) const ENVIRONMENT: u32 = 7;
/// Job control stops a thread.
pub(super) const STOPPED: u32 = 8;
/// The last thread of a process begins to exit: its files are still open.
pub(super) const EXITING: u32 = 9;
/// Parts of an exec: the paths of the files open as descriptors 0 and up.
pub(super) const TARGETS: u32 = 10;
/// Descriptors that a shell can redirect by one digit.
pub(super) const NUMBERED: u32 = 10;
/// A part of a fork, an exec, and an exit: all open files.
pub(super) const TABLE: u32 = TARGETS + NUMBERED;
/// A part of an exec and an exit: all open files of the parent.
pub(super) const TABLE_OF_PARENT: u32 = TABLE + 1;
/// Parts of a call, which come before its record: the other one of two descriptors; the path of the opened
/// file; the address of a socket; path arguments, and the directories that they are relative to.
pub(super) const SECOND: u32 = TABLE_OF_PARENT + 1;
pub(super) const OPENED: u32 = SECOND + 1;
pub(super) const ADDRESS: u32 = OPENED + 1;
pub(super) const NAMES: [u32; 2] = [ADDRESS + 1, ADDRESS + 2];
pub(super) const BASES: [u32; 2] = [ADDRESS + 3, ADDRESS + 4];
/// A call has returned.
pub(super) const CALLED: u32 = BASES[1] + 1;
/// A thread that executed a program while the clock of its CPU stood still leaves the CPU.
pub(super) const LEFT: u32 = CALLED + 1;
/// Bytes that were written into a pipe whose reading end the writer has.
pub(super) const PIPED: u32 = LEFT + 1;

/// Offsets in a record: time, thread, process, kind, and a number; then members that depend on the kind.
pub(super) const AT: usize = 0;
pub(super) const TID: usize = 8;
pub(super) const PID: usize = 12;
pub(super) const WHAT: usize = 16;
pub(super) const NUMBER: usize = 20;
pub(super) const REST: usize = 24;

/// In a fork: ids of the new thread and its process, number of pid namespaces below the first one, and its id
/// in the innermost.
pub(super) const CHILD_TID: usize = REST;
pub(super) const CHILD_PID: usize = REST + 4;
pub(super) const LEVEL: usize = REST + 8;
pub(super) const INNER: usize = REST + 16;
pub(super) const FORK: usize = REST + 24;
/// In an exec and an exit: costs of the thread, and peak of memory of its process, pages.
pub(super) const COSTS: usize = REST;
const COST_COUNT: usize = 13;
pub(super) const PEAK: usize = COSTS + 8 * COST_COUNT;
/// The CPU that it is on.
pub(super) const CPU_AT: usize = PEAK + 8;
/// The CPU's clock, its clock that advances only while tasks run, and flags of their state.
pub(super) const CLOCK: usize = CPU_AT + 8;
pub(super) const TASK_CLOCK: usize = CLOCK + 8;
pub(super) const CLOCK_FLAGS: usize = TASK_CLOCK + 8;
/// In an exec also the id that the thread had before, and the file mode creation mask.
pub(super) const FORMER: usize = CLOCK_FLAGS + 8;
pub(super) const UMASK: usize = FORMER + 4;
pub(super) const EXEC: usize = FORMER + 8;
/// In an exit: begin of the thread, and the wait status of the process and of the thread.
pub(super) const START: usize = CLOCK_FLAGS + 8;
pub(super) const LEADER_CODE: usize = START + 8;
pub(super) const GROUP_CODE: usize = LEADER_CODE + 4;
pub(super) const GROUP_FLAGS: usize = GROUP_CODE + 4;
pub(super) const END: usize = GROUP_FLAGS + 8;
/// In [`NUMBER`] of a path: the file has no name any more.
pub(super) const UNNAMED: u32 = 1;
/// The file never had a name: the path is the text that the kernel shows for it.
pub(super) const DETACHED: u32 = 2;
/// In a table: there may be more descriptors.
pub(super) const CUT: u32 = 4;
/// In [`NUMBER`] of an exec: one bit for each part that could not be reported.
pub(super) fn missing(part: u32) -> u32 {
    1 << part
}

/// Open files, after the header of their record: calls and bytes of the thread ([`TRAFFIC`] words), its process, then
/// an entry for each descriptor.
pub(super) const TRAFFIC: usize = 4;
pub(super) const PROCESS: usize = 8 * TRAFFIC;
pub(super) const ENTRIES: usize = PROCESS + 8;

/// An entry: the descriptor; the inode's generation, which distinguishes it from others that had its number; mode and
/// flags of the open file; type of its inode and device of its filesystem; the inode's number; position and size,
/// bytes; of a pipe the number of writers, its capacity in pages, and the bytes in it.
pub(super) const DESCRIPTOR: usize = 0;
pub(super) const GENERATION: usize = 4;
pub(super) const MODE: usize = 8;
pub(super) const FLAGS: usize = 12;
pub(super) const KIND: usize = 16;
pub(super) const DEVICE: usize = 20;
pub(super) const INODE: usize = 24;
pub(super) const FILE_POSITION: usize = 32;
pub(super) const SIZE: usize = 40;
pub(super) const WRITERS: usize = 48;
pub(super) const CAPACITY: usize = 52;
pub(super) const UNREAD: usize = 56;
pub(super) const ENTRY: usize = 64;
/// In [`UNREAD`]: not known, or more may come.
pub(super) const UNKNOWN: u64 = u64::MAX;

/// A call, behind an entry of the descriptor that it returned or was given: result, begin (0: not known), arguments, calls and bytes of its
/// thread ([`TRAFFIC`] words), and of a socket its family, type and state, ports and addresses, and the inode of the
/// peer.
pub(super) const RESULT: usize = REST + ENTRY;
pub(super) const BEGAN: usize = RESULT + 8;
pub(super) const ARGUMENTS_OF_CALL: usize = BEGAN + 8;
pub(super) const MOVED: usize = ARGUMENTS_OF_CALL + 8 * SIX;
pub(super) const FAMILY: usize = MOVED + 8 * TRAFFIC;
pub(super) const TYPE: usize = FAMILY + 2;
pub(super) const STATE: usize = FAMILY + 4;
pub(super) const LOCAL_PORT: usize = FAMILY + 8;
pub(super) const PEER_PORT: usize = FAMILY + 10;
pub(super) const LOCAL: usize = FAMILY + 16;
pub(super) const PEER: usize = LOCAL + 16;
pub(super) const OTHER_INODE: usize = PEER + 16;
pub(super) const CALL: usize = OTHER_INODE + 8;
/// In [`NUMBER`] of an address: it is the socket's own, not its peer's.
pub(super) const OWN_ADDRESS: u32 = 1;

/// Bytes of `struct call_report`.
pub(super) const REPORT: usize = 8;
/// Number of arguments of a call.
pub(super) const SIX: usize = 6;
/// Numbers of calls are below; those of 32-bit programs are reported with this offset.
pub(super) const NUMBERS: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::objects::{Source, open};

    #[test]
    fn records_are_as_in_the_object() {
        let Ok(object) = open(Source::Tests) else {
            return eprintln!("skipped: no eBPF programs for this CPU architecture");
        };
        let types = object.types();
        let same = |structure: &str, base: usize, members: &[(&str, usize, usize)]| {
            for &(member, at, size) in members {
                let found = types.extent(structure, member);
                assert_eq!(found, Some((at - base, size)), "{member} of {structure}");
            }
        };
        same(
            "event_head",
            0,
            &[
                ("at", AT, 8),
                ("tid", TID, 4),
                ("pid", PID, 4),
                ("what", WHAT, 4),
                ("number", NUMBER, 4),
            ],
        );
        assert_eq!(types.size("event_head"), Some(REST));
        let fork = [
            ("tid", CHILD_TID, 4),
            ("pid", CHILD_PID, 4),
            ("level", LEVEL, 8),
            ("inner_pid", INNER, 8),
        ];
        same("fork_event", REST, &fork);
        assert_eq!(types.size("fork_event"), Some(FORK - REST));
        let usage = [
            ("on_cpu", COSTS, 8),
            ("involuntary_switches", COSTS + 64, 8),
            ("io", COSTS + 72, 32),
            ("peak_pages", PEAK, 8),
            ("cpu", CPU_AT, 8),
            ("clock", CLOCK, 8),
            ("task_clock", TASK_CLOCK, 8),
            ("clock_flags", CLOCK_FLAGS, 8),
        ];
        same("usage", REST, &usage);
        same(
            "exec_event",
            REST,
            &[("former_tid", FORMER, 4), ("umask", UMASK, 4)],
        );
        assert_eq!(types.size("exec_event"), Some(EXEC - REST));
        let exit = [
            ("start", START, 8),
            ("leader_code", LEADER_CODE, 4),
            ("group_code", GROUP_CODE, 4),
            ("group_flags", GROUP_FLAGS, 8),
        ];
        same("exit_event", REST, &exit);
        assert_eq!(types.size("exit_event"), Some(END - REST));
        let file = [
            ("descriptor", DESCRIPTOR, 4),
            ("generation", GENERATION, 4),
            ("mode", MODE, 4),
            ("flags", FLAGS, 4),
            ("kind", KIND, 4),
            ("device", DEVICE, 4),
            ("inode", INODE, 8),
            ("position", FILE_POSITION, 8),
            ("size", SIZE, 8),
            ("writers", WRITERS, 4),
            ("capacity", CAPACITY, 4),
            ("unread", UNREAD, 8),
        ];
        same("open_file", 0, &file);
        assert_eq!(types.size("open_file"), Some(ENTRY));
        same("open_files", 0, &[("process", PROCESS, 8)]);
        let call = [
            ("file", REST, ENTRY),
            ("result", RESULT, 8),
            ("began", BEGAN, 8),
            ("argument", ARGUMENTS_OF_CALL, 8 * SIX),
            ("io", MOVED, 8 * TRAFFIC),
            ("family", FAMILY, 2),
            ("type", TYPE, 2),
            ("state", STATE, 4),
            ("local_port", LOCAL_PORT, 2),
            ("peer_port", PEER_PORT, 2),
            ("local", LOCAL, 16),
            ("peer", PEER, 16),
            ("peer_inode", OTHER_INODE, 8),
        ];
        same("call_event", REST, &call);
        assert_eq!(types.size("call_event"), Some(CALL - REST));
        assert_eq!(types.size("call_report"), Some(REPORT));
    }
}
