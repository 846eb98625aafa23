//! File data: exact records, and the same bytes as without the mount.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flowtrace_schema::FileLayer;
use nix::fcntl::{
    AT_FDCWD, AtFlags, FallocateFlags, FcntlArg, OFlag, copy_file_range, fallocate, fcntl,
};
use nix::sys::sendfile::sendfile;
use nix::unistd::{Whence, linkat, lseek};

use crate::mounted::{Mounted, Options, Way};
use crate::{calls, child};

/// Both modes: with in-kernel passthrough, and without.
fn modes() -> [Options; 2] {
    Way::EXACT.map(Way::options)
}

#[test]
fn sixty_four_reads_are_sixty_four_records() {
    for options in modes() {
        let Some(mounted) = Mounted::new(options) else {
            return;
        };
        fs::write(mounted.source.join("data"), vec![7; 64 * 4096]).unwrap();
        let file = File::open(mounted.path("data")).unwrap();
        let mut buffer = [0; 4096];
        for block in 0..64 {
            file.read_exact_at(&mut buffer, block * 4096).unwrap();
        }
        file.read_exact_at(&mut buffer, 0).unwrap();
        drop(file);
        let reads = mounted.finish().of("read", "data");
        let expected: Vec<_> = (0..64).chain([0]).map(|block| Some(block * 4096)).collect();
        assert_eq!(reads.iter().map(|r| r.offset).collect::<Vec<_>>(), expected);
        assert!(
            reads
                .iter()
                .all(|r| r.length == Some(4096) && r.result == 4096 && r.fidelity == "exact")
        );
    }
}

#[test]
fn a_large_call_is_one_record() {
    for options in modes() {
        let Some(mounted) = Mounted::new(options) else {
            return;
        };
        fs::write(mounted.source.join("data"), vec![7; 5 << 20]).unwrap();
        let file = File::open(mounted.path("data")).unwrap();
        const MEBI: usize = 1 << 20;
        let calls = [
            (MEBI, 0, 48),
            (3 * MEBI, 1 << 20, 48),
            (MEBI, 0, 0),
            (MEBI, 1 << 20, 0),
            (3 * MEBI, 0, 0),
            (4 * MEBI, 3 << 20, 0),
            (4 * MEBI, 5 << 20, 1),
        ];
        let results = calls.map(|(length, at, skew)| calls::read_skewed(&file, length, at, skew));
        drop(file);
        let reads = mounted.finish().of("read", "data");
        let seen: Vec<_> = reads
            .iter()
            .map(|read| (read.offset, read.length, read.result))
            .collect();
        let expected: Vec<_> = std::iter::zip(calls, results)
            .map(|((length, at, _), result)| (Some(at as i64), Some(length as i64), result as i64))
            .collect();
        assert_eq!(seen, expected);
    }
}

#[test]
fn reads_by_the_kernel_from_a_program_are_labelled() {
    for options in modes() {
        let Some(mounted) = Mounted::new(options) else {
            return;
        };
        fs::copy("/bin/true", mounted.source.join("program")).unwrap();
        let status = Command::new(mounted.path("program")).status().unwrap();
        assert!(status.success());
        let reads = mounted.finish().of("read", "program");
        assert!(!reads.is_empty());
        assert!(reads.iter().all(|read| read.fidelity == "cached"));
    }
}

#[test]
fn writes_are_exact() {
    for options in modes() {
        let Some(mounted) = Mounted::new(options) else {
            return;
        };
        let file = File::create(mounted.path("data")).unwrap();
        let sizes = [(0u64, 5usize), (5, 1000), (12345, 100), (1 << 20, 1 << 20)];
        for (offset, size) in sizes {
            file.write_all_at(&vec![b'x'; size], offset).unwrap();
        }
        drop(file);
        let size = fs::metadata(mounted.source.join("data")).unwrap().len();
        assert_eq!(size, 2 << 20);
        let trace = mounted.finish();
        let writes = trace.of("write", "data");
        let seen: Vec<_> = writes
            .iter()
            .map(|w| (w.offset.unwrap() as u64, w.result as usize))
            .collect();
        assert_eq!(seen, sizes);
        assert!(writes.iter().all(|write| write.fidelity == "exact"));
        // The kernel does not send here the request that it sends before a buffered write.
        assert!(trace.of("getxattr", "data").len() <= 1);
        let recorded =
            trace.number("SELECT size_bytes FROM files WHERE path LIKE '%/data' AND kind = 'file'");
        assert_eq!(recorded, 2 << 20);
    }
}

