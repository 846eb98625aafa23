//! The numbers of a summary, as they are also written as JSON.

use std::collections::BTreeSet;

use flowtrace_schema::RunRow;
use serde::Serialize;

use crate::analysis::data::{FileUse, Unread, file_uses, hottest, never_read, totals};
use crate::analysis::habits::{HabitOf, habits};
use crate::analysis::time::{RuleTime, by_rule, failures, has_failed};
use crate::graph::endings::Endings;
use crate::model::{FileIndex, Workflow};
use crate::paths::{directory, of_paths};
use crate::signals::signal_name;

/// Hottest files kept.
const HOTTEST: usize = 10;

/// All facts of a summary. Times are nanoseconds, sizes bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    /// The command line; none for a mount session.
    pub command: Option<String>,
    /// True if the recording has no end.
    pub is_cut_short: bool,
    /// From when on nothing was recorded though the run went on, in words.
    pub unrecorded: Option<String>,
    /// True if the recording still goes on.
    pub is_live: bool,
    /// True if rows are missing that could not be stored: every count is then a lower bound.
    pub is_incomplete: bool,
    /// Duration of the command; of a run without an end, the time up to the last event; of an incomplete one,
    /// the length of the recording.
    pub duration_ns: i64,
    /// Length of the recording: until the last process ended.
    pub recording_ns: i64,
    /// Begin of the command, counted from the start of the recording.
    pub begins_ns: i64,
    /// Exit code of the command.
    pub exit_code: Option<i64>,
    /// Signal that ended it, by name.
    pub exit_signal_name: Option<String>,
    /// Recordings in the file.
    pub runs: usize,
    /// Recordings that ended by a signal or with another code than 0.
    pub failed_runs: usize,
    /// Machines that recorded.
    pub hosts: usize,
    /// Processes.
    pub processes: i64,
    /// Program executions.
    pub execs: i64,
    /// Processes that failed, by rule and ending.
    pub failures: Vec<Failure>,
    /// Time by rule, the most CPU time first.
    #[serde(serialize_with = "rules_as_json")]
    pub rules: Vec<RuleTime>,
    /// Successful file calls of known processes.
    pub file_calls: i64,
    /// Sums over all files.
    pub data: Data,
    /// Bytes written to files that no process read; 0 for a run that goes on or was cut short: it may have read
    /// them later.
    pub never_read_bytes: i64,
    /// Number of these files.
    pub never_read_files: i64,
    /// These files by directory and ending, the most bytes first.
    pub never_read: Vec<FileKind>,
    /// Ways of using files that cost more than they need to.
    pub habits: Vec<HabitOf>,
    /// Files by bytes moved.
    pub hottest_by_bytes: Vec<HotFile>,
    /// Files by calls of any kind.
    pub hottest_by_calls: Vec<HotFile>,
    /// Sums over the captured packets; none: nothing was captured.
    pub network: Option<Network>,
    /// Directories whose file calls were recorded.
    pub directories: Vec<Directory>,
    /// File layer of the run, also where nothing was mounted.
    pub file_layer: String,
    /// Process layer of the run.
    pub process_layer: String,
    /// Known losses.
    pub losses: Vec<Loss>,
}

/// The facts of a summary with the verdict, as JSON has them.
#[derive(Debug, Serialize)]
pub struct Judged<'a> {
    /// The numbers.
    #[serde(flatten)]
    pub facts: Facts,
    /// The reasons why the run took so long, and the findings that could make it shorter.
    pub verdict: &'a crate::analysis::findings::Verdict,
}

/// Processes of one rule that failed in one way.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    pub rule: String,
    pub ending: String,
    pub count: i64,
}

/// Sums over all files.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Data {
    pub read_bytes: i64,
    pub reads: i64,
    pub write_bytes: i64,
    pub writes: i64,
    pub files_read: i64,
    pub files_written: i64,
    pub files_created: i64,
    pub files_by_open: i64,
    pub files_not_moved: i64,
    pub not_moved_bytes: i64,
    pub files_not_moved_mapped: i64,
    pub files_read_in_part: i64,
    pub unread_part_bytes: i64,
    pub files_in_part_mapped: i64,
}

/// Files of one directory and ending.
#[derive(Clone, Debug, Serialize)]
pub struct FileKind {
    /// Common form of their paths.
    pub pattern: String,
    /// Number of files.
    pub files: i64,
    /// Bytes written to them.
    pub bytes: i64,
}

