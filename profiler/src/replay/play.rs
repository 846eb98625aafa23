//! Plays a workload: one thread per process, calls through the real system.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use flowtrace_render::units::bytes as bytes_text;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};
use nix::sys::stat::Mode;
use nix::sys::statvfs::statvfs;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{linkat, mkfifo};
use serde::Serialize;

use super::{Act, Call, CallKind, Totals, Workload};

/// Longest wait for an earlier call. After that the call is made all the same.
const PATIENCE: Duration = Duration::from_secs(30);
/// Stack of a thread that plays a process, bytes.
const STACK: usize = 256 << 10;
/// Most bytes that are read or written at once. A longer call is played as several, so that the need of
/// memory does not depend on the trace.
const BLOCK: usize = 1 << 20;

/// Deviations from the recorded run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failed {
    /// Number of calls that failed.
    pub calls: u64,
    /// The reason of the first failure.
    pub first: Option<String>,
    /// Number of calls made before the calls for which they should have waited, since these took too
    /// long.
    pub impatient: u64,
}

/// Times that the threads of a replay used, to compare with those of the recorded processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Used {
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Time for which the threads were runnable and waited for a CPU, ns; 0 if the kernel does not
    /// report it.
    pub run_queue_ns: u64,
}

/// Result of a replay: its duration without the preparation, and what it did.
pub type Played = (Duration, Totals, Failed, Used);

struct Stage {
    root: PathBuf,
    workload: Workload,
    /// Bytes that are written.
    block: Vec<u8>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Value of each counter.
    done: Vec<u32>,
    ended: Vec<bool>,
    totals: Totals,
    failed: Failed,
    used: Used,
}

/// Plays a workload in the directory `root`, which is empty.
///
/// # Errors
/// When the files that it begins with do not fit or cannot be made, or no thread can be started.
pub fn play(workload: Workload, root: &Path) -> io::Result<Played> {
    fits(&workload, root)?;
    for directory in &workload.directories {
        fs::create_dir_all(root.join(directory))?;
    }
    let block = vec![0x5a; BLOCK];
    for (path, size) in &workload.files {
        let path = root.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let file = File::create(&path)?;
        // The bytes are written, since nothing would be read from the disk for a hole.
        for (at, part) in pieces(0, *size) {
            file.write_all_at(&block[..part], at)?;
        }
    }
    let state = State {
        done: vec![0; workload.counters],
        ended: vec![false; workload.actors.len()],
        ..State::default()
    };
    let roots: Vec<usize> = (0..workload.actors.len())
        .filter(|&at| workload.actors[at].parent.is_none())
        .collect();
    let stage = Arc::new(Stage {
        root: root.to_owned(),
        workload,
        block,
        state: Mutex::new(state),
        changed: Condvar::new(),
    });
    let begin = Instant::now();
    let mut threads = Vec::new();
    for at in roots {
        threads.push(start(&stage, at, HashMap::new())?);
    }
    for thread in threads {
        // A thread that panicked has already reported it.
        let _ = thread.join();
    }
    let taken = begin.elapsed();
    let state = stage.lock();
    Ok((taken, state.totals, state.failed.clone(), state.used))
}

/// Fails if the disk of `root` has too little free space for the files with which a workload begins.
/// They are written in full, and a trace from an unknown source may have files of any size.
fn fits(workload: &Workload, root: &Path) -> io::Result<()> {
    let stat = statvfs(root)?;
    let free = stat.blocks_available() as u64 * stat.fragment_size() as u64;
    let sizes = workload.files.values();
    let needed = sizes.fold(0, |sum: u64, &size| sum.saturating_add(size));
    if needed <= free {
        return Ok(());
    }
    let bytes = |bytes: u64| bytes_text(i64::try_from(bytes).unwrap_or(i64::MAX));
    let (needed, free) = (bytes(needed), bytes(free));
    Err(io::Error::new(
        io::ErrorKind::StorageFull,
        format!("the files that it begins with need {needed}, and {free} are free"),
    ))
}

/// The position and length of each block of a range.
fn pieces(offset: u64, length: u64) -> impl Iterator<Item = (u64, usize)> {
    let starts = (0..length).step_by(BLOCK);
    starts.map(move |at| {
        let part = (length - at).min(BLOCK as u64);
        (offset + at, part as usize)
    })
}

/// The open files of a process, by number of the file in the workload.
type Files = HashMap<usize, Vec<Opened>>;

/// An open file. One file may be open several times, not each time for writing.
#[derive(Clone)]
struct Opened {
    file: Arc<File>,
    writes: bool,
}

fn start(stage: &Arc<Stage>, at: usize, files: Files) -> io::Result<std::thread::JoinHandle<()>> {
    let stage = Arc::clone(stage);
    std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || {
            let mut actor = Performer {
                stage: &stage,
                files,
                buffer: Vec::new(),
                children: Vec::new(),
                budget: Duration::ZERO,
                overslept: Duration::ZERO,
            };
            actor.perform(at);
            let used = used();
            let mut state = stage.lock();
            state.used.cpu_ns += used.cpu_ns;
            state.used.run_queue_ns += used.run_queue_ns;
            state.ended[at] = true;
            drop(state);
            stage.changed.notify_all();
            for child in actor.children {
                let _ = child.join();
            }
        })
}

