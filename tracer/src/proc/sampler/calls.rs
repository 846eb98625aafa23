//! The objects that blocked system calls wait for, by the number of the call.

/// The object of a call's wait, and the argument that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// The descriptor in the first argument, which the call reads.
    ReadFd,
    /// The descriptor in the first argument, which the call writes.
    WriteFd,
    /// One of two descriptors: that of the first argument, which is read, or the one in the argument of that
    /// number, which is written (`splice`, `copy_file_range`).
    MoveFd(usize),
    /// One of two descriptors: the first argument, which is written, or the second, which is read
    /// (`sendfile`).
    SendFile,
    /// A descriptor of an array of `pollfd`.
    Poll,
    /// A descriptor of the sets of `select`.
    Select,
    /// A descriptor of an epoll.
    Epoll,
    /// Storage, or the other end of a FIFO.
    OpenFile,
    /// Storage.
    Storage,
    /// A child; its pid is in the first argument, unless it is any.
    Child,
    /// A child, by `waitid`, whose second argument is named by the type in the first one.
    ChildById,
    /// A lock.
    Lock,
    /// A record lock, if the second argument has that command.
    Fcntl,
    /// A file lock on the descriptor in the first argument.
    FileLock,
    /// A time.
    Sleep,
    /// A signal.
    Signal,
    /// An object of the kernel.
    Event,
    /// A call that makes or ends a task: in it the tracer stops the thread, or a vfork waits for its child.
    Task,
    /// Nothing that is known here.
    Unknown,
}

/// A system call: its name and the object that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) waits: Waits,
}

/// `__X32_SYSCALL_BIT` of asm/unistd.h. The numbers without this bit are the same up to 511; above there are
/// variants.
const X32: i64 = 0x4000_0000;

/// Numbering of a program's system calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Abi {
    /// The numbering of this program.
    #[default]
    Native,
    /// The numbering of 32-bit x86.
    #[cfg(target_arch = "x86_64")]
    I386,
    /// An unknown numbering.
    #[cfg(not(target_arch = "x86_64"))]
    Foreign,
}

impl Abi {
    /// The numbering by the first bytes of `/proc/PID/auxv`: pairs of words, whose first one is a small
    /// number. Of a 64-bit word the upper half is 0; in a 32-bit program it is an address or a value.
    pub(crate) fn of_auxv(auxv: &[u8]) -> Abi {
        match auxv {
            [_, _, _, _, 0, 0, 0, 0, ..] => Abi::Native,
            [_, _, _, _, _, _, _, _, ..] => Abi::OTHER,
            // A thread of the kernel, or one that is about to end.
            _ => Abi::Native,
        }
    }

    /// The numbering of programs that do not have that of this one.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const OTHER: Abi = Abi::I386;
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) const OTHER: Abi = Abi::Foreign;

    /// Numbers of calls are below. eBPF programs add this to those of the other numbering.
    pub(crate) const NUMBERS: usize = 512;

    /// The numbering of a number that an eBPF program recorded, and the number in it.
    pub(crate) fn of_recorded(number: usize) -> (Abi, i64) {
        match number.checked_sub(Self::NUMBERS) {
            None => (Abi::Native, number as i64),
            Some(number) => (Abi::OTHER, number as i64),
        }
    }

    /// The number here of the call of that number; `None`: none is known.
    pub(crate) fn native(self, number: i64) -> Option<i64> {
        match self {
            Abi::Native => Some(number),
            #[cfg(target_arch = "x86_64")]
            Abi::I386 => i386(number),
            #[cfg(not(target_arch = "x86_64"))]
            Abi::Foreign => None,
        }
    }

    /// The call of that number.
    pub(crate) fn call(self, number: i64) -> Call {
        const UNKNOWN: Call = Call {
            name: "unknown",
            waits: Waits::Unknown,
        };
        match self {
            Abi::Native => native(number).unwrap_or(UNKNOWN),
            #[cfg(target_arch = "x86_64")]
            // An x32 program has words of 32 bits, too, and marks its numbers.
            Abi::I386 if number & X32 != 0 => native(number).unwrap_or(UNKNOWN),
            #[cfg(target_arch = "x86_64")]
            Abi::I386 => i386(number).and_then(native).unwrap_or(UNKNOWN),
            #[cfg(not(target_arch = "x86_64"))]
            Abi::Foreign => UNKNOWN,
        }
    }
}

