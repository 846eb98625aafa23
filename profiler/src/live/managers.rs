//! How far a make or a manager of workflows is, where it says so.
//!
//! Snakemake writes `3 of 10 steps (30%) done` into its log; Nextflow notes each task that it submits and that
//! ends, and does not know how many there will be; make says nothing, so that only its finished recipes are
//! counted. Nothing is guessed.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use flowtrace_schema::Trace;

use super::images::Images;
use super::picture::ManagerRow;
use super::steps::Steps;

/// Most bytes of a log that are read at once, and most that are kept of a line.
const MOST: u64 = 1 << 20;
/// Fewest steps from whose times the end is estimated.
const FEWEST: usize = 5;

/// The managers of a run.
#[derive(Debug, Default)]
pub(super) struct Managers {
    /// Wall clock at time 0; `None`: the trace is of another machine, whose files are not here.
    epoch: Option<SystemTime>,
    is_read: bool,
    logs: HashMap<i64, Log>,
    /// Times at which steps were seen to be done, by manager.
    done: HashMap<i64, Vec<(i64, i64)>>,
}

/// A log that is read as it grows.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    read: u64,
    rest: String,
    done: i64,
    total: Option<i64>,
    submitted: i64,
}

impl Managers {
    /// Reads the machine and the begin of the run, once they are there.
    fn read_begin(&mut self, trace: &Trace) {
        let machines = trace.machines().unwrap_or_default();
        let own = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boots: Vec<_> = machines
            .iter()
            .map(|machine| machine.boot_id.as_deref())
            .collect();
        let is_here = boots == [Some(own.trim())];
        let runs = trace.runs().unwrap_or_default();
        self.is_read = !runs.is_empty();
        let epoch = runs.first().and_then(|run| run.started_unix_ns);
        let epoch = epoch
            .and_then(|ns| u64::try_from(ns).ok())
            .filter(|_| is_here);
        self.epoch = epoch.map(|ns| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns));
    }

    /// The living managers, the first ones that were started.
    pub(super) fn rows(
        &mut self,
        trace: &Trace,
        images: &Images,
        steps: &Steps,
        now_ns: i64,
    ) -> Vec<ManagerRow> {
        if !self.is_read {
            self.read_begin(trace);
        }
        let mut rows = Vec::new();
        let living = images.living();
        let mut seen: HashSet<&str> = HashSet::new();
        for &place in &living {
            let image = images.get(place);
            let name = &*steps.rows[image.step].name;
            let is_known = matches!(name, "snakemake" | "nextflow" | "make" | "gmake" | "ninja");
            // Of several makes one runs the others.
            if !is_known || !seen.insert(name) {
                continue;
            }
            let (done, total, note) = match name {
                "snakemake" => match self.log(
                    image.program.upid,
                    image.program.cwd.as_deref(),
                    image.start_ns,
                    snakemake_log,
                ) {
                    Some(log) => (log.done, log.total, "by its log"),
                    None => continue,
                },
                "nextflow" => match self.log(
                    image.program.upid,
                    image.program.cwd.as_deref(),
                    image.start_ns,
                    nextflow_log,
                ) {
                    Some(log) => (
                        log.done,
                        None,
                        "by its log; it does not say how many tasks there will be",
                    ),
                    None => continue,
                },
                _ => (
                    images.children_done(name, steps),
                    None,
                    "recipes; it does not say how many there will be",
                ),
            };
            let submitted = self
                .logs
                .get(&image.program.upid)
                .map(|log| log.submitted)
                .filter(|&n| n > 0);
            let times = self.done.entry(image.program.upid).or_default();
            if times.last().is_none_or(|&(_, last)| last < done) {
                times.push((now_ns, done));
            }
            let left = total.map(|total| (total - done).max(0));
            let estimate = left.and_then(|left| remaining(image.start_ns, times, left, now_ns));
            rows.push(ManagerRow {
                name: name.to_owned(),
                pid: image.pid,
                done,
                total,
                submitted,
                left_ns: estimate.map(|(ns, _)| ns),
                error_ns: estimate.map(|(_, error)| error),
                note: note.to_owned(),
            });
        }
        rows
    }

    fn log(
        &mut self,
        upid: i64,
        cwd: Option<&str>,
        start_ns: i64,
        find: fn(&Path, SystemTime) -> Option<PathBuf>,
    ) -> Option<&Log> {
        if !self.logs.contains_key(&upid) {
            let begin = self.epoch? + Duration::from_nanos(u64::try_from(start_ns).ok()?);
            let path = find(Path::new(cwd?), begin - Duration::from_secs(1))?;
            self.logs.insert(upid, Log::new(path));
        }
        let log = self.logs.get_mut(&upid)?;
        log.advance();
        Some(log)
    }
}

/// The newest log that Snakemake wrote into since a time.
fn snakemake_log(cwd: &Path, since: SystemTime) -> Option<PathBuf> {
    let entries = fs::read_dir(cwd.join(".snakemake/log")).ok()?;
    let logs = entries.flatten().filter_map(|entry| {
        let changed = entry.metadata().ok()?.modified().ok()?;
        let is_log = entry
            .file_name()
            .to_string_lossy()
            .ends_with(".snakemake.log");
        (is_log && changed >= since).then(|| (changed, entry.path()))
    });
    logs.max().map(|(_, path)| path)
}

fn nextflow_log(cwd: &Path, since: SystemTime) -> Option<PathBuf> {
    let path = cwd.join(".nextflow.log");
    let changed = path.metadata().ok()?.modified().ok()?;
    (changed >= since).then_some(path)
}

