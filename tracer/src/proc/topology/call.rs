//! The system calls that the filter picks, under the same numbers on every architecture.

/// A system call at its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// Kind of the call.
    pub(crate) kind: CallKind,
    /// Its arguments; 32-bit programs' are zero-extended.
    pub(crate) arguments: [u64; 6],
}

/// Kind of a picked call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum CallKind {
    /// open(path, flags, mode).
    Open = 1,
    /// openat(directory, path, flags, mode).
    OpenAt,
    /// openat2(directory, path, how, size).
    OpenAt2,
    /// creat(path, mode).
    Creat,
    /// rename(old, new).
    Rename,
    /// renameat and renameat2(directory, old, directory, new, …).
    RenameAt,
    /// unlink(path).
    Unlink,
    /// unlinkat(directory, path, flags).
    UnlinkAt,
    /// pipe and pipe2(descriptors, …).
    Pipe,
    /// socketpair(domain, type, protocol, descriptors).
    SocketPair,
    /// bind(socket, address, length).
    Bind,
    /// connect(socket, address, length).
    Connect,
    /// accept and accept4(socket, …).
    Accept,
    /// splice, tee and vmsplice: data moves without being counted as read or written.
    Splice,
    /// chroot, pivot_root, unshare and setns: paths mean other files from now on.
    ChangeView,
    /// io_setup: reads and writes are made by another interface from now on.
    AsyncIo,
    /// io_uring_setup: the same, for every other call, too.
    Ring,
    /// umask(mask).
    Umask,
    /// socket(domain, type, protocol), for datagrams of IP alone.
    Socket,
    /// mount(source, target, type, flags, …).
    Mount,
    /// move_mount(directory, from, directory, to, flags).
    MoveMount,
    /// link(old, new).
    Link,
    /// linkat(directory, old, directory, new, flags).
    LinkAt,
    /// sendto(socket, bytes, length, flags, address, length of the address): to an address.
    SendTo,
    /// sendmsg(socket, message, flags) and sendmmsg(socket, messages, count, flags): to the address of the
    /// first message.
    SendMessage,
    /// recvmsg(socket, message, flags): may receive descriptors.
    ReceiveMessage,
    /// recvmmsg(socket, messages, count, flags, timeout): may receive descriptors.
    ReceiveMessages,
    /// A call on the name of a file that gives no descriptor and changes no name. No filter stops these.
    OnName,
}

use CallKind::*;

impl CallKind {
    const ALL: [CallKind; 27] = [
        Open,
        OpenAt,
        OpenAt2,
        Creat,
        Rename,
        RenameAt,
        Unlink,
        UnlinkAt,
        Pipe,
        SocketPair,
        Bind,
        Connect,
        Accept,
        Splice,
        ChangeView,
        AsyncIo,
        Ring,
        Umask,
        Socket,
        Mount,
        MoveMount,
        Link,
        LinkAt,
        SendTo,
        SendMessage,
        ReceiveMessage,
        ReceiveMessages,
    ];

    /// True for calls that programs make for every piece of data that they send or receive: no filter stops
    /// these.
    pub(super) fn moves_data(self) -> bool {
        matches!(
            self,
            SendTo | SendMessage | ReceiveMessage | ReceiveMessages
        )
    }
}

impl CallKind {
    /// The call with this number on this CPU architecture, or one of a 32-bit program. `None`: it is not
    /// picked.
    pub(crate) fn numbered(number: u32, is_foreign: bool) -> Option<CallKind> {
        let architecture = match (cfg!(target_arch = "x86_64"), is_foreign) {
            (true, false) => 0,
            (true, true) => 1,
            (false, false) => 2,
            (false, true) => return None,
        };
        let mut calls = ARCHITECTURES[architecture].calls.iter();
        let found = calls.find(|(known, _)| *known == number);
        found.map(|(_, kind)| *kind)
    }
}

impl CallKind {
    /// True if it opens a file by its name.
    pub(crate) fn opens(self) -> bool {
        matches!(self, Open | OpenAt | OpenAt2 | Creat)
    }
}

impl Call {
    /// The call that the filter announces by `code`.
    ///
    /// `None`: another filter's, of the program itself.
    pub(crate) fn new(code: u16, arguments: [u64; 6]) -> Option<Call> {
        let place = code.checked_sub(CODES)?.checked_sub(1)?;
        let kind = *CallKind::ALL.get(usize::from(place))?;
        Some(Call { kind, arguments })
    }

    /// The addresses of its path arguments, and of its other arguments in memory.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> {
        let [a, b, c, d, ..] = self.arguments;
        let [first, second] = match self.kind {
            Open | Creat | Unlink => [Some(a), None],
            OpenAt | UnlinkAt | Mount => [Some(b), None],
            OpenAt2 => [Some(b), Some(c)],
            Rename | Link => [Some(a), Some(b)],
            RenameAt | LinkAt => [Some(b), Some(d)],
            MoveMount => [Some(d), None],
            _ => [None; 2],
        };
        first.into_iter().chain(second)
    }

    /// For umask(mask): the permissions that it takes away.
    pub(crate) fn mode_mask(&self) -> u32 {
        self.arguments[0] as u32 & 0o777
    }
}

/// Base of the codes of the filter, chosen so that they are hardly those of another filter.
const CODES: u16 = 0xf10a;
/// Code of the filter for a clone(2) with `CLONE_UNTRACED`: all calls that the filter picks would fail in the child, which
/// has no tracer.
pub(crate) const UNTRACED: u16 = CODES;

