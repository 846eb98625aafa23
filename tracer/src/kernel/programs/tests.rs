#![expect(unsafe_code)]

use super::*;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

const OPTIONS: Options = Options {
    size: ring_size::SMALLEST,
    blocking: false,
    throttles: false,
    are_named: false,
};

/// `None`, with a message: this process may not load programs.
fn opened(pid: u32) -> Option<CallSource> {
    match TracedPids::below(pid).and_then(|all| CallSource::open(all, OPTIONS)) {
        Ok(programs) => Some(programs),
        Err(error) => {
            eprintln!("skipped: programs in the kernel: {error}");
            None
        }
    }
}

#[test]
fn own_calls_are_reported_with_their_arguments_and_results() {
    let Some(mut programs) = opened(std::process::id()) else {
        return;
    };
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let (from, to) = (reader.as_raw_fd() as u64, writer.as_raw_fd() as u64);
    let own = nix::unistd::gettid().as_raw().unsigned_abs();
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    let zeros_fd = zeros.as_raw_fd() as u64;
    let mut few = [1; 30];
    // This one has a record with all its arguments, the others have short ones.
    assert_eq!(zeros.read_at(&mut few, 4_000).unwrap(), 30);
    writer.write_all(&[7; 300]).unwrap();
    let mut got = [0; 512];
    assert_eq!(reader.read(&mut got).unwrap(), 300);
    let mut samples = Vec::new();
    programs.drain(|sample| samples.push(sample));
    samples.retain(|sample| sample.tid == own);
    samples.sort_by_key(|sample| sample.at);
    let call = |number: libc::c_long, fd: u64, length: u64| {
        let enters = |sample: &Sample| {
            sample.number == number as u32
                && matches!(sample.what, What::Enters([f, _, l, ..]) if (f, l) == (fd, length))
        };
        let place = samples.iter().position(enters).expect("the entry");
        let mut after = samples[place + 1..].iter();
        after.find(|s| s.number == number as u32).map(|s| s.what)
    };
    assert_eq!(call(libc::SYS_write, to, 300), Some(What::Returns(300)));
    assert_eq!(call(libc::SYS_read, from, 512), Some(What::Returns(300)));
    assert_eq!(
        call(libc::SYS_pread64, zeros_fd, 30),
        Some(What::Returns(30))
    );
    let mut offsets = samples.iter().filter_map(|sample| match sample.what {
        What::Enters([fd, _, _, offset, ..]) if sample.number == libc::SYS_pread64 as u32 => {
            (fd == zeros_fd).then_some(offset)
        }
        _ => None,
    });
    assert_eq!(offsets.next_back(), Some(4_000));
}

/// The argument of the last call of this thread that has the value from its memory.
fn reported_argument(programs: &mut CallSource, number: libc::c_long, argument: usize) -> u64 {
    let own = nix::unistd::gettid().as_raw().unsigned_abs();
    let mut last = None;
    programs.drain(|sample| match sample.what {
        What::Enters(arguments) if (sample.tid, sample.number) == (own, number as u32) => {
            last = Some(arguments[argument]);
        }
        _ => {}
    });
    last.expect("the call")
}

#[test]
fn lengths_in_memory_are_reported() {
    let Some(mut programs) = opened(std::process::id()) else {
        return;
    };
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    let fd = zeros.as_raw_fd();
    let mut buffer = [0u8; 4096];
    let start = buffer.as_mut_ptr().cast();
    for count in [0, 1, 2, 15, 16, 33, 1023, 1024] {
        let pieces: Vec<libc::iovec> = (0..count)
            .map(|at| libc::iovec {
                iov_base: start,
                iov_len: 1 + at % 4000,
            })
            .collect();
        let sum: usize = pieces.iter().map(|piece| piece.iov_len).sum();
        // SAFETY: every piece is within the buffer, which nothing else uses.
        let read = unsafe { libc::readv(fd, pieces.as_ptr(), count as i32) };
        assert_eq!(read, sum as isize);
        assert_eq!(
            reported_argument(&mut programs, libc::SYS_readv, 1),
            sum as u64 + 1
        );
        // SAFETY: likewise.
        let read = unsafe { libc::preadv(fd, pieces.as_ptr(), count as i32, 5) };
        assert_eq!(read, sum as isize);
        assert_eq!(
            reported_argument(&mut programs, libc::SYS_preadv, 1),
            sum as u64 + 1
        );
    }
    for (pieces, count) in [(8, 1), (start as usize, 1025)] {
        // SAFETY: the kernel refuses to read from this address.
        let failed = unsafe { libc::readv(fd, pieces as *const libc::iovec, count) };
        assert_eq!(failed, -1);
        assert_eq!(
            reported_argument(&mut programs, libc::SYS_readv, 1),
            u64::MAX
        );
    }
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut pieces = [10, 20, 30].map(|iov_len| libc::iovec {
        iov_base: start,
        iov_len,
    });
    // SAFETY: of all zeros a message is empty.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (pieces.as_mut_ptr(), 3);
    // SAFETY: the pieces are within the buffer.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    assert_eq!(sent, 60);
    assert_eq!(reported_argument(&mut programs, libc::SYS_sendmsg, 1), 61);
}