#[test]
fn mappings_and_calls_agree() {
    for options in modes() {
        let Some(mounted) = Mounted::new(options) else {
            return;
        };
        fs::write(mounted.source.join("data"), vec![0; 1 << 20]).unwrap();
        child::run("shared_mapping", &[&mounted.path("data")]);
    }
}

#[test]
fn sendfile_after_a_store_is_not_stale_for_long() {
    for options in modes() {
        let Some(mounted) = Mounted::new(options) else {
            return;
        };
        fs::write(mounted.source.join("data"), vec![0; 1 << 20]).unwrap();
        let in_kernel = mounted.layer() == FileLayer::DirectPassthrough;
        let paths = [mounted.path("data"), mounted.path("target")];
        let output = child::run("sendfile_after_store", &[&paths[0], &paths[1]]);
        let output = String::from_utf8(output.stdout).unwrap();
        let stale = output.lines().find_map(|line| line.strip_prefix("stale "));
        let (stale, longest) = stale.unwrap().split_once(' ').unwrap();
        let (stale, longest): (u32, u64) = (stale.parse().unwrap(), longest.parse().unwrap());
        eprintln!(
            "{:?}: {stale} of 2000 stale, {longest} us at most",
            mounted.layer()
        );
        // In-kernel mappings leave a window after the answer to a sendfile: microseconds if no other thread
        // wants the CPU.
        assert!(stale <= if in_kernel { 200 } else { 0 }, "{stale} of 2000");
        assert!(longest < 500_000, "stale for {longest} us");
    }
}

/// Entered through `child`: copies as `shutil.copyfile` does.
pub(crate) fn send_whole(from: &Path, to: &Path) {
    let (from, to) = (File::open(from).unwrap(), File::create(to).unwrap());
    calls::sendfile(&to, &from, 0, from.metadata().unwrap().len() as usize);
}

#[test]
fn what_sendfile_reads_is_read_once() {
    const SIZE: usize = 3_000_000;
    for way in Way::ALL {
        let Some(mounted) = Mounted::new(way.options()) else {
            return;
        };
        fs::write(mounted.source.join("data"), vec![7; SIZE]).unwrap();
        let target = mounted.source.join("copy");
        child::run("send_whole", &[&mounted.path("data"), &target]);
        assert_eq!(fs::read(&target).unwrap(), vec![7; SIZE]);
        let trace = mounted.finish();
        let read: i64 = trace
            .of("read", "data")
            .iter()
            .map(|call| call.result)
            .sum();
        // A page may be requested again if its reader did not run for long.
        let once = SIZE as i64;
        assert!((once..2 * once).contains(&read), "{way:?}: {read} bytes");
    }
}

/// Entered through `child`: copies in pieces that end within pages, as a server does for a slow client.
pub(crate) fn send_pieces(from: &Path, to: &Path) {
    let (from, to) = (File::open(from).unwrap(), File::create(to).unwrap());
    for piece in 0.. {
        if sendfile(&to, &from, None, 3000).unwrap() == 0 {
            break;
        }
        if piece % 3 == 0 {
            // The pages that were read ahead are dropped meanwhile.
            std::thread::sleep(Duration::from_millis(150));
        }
    }
}

#[test]
fn what_sendfile_reads_in_pieces_is_read_once() {
    const SIZE: usize = 26_500;
    for way in [Way::Passthrough, Way::Mmap] {
        let Some(mounted) = Mounted::new(way.options()) else {
            return;
        };
        fs::write(mounted.source.join("data"), vec![7; SIZE]).unwrap();
        let target = mounted.source.join("copy");
        child::run("send_pieces", &[&mounted.path("data"), &target]);
        assert_eq!(fs::read(&target).unwrap(), vec![7; SIZE]);
        let calls = mounted.finish().of("read", "data");
        let read: i64 = calls.iter().map(|call| call.result).sum();
        assert_eq!(read, SIZE as i64, "{way:?}: {calls:?}");
    }
}

