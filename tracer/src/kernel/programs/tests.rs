#![expect(unsafe_code)]

use super::*;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// `None`, with a message: this process may not load programs.
fn opened() -> Option<CallSource> {
    match TracedPids::below(std::process::id()).and_then(|all| CallSource::open(&all, Some(0))) {
        Ok(programs) => Some(programs),
        Err(error) => {
            eprintln!("skipped: eBPF programs: {error}");
            None
        }
    }
}

fn own() -> u32 {
    nix::unistd::gettid().as_raw().unsigned_abs()
}

fn returns(result: i64) -> What {
    let position = None;
    What::Returns(Returned { result, position })
}

/// The records of calls of this thread with that number since the last time.
fn of(programs: &mut CallSource, number: libc::c_long) -> Vec<What> {
    let mut found = Vec::new();
    programs.drain(|sample| {
        if (sample.tid, sample.number) == (own(), number as u32) {
            found.push((sample.at, sample.what));
        }
    });
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, what)| what).collect()
}

/// The file that the last of these calls used.
fn last_use(programs: &mut CallSource, number: libc::c_long) -> FileUse {
    let found = of(programs, number);
    let mut uses = found.iter().filter_map(|what| match what {
        What::Enters(file) => Some(*file),
        _ => None,
    });
    uses.next_back().expect("the call")
}

fn inode_of(file: &impl AsFd) -> Inode {
    let found = nix::sys::stat::fstat(file).unwrap();
    Inode {
        device: found.st_dev,
        number: found.st_ino,
    }
}

#[test]
fn a_call_names_its_file_and_the_place_in_it() {
    let Some(mut programs) = opened() else {
        return;
    };
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[7; 300]).unwrap();
    file.write_all(&[7; 30]).unwrap();
    assert_eq!(file.read_at(&mut [0; 40], 310).unwrap(), 20);
    let second = last_use(&mut programs, libc::SYS_write);
    let mode = libc::S_IFREG;
    assert_eq!(second.mode & libc::S_IFMT, mode);
    assert_eq!((second.inode, second.offset), (inode_of(&file), Some(300)));
    assert_eq!((second.length, second.at_position), (Some(30), true));
    assert!(!second.appends);
    let again = file.try_clone().unwrap();
    assert_eq!(again.read_at(&mut [0; 40], 310).unwrap(), 20);
    let found = of(&mut programs, libc::SYS_pread64);
    let [What::Enters(read), result] = found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(
        (read.file, read.inode),
        (second.file, second.inode),
        "one open file"
    );
    assert_eq!((read.offset, read.length), (Some(310), Some(40)));
    assert!(!read.at_position);
    assert_eq!(result, returns(20));
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&[7; 300]).unwrap();
    assert_eq!(reader.read(&mut [0; 512]).unwrap(), 300);
    let read = last_use(&mut programs, libc::SYS_read);
    assert_eq!(read.mode & libc::S_IFMT, libc::S_IFIFO);
    assert_eq!(read.inode.number, inode_of(&reader).number);
    // A descriptor that is not open.
    // SAFETY: the kernel refuses it.
    let written = unsafe { libc::write(1 << 20, [7u8].as_ptr().cast(), 1) };
    assert_eq!(written, -1);
    let mut uses = of(&mut programs, libc::SYS_write).into_iter();
    assert!(uses.all(|what| !matches!(what, What::Enters(_))));
}

#[test]
fn a_write_that_appends_has_the_position_that_it_left() {
    let Some(mut programs) = opened() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    std::fs::write(&path, [7; 1000]).unwrap();
    let mut log = std::fs::File::options().append(true).open(&path).unwrap();
    of(&mut programs, libc::SYS_write);
    log.write_all(&[7; 24]).unwrap();
    let found = of(&mut programs, libc::SYS_write);
    let [What::Enters(file), What::Returns(returned)] = found[..] else {
        panic!("{found:?}");
    };
    assert!(file.appends && file.at_position);
    assert_eq!((returned.result, returned.position), (24, Some(1024)));
}

