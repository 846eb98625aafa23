//! Compares calls thread by thread and file by file.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt::Write;

use nix::errno::Errno;

use crate::support::strace::data::{Call, Kind};
use crate::support::trace::Trace;

/// The observations of flowtrace.
pub(super) struct Seen {
    calls: Vec<Call>,
    /// All names of each file.
    names: HashMap<i64, BTreeSet<String>>,
    /// Files that each thread has not opened yet, in order.
    opens: HashMap<u32, VecDeque<i64>>,
    commands: HashMap<u32, String>,
}

impl Seen {
    pub(super) fn in_trace(trace: &Trace) -> Self {
        let number = |text: &str| text.parse::<i64>().ok();
        let mut seen = Seen {
            calls: Vec::new(),
            names: HashMap::new(),
            opens: HashMap::new(),
            commands: HashMap::new(),
        };
        for mut row in trace.rows("SELECT path, file_id FROM file_names") {
            let file = number(&row[1]).expect("a file");
            seen.names
                .entry(file)
                .or_default()
                .insert(row.swap_remove(0));
        }
        // Without the files that the kernel opens to execute a program.
        let opens = trace.rows(
            "SELECT COALESCE(c.tid, p.pid), c.file_id FROM calls AS c JOIN processes AS p USING (upid)
             WHERE c.op IN ('open', 'create', 'opendir') AND c.result >= 0 AND c.flags & 32 = 0
             ORDER BY c.start_ns, c.call_id",
        );
        for row in opens {
            let tid = number(&row[0]).expect("a thread") as u32;
            let file = number(&row[1]).expect("a file");
            seen.opens.entry(tid).or_default().push_back(file);
        }
        let unknown: i64 = trace.one(
            "SELECT COUNT(*) FROM calls WHERE op IN ('read', 'write') AND fidelity = 'exact'
               AND upid IS NULL",
        );
        assert_eq!(unknown, 0, "reads and writes by nobody");
        let calls = trace.rows(
            "SELECT COALESCE(c.tid, p.pid), c.file_id, c.op, c.offset, c.length, c.result, p.command
             FROM calls AS c JOIN processes AS p USING (upid)
             WHERE c.op IN ('read', 'write', 'copy_from', 'copy_to') AND c.fidelity = 'exact'
             ORDER BY c.start_ns, c.call_id",
        );
        for row in calls {
            let value = |at: usize| number(&row[at]).unwrap_or_else(|| panic!("{row:?}"));
            let result = value(5);
            let call = Call {
                tid: value(0) as u32,
                file: value(1),
                kind: match row[2].as_str() {
                    "read" => Kind::Read,
                    "write" => Kind::Write,
                    "copy_from" => Kind::CopyFrom,
                    _ => Kind::CopyTo,
                },
                offset: value(3) as u64,
                length: value(4) as u64,
                result: if result < 0 {
                    format!("{:?}", Errno::from_raw(-result as i32))
                } else {
                    result.to_string()
                },
            };
            seen.commands.insert(call.tid, row[6].clone());
            seen.calls.push(call);
        }
        seen
    }

    /// Takes the next file that a thread opened, if that file ever had this path. FIFOs and devices are
    /// opened by the kernel alone and do not appear here.
    pub(super) fn opened(&mut self, tid: u32, path: &str) -> Option<i64> {
        let opens = self.opens.get_mut(&tid)?;
        // A file made without a name has an empty one.
        let nameless = path.ends_with("//");
        let named = |file: &mut i64| {
            let names = self.names.get(file);
            nameless || names.is_some_and(|names| names.contains(path))
        };
        opens.pop_front_if(named)
    }
}

type Lists<'a> = BTreeMap<(u32, i64), Vec<&'a Call>>;

fn by_thread_and_file(calls: &[Call]) -> Lists<'_> {
    let mut lists = Lists::new();
    for call in calls {
        lists.entry((call.tid, call.file)).or_default().push(call);
    }
    lists
}