#[test]
fn stores_through_mappings_are_never_exact_writes() {
    for options in modes() {
        let Some(mounted) = Mounted::new(options) else {
            return;
        };
        fs::write(mounted.source.join("data"), vec![0; 64 * 4096]).unwrap();
        child::run("store", &[&mounted.path("data")]);
        let stored = fs::read(mounted.source.join("data")).unwrap();
        assert!(stored.chunks(4096).all(|page| page.starts_with(b"mapped")));
        let in_kernel = mounted.layer() == FileLayer::DirectPassthrough;
        let trace = mounted.finish();
        let writes = trace.of("write", "data");
        assert_eq!(writes.is_empty(), in_kernel);
        assert!(
            writes
                .iter()
                .all(|write| write.fidelity == "writeback" && write.upid.is_none())
        );
        let lost = "SELECT COALESCE(SUM(value), 0) FROM losses WHERE counter = 'writeback_calls'";
        assert_eq!(trace.number(lost), writes.len() as i64);
    }
}

/// Appending applies to calls; a store through a mapping stays at its place.
#[test]
fn a_mapping_of_a_file_opened_for_appending_does_not_append() {
    for options in modes() {
        let Some(mounted) = Mounted::new(options) else {
            return;
        };
        fs::write(mounted.source.join("log"), vec![b'.'; 10_000]).unwrap();
        child::run("store_in_log", &[&mounted.path("log")]);
        let mut expected = vec![b'.'; 10_000];
        expected[5000..5006].copy_from_slice(b"stored");
        expected.extend_from_slice(b"appended");
        assert!(fs::read(mounted.source.join("log")).unwrap() == expected);
    }
}

#[test]
fn two_processes_append_without_loss() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    let path = mounted.path("log");
    File::create(&path).unwrap();
    let mut writers = ["aaaa\n", "bbbbbbb\n"].map(|line| {
        child::command("append", &[&path, Path::new(line)])
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    });
    for writer in &mut writers {
        assert!(writer.wait().unwrap().success());
    }
    let text = fs::read_to_string(mounted.source.join("log")).unwrap();
    let count = |line| text.lines().filter(|&found| found == line).count();
    assert_eq!((count("aaaa"), count("bbbbbbb")), (1000, 1000));
    assert_eq!(text.lines().count(), 2000);
}

#[test]
fn space_and_copies_go_through_as_themselves() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(mounted.path("data"))
        .unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    file.write_all_at(&[1; 1 << 20], 0).unwrap();
    let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(&file, punch, 65536, 65536).unwrap();
    assert_eq!(lseek(&file, 0, Whence::SeekHole), Ok(65536));
    assert_eq!(lseek(&file, 65536, Whence::SeekData), Ok(131_072));
    let copy = File::create(mounted.path("copy")).unwrap();
    let copied = copy_file_range(&file, Some(&mut 0), &copy, Some(&mut 0), 1 << 20);
    assert_eq!(copied, Ok(1 << 20));
    drop((file, copy));
    assert_eq!(
        fs::read(mounted.source.join("copy")).unwrap(),
        fs::read(mounted.source.join("data")).unwrap()
    );
    let trace = mounted.finish();
    assert_eq!(trace.of("fallocate", "data").len(), 2);
    assert_eq!(trace.of("lseek", "data").len(), 2);
    assert_eq!(trace.of("copy_from", "data")[0].result, 1 << 20);
    assert_eq!(trace.of("copy_to", "copy")[0].result, 1 << 20);
    assert_eq!(trace.of("write", "data").len(), 1);
    assert!(trace.of("write", "copy").is_empty());
    assert!(trace.of("read", "data").is_empty());
}

#[test]
fn a_file_can_be_made_without_a_name() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    let mut file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(&mounted.seen)
        .unwrap();
    file.write_all(b"content").unwrap();
    assert_eq!(fs::read_dir(&mounted.seen).unwrap().count(), 0);
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    let to = mounted.path("named");
    linkat(
        AT_FDCWD,
        from.as_str(),
        AT_FDCWD,
        &to,
        AtFlags::AT_SYMLINK_FOLLOW,
    )
    .unwrap();
    drop(file);
    assert_eq!(fs::read(mounted.source.join("named")).unwrap(), b"content");
    let trace = mounted.finish();
    assert_eq!(trace.of("create", "named").len(), 1);
    assert_eq!(trace.of("write", "named").len(), 1);
}