impl Log {
    fn new(path: PathBuf) -> Log {
        Log {
            path,
            read: 0,
            rest: String::new(),
            done: 0,
            total: None,
            submitted: 0,
        }
    }

    /// Reads the lines that have come. A log that cannot be read stays as it is.
    fn advance(&mut self) {
        let is_file = self
            .path
            .symlink_metadata()
            .is_ok_and(|about| about.is_file());
        let Some(mut file) = is_file.then(|| File::open(&self.path).ok()).flatten() else {
            return;
        };
        let mut bytes = Vec::new();
        let read = file
            .seek(SeekFrom::Start(self.read))
            .and_then(|_| file.take(MOST).read_to_end(&mut bytes));
        if read.is_err() {
            return;
        }
        self.read += bytes.len() as u64;
        self.rest += &String::from_utf8_lossy(&bytes);
        let text = std::mem::take(&mut self.rest);
        let (lines, rest) = text.rsplit_once('\n').unwrap_or(("", &text));
        lines.lines().for_each(|line| self.line(line.trim()));
        if (rest.len() as u64) < MOST {
            self.rest = rest.to_owned();
        }
    }

    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            // Snakemake: "3 of 10 steps (30%) done", and before the first step its list of jobs.
            [done, "of", total, "steps", _, "done"] => {
                if let (Ok(done), Ok(total)) = (done.parse(), total.parse()) {
                    (self.done, self.total) = (done, Some(total));
                }
            }
            ["total", total, ..] if self.total.is_none() => self.total = total.parse().ok(),
            _ if line.contains("Submitted process >") => self.submitted += 1,
            _ if line.contains("TaskHandler[") && line.contains("status: COMPLETED") => {
                self.done += 1;
            }
            _ => {}
        }
    }
}

/// Time that `left` steps take, and its error (two standard deviations), by the times of those done so far, ns.
/// `None`: there are too few. Steps are taken as alike; if they are not, the error says so.
fn remaining(start_ns: i64, done: &[(i64, i64)], left: i64, now_ns: i64) -> Option<(i64, i64)> {
    if left == 0 {
        return Some((0, 0));
    }
    let mut gaps: Vec<f64> = Vec::new();
    let (mut at, mut count) = (start_ns, 0);
    for &(time, steps) in done.iter().filter(|&&(_, steps)| steps > 0) {
        // Several at once share the time.
        let each = (time - at) as f64 / (steps - count).max(1) as f64;
        gaps.extend((count..steps).map(|_| each));
        (at, count) = (time, steps);
    }
    if gaps.len() < FEWEST {
        return None;
    }
    let n = gaps.len() as f64;
    let mean = gaps.iter().sum::<f64>() / n;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let left = left as f64;
    // The mean is itself uncertain, and so are the steps to come.
    let error = 2.0 * (variance * (left * left / n + left)).sqrt();
    let spent = (now_ns - at) as f64;
    let rest = (left * mean - spent.min(mean)).max(0.0);
    Some((rest as i64, error as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn even_steps_give_an_exact_end_and_few_give_none() {
        let done: Vec<(i64, i64)> = (1..=10).map(|n| (n * SECOND, n)).collect();
        let now = 10 * SECOND;
        assert_eq!(remaining(0, &done, 5, now), Some((5 * SECOND, 0)));
        assert_eq!(remaining(0, &done[..4], 5, now), None);
        assert_eq!(remaining(0, &done, 0, now), Some((0, 0)));
        let uneven: Vec<(i64, i64)> = (1..=10).map(|n| (n * n * SECOND, n)).collect();
        let (left, error) = remaining(0, &uneven, 5, 100 * SECOND).unwrap();
        assert!(
            (40..60).contains(&(left / SECOND)) && error > 20 * SECOND,
            "{left} {error}"
        );
    }

    #[test]
    fn a_log_is_read_as_it_grows() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.snakemake.log");
        let write = |text: &str| fs::write(&path, text).unwrap();
        let begin =
            "Job stats:\njob      count\n-----  -------\nall          1\ntotal        4\n\n";
        write(begin);
        let mut log = Log::new(path.clone());
        log.advance();
        assert_eq!((log.done, log.total), (0, Some(4)));
        let more = format!("{begin}Finished job 3.\n1 of 4 steps (25%) done\n2 of 4 ste");
        write(&more);
        log.advance();
        assert_eq!((log.done, log.total), (1, Some(4)));
        write(&(more + "ps (50%) done\n"));
        log.advance();
        assert_eq!((log.done, log.total), (2, Some(4)));
    }

    #[test]
    fn tasks_of_nextflow_are_counted() {
        let mut log = Log::new(PathBuf::new());
        for line in [
            "Nov-29 10:00:00.000 [Task submitter] INFO  nextflow.Session - [ab/123456] Submitted process > ALIGN (s1)",
            "Nov-29 10:00:00.100 [Task submitter] INFO  nextflow.Session - [ab/123457] Submitted process > ALIGN (s2)",
            "Nov-29 10:00:01.000 [Task monitor] DEBUG n.processor.TaskPollingMonitor - Task completed > TaskHandler[id: 1; name: ALIGN (s1); status: COMPLETED; exit: 0; error: -; workDir: /w/ab/123456]",
        ] {
            log.line(line);
        }
        assert_eq!((log.submitted, log.done, log.total), (2, 1, None));
    }
}