#[test]
fn offsets_in_memory_are_reported() {
    let Some(mut programs) = opened(std::process::id()) else {
        return;
    };
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[7; 9_000]).unwrap();
    let (_reader, writer) = std::io::pipe().unwrap();
    let (from, to) = (file.as_raw_fd(), writer.as_raw_fd());
    let mut offset = 4_000i64;
    // SAFETY: writes the offset alone.
    let sent = unsafe { libc::sendfile(to, from, &raw mut offset, 100) };
    assert_eq!((sent, offset), (100, 4_100));
    assert_eq!(
        reported_argument(&mut programs, libc::SYS_sendfile, 2),
        4_001
    );
    let none = std::ptr::null_mut();
    // SAFETY: likewise.
    let moved = unsafe { libc::splice(from, &raw mut offset, to, none, 50, 0) };
    assert_eq!((moved, offset), (50, 4_150));
    assert_eq!(reported_argument(&mut programs, libc::SYS_splice, 1), 4_101);
    // SAFETY: likewise.
    unsafe { libc::splice(from, &raw mut offset, to, none, 50, 0) };
    assert_eq!(reported_argument(&mut programs, libc::SYS_splice, 3), 0);
    // SAFETY: the kernel refuses to read the offset.
    unsafe { libc::sendfile(to, from, std::ptr::dangling_mut(), 100) };
    assert_eq!(
        reported_argument(&mut programs, libc::SYS_sendfile, 2),
        u64::MAX
    );
}

/// The descriptors in messages since the last read, with the calls of these.
fn carried(programs: &mut CallSource) -> Vec<(libc::c_long, Carried)> {
    let own = nix::unistd::gettid().as_raw().unsigned_abs();
    let mut seen = Vec::new();
    programs.drain(|sample| match sample.what {
        What::Carries(carried) if sample.tid == own => {
            seen.push((sample.number.into(), carried));
        }
        _ => {}
    });
    seen
}

/// A message of one byte, with space for control messages.
struct Message {
    control: Vec<u64>,
    byte: u8,
    piece: libc::iovec,
}

impl Message {
    /// With credentials before the descriptors, if those are this process's.
    fn new(with_credentials: bool, descriptors: &[i32]) -> Message {
        let own = libc::ucred {
            pid: std::process::id().cast_signed(),
            uid: nix::unistd::getuid().as_raw(),
            gid: nix::unistd::getgid().as_raw(),
        };
        let own = [own.pid, own.uid.cast_signed(), own.gid.cast_signed()];
        let mut control = Vec::new();
        if with_credentials {
            control.extend(block(libc::SCM_CREDENTIALS, &own));
        }
        if !descriptors.is_empty() {
            control.extend(block(libc::SCM_RIGHTS, descriptors));
        }
        Message {
            control,
            byte: 7,
            piece: libc::iovec {
                iov_base: std::ptr::null_mut(),
                iov_len: 1,
            },
        }
    }

    fn header(&mut self) -> libc::mmsghdr {
        self.piece.iov_base = (&raw mut self.byte).cast();
        // SAFETY: of all zeros a message is empty.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        header.msg_hdr.msg_iov = &raw mut self.piece;
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_control = self.control.as_mut_ptr().cast();
        header.msg_hdr.msg_controllen = 8 * self.control.len();
        header
    }
}