/// Sums over all captured flows.
#[derive(Clone, Debug, Serialize)]
pub struct Network {
    /// Connections and other conversations.
    pub flows: i64,
    /// Packets, each once.
    pub packets: i64,
    /// Their payload.
    pub bytes: i64,
    /// Pairs of rules whose processes talk, the most bytes first.
    pub between: Vec<Between>,
}

/// Payload between the processes of two rules.
#[derive(Clone, Debug, Serialize)]
pub struct Between {
    /// Rule of the processes that sent; where both did, of the older ones.
    pub from: String,
    /// Rule of the others.
    pub to: String,
    /// Bytes forth.
    pub forth_bytes: i64,
    /// Bytes back.
    pub back_bytes: i64,
}

fn network(workflow: &Workflow) -> Option<Network> {
    let totals = workflow.network.as_ref()?;
    let mut sums: std::collections::BTreeMap<(String, String), (i64, i64)> = Default::default();
    let rule = |id| workflow.rule(id).to_string();
    for stream in &workflow.streams {
        if let Some((forth, back)) = stream.captured {
            let sum = sums
                .entry((rule(stream.from), rule(stream.to)))
                .or_default();
            sum.0 += forth;
            sum.1 += back;
        }
    }
    let mut between: Vec<Between> = sums
        .into_iter()
        .map(|((from, to), (forth_bytes, back_bytes))| Between {
            from,
            to,
            forth_bytes,
            back_bytes,
        })
        .collect();
    between.sort_by_key(|pair| std::cmp::Reverse(pair.forth_bytes + pair.back_bytes));
    Some(Network {
        flows: totals.flows,
        packets: totals.packets,
        bytes: totals.bytes,
        between,
    })
}

/// A file that was used a lot.
#[derive(Clone, Debug, Serialize)]
pub struct HotFile {
    /// Id in the database.
    pub file_id: i64,
    /// Last name.
    pub path: String,
    /// Bytes read and written.
    pub moved_bytes: i64,
    /// Calls of any kind.
    pub calls: i64,
}

/// A traced directory.
#[derive(Clone, Debug, Serialize)]
pub struct Directory {
    pub path: String,
    pub file_layer: String,
    pub attribute_ttl_ns: i64,
}

/// A loss.
#[derive(Clone, Debug, Serialize)]
pub struct Loss {
    pub source: String,
    pub counter: String,
    pub value: i64,
    pub severity: String,
    pub meaning: String,
}

fn rules_as_json<S: serde::Serializer>(rules: &[RuleTime], to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Rule<'a> {
        rule: &'a str,
        processes: i64,
        cpu_ns: i64,
        leaf_ns: i64,
        leaf_cpu_ns: i64,
        leaf_queue_ns: i64,
    }
    to.collect_seq(rules.iter().map(|rule| Rule {
        rule: &rule.rule,
        processes: rule.processes,
        cpu_ns: rule.cpu_ns,
        leaf_ns: rule.leaf_ns,
        leaf_cpu_ns: rule.leaf_cpu_ns,
        leaf_queue_ns: rule.leaf_queue_ns,
    }))
}