impl Stage {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `is_so` returns true. Returns false if that takes too long.
    fn wait(&self, is_so: impl Fn(&State) -> bool) -> bool {
        let state = self.lock();
        let waited = self
            .changed
            .wait_timeout_while(state, PATIENCE, |state| !is_so(state));
        let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(state);
        !timeout.timed_out()
    }
}

struct Performer<'a> {
    stage: &'a Arc<Stage>,
    /// The open files of the process. A child begins with those of its parent.
    files: Files,
    /// Buffer for bytes that are read.
    buffer: Vec<u8>,
    children: Vec<std::thread::JoinHandle<()>>,
    /// CPU time that the process should have used by now, its calls included.
    budget: Duration,
    overslept: Duration,
}

impl Performer<'_> {
    fn perform(&mut self, at: usize) {
        let stage = Arc::clone(self.stage);
        for act in &stage.workload.actors[at].acts {
            match act {
                Act::Think { compute_ns, gap_ns } => {
                    self.budget += Duration::from_nanos(*compute_ns);
                    let gap = Duration::from_nanos(*gap_ns);
                    // Without a clock of the thread, the CPU time of its calls is not known.
                    let left = match cpu_time() {
                        Some(used) => self.budget.saturating_sub(used),
                        None => Duration::from_nanos(*compute_ns),
                    };
                    let left = left.min(gap);
                    compute(left);
                    self.rest(gap - left);
                }
                Act::Fork(child) => match start(&stage, *child, self.files.clone()) {
                    Ok(thread) => self.children.push(thread),
                    Err(error) => {
                        let mut state = stage.lock();
                        state.ended[*child] = true;
                        fail(&mut state, format!("cannot start a thread: {error}"));
                    }
                },
                Act::Wait(child) => {
                    // The wait has no limit: the child is a thread of this process, and will end.
                    while !stage.wait(|state| state.ended[*child]) {}
                }
                Act::Call(call) => self.call(call),
            }
        }
    }

    /// Sleeps for `time`, less the time overslept before, since a sleep always lasts too long.
    fn rest(&mut self, time: Duration) {
        if self.overslept >= time {
            self.overslept -= time;
            return;
        }
        let wanted = time - self.overslept;
        let begin = Instant::now();
        std::thread::sleep(wanted);
        self.overslept = begin.elapsed().saturating_sub(wanted);
    }

    fn call(&mut self, call: &Call) {
        let is_so = |state: &State| {
            let mut after = call.after.iter();
            after.all(|after| state.done[after.counter] >= after.count)
        };
        let is_patient = call.after.is_empty() || self.stage.wait(is_so);
        let result = self.make(call);
        let mut state = self.stage.lock();
        state.failed.impatient += u64::from(!is_patient);
        for &counter in &call.advances {
            state.done[counter] = state.done[counter].saturating_add(1);
        }
        match result {
            Ok((read, written)) => {
                state.totals.calls += 1;
                state.totals.read_bytes += read;
                state.totals.write_bytes += written;
            }
            Err(error) => fail(&mut state, format!("{}: {error}", call.path)),
        }
        drop(state);
        if !call.advances.is_empty() {
            self.stage.changed.notify_all();
        }
    }

    /// Makes a call and returns the bytes read and written.
    fn make(&mut self, call: &Call) -> io::Result<(u64, u64)> {
        let path = self.stage.root.join(&call.path);
        match &call.kind {
            CallKind::Open {
                write,
                truncate,
                create,
            } => {
                let mut options = OpenOptions::new();
                options
                    .read(true)
                    .write(*write || *create)
                    .truncate(*truncate && *write);
                // A file that was new in the trace may exist now if two processes made it at once.
                options.create(*create);
                self.has_opened(call, options.open(&path)?, *write || *create);
            }
            CallKind::MakeUnnamed => {
                let mut options = OpenOptions::new();
                options.read(true).write(true);
                let flags = OFlag::O_TMPFILE.bits();
                self.has_opened(call, options.custom_flags(flags).open(&path)?, true);
            }
            CallKind::Flush => {
                let opened = self.files.get(&call.file).and_then(|all| all.last());
                drop(opened.map(|opened| opened.file.try_clone()).transpose()?);
            }
            CallKind::Close => self.close(call.file),
            CallKind::Read { offset, length } => {
                let file = self.opened(call, &path, false)?;
                self.buffer
                    .resize(self.buffer.len().max(BLOCK.min(*length)), 0);
                let mut read = 0;
                for (at, part) in pieces(*offset, *length as u64) {
                    let got = file.read_at(&mut self.buffer[..part], at)?;
                    read += got as u64;
                    if got < part {
                        break;
                    }
                }
                return Ok((read, 0));
            }
            CallKind::Write { offset, length } => {
                let file = self.opened(call, &path, true)?;
                for (at, part) in pieces(*offset, *length as u64) {
                    file.write_all_at(&self.stage.block[..part], at)?;
                }
                return Ok((0, *length as u64));
            }
            CallKind::Truncate(size) => self.opened(call, &path, true)?.set_len(*size)?,
            CallKind::Sync => self.opened(call, &path, false)?.sync_all()?,
            CallKind::MakeDirectory => fs::create_dir(&path)?,
            CallKind::MakeFile => drop(File::create_new(&path)?),
            CallKind::MakeFifo => mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?,
            CallKind::MakeLink => symlink("not-recorded", &path)?,
            CallKind::RemoveDirectory => fs::remove_dir(&path)?,
            CallKind::Remove => fs::remove_file(&path)?,
            CallKind::Rename(to) => fs::rename(&path, self.stage.root.join(to))?,
            CallKind::Link(to) => fs::hard_link(&path, self.stage.root.join(to))?,
            CallKind::Name => {
                let file = self.opened(call, &path, false)?;
                let link = format!("/proc/self/fd/{}", file.as_raw_fd());
                linkat(
                    AT_FDCWD,
                    &*link,
                    AT_FDCWD,
                    &path,
                    AtFlags::AT_SYMLINK_FOLLOW,
                )?;
            }
            CallKind::List => {
                for entry in fs::read_dir(&path)? {
                    entry?;
                }
            }
            CallKind::Stat => {
                fs::symlink_metadata(&path)?;
            }
        }
        Ok((0, 0))
    }

    /// The process's open file for a call. If the trace has no open of it, the file at the call's path
    /// is opened.
    fn opened(&mut self, call: &Call, path: &Path, write: bool) -> io::Result<Arc<File>> {
        let mut all = self.files.get(&call.file).into_iter().flatten().rev();
        if let Some(opened) = all.find(|opened| opened.writes || !write) {
            return Ok(Arc::clone(&opened.file));
        }
        let file = OpenOptions::new().read(true).write(write).open(path)?;
        Ok(self.has_opened(call, file, write))
    }

    fn has_opened(&mut self, call: &Call, file: File, writes: bool) -> Arc<File> {
        let file = Arc::new(file);
        let all = self.files.entry(call.file).or_default();
        all.push(Opened {
            file: Arc::clone(&file),
            writes,
        });
        file
    }

    /// Closes one of the open files. The trace does not say which one was closed; the one that allows
    /// least is taken.
    fn close(&mut self, file: usize) {
        let Some(all) = self.files.get_mut(&file) else {
            return;
        };
        let least = all.iter().position(|opened| !opened.writes);
        all.remove(least.unwrap_or(0));
        if all.is_empty() {
            self.files.remove(&file);
        }
    }
}

