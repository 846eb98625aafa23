use std::io::{Read, Write};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, gettid};

use super::*;

const SIZE: usize = 1 << 20;
const SLEEPS: usize = 20;

/// Each CPU is idle meanwhile, unless another program uses it.
#[test]
fn sleeps_are_reported_on_each_cpu() {
    if let Err(error) = Scheduler::open_with(SIZE, NAMED) {
        eprintln!("skipped: programs in the kernel: {error}");
        return;
    }
    let cpus = crate::cpus::array_length().unwrap() as usize;
    for named in [NAMED, 0] {
        for cpu in 0..cpus {
            let mut switches = Scheduler::open_with(SIZE, named).unwrap();
            let sleeper = std::thread::spawn(move || sleeps_on(cpu));
            if let Some(own) = sleeper.join().unwrap() {
                records_sleeps(&mut switches, own);
            }
        }
    }
}

#[test]
fn wakings_and_stages_of_requests_are_decoded() {
    let record = |state: u32, exit_state: u32| {
        let words = [1_000, 0x0080_0001 << 32 | 41].map(u64::to_ne_bytes);
        let halves = [state, exit_state].map(u32::to_ne_bytes);
        let record = [
            words.concat(),
            halves.concat(),
            77u64.to_ne_bytes().to_vec(),
        ];
        decode(&record.concat()).map(|sample| (sample.at, sample.tid, sample.what))
    };
    let interrupts = [None, Some(Interrupt::Soft), Some(Interrupt::Hard)];
    for (state, interrupt) in (0..).zip(interrupts) {
        let what = What::Woken {
            by: 0x0080_0001,
            interrupt,
        };
        let waking = Some((1_000, 41, what));
        assert_eq!(record(state, IS_WAKING), waking);
    }
    for (state, stage) in (0..).zip(STAGES) {
        let (device, sector) = (0x0080_0001, 77);
        let request = What::Request {
            stage,
            device,
            sector,
        };
        assert_eq!(record(state, IS_REQUEST), Some((1_000, 41, request)));
    }
    assert_eq!(record(3, IS_REQUEST), None);
}

/// A thread that sleeps is woken by an interrupt, one that reads from a pipe by the writer.
#[test]
fn wakings_have_their_waker() {
    let mut scheduler = match Scheduler::open_with(SIZE, NAMED) {
        Ok(scheduler) => scheduler,
        Err(error) => return eprintln!("skipped: programs in the kernel: {error}"),
    };
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let waits = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(3));
        reader.read_exact(&mut [0; 8]).unwrap();
        id()
    });
    std::thread::sleep(Duration::from_millis(50));
    writer.write_all(&[0; 8]).unwrap();
    let woken = waits.join().unwrap();
    let mut wakings = of(&mut scheduler, woken).into_iter();
    let mut waking = || {
        wakings.find_map(|sample| match sample.what {
            What::Woken { by, interrupt } => Some((by, interrupt.is_some())),
            _ => None,
        })
    };
    assert!(matches!(waking(), Some((_, true))));
    assert_eq!(waking(), Some((id(), false)));
}

/// Data come through the loopback device in an interrupt, which the call that sends them begins.
#[test]
fn senders_wake_their_receivers_on_the_same_machine() {
    let mut scheduler = match Scheduler::open_with(SIZE, NAMED) {
        Ok(scheduler) => scheduler,
        Err(error) => return eprintln!("skipped: programs in the kernel: {error}"),
    };
    let pause = || std::thread::sleep(Duration::from_millis(50));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (stream_to, datagram_to) = (
        listener.local_addr().unwrap(),
        datagrams.local_addr().unwrap(),
    );
    let waits = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 8]).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
        datagrams.recv(&mut [0; 8]).unwrap();
        id()
    });
    pause();
    let mut stream = std::net::TcpStream::connect(stream_to).unwrap();
    pause();
    stream.write_all(&[0; 8]).unwrap();
    pause();
    drop(stream);
    pause();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(&[0; 8], datagram_to).unwrap();
    let woken = waits.join().unwrap();
    let wakings = of(&mut scheduler, woken)
        .into_iter()
        .filter_map(|sample| match sample.what {
            What::Woken { by, interrupt } => Some((by, interrupt.is_some())),
            _ => None,
        });
    let by_sender = wakings.filter(|waking| *waking == (id(), false));
    // The connection, its data, its end, and the datagram.
    assert!(by_sender.count() >= 4);
}

fn id() -> u32 {
    gettid().as_raw().unsigned_abs()
}