/// Computes the facts of a workflow.
pub fn facts(workflow: &Workflow) -> Facts {
    // Of several runs, the first that failed is the most important.
    let failed = workflow.runs.iter().find(|run| has_failed(run));
    let run = failed.or(workflow.runs.first());
    let hosts: BTreeSet<_> = workflow.runs.iter().map(|run| &run.host).collect();
    let uses = file_uses(workflow);
    let sums = totals(workflow, &uses);
    // A run that goes on, or went on unrecorded, may read them later.
    let unread = match workflow.is_live || workflow.is_cut_short() {
        true => Vec::new(),
        false => never_read(workflow, &uses),
    };
    Facts {
        command: run.and_then(|run| run.command.clone()),
        is_cut_short: workflow.is_cut_short(),
        unrecorded: workflow.unrecorded.clone(),
        is_live: workflow.is_live,
        is_incomplete: workflow.is_incomplete(),
        duration_ns: workflow.duration_ns(),
        recording_ns: workflow.last_ns,
        begins_ns: workflow.begins_ns(),
        exit_code: run.and_then(|run| run.exit_code),
        exit_signal_name: run.and_then(|run| run.exit_signal).map(signal_name),
        runs: workflow.runs.len(),
        failed_runs: workflow.runs.iter().filter(|run| has_failed(run)).count(),
        hosts: hosts.len(),
        processes: workflow.processes.len() as i64,
        execs: workflow.images.iter().filter(|image| image.is_exec).count() as i64,
        failures: failures(workflow)
            .into_iter()
            .map(|f| Failure {
                rule: f.rule.as_ref().into(),
                ending: f.ending.to_string(),
                count: f.count,
            })
            .collect(),
        rules: by_rule(workflow),
        file_calls: workflow.accesses.iter().map(|access| access.calls).sum(),
        data: Data {
            read_bytes: sums.read_bytes,
            reads: sums.reads,
            write_bytes: sums.write_bytes,
            writes: sums.writes,
            files_read: sums.files_read,
            files_written: sums.files_written,
            files_created: sums.files_created,
            files_by_open: sums.files_by_open,
            files_not_moved: sums.files_not_moved,
            not_moved_bytes: sums.not_moved_bytes,
            files_not_moved_mapped: sums.files_not_moved_mapped,
            files_read_in_part: sums.files_read_in_part,
            unread_part_bytes: sums.unread_part_bytes,
            files_in_part_mapped: sums.files_in_part_mapped,
        },
        never_read_bytes: unread
            .iter()
            .fold(0, |sum: i64, used| sum.saturating_add(used.bytes)),
        never_read_files: unread.len() as i64,
        never_read: kinds(workflow, &unread),
        habits: habits(workflow),
        hottest_by_bytes: hot(workflow, &hottest(&uses, HOTTEST, FileUse::moved)),
        hottest_by_calls: hot(workflow, &hottest(&uses, HOTTEST, |used| used.calls)),
        network: network(workflow),
        directories: workflow
            .directories
            .iter()
            .map(|d| Directory {
                path: d.path.clone(),
                file_layer: d.file_layer.clone(),
                attribute_ttl_ns: d.attribute_ttl_ns,
            })
            .collect(),
        file_layer: run.map_or_else(|| "none".into(), |run| run.file_layer.clone()),
        process_layer: process_layer(workflow, run),
        losses: workflow
            .losses
            .iter()
            .map(|loss| Loss {
                source: loss.source.clone(),
                counter: loss.counter.clone(),
                value: loss.value,
                severity: loss.severity.clone(),
                meaning: loss.meaning.clone(),
            })
            .collect(),
    }
}

/// Process layer of a run; of several runs, that of one that has some.
fn process_layer(workflow: &Workflow, run: Option<&RunRow>) -> String {
    let has_some = |run: &&RunRow| run.sees_processes();
    let run = run.filter(has_some);
    let run = run.or_else(|| workflow.runs.iter().find(has_some));
    run.map_or_else(|| "none".into(), |run| run.process_layer.clone())
}

impl Facts {
    /// Calls that `--include` and `--exclude` left out.
    pub(super) fn excluded_calls(&self) -> i64 {
        let excluded = |loss: &&Loss| loss.counter == "excluded_calls";
        self.losses
            .iter()
            .filter(excluded)
            .map(|loss| loss.value)
            .sum()
    }
}

fn path(workflow: &Workflow, file: FileIndex) -> &str {
    workflow.file(file).path.as_deref().unwrap_or("?")
}

fn kinds(workflow: &Workflow, unread: &[Unread]) -> Vec<FileKind> {
    let endings = Endings::of(workflow);
    let mut by_kind = std::collections::BTreeMap::<(&str, &str), Vec<&Unread>>::new();
    for used in unread {
        let path = path(workflow, used.file);
        by_kind
            .entry((directory(path), endings.get(path)))
            .or_default()
            .push(used);
    }
    let mut kinds: Vec<FileKind> = by_kind
        .into_values()
        .map(|members| {
            let paths: Vec<&str> = members
                .iter()
                .map(|used| path(workflow, used.file))
                .collect();
            FileKind {
                pattern: of_paths(&paths),
                files: members.len() as i64,
                bytes: members.iter().map(|used| used.bytes).sum(),
            }
        })
        .collect();
    kinds.sort_by(|a, b| (b.bytes, &a.pattern).cmp(&(a.bytes, &b.pattern)));
    kinds
}

fn hot(workflow: &Workflow, uses: &[FileUse]) -> Vec<HotFile> {
    let file = |used: &FileUse| HotFile {
        file_id: workflow.file(used.file).file_id,
        path: path(workflow, used.file).into(),
        moved_bytes: used.moved(),
        calls: used.calls,
    };
    uses.iter().map(file).collect()
}