#[test]
fn open_flags_mean_what_they_mean() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    fs::write(mounted.source.join("data"), "content").unwrap();
    let open = |flags| {
        File::options()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(mounted.path("data"))
    };
    for flags in [libc::O_SYNC, libc::O_DSYNC, libc::O_NOATIME] {
        let file = open(flags).unwrap();
        let mut bytes = [0; 7];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"content");
        file.write_all_at(b"content", 0).unwrap();
    }
    let direct = |directory: &Path| {
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(directory.join("data"))?;
        file.read_at(&mut [0; 7], 0)
    };
    let code = |result: std::io::Result<usize>| result.map_err(|error| error.raw_os_error());
    assert_eq!(code(direct(&mounted.seen)), code(direct(&mounted.source)));
    let exclusive = File::create_new(mounted.path("data")).unwrap_err();
    assert_eq!(exclusive.raw_os_error(), Some(libc::EEXIST));
    let file = open(libc::O_TRUNC).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
    drop(file);
    let trace = mounted.finish();
    let flags =
        trace.texts("SELECT CAST(flags AS TEXT) FROM calls WHERE op = 'open' ORDER BY call_id");
    let direct = flags
        .iter()
        .filter(|flags| flags.parse::<i32>().unwrap() & libc::O_DIRECT != 0);
    assert_eq!(direct.count(), 1);
}

#[test]
fn the_opener_releases() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    fs::write(mounted.source.join("data"), "x").unwrap();
    let file = File::open(mounted.path("data")).unwrap();
    let again = file.try_clone().unwrap();
    let opener = nix::unistd::gettid().as_raw() as u32;
    // The close is by another thread, the release by this process.
    let closer = std::thread::spawn(move || {
        drop((file, again));
        nix::unistd::gettid().as_raw() as u32
    })
    .join()
    .unwrap();
    let trace = mounted.finish();
    let by = |op| {
        let calls = trace.of(op, "data").into_iter();
        calls.map(|call| call.upid).collect::<Vec<_>>()
    };
    assert_eq!(by("open"), [Some(opener)]);
    // A child that another test starts at this instant closes its inherited descriptors, too.
    let closings = by("flush").into_iter().filter(|by| *by == Some(closer));
    assert_eq!(closings.count(), 2);
    assert_eq!(by("release"), [Some(opener)]);
}

/// fcntl(2) may set and clear O_APPEND while a file is open.
#[test]
fn appending_may_begin_and_end() {
    for way in Way::ALL {
        let Some(mounted) = Mounted::new(way.options()) else {
            return;
        };
        for (name, first) in [("without", 0), ("with", libc::O_APPEND)] {
            let path = mounted.path(name);
            fs::write(mounted.source.join(name), b"abcdef").unwrap();
            let file = File::options().write(true).custom_flags(first).open(path);
            let file = file.unwrap();
            let write = |flags, byte: &[u8]| {
                fcntl(&file, FcntlArg::F_SETFL(flags)).unwrap();
                // On Linux pwrite(2) with O_APPEND appends.
                file.write_all_at(byte, 1).unwrap();
            };
            write(OFlag::empty(), b"V");
            write(OFlag::O_APPEND, b"W");
            write(OFlag::empty(), b"X");
            write(OFlag::O_APPEND, b"Y");
            let data = fs::read(mounted.source.join(name)).unwrap();
            assert_eq!(data, b"aXcdefWY", "{way:?}");
        }
    }
}

/// Through the page cache writes arrive in pieces, cut at the ends of pages of the file, or of memory that
/// was not touched yet.
#[test]
fn cached_writes_are_recorded_whole() {
    let Some(mounted) = Mounted::new(Way::Cached.options()) else {
        return;
    };
    let lengths = [
        [1000; 10].as_slice(),
        &[5000; 4],
        &[3_000_000, 3_000_000, 100, 5000],
    ]
    .concat();
    let mut file = File::create(mounted.path("data")).unwrap();
    for length in &lengths {
        file.write_all(&vec![1; *length]).unwrap();
    }
    let untouched = vec![0; 1 << 20];
    let slices = [352..65_888, 0..8, 0..1, 200_000..500_000, 0..5000];
    for slice in slices.clone() {
        file.write_all(&untouched[slice]).unwrap();
    }
    drop(file);
    let writes = mounted.finish().of("write", "data").into_iter();
    let recorded: Vec<_> = writes
        .map(|call| (call.offset.unwrap(), call.length.unwrap(), call.result))
        .collect();
    let mut at = 0;
    let made = lengths.into_iter().chain(slices.map(|slice| slice.len()));
    let made = made.map(|length| {
        let length = length as i64;
        at += length;
        (at - length, length, length)
    });
    assert_eq!(recorded, made.collect::<Vec<_>>());
}