fn fail(state: &mut State, reason: String) {
    state.failed.calls += 1;
    state.failed.first.get_or_insert(reason);
}

/// Keeps a CPU busy for `time` of CPU time, not of elapsed time. A machine that is busy or has fewer
/// CPUs then takes longer, as it would for the program.
fn compute(time: Duration) {
    let begin = Instant::now();
    let used = cpu_time();
    // Without a clock of the thread, elapsed time is taken.
    let done = || match (used, cpu_time()) {
        (Some(before), Some(now)) => now.saturating_sub(before) >= time,
        _ => begin.elapsed() >= time,
    };
    let mut x = 1u64;
    while !time.is_zero() && !done() {
        for _ in 0..2000 {
            x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

/// Times that this thread has used until now.
fn used() -> Used {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let mut numbers = text.split_whitespace().map(str::parse);
    let mut next = || numbers.next().and_then(Result::ok);
    let cpu_ns = next();
    Used {
        cpu_ns: match cpu_time() {
            Some(time) => u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
            None => cpu_ns.unwrap_or(0),
        },
        run_queue_ns: next().unwrap_or(0),
    }
}

/// CPU time of this thread. `/proc` would have it only as of the last tick.
fn cpu_time() -> Option<Duration> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?;
    Some(time.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_do_not_fit_are_refused_before_any_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let sizes = [("a", 1), ("b", u64::MAX), ("c", 1 << 60)];
        let workload = Workload {
            files: sizes.map(|(name, size)| (name.to_owned(), size)).into(),
            ..Workload::default()
        };
        let error = play(workload, directory.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let said = error.to_string();
        assert!(
            said.starts_with("the files that it begins with need 9.2 EB, and "),
            "{said}"
        );
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn long_calls_are_played_by_blocks() {
        let block = BLOCK as u64;
        let all = |offset, length| pieces(offset, length).collect::<Vec<_>>();
        assert_eq!(all(7, 0), []);
        assert_eq!(all(7, block), [(7, BLOCK)]);
        assert_eq!(all(7, block + 1), [(7, BLOCK), (7 + block, 1)]);
    }
}