/// A block of what goes with a message (cmsg(3)).
fn block(kind: i32, numbers: &[i32]) -> Vec<u64> {
    let mut halves = vec![16 + 4 * numbers.len() as i32, 0, libc::SOL_SOCKET, kind];
    halves.extend(numbers);
    halves.resize(halves.len().next_multiple_of(2), 0);
    let pair = |pair: &[i32]| {
        let [one, two] = [pair[0], pair[1]].map(|half| u64::from(half.cast_unsigned()));
        one | two << 32
    };
    halves.chunks(2).map(pair).collect()
}

#[test]
fn descriptors_in_messages_are_reported_on_both_sides() {
    let Some(mut programs) = opened(std::process::id()) else {
        return;
    };
    let (one, other) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let (one, other) = (one.as_raw_fd(), other.as_raw_fd());
    let (reader, writer) = std::io::pipe().unwrap();
    let file = tempfile::tempfile().unwrap();
    let sent = [reader.as_raw_fd(), file.as_raw_fd(), writer.as_raw_fd()];
    let of_pipe = nix::sys::stat::fstat(&reader).unwrap();
    let send = |with_credentials, descriptors: &[i32]| {
        let mut message = Message::new(with_credentials, descriptors);
        let header = message.header();
        // SAFETY: all that the message points at lives.
        let sent = unsafe { libc::sendmsg(one, &raw const header.msg_hdr, 0) };
        assert_eq!(sent, 1);
    };
    send(true, &sent);
    send(true, &[]);
    send(false, &sent[..1]);
    let all = carried(&mut programs);
    let expected = [sent[0], sent[1], sent[2], sent[0]];
    let reported: Vec<_> = all.iter().map(|(_, carried)| carried.fd as i32).collect();
    assert_eq!(reported, expected);
    for (number, carried) in &all {
        assert_eq!(*number, libc::SYS_sendmsg);
        let is_pipe = carried.fd as i32 != sent[1];
        let format = [libc::S_IFREG, libc::S_IFIFO][usize::from(is_pipe)];
        assert_eq!(carried.mode & libc::S_IFMT, format);
        let seen = (carried.open.inode, carried.mode);
        assert!(!is_pipe || seen == (of_pipe.st_ino, of_pipe.st_mode));
    }
    let mut receive = |number, third: i32| {
        let mut messages = [Message::new(true, &[0; 5]), Message::new(true, &[0; 5])];
        let mut headers = messages.each_mut().map(Message::header);
        let first: *mut libc::mmsghdr = headers.as_mut_ptr();
        // SAFETY: all that the messages point at lives, and the pieces have space for what is received.
        let got = unsafe { libc::syscall(number, other, first, third, 0, 0) };
        assert!(got > 0);
        let seen = carried(&mut programs);
        for (by, carried) in &seen {
            assert_eq!(*by, number);
            nix::unistd::close(carried.fd as i32).unwrap();
        }
        seen
    };
    let what = |of: &[(libc::c_long, Carried)]| -> Vec<_> {
        of.iter().map(|(_, c)| (c.open, c.mode)).collect()
    };
    let peeked = receive(libc::SYS_recvmsg, libc::MSG_PEEK);
    assert_eq!(what(&peeked), what(&all[..3]));
    let first = receive(libc::SYS_recvmsg, 0);
    assert_eq!(what(&first), what(&all[..3]));
    let own = first.iter().map(|(_, carried)| carried.fd as i32);
    assert!(own.into_iter().all(|fd| !sent.contains(&fd)));
    let both = receive(libc::SYS_recvmmsg, 2);
    assert_eq!(what(&both), what(&all[3..]));
    // The most descriptors that one message may have, and the second of two messages.
    let many = [sent[1]; 253];
    let mut messages = [Message::new(false, &[]), Message::new(true, &many)];
    let mut headers = messages.each_mut().map(Message::header);
    // SAFETY: all that the messages point at lives.
    let sent = unsafe { libc::sendmmsg(one, headers.as_mut_ptr(), 2, 0) };
    assert_eq!(sent, 2);
    let reported = carried(&mut programs);
    assert_eq!(reported.len(), many.len());
}