/// `None`: there is no such CPU.
fn sleeps_on(cpu: usize) -> Option<u32> {
    let mut only = CpuSet::new();
    only.set(cpu).ok()?;
    sched_setaffinity(Pid::from_raw(0), &only).ok()?;
    for _ in 0..SLEEPS {
        std::thread::sleep(Duration::from_millis(3));
    }
    Some(id())
}

fn of(switches: &mut Scheduler, tid: u32) -> Vec<Sample> {
    let mut samples = Vec::new();
    assert_eq!(switches.drain(|sample| samples.push(sample)), 0);
    samples.retain(|sample| {
        sample.tid == tid || matches!(sample.what, What::Leaves { next, .. } if next == tid)
    });
    samples.sort_by_key(|sample| sample.at);
    samples
}

fn records_sleeps(switches: &mut Scheduler, own: u32) {
    const INTERRUPTIBLE: u16 = 1;
    let samples = of(switches, own);
    let count = |is_it: &dyn Fn(&Sample) -> bool| samples.iter().filter(|s| is_it(s)).count();
    let sleeps = |sample: &Sample| matches!(sample.what, What::Leaves { state, .. } if sample.tid == own && state == INTERRUPTIBLE);
    let runs = |sample: &Sample| matches!(sample.what, What::Leaves { next, .. } if next == own);
    let counts = [count(&sleeps), count(&runs)];
    assert!(
        counts.iter().all(|&count| count >= SLEEPS),
        "{counts:?} {samples:?}"
    );
    let left = samples.iter().filter(|sample| sample.tid == own);
    let left = left
        .filter(|sample| matches!(sample.what, What::Leaves { .. }))
        .count();
    assert!(count(&runs).abs_diff(left) <= 1, "{samples:?}");
}

#[test]
fn states_are_reported_as_by_the_tracepoint() {
    let reported = state::reported;
    assert_eq!(reported(0, 0), 0);
    assert_eq!(reported(0x2001, 0), 1, "freezable");
    assert_eq!(reported(0x102, 0), state::UNINTERRUPTIBLE, "killable");
    assert_eq!(reported(0x402, 0) & state::UNINTERRUPTIBLE, 0, "idle");
    assert_eq!(reported(0x80, 0x20) & !state::DEAD, 0, "zombie");
    assert_ne!(reported(0x80, 0x10) & state::DEAD, 0, "dead");
    assert_eq!(reported(0x108, 0), state::TRACED);
    assert_eq!(reported(0x8000, 0), state::UNINTERRUPTIBLE, "frozen");
}

#[test]
fn whatever_is_cut_short_is_none() {
    let whole = [7; BYTES];
    assert!(decode(&whole).is_some());
    for length in 0..whole.len() {
        assert_eq!(decode(&whole[..length]), None, "{length}");
    }
}

#[test]
fn the_call_that_a_thread_waits_in_is_reported() {
    let mut switches = match Scheduler::open_with(SIZE, NAMED) {
        Ok(switches) => switches,
        Err(error) => return eprintln!("skipped: programs in the kernel: {error}"),
    };
    let (reader, writer) = std::io::pipe().unwrap();
    let pipe = nix::sys::stat::fstat(&reader).unwrap();
    let waits = std::thread::spawn(move || {
        let mut sources = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
        let at = sources.as_ptr() as u64;
        let ready = poll(&mut sources, PollTimeout::from(3u8)).unwrap();
        let read = (&reader).read(&mut [0; 8]).unwrap();
        (id(), at, ready + read as i32)
    });
    std::thread::sleep(Duration::from_millis(30));
    drop(writer);
    let (own, at, none) = waits.join().unwrap();
    assert_eq!(none, 0);
    let samples = of(&mut switches, own);
    let before_wait = samples.windows(2).find_map(|two| match two[1].what {
        What::Leaves { state: 1, .. } if two[1].tid == own => Some(two[0]),
        _ => None,
    });
    let call = before_wait.expect("that it waited");
    assert_eq!(call.number, libc::SYS_poll as u32);
    assert!(
        matches!(call.what, What::In(call) if call.arguments[..3] == [at, 1, 3]),
        "{call:?}"
    );
    let read = samples.iter().find_map(|sample| match sample.what {
        What::In(call) if sample.number == libc::SYS_read as u32 => Some(call.files),
        _ => None,
    });
    let [Some(file), None] = read.expect("that it waited") else {
        panic!("{read:?}");
    };
    assert_eq!(file.mode & libc::S_IFMT, libc::S_IFIFO);
    assert_eq!(file.inode.number, pipe.st_ino);
}
