//! The transport of requests: io_uring if the kernel has it, else the device. With
//! FLOWTRACE_TEST_TRANSPORT=device this whole suite uses the device.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use flowtrace_tracer::fs::IoUring;
use nix::fcntl::{Flock, FlockArg};

use crate::mounted::{Mounted, Options, skip_here};

/// `FUSE_OVER_IO_URING`.
const OVER_IO_URING: u64 = 1 << 41;

#[test]
fn requests_come_over_io_uring_where_that_can_be_had() {
    let before = is_on();
    let can_be_had = IoUring::turn_on().is_ok();
    for io_uring in [true, false] {
        let Some(mounted) = Mounted::new(Options {
            io_uring,
            ..Options::default()
        }) else {
            return;
        };
        let expected = io_uring && can_be_had;
        if io_uring && !expected {
            skip_here("fuse.enable_uring cannot be turned on: requests are read");
        }
        fs::write(mounted.path("file"), "text").unwrap();
        let granted = mounted.granted_flags() & OVER_IO_URING != 0;
        assert_eq!(granted, expected);
        if expected {
            assert!(thread_names().any(|name| name.starts_with("fs-ring-")));
        }
        assert_eq!(mounted.finish().of("write", "file").len(), 1);
    }
    // Another test may have it turned on at this instant, for some ms.
    let end = Instant::now() + Duration::from_secs(60);
    while is_on() != before {
        assert!(Instant::now() < end, "enable_uring is not put back");
    }
}

fn is_on() -> Option<bool> {
    let text = fs::read_to_string("/sys/module/fuse/parameters/enable_uring").ok()?;
    Some(text.trim() == "Y")
}

fn thread_names() -> impl Iterator<Item = String> {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    threads.filter_map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")).ok())
}

/// Each caller waits in a request of its own, and the request that lets them go on must get through.
#[test]
fn any_number_of_callers_can_wait() {
    const CALLERS: usize = 100;
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    fs::write(mounted.source.join("file"), "").unwrap();
    let open = || File::open(mounted.path("file")).unwrap();
    let lock = |file, how| Flock::lock(file, how).map_err(|(_, errno)| errno).unwrap();
    for _ in 0..2 {
        let exclusive = lock(open(), FlockArg::LockExclusive);
        let (say, locked) = channel();
        thread::scope(|scope| {
            for _ in 0..CALLERS {
                let (file, say) = (open(), say.clone());
                scope.spawn(move || {
                    let shared = lock(file, FlockArg::LockShared);
                    say.send(()).unwrap();
                    shared.unlock().unwrap();
                });
            }
            // Calls of others are answered, whether all callers wait already or not.
            for number in 0..CALLERS {
                fs::write(mounted.path(number.to_string()), "").unwrap();
            }
            assert!(locked.try_recv().is_err());
            exclusive.unlock().unwrap();
        });
        assert_eq!(locked.try_iter().count(), CALLERS);
    }
    let trace = mounted.finish();
    assert_eq!(trace.of("flock", "file").len(), 2 * 2 * (CALLERS + 1));
}

/// Requests and answers of every size between nothing and more than one request, on page boundaries or not.
#[test]
fn data_of_any_size_are_whole() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    let data: Vec<u8> = (0..3_000_000_u32).map(|n| (n ^ n >> 8) as u8).collect();
    let file = File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(mounted.path("file"))
        .unwrap();
    let mut size = 1;
    while size < data.len() {
        for (size, offset) in [(size - 1, 0), (size, 1), (size + 1, 4095)] {
            file.write_all_at(&data[..size], offset).unwrap();
            let mut found = vec![0; size];
            file.read_exact_at(&mut found, offset).unwrap();
            assert!(found == data[..size], "{size} bytes at {offset}");
        }
        size *= 2;
    }
}