/// Panics with the first differences unless both saw the same; returns the number of calls.
#[track_caller]
pub(super) fn assert_same(strace: &[Call], seen: &Seen) -> usize {
    let (theirs, ours) = (by_thread_and_file(strace), by_thread_and_file(&seen.calls));
    let mut keys: Vec<_> = theirs.keys().chain(ours.keys()).copied().collect();
    keys.sort_unstable();
    keys.dedup();
    let mut report = String::new();
    let mut differing = 0;
    for key in keys {
        let theirs = theirs.get(&key).map_or(&[][..], Vec::as_slice);
        let ours = ours.get(&key).map_or(&[][..], Vec::as_slice);
        if let Err((at, instead)) = agree(theirs, ours) {
            differing += 1;
            if differing <= 5 {
                let (tid, file) = key;
                let names = seen.names.get(&file).into_iter().flatten();
                let names: Vec<_> = names.map(String::as_str).collect();
                let command = seen.commands.get(&tid).map_or("", String::as_str);
                let _ = writeln!(
                    report,
                    "\n{} (file {file}) by thread {tid}: {command:.200}\n  strace:\n{}  flowtrace:\n{}",
                    names.join(", "),
                    around(theirs, at),
                    around(ours, instead)
                );
            }
        }
    }
    assert!(differing == 0, "{differing} lists of calls differ:{report}");
    strace.len()
}

/// The calls around a position in a list.
fn around(calls: &[&Call], at: usize) -> String {
    let mut text = String::new();
    let end = calls.len().min(at + 4);
    for (n, call) in calls
        .iter()
        .enumerate()
        .take(end)
        .skip(at.saturating_sub(3))
    {
        let mark = if n == at { '>' } else { ' ' };
        let Call {
            kind,
            offset,
            length,
            result,
            ..
        } = call;
        let _ = writeln!(
            text,
            "  {mark} {n:5} {kind:?} {length} at {offset} = {result}"
        );
    }
    if at >= calls.len() {
        let _ = writeln!(text, "  > {:5} (end)", calls.len());
    }
    text
}

/// Compares two lists; `Err` has the positions of the first difference.
fn agree(strace: &[&Call], seen: &[&Call]) -> Result<(), (usize, usize)> {
    let mut next = 0;
    for (at, call) in strace.iter().enumerate() {
        next += taken(call, &seen[next..]).ok_or((at, next))?;
    }
    if next == seen.len() {
        Ok(())
    } else {
        Err((strace.len(), next))
    }
}

/// Number of calls in flowtrace's list that make up one call of strace; `None` if they do not agree.
fn taken(call: &Call, seen: &[&Call]) -> Option<usize> {
    let same_place = |seen: &&&Call| seen.kind == call.kind && seen.offset == call.offset;
    match call.kind {
        Kind::Read | Kind::Write => {
            let seen = seen.first().filter(same_place)?;
            (seen.length == call.length && seen.result == call.result).then_some(1)
        }
        // The kernel requests no more than the rest of the file, and nothing at its end.
        Kind::CopyFrom | Kind::CopyTo if call.result == "0" => {
            let seen = seen.first().filter(same_place);
            Some(usize::from(seen.is_some_and(|seen| seen.result == "0")))
        }
        Kind::CopyFrom | Kind::CopyTo => {
            let seen = seen.first().filter(same_place)?;
            (seen.length <= call.length && seen.result == call.result).then_some(1)
        }
        Kind::Fill => {
            let wanted: u64 = call.result.parse().unwrap_or(0);
            let (mut count, mut done) = (0, 0);
            while done < wanted {
                let piece = seen.get(count)?;
                if piece.kind != Kind::Write || piece.offset != call.offset + done {
                    return None;
                }
                done += piece.result.parse::<u64>().ok()?;
                count += 1;
            }
            (done == wanted).then_some(count)
        }
    }
}