#[test]
fn descriptors_of_several_messages_are_reported() {
    let Some(mut programs) = opened(std::process::id()) else {
        return;
    };
    let (one, other) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let own = nix::unistd::gettid().as_raw().unsigned_abs();
    let mut buffer = [7u8; 4000];
    let mut call = |number: libc::c_long, fd: i32, lengths: &[usize]| {
        let mut pieces: Vec<libc::iovec> = lengths
            .iter()
            .map(|&iov_len| libc::iovec {
                iov_base: buffer.as_mut_ptr().cast(),
                iov_len,
            })
            .collect();
        let messages = pieces.iter_mut().map(|piece| {
            // SAFETY: of all zeros a message is empty.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (piece, 1);
            message
        });
        let mut messages: Vec<libc::mmsghdr> = messages.collect();
        let (first, count) = (messages.as_mut_ptr(), lengths.len());
        // SAFETY: the pieces are within the buffer, and the messages live.
        let result = unsafe { libc::syscall(number, fd, first, count, libc::MSG_DONTWAIT, 0) };
        let mut reported = Vec::new();
        programs.drain(|sample| match sample.what {
            What::Moved(_) | What::Returns(_)
                if (sample.tid, sample.number) == (own, number as u32) =>
            {
                reported.push(sample.what);
            }
            _ => {}
        });
        (result, reported)
    };
    let (from, to) = (one.as_raw_fd(), other.as_raw_fd());
    let sent = call(libc::SYS_sendmmsg, from, &[10, 200, 3000]);
    assert_eq!(sent, (3, vec![What::Moved(3210), What::Returns(3)]));
    // Results below the length asked for, and truncated messages.
    let received = call(libc::SYS_recvmmsg, to, &[4000, 50, 4000, 4000]);
    assert_eq!(received, (3, vec![What::Moved(3060), What::Returns(3)]));
    let (failed, reported) = call(libc::SYS_recvmmsg, to, &[4000]);
    assert_eq!((failed, reported.len()), (-1, 1));
    let many = [1; 9];
    let sent = call(libc::SYS_sendmmsg, from, &many);
    assert_eq!(sent.1.first(), Some(&What::Moved(9)));
}

#[test]
fn records_without_space_are_counted_and_other_processes_are_not_recorded() {
    let Some(mut programs) = opened(std::process::id()) else {
        return;
    };
    let own = nix::unistd::gettid().as_raw().unsigned_abs();
    let (reader, _writer) = std::io::pipe().unwrap();
    let calls = 5_000;
    for _ in 0..calls {
        // Far more than the rings hold.
        nix::unistd::lseek(&reader, 0, nix::unistd::Whence::SeekCur).unwrap_err();
    }
    let mut seen = 0;
    let lost = programs.drain(|sample| {
        let enters = matches!(sample.what, What::Enters(_));
        seen += u64::from(enters && sample.tid == own && sample.number == libc::SYS_lseek as u32);
    });
    assert!(lost > 0 && programs.lost_entries().others > 0);
    // Other threads of the tests make calls, too.
    assert!(seen < calls && seen + programs.lost_entries().others >= calls);
    programs.processes().unwrap().forget(std::process::id());
    programs.drain(|_| {});
    nix::unistd::lseek(&reader, 0, nix::unistd::Whence::SeekCur).unwrap_err();
    let mut after = Vec::new();
    programs.drain(|sample| after.push(sample));
    after.retain(|sample| sample.tid == own);
    assert_eq!(after, []);
}

#[test]
fn the_former_content_of_a_slot_is_not_reported() {
    let mut record = [7; SLOT];
    record[layout::TID..layout::TID + 4].copy_from_slice(&5u32.to_ne_bytes());
    let mark = |kind: u16| kind << layout::KIND_BITS | 3;
    let of = |kind| decode(mark(kind), &record);
    let word = u64::from_ne_bytes([7; 8]);
    let short = of(layout::SHORT_ENTRY).unwrap();
    assert_eq!((short.tid, short.number), (5, 3));
    assert_eq!(short.what, What::Enters([word, word, word, 0, 0, 0]));
    assert_eq!(of(layout::ENTRY).unwrap().what, What::Enters([word; 6]));
    let half = word & u64::from(u32::MAX);
    let foreign = of(layout::FOREIGN_ENTRY).unwrap().what;
    assert_eq!(foreign, What::Enters([half; 6]));
    assert_eq!(of(0), None);
}