macro_rules! calls {
    ($number:expr; $($(#[$attribute:meta])* $constant:ident $name:literal $waits:expr,)*) => {
        match $number {
            $($(#[$attribute])* libc::$constant => Some(Call { name: $name, waits: $waits }),)*
            _ => None,
        }
    };
}

/// Calls that were replaced by others: newer architectures lack them, or libc their numbers.
#[cfg(target_arch = "x86_64")]
fn old(number: i64) -> Option<Call> {
    use Waits::{Epoll, OpenFile, Poll, Select, Signal, Storage, Task};
    calls! { number;
        SYS_open "open" OpenFile, SYS_creat "creat" OpenFile, SYS_stat "stat" Storage,
        SYS_lstat "lstat" Storage, SYS_access "access" Storage, SYS_readlink "readlink" Storage,
        SYS_rename "rename" Storage, SYS_mkdir "mkdir" Storage, SYS_rmdir "rmdir" Storage,
        SYS_link "link" Storage, SYS_unlink "unlink" Storage, SYS_symlink "symlink" Storage,
        SYS_chmod "chmod" Storage, SYS_chown "chown" Storage, SYS_lchown "lchown" Storage,
        SYS_utime "utime" Storage, SYS_utimes "utimes" Storage, SYS_futimesat "futimesat" Storage,
        SYS_renameat "renameat" Storage, SYS_sync_file_range "sync_file_range" Storage,
        SYS_mknod "mknod" Storage, SYS_getdents "getdents" Storage,
        SYS_poll "poll" Poll, SYS_select "select" Select, SYS_epoll_wait "epoll_wait" Epoll,
        SYS_pause "pause" Signal, SYS_fork "fork" Task, SYS_vfork "vfork" Task,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn old(_number: i64) -> Option<Call> {
    None
}

fn native(number: i64) -> Option<Call> {
    use Waits::{
        Child, ChildById, Epoll, Event, Fcntl, FileLock, Lock, MoveFd, OpenFile, Poll, ReadFd,
        Select, SendFile, Signal, Sleep, Storage, Task, WriteFd,
    };
    let number = match number & !X32 {
        #[cfg(target_arch = "x86_64")]
        variant if number & X32 != 0 && variant >= 512 => match variant {
            515 => libc::SYS_readv,
            516 => libc::SYS_writev,
            517 => libc::SYS_recvfrom,
            518 => libc::SYS_sendmsg,
            519 => libc::SYS_recvmsg,
            520 => libc::SYS_execve,
            529 => libc::SYS_waitid,
            _ => return None,
        },
        same => same,
    };
    let call = calls! { number;
        SYS_read "read" ReadFd, SYS_readv "readv" ReadFd, SYS_pread64 "pread64" ReadFd,
        SYS_preadv "preadv" ReadFd, SYS_preadv2 "preadv2" ReadFd, SYS_recvfrom "recvfrom" ReadFd,
        SYS_recvmsg "recvmsg" ReadFd, SYS_recvmmsg "recvmmsg" ReadFd, SYS_accept "accept" ReadFd,
        SYS_accept4 "accept4" ReadFd, SYS_mq_timedreceive "mq_timedreceive" ReadFd,
        SYS_getdents64 "getdents64" ReadFd, SYS_ioctl "ioctl" ReadFd,
        SYS_write "write" WriteFd, SYS_writev "writev" WriteFd, SYS_pwrite64 "pwrite64" WriteFd,
        SYS_pwritev "pwritev" WriteFd, SYS_pwritev2 "pwritev2" WriteFd,
        SYS_sendto "sendto" WriteFd, SYS_sendmsg "sendmsg" WriteFd,
        SYS_sendmmsg "sendmmsg" WriteFd, SYS_connect "connect" WriteFd,
        SYS_vmsplice "vmsplice" WriteFd, SYS_mq_timedsend "mq_timedsend" WriteFd,
        SYS_splice "splice" MoveFd(2), SYS_tee "tee" MoveFd(1),
        SYS_copy_file_range "copy_file_range" MoveFd(2), SYS_sendfile "sendfile" SendFile,
        SYS_ppoll "ppoll" Poll, SYS_pselect6 "pselect6" Select,
        SYS_epoll_pwait "epoll_pwait" Epoll, SYS_epoll_pwait2 "epoll_pwait2" Epoll,
        SYS_openat "openat" OpenFile, SYS_openat2 "openat2" OpenFile,
        SYS_close "close" Storage, SYS_fsync "fsync" Storage, SYS_fdatasync "fdatasync" Storage,
        SYS_sync "sync" Storage, SYS_syncfs "syncfs" Storage, SYS_msync "msync" Storage,
        SYS_fstat "fstat" Storage, SYS_newfstatat "newfstatat" Storage, SYS_statx "statx" Storage,
        SYS_statfs "statfs" Storage, SYS_fstatfs "fstatfs" Storage,
        SYS_faccessat "faccessat" Storage, SYS_faccessat2 "faccessat2" Storage,
        SYS_readlinkat "readlinkat" Storage, SYS_renameat2 "renameat2" Storage,
        SYS_mkdirat "mkdirat" Storage,
        SYS_mknodat "mknodat" Storage, SYS_unlinkat "unlinkat" Storage,
        SYS_linkat "linkat" Storage, SYS_symlinkat "symlinkat" Storage,
        SYS_truncate "truncate" Storage, SYS_ftruncate "ftruncate" Storage,
        SYS_fallocate "fallocate" Storage, SYS_fadvise64 "fadvise64" Storage,
        SYS_readahead "readahead" Storage, SYS_lseek "lseek" Storage,
        SYS_fchmod "fchmod" Storage, SYS_fchmodat "fchmodat" Storage,
        SYS_fchown "fchown" Storage, SYS_fchownat "fchownat" Storage,
        SYS_utimensat "utimensat" Storage, SYS_chdir "chdir" Storage, SYS_fchdir "fchdir" Storage,
        SYS_getcwd "getcwd" Storage, SYS_chroot "chroot" Storage, SYS_mount "mount" Storage,
        SYS_umount2 "umount2" Storage, SYS_getxattr "getxattr" Storage,
        SYS_lgetxattr "lgetxattr" Storage, SYS_fgetxattr "fgetxattr" Storage,
        SYS_setxattr "setxattr" Storage, SYS_lsetxattr "lsetxattr" Storage,
        SYS_fsetxattr "fsetxattr" Storage, SYS_listxattr "listxattr" Storage,
        SYS_llistxattr "llistxattr" Storage, SYS_flistxattr "flistxattr" Storage,
        SYS_removexattr "removexattr" Storage, SYS_io_getevents "io_getevents" Storage,
        SYS_io_submit "io_submit" Storage, SYS_io_uring_enter "io_uring_enter" Event,
        SYS_wait4 "wait4" Child, SYS_waitid "waitid" ChildById,
        SYS_futex "futex" Lock, SYS_flock "flock" FileLock, SYS_fcntl "fcntl" Fcntl,
        // In these, threads wait for each other, for the memory that they share.
        SYS_mmap "mmap" Lock, SYS_munmap "munmap" Lock, SYS_mprotect "mprotect" Lock,
        SYS_mremap "mremap" Lock, SYS_madvise "madvise" Lock, SYS_brk "brk" Lock,
        SYS_semop "semop" Lock, SYS_semtimedop "semtimedop" Lock,
        SYS_msgrcv "msgrcv" Event, SYS_msgsnd "msgsnd" Event,
        SYS_nanosleep "nanosleep" Sleep, SYS_clock_nanosleep "clock_nanosleep" Sleep,
        SYS_rt_sigsuspend "rt_sigsuspend" Signal, SYS_rt_sigtimedwait "rt_sigtimedwait" Signal,
        // Continues a sleep that a signal interrupted.
        SYS_restart_syscall "restart_syscall" Sleep,
        SYS_clone "clone" Task, SYS_clone3 "clone3" Task, SYS_execve "execve" Task,
        SYS_execveat "execveat" Task, SYS_exit "exit" Task, SYS_exit_group "exit_group" Task,
    };
    call.or_else(|| old(number))
}

/// The numbers here of the calls of a 32-bit x86 program that it may wait in, or that move data
/// (arch/x86/entry/syscalls/syscall_32.tbl). Not those whose arguments differ: socketcall, and sendfile with a
/// short offset.
#[cfg(target_arch = "x86_64")]
fn i386(number: i64) -> Option<i64> {
    Some(match number {
        1 => libc::SYS_exit,
        2 => libc::SYS_fork,
        3 => libc::SYS_read,
        4 => libc::SYS_write,
        5 => libc::SYS_open,
        6 => libc::SYS_close,
        7 | 114 => libc::SYS_wait4,
        10 => libc::SYS_unlink,
        12 => libc::SYS_chdir,
        15 => libc::SYS_chmod,
        33 => libc::SYS_access,
        38 => libc::SYS_rename,
        39 => libc::SYS_mkdir,
        40 => libc::SYS_rmdir,
        83 => libc::SYS_symlink,
        85 => libc::SYS_readlink,
        94 => libc::SYS_fchmod,
        195 => libc::SYS_stat,
        196 => libc::SYS_lstat,
        197 => libc::SYS_fstat,
        220 => libc::SYS_getdents64,
        296 => libc::SYS_mkdirat,
        304 => libc::SYS_symlinkat,
        305 => libc::SYS_readlinkat,
        306 => libc::SYS_fchmodat,
        307 => libc::SYS_faccessat,
        320 => libc::SYS_utimensat,
        383 => libc::SYS_statx,
        11 => libc::SYS_execve,
        29 => libc::SYS_pause,
        120 => libc::SYS_clone,
        143 => libc::SYS_flock,
        // Old timespec and new one.
        162 | 407 => libc::SYS_nanosleep,
        145 => libc::SYS_readv,
        146 => libc::SYS_writev,
        180 => libc::SYS_pread64,
        181 => libc::SYS_pwrite64,
        179 => libc::SYS_rt_sigsuspend,
        190 => libc::SYS_vfork,
        300 => libc::SYS_newfstatat,
        118 => libc::SYS_fsync,
        240 | 422 => libc::SYS_futex,
        252 => libc::SYS_exit_group,
        267 => libc::SYS_clock_nanosleep,
        284 => libc::SYS_waitid,
        295 => libc::SYS_openat,
        364 => libc::SYS_accept4,
        371 => libc::SYS_recvfrom,
        372 => libc::SYS_recvmsg,
        369 => libc::SYS_sendto,
        370 => libc::SYS_sendmsg,
        435 => libc::SYS_clone3,
        // fd_set and pollfd are the same in both numberings; timespec is not read there.
        142 => libc::SYS_select,
        168 => libc::SYS_poll,
        309 | 414 => libc::SYS_ppoll,
        308 | 413 => libc::SYS_pselect6,
        256 => libc::SYS_epoll_wait,
        319 => libc::SYS_epoll_pwait,
        221 | 55 => libc::SYS_fcntl,
        239 => libc::SYS_sendfile,
        313 => libc::SYS_splice,
        315 => libc::SYS_tee,
        316 => libc::SYS_vmsplice,
        333 => libc::SYS_preadv,
        334 => libc::SYS_pwritev,
        337 | 417 => libc::SYS_recvmmsg,
        345 => libc::SYS_sendmmsg,
        377 => libc::SYS_copy_file_range,
        378 => libc::SYS_preadv2,
        379 => libc::SYS_pwritev2,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_this_machine() {
        let call = |number| Abi::Native.call(number);
        assert_eq!(call(libc::SYS_read).name, "read");
        assert_eq!(call(libc::SYS_wait4).waits, Waits::Child);
        assert_eq!(call(libc::SYS_splice).waits, Waits::MoveFd(2));
        assert_eq!(call(libc::SYS_getpid).waits, Waits::Unknown);
        assert_eq!(call(i64::MIN).waits, Waits::Unknown);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn numbers_of_32_bits_are_distinguished() {
        assert_eq!(Abi::I386.call(3).name, "read");
        assert_eq!(Abi::Native.call(3).name, "close");
        assert_eq!(Abi::Native.call(0x4000_0000).name, "read");
        assert_eq!(Abi::Native.call(0x4000_0000 + 517).name, "recvfrom");
        assert_eq!(Abi::I386.call(0x4000_0000 + 517).name, "recvfrom");
        let auxv = |words: [u32; 2]| Abi::of_auxv(&words.map(u32::to_ne_bytes).concat());
        assert_eq!(auxv([33, 0]), Abi::Native);
        assert_eq!(auxv([32, 0xf7f0_0000]), Abi::I386);
        assert_eq!(Abi::of_auxv(&[]), Abi::Native);
        let own = std::fs::read("/proc/self/auxv").unwrap();
        assert_eq!(Abi::of_auxv(&own), Abi::Native);
    }
}