#[test]
fn lengths_in_memory_are_reported() {
    let Some(mut programs) = opened() else {
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
        let used = last_use(&mut programs, libc::SYS_readv);
        assert_eq!(used.length, Some(sum as u64));
        // SAFETY: likewise.
        let read = unsafe { libc::preadv(fd, pieces.as_ptr(), count as i32, 5) };
        assert_eq!(read, sum as isize);
        let used = last_use(&mut programs, libc::SYS_preadv);
        assert_eq!((used.length, used.offset), (Some(sum as u64), Some(5)));
        // SAFETY: likewise.
        let read = unsafe { libc::preadv2(fd, pieces.as_ptr(), count as i32, -1, 0) };
        assert_eq!(read, sum as isize);
        assert!(last_use(&mut programs, libc::SYS_preadv2).at_position);
    }
    for (pieces, count) in [(8, 1), (start as usize, 1025)] {
        // SAFETY: the kernel refuses to read from this address.
        let failed = unsafe { libc::readv(fd, pieces as *const libc::iovec, count) };
        assert_eq!(failed, -1);
        assert_eq!(last_use(&mut programs, libc::SYS_readv).length, None);
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
    assert_eq!(last_use(&mut programs, libc::SYS_sendmsg).length, Some(60));
}

#[test]
fn a_move_names_both_files() {
    let Some(mut programs) = opened() else {
        return;
    };
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[7; 9_000]).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let (from, to) = (file.as_raw_fd(), writer.as_raw_fd());
    let mut offset = 4_000i64;
    // SAFETY: writes the offset alone.
    let sent = unsafe { libc::sendfile(to, from, &raw mut offset, 100) };
    assert_eq!((sent, offset), (100, 4_100));
    let found = of(&mut programs, libc::SYS_sendfile);
    let [What::Enters(read), What::AlsoUses(written), result] = found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(
        (read.inode, written.inode.number),
        (inode_of(&file), inode_of(&reader).number)
    );
    assert_eq!(
        (read.offset, read.length, read.at_position),
        (Some(4_000), Some(100), false)
    );
    assert_eq!(result, returns(100));
    let none = std::ptr::null_mut();
    // SAFETY: likewise.
    let moved = unsafe { libc::splice(from, &raw mut offset, to, none, 50, 0) };
    assert_eq!((moved, offset), (50, 4_150));
    assert_eq!(
        last_use(&mut programs, libc::SYS_splice).offset,
        Some(4_100)
    );
    // SAFETY: likewise.
    unsafe { libc::splice(from, none, to, none, 50, 0) };
    let used = last_use(&mut programs, libc::SYS_splice);
    assert_eq!((used.offset, used.at_position), (Some(9_000), true));
    // SAFETY: the kernel refuses to read the offset.
    unsafe { libc::sendfile(to, from, std::ptr::dangling_mut(), 100) };
    assert_eq!(last_use(&mut programs, libc::SYS_sendfile).offset, None);
}

#[test]
fn bytes_of_several_messages_are_reported() {
    let Some(mut programs) = opened() else {
        return;
    };
    let (one, other) = std::os::unix::net::UnixDatagram::pair().unwrap();
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
                if (sample.tid, sample.number) == (own(), number as u32) =>
            {
                reported.push(sample.what);
            }
            _ => {}
        });
        (result, reported)
    };
    let (from, to) = (one.as_raw_fd(), other.as_raw_fd());
    let sent = call(libc::SYS_sendmmsg, from, &[10, 200, 3000]);
    assert_eq!(sent, (3, vec![What::Moved(3210), returns(3)]));
    // Results below the length asked for, and truncated messages.
    let received = call(libc::SYS_recvmmsg, to, &[4000, 50, 4000, 4000]);
    assert_eq!(received, (3, vec![What::Moved(3060), returns(3)]));
    let (failed, reported) = call(libc::SYS_recvmmsg, to, &[4000]);
    assert_eq!((failed, reported.len()), (-1, 1));
    let many = [1; 9];
    let sent = call(libc::SYS_sendmmsg, from, &many);
    assert_eq!(sent.1.first(), Some(&What::Moved(9)));
}

#[test]
fn records_without_space_are_counted() {
    let Some(mut programs) = opened() else {
        return;
    };
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    let calls = 5_000;
    for _ in 0..calls {
        // Far more than the rings hold.
        zeros.read_at(&mut [0], 0).unwrap();
    }
    let mut seen = 0;
    let number = libc::SYS_pread64 as u32;
    let lost = programs.drain(|sample| {
        let enters = matches!(sample.what, What::Enters(_));
        seen += u64::from(enters && (sample.tid, sample.number) == (own(), number));
    });
    assert!(lost > 0 && programs.lost_entries() > 0);
    // Other threads of the tests make calls, too.
    assert!(seen < calls && seen + programs.lost_entries() >= calls);
}

#[test]
fn a_record_of_an_unknown_kind_is_left_out() {
    let record = [7; SLOT];
    let of = |kind: u16| decode(kind << layout::KIND_BITS | 3, &record);
    assert_eq!(of(layout::MOVED).unwrap().number, 3);
    assert_eq!((of(0), of(9)), (None, None));
}

#[test]
fn other_processes_are_not_recorded() {
    let traced = TracedPids::new().unwrap();
    let Ok(mut programs) = CallSource::open(&traced, Some(0)) else {
        return eprintln!("skipped: eBPF programs");
    };
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    zeros.read_at(&mut [0], 0).unwrap();
    traced.follow(std::process::id());
    zeros.read_at(&mut [0], 1).unwrap();
    assert_eq!(last_use(&mut programs, libc::SYS_pread64).offset, Some(1));
    traced.forget(std::process::id());
    zeros.read_at(&mut [0], 2).unwrap();
    assert_eq!(of(&mut programs, libc::SYS_pread64), []);
}