impl CallKind {
    /// The code of the filter for such a call.
    pub(super) fn code(self) -> u16 {
        CODES + self as u16
    }
}

/// The numbers of an architecture's calls.
pub(super) struct Numbers {
    /// `AUDIT_ARCH_*` (include/uapi/linux/audit.h).
    pub(super) architecture: u32,
    /// Bits of a number that name the call: numbers of x32 have one more.
    pub(super) mask: u32,
    pub(super) calls: &'static [(u32, CallKind)],
    /// Number of clone(2), on architectures where a tracer can change its flags.
    pub(super) clone: Option<u32>,
}

/// From arch/x86/entry/syscalls/syscall_{64,32}.tbl and include/uapi/asm-generic/unistd.h. `socketcall` of
/// old 32-bit programs is not decoded.
pub(super) const ARCHITECTURES: [Numbers; 3] = [
    Numbers {
        architecture: 0xc000_003e,
        mask: !0x4000_0000,
        calls: &[
            (2, Open),
            (257, OpenAt),
            (437, OpenAt2),
            (85, Creat),
            (82, Rename),
            (264, RenameAt),
            (316, RenameAt),
            (86, Link),
            (265, LinkAt),
            (87, Unlink),
            (263, UnlinkAt),
            (22, Pipe),
            (293, Pipe),
            (41, Socket),
            (53, SocketPair),
            (44, SendTo),
            (46, SendMessage),
            (307, SendMessage),
            (47, ReceiveMessage),
            (299, ReceiveMessages),
            (49, Bind),
            (42, Connect),
            (43, Accept),
            (288, Accept),
            (275, Splice),
            (276, Splice),
            (278, Splice),
            (161, ChangeView),
            (155, ChangeView),
            (272, ChangeView),
            (308, ChangeView),
            (425, Ring),
            (206, AsyncIo),
            (95, Umask),
            (165, Mount),
            (429, MoveMount),
        ],
        clone: Some(56),
    },
    Numbers {
        architecture: 0x4000_0003,
        mask: !0,
        calls: &[
            (5, Open),
            (295, OpenAt),
            (437, OpenAt2),
            (8, Creat),
            (38, Rename),
            (302, RenameAt),
            (353, RenameAt),
            (9, Link),
            (303, LinkAt),
            (10, Unlink),
            (301, UnlinkAt),
            (42, Pipe),
            (331, Pipe),
            (359, Socket),
            (360, SocketPair),
            (361, Bind),
            (362, Connect),
            (364, Accept),
            (313, Splice),
            (315, Splice),
            (316, Splice),
            (61, ChangeView),
            (217, ChangeView),
            (310, ChangeView),
            (346, ChangeView),
            (425, Ring),
            (245, AsyncIo),
            (60, Umask),
            (21, Mount),
            (429, MoveMount),
        ],
        clone: None,
    },
    Numbers {
        architecture: 0xc000_00b7,
        mask: !0,
        calls: &[
            (56, OpenAt),
            (437, OpenAt2),
            (38, RenameAt),
            (276, RenameAt),
            (37, LinkAt),
            (35, UnlinkAt),
            (59, Pipe),
            (198, Socket),
            (199, SocketPair),
            (200, Bind),
            (203, Connect),
            (202, Accept),
            (242, Accept),
            (76, Splice),
            (77, Splice),
            (75, Splice),
            (51, ChangeView),
            (41, ChangeView),
            (97, ChangeView),
            (268, ChangeView),
            (425, Ring),
            (0, AsyncIo),
            (166, Umask),
            (40, Mount),
            (429, MoveMount),
        ],
        clone: None,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_back_as_calls() {
        for kind in CallKind::ALL {
            let call = Call::new(kind.code(), [7; 6]).unwrap();
            assert_eq!((call.kind, call.arguments), (kind, [7; 6]));
        }
        assert_eq!(Call::new(7, [0; 6]), None);
        assert_eq!(
            Call::new(CODES + CallKind::ALL.len() as u16 + 1, [0; 6]),
            None
        );
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn numbers_are_those_of_the_library() {
        let number = |kind| {
            let mut calls = ARCHITECTURES[0].calls.iter();
            i64::from(calls.find(|(_, k)| *k == kind).unwrap().0)
        };
        assert_eq!(number(OpenAt), libc::SYS_openat);
        assert_eq!(number(RenameAt), libc::SYS_renameat);
        assert_eq!(number(SocketPair), libc::SYS_socketpair);
        assert_eq!(number(Bind), libc::SYS_bind);
        assert_eq!(number(Connect), libc::SYS_connect);
        assert_eq!(number(Accept), libc::SYS_accept);
        assert_eq!(number(Splice), libc::SYS_splice);
        assert_eq!(number(ChangeView), libc::SYS_chroot);
        assert_eq!(number(AsyncIo), libc::SYS_io_setup);
        assert_eq!(number(Ring), libc::SYS_io_uring_setup);
        assert_eq!(number(Umask), libc::SYS_umask);
        assert_eq!(number(Socket), libc::SYS_socket);
        assert_eq!(number(Mount), libc::SYS_mount);
        assert_eq!(number(MoveMount), libc::SYS_move_mount);
        assert_eq!(number(Link), libc::SYS_link);
        assert_eq!(number(LinkAt), libc::SYS_linkat);
    }
}
