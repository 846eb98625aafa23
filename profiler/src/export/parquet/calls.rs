//! The view `calls`, which may have a hundred million rows. It is read from its table, and the names of
//! files are looked up here instead of once per row in SQL.
//!
//! Several threads take one stretch of time after the other. Each stretch has about the same number of
//! calls, so that the distribution of the calls over time does not matter. Every thread has its own
//! connection and writes parts of its own.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use ahash::AHashMap;
use flowtrace_schema::{CallRow, Fidelity, FileRow, Op, Trace};
use parquet::data_type::ByteArray;

use super::accesses::Accesses;
use super::column::Column;
use super::layout::{Error, GROUP, Hosts, Layout, MOST_WAITING, Rows};
use super::part::Parts;

/// Most threads. With more of them the disk limits the rate.
const MOST_THREADS: usize = 16;
/// Bytes of a trace that justify one more thread.
const WORTH_A_THREAD: u64 = 16 << 20;
/// Number of file names that a thread keeps in its cache.
const NAMES_AT_HAND: usize = 1 << 16;

/// The written calls, and their sums.
pub(super) struct Calls {
    pub(super) rows: u64,
    pub(super) files: Vec<PathBuf>,
    pub(super) accesses: Accesses,
}

/// Writes all calls. The columns are those of the view, in its order.
pub(super) fn write(
    trace: &Trace,
    hosts: &Hosts,
    layout: &Layout,
    dataset: &Path,
) -> Result<Calls, Error> {
    let names = Names::of(trace)?;
    let processes: AHashMap<i64, Process<'_>> = trace
        .processes()?
        .iter()
        .map(|process| {
            let host = hosts.of_process.get(&process.upid).map(|host| &**host);
            let pid = Some(process.pid);
            (process.upid, Process { pid, host })
        })
        .collect();
    let path = trace.path();
    let size = path.metadata().map_or(0, |file| file.len());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = usize::try_from(size / WORTH_A_THREAD).unwrap_or(usize::MAX);
    let threads = threads.clamp(1, cores.min(MOST_THREADS));
    let stretches = Stretches {
        next: Mutex::new(Some(i64::MIN)),
    };
    let done: Vec<Result<Done<'_>, Error>> = thread::scope(|scope| {
        let begin = |number: usize| {
            let (names, processes, stretches) = (&names, &processes, &stretches);
            scope.spawn(move || {
                let own = Trace::open(path)?;
                let name = match threads {
                    1 => "part.parquet".to_owned(),
                    _ => format!("part-{number}.parquet"),
                };
                let parts = Parts::new(dataset, name, &layout.view, &layout.columns);
                let encoder = Encoder {
                    names: names.at_hand(),
                    processes,
                    last: (None, Process::default(), None),
                    accesses: Accesses::default(),
                };
                encoder.run(&own, stretches, layout, parts, (number, threads))
            })
        };
        let all: Vec<_> = (0..threads).map(begin).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        all.into_iter().map(join).collect()
    });
    // Files are replaced only if all new ones are complete.
    let done: Vec<Done<'_>> = done.into_iter().collect::<Result<_, _>>()?;
    let mut total = Calls {
        rows: 0,
        files: Vec::new(),
        accesses: Accesses::default(),
    };
    for (rows, parts, accesses) in done {
        total.rows += rows;
        total.files.extend(parts.publish()?);
        match total.accesses.is_empty() {
            true => total.accesses = accesses,
            false => total.accesses.join(accesses),
        }
    }
    Ok(total)
}

/// Rows, files, and sums of one thread.
type Done<'a> = (u64, Parts<'a>, Accesses);

/// The calls that no thread has taken yet.
struct Stretches {
    /// Begin of the next stretch; `None` if all are taken.
    next: Mutex<Option<i64>>,
}

impl Stretches {
    /// The next stretch of time, with as many calls as two row groups.
    fn take(&self, trace: &Trace) -> Result<Option<std::ops::RangeInclusive<i64>>, Error> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        // If this fails, the other threads find no further stretch.
        let Some(begin) = next.take() else {
            return Ok(None);
        };
        *next = trace.call_after(begin, 2 * GROUP as u32)?;
        let end = next.map_or(i64::MAX, |next| next - 1);
        Ok(Some(begin..=end))
    }
}

/// Values that all calls of one process share.
#[derive(Clone, Copy, Default)]
struct Process<'a> {
    pid: Option<i64>,
    host: Option<&'a str>,
}

/// The work of one thread.
struct Encoder<'a> {
    names: NamesAtHand<'a>,
    processes: &'a AHashMap<i64, Process<'a>>,
    /// The process of the row before, since many rows in sequence are of one process, and the place of
    /// its rows.
    last: (Option<i64>, Process<'a>, Option<usize>),
    accesses: Accesses,
}

impl<'a> Encoder<'a> {
    fn run(
        mut self,
        trace: &Trace,
        stretches: &Stretches,
        layout: &'a Layout,
        mut parts: Parts<'a>,
        (number, threads): (usize, usize),
    ) -> Result<Done<'a>, Error> {
        let mut failed = None;
        let mut rows = Rows::new(
            layout,
            (MOST_WAITING / threads).max(GROUP),
            |host, columns: &mut Vec<Column>| {
                if let Err(error) = parts.write(host, columns) {
                    failed = Some(error);
                    return false;
                }
                columns.iter_mut().for_each(Column::clear);
                true
            },
        );
        let mut goes_on = true;
        while goes_on && let Some(stretch) = stretches.take(trace)? {
            trace.for_each_call_within(stretch, |call| {
                let Some(op) = call.op.filter(|_| goes_on) else {
                    return;
                };
                let place = self.place(&mut rows, call.upid);
                self.add(rows.at(place), call, op);
                self.accesses.add(call, op);
                goes_on = rows.added(place);
            })?;
        }
        let count = rows.finish(number == 0);
        match failed {
            Some(error) => Err(error),
            None => {
                parts.close()?;
                Ok((count, parts, self.accesses))
            }
        }
    }

    fn place<W>(&mut self, rows: &mut Rows<'a, W>, upid: Option<i64>) -> usize
    where
        W: FnMut(Option<&'a str>, &mut Vec<Column>) -> bool,
    {
        if let (last, _, Some(place)) = self.last
            && last == upid
        {
            return place;
        }
        let known = upid.and_then(|upid| self.processes.get(&upid).copied());
        let process = known.unwrap_or_default();
        let place = rows.place(process.host);
        self.last = (upid, process, Some(place));
        place
    }

    fn add(&mut self, columns: &mut [Column], call: &CallRow, op: Op) {
        let pid = self.last.1.pid;
        let mut columns = columns.iter_mut();
        let mut next = || columns.next().expect("the view has these columns");
        next().integer(Some(call.start_ns));
        next().integer(Some(call.start_ns));
        next().integer(Some(call.duration_ns));
        next().integer(call.upid);
        next().integer(call.tid.or(pid));
        next().text(Some(self.names.ops[op as usize].clone()));
        next().integer(call.file_id);
        next().text(call.file_id.and_then(|id| self.names.file(id)));
        next().integer(call.offset);
        next().integer(call.length);
        next().integer(Some(call.result));
        next().text(Some(self.names.fidelities[call.fidelity as usize].clone()));
        next().integer(call.flags);
    }
}

/// The name of each file, as the view `files` has it.
struct Names {
    files: AHashMap<i64, String>,
}

impl Names {
    fn of(trace: &Trace) -> Result<Names, Error> {
        let named = |file: FileRow| Some((file.file_id, file.path?));
        Ok(Names {
            files: trace.files()?.into_iter().filter_map(named).collect(),
        })
    }

    /// A cache for one thread. Threads that shared the texts would block each other when they count
    /// references.
    fn at_hand(&self) -> NamesAtHand<'_> {
        let op = |number| Op::from_number(number).map_or("", Op::name);
        NamesAtHand {
            names: self,
            ops: (0..64).map(|number| ByteArray::from(op(number))).collect(),
            fidelities: Fidelity::ALL
                .iter()
                .map(|fidelity| ByteArray::from(fidelity.name()))
                .collect(),
            files: AHashMap::new(),
        }
    }
}

/// A thread's cache of texts that many rows share.
struct NamesAtHand<'a> {
    names: &'a Names,
    ops: Vec<ByteArray>,
    fidelities: Vec<ByteArray>,
    files: AHashMap<i64, Option<ByteArray>>,
}

impl NamesAtHand<'_> {
    fn file(&mut self, id: i64) -> Option<ByteArray> {
        if self.files.len() >= NAMES_AT_HAND && !self.files.contains_key(&id) {
            self.files.clear();
        }
        let names = self.names;
        let find = || {
            let path = names.files.get(&id)?;
            Some(ByteArray::from(path.as_bytes().to_vec()))
        };
        self.files.entry(id).or_insert_with(find).clone()
    }
}
