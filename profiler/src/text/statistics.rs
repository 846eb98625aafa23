//! Statistics as tables ([`Sheet`]) and plots.

mod charts;
mod files;
mod machines;

pub use charts::{cdf_chart, histogram_charts, latency_chart, throughput_chart};
pub use files::{could_be_pipes, rereads, sequentiality, unread};
use flowtrace_render::units;
use flowtrace_render::units::Unit;
pub use machines::{MACHINE_COLUMNS, machine_charts, machines};

use crate::analysis::statistics::calls::CallStatistics;
use crate::analysis::statistics::jobs::Jobs;
use crate::analysis::statistics::phases::{Phase, Phases};
use crate::distribution::Distribution;
use crate::export::sheet::{Cell, Sheet};
use crate::model::{Process, Programs, Workflow};

/// Quantities with a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Time of calls, by operation.
    Latency,
    /// Bytes of read and write requests, by rule.
    RequestSize,
    /// Bytes that each process read and wrote, by rule.
    ProcessBytes,
    /// Life times of processes, by rule.
    Life,
    /// Sizes of files.
    FileSize,
}

impl Of {
    /// Unit of the values, and label of the axis.
    pub const fn axis(self) -> (Unit, &'static str) {
        match self {
            Of::Latency => (Unit::Ns, "time of a call"),
            Of::RequestSize => (Unit::Bytes, "bytes of a request"),
            Of::ProcessBytes => (Unit::Bytes, "bytes of a process"),
            Of::Life => (Unit::Ns, "life time of a process"),
            Of::FileSize => (Unit::Bytes, "size of a file"),
        }
    }
}

/// The distributions of a quantity, each with its name, most values first.
pub fn distributions(
    workflow: &Workflow,
    calls: &CallStatistics,
    of: Of,
) -> Vec<(String, Distribution)> {
    let mut found: Vec<(String, Distribution)> = match of {
        Of::Latency => calls
            .ops
            .iter()
            .map(|op| (op.op.name().to_owned(), op.latency.clone()))
            .collect(),
        Of::RequestSize => {
            let both = calls.sizes.iter().flat_map(|sizes| {
                [
                    (format!("{} reads", sizes.rule), sizes.read.clone()),
                    (format!("{} writes", sizes.rule), sizes.write.clone()),
                ]
            });
            both.collect()
        }
        Of::ProcessBytes => process_bytes(workflow),
        Of::Life => by_rule(workflow, Process::duration_ns),
        Of::FileSize => {
            let mut sizes = Distribution::default();
            for file in workflow
                .files
                .iter()
                .filter(|f| f.is_regular && !f.is_system)
            {
                if let Some(size) = file.size_bytes {
                    sizes.add(size);
                }
            }
            vec![("files".into(), sizes)]
        }
    };
    found.retain(|(_, values)| values.count > 0);
    found.sort_by(|a, b| (b.1.count, &a.0).cmp(&(a.1.count, &b.0)));
    found
}

fn by_rule(
    workflow: &Workflow,
    of: impl Fn(&Process) -> Option<i64>,
) -> Vec<(String, Distribution)> {
    let mut found: std::collections::BTreeMap<&str, Distribution> = Default::default();
    for id in workflow.process_ids() {
        if let Some(value) = of(workflow.process(id)) {
            let rule = workflow.rule(id).as_ref();
            found.entry(rule).or_default().add(value);
        }
    }
    found
        .into_iter()
        .map(|(rule, values)| (rule.to_owned(), values))
        .collect()
}

/// Bytes of files by process; a process is named by the programs that it ran one after another, without those
/// that neither read nor changed a file.
pub fn process_bytes(workflow: &Workflow) -> Vec<(String, Distribution)> {
    let mut found: std::collections::BTreeMap<String, Distribution> = Default::default();
    let programs = Programs::of(workflow);
    let mut moved = vec![(0_i64, 0_i64); programs.stints.len()];
    for (program, access) in workflow.accesses_by_program(&programs) {
        let (read, wrote) = &mut moved[program];
        *read = read.saturating_add(access.read_bytes);
        *wrote = wrote.saturating_add(access.write_bytes);
    }
    for (stint, (read, wrote)) in programs.stints.iter().zip(moved) {
        let rule = &workflow.program(stint).rule;
        for (bytes, what) in [(read, "read"), (wrote, "wrote")] {
            if bytes > 0 {
                found
                    .entry(format!("{rule} {what}"))
                    .or_default()
                    .add(bytes);
            }
        }
    }
    found.into_iter().collect()
}

/// Table 4: the calls by operation, the most time first.
pub fn calls(calls: &CallStatistics) -> Sheet {
    let mut sheet = Sheet::new(
        format!(
            "{} by operation",
            units::counted(calls.calls, "file call", "file calls")
        ),
        &[
            ("op", "op", Unit::Text),
            ("count", "count", Unit::Count),
            ("count_share", "share", Unit::Share),
            ("failed", "failed", Unit::Count),
            ("latency_sum_ns", "time", Unit::Ns),
            ("latency_share", "share", Unit::Share),
            ("latency_mean_ns", "mean", Unit::Ns),
            ("latency_sd_ns", "sd", Unit::Ns),
            ("latency_p50_ns", "p50", Unit::Ns),
            ("latency_p95_ns", "p95", Unit::Ns),
            ("latency_p99_ns", "p99", Unit::Ns),
            ("latency_max_ns", "max", Unit::Ns),
            ("bytes", "", Unit::Bytes),
        ],
    );
    if calls.open_only > 0 {
        sheet.notes.push(format!(
            "{} outside of the traced directories: no time is known of them",
            units::counted(calls.open_only, "open", "opens")
        ));
    }
    if calls.inherited_bytes > 0 {
        sheet.notes.push(format!(
            "{} moved through files there that programs inherited open: by which calls is not known",
            units::bytes(calls.inherited_bytes)
        ));
    }
    let mut ops: Vec<_> = calls.ops.iter().collect();
    ops.sort_by_key(|op| (std::cmp::Reverse(op.latency.sum), op.op as u8));
    let all: i64 = ops.iter().map(|op| op.latency.count).sum();
    let time: i64 = ops
        .iter()
        .map(|op| op.latency.sum)
        .fold(0, i64::saturating_add);
    let share = |part: i64, whole: i64| match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    };
    for op in ops {
        let l = &op.latency;
        sheet.push(vec![
            op.op.name().into(),
            l.count.into(),
            share(l.count, all).into(),
            op.failed.into(),
            l.sum.into(),
            share(l.sum, time).into(),
            l.mean().into(),
            l.deviation().into(),
            l.quantile(0.5).into(),
            l.quantile(0.95).into(),
            l.quantile(0.99).into(),
            l.max.into(),
            op.bytes.into(),
        ]);
    }
    sheet
}

/// Table 5: the file calls of each phase.
pub fn phases(phases: &Phases, title: &str, name: &'static str) -> Sheet {
    let mut sheet = Sheet::new(
        title,
        &[
            ("phase", name, Unit::Text),
            ("programs", "programs", Unit::Count),
            ("processes", "processes", Unit::Count),
            ("read_bytes", "read", Unit::Bytes),
            ("write_bytes", "wrote", Unit::Bytes),
            ("files_read_only", "files ro", Unit::Count),
            ("files_write_only", "wo", Unit::Count),
            ("files_read_write", "rw", Unit::Count),
            ("files_none", "none", Unit::Count),
            ("processes_read_only", "procs ro", Unit::Count),
            ("processes_write_only", "wo", Unit::Count),
            ("processes_read_write", "rw", Unit::Count),
            ("processes_none", "none", Unit::Count),
            ("cpu_ns", "cpu", Unit::Ns),
            (
                "life_ns",
                if name == "rule" { "life" } else { "" },
                Unit::Ns,
            ),
        ],
    );
    let row = |phase: &Phase| {
        let mut row: Vec<Cell> = vec![
            phase.name.as_ref().into(),
            phase.programs.into(),
            phase.processes.into(),
            phase.read_bytes.into(),
            phase.write_bytes.into(),
        ];
        for uses in [phase.files, phase.by_process] {
            let counts = [uses.read_only, uses.write_only, uses.both, uses.none];
            row.extend(counts.map(Cell::from));
        }
        row.push(phase.cpu_ns.into());
        row.push(phase.life_ns.into());
        row
    };
    sheet.rows = phases.rows.iter().map(row).collect();
    sheet.total = Some(row(&phases.total));
    sheet.notes.push(
        "ro: read only, wo: changed only, rw: both, none: neither read nor changed; regular files"
            .into(),
    );
    if phases.unseen_bytes > 0 {
        sheet.notes.push(format!(
            "read and wrote lack what programs moved in {} outside of the traced directories ({}), of which only their opens are known; stats jobs has all bytes",
            units::counted(phases.files_unseen, "file", "files"),
            units::bytes(phases.unseen_bytes)
        ));
    }
    if name == "rule" {
        sheet.notes.push(
            "cpu: by the program that used it, as in the summary; the rest by the program that ran then".into(),
        );
    }
    sheet
}

/// The jobs of each rule.
pub fn jobs(jobs: &[Jobs]) -> Sheet {
    let mut sheet = Sheet::new(
        "the jobs of each rule",
        &[
            ("rule", "rule", Unit::Text),
            ("jobs", "jobs", Unit::Count),
            ("median_ns", "median", Unit::Ns),
            ("max_ns", "longest", Unit::Ns),
            ("life_ns", "all", Unit::Ns),
            ("cpu_ns", "cpu", Unit::Ns),
            ("max_rss_bytes", "peak memory", Unit::Bytes),
            ("read_bytes", "read", Unit::Bytes),
            ("write_bytes", "wrote", Unit::Bytes),
        ],
    );
    let row = |one: &Jobs| {
        vec![
            one.rule.as_ref().into(),
            one.count.into(),
            one.life.quantile(0.5).into(),
            (one.life.count > 0).then_some(one.life.max).into(),
            one.life.sum.into(),
            one.cpu_ns.into(),
            one.max_rss_bytes.into(),
            one.read_bytes.into(),
            one.write_bytes.into(),
        ]
    };
    sheet.rows = jobs.iter().map(row).collect();
    sheet.notes.push(
        "a job is a process from its first exec on; shells and managers that only started others are none; all processes of a job named by a manager are one; read and wrote: files, pipes and sockets".into(),
    );
    sheet
}

/// Percentiles, for people.
pub fn percentiles(found: &[(String, Distribution)], of: Of) -> Sheet {
    let (unit, label) = of.axis();
    let mut sheet = Sheet::new(
        format!("distribution: {label}"),
        &[
            ("series", "of", Unit::Text),
            ("count", "count", Unit::Count),
            ("min", "least", unit),
            ("p25", "p25", unit),
            ("p50", "p50", unit),
            ("p75", "p75", unit),
            ("p90", "p90", unit),
            ("p99", "p99", unit),
            ("max", "most", unit),
            ("mean", "mean", unit),
            ("sum", "sum", unit),
        ],
    );
    for (name, values) in found {
        let mut row: Vec<Cell> = vec![name.clone().into(), values.count.into(), values.min.into()];
        row.extend([0.25, 0.5, 0.75, 0.9, 0.99].map(|q| Cell::from(values.quantile(q))));
        row.extend([values.max.into(), values.mean().into(), values.sum.into()]);
        sheet.push(row);
    }
    sheet
}

/// The steps of the cumulative distributions, for programs.
pub fn cdf(found: &[(String, Distribution)], of: Of) -> Sheet {
    let (unit, label) = of.axis();
    let mut sheet = Sheet::new(
        format!("cumulative distribution: {label}"),
        &[
            ("series", "of", Unit::Text),
            ("value", "not above", unit),
            ("share", "share", Unit::Share),
        ],
    );
    for (name, values) in found {
        for (value, share) in values.steps() {
            sheet.push(vec![name.clone().into(), value.into(), share.into()]);
        }
    }
    sheet
}

/// Counts by doubling.
pub fn histogram(found: &[(String, Distribution)], of: Of) -> Sheet {
    let (unit, label) = of.axis();
    let mut sheet = Sheet::new(
        format!("histogram: {label}"),
        &[
            ("series", "of", Unit::Text),
            ("from", "from", unit),
            ("to", "to below", unit),
            ("count", "count", Unit::Count),
            ("share", "share", Unit::Share),
        ],
    );
    for (name, values) in found {
        for (from, to, count) in values.by_doubling() {
            sheet.push(vec![
                name.clone().into(),
                from.into(),
                to.into(),
                count.into(),
                (count as f64 / values.count as f64).into(),
            ]);
        }
    }
    sheet
}

/// Bytes moved over time.
pub fn throughput(calls: &CallStatistics) -> Sheet {
    let mut sheet = Sheet::new(
        format!(
            "throughput of files over time, in {}",
            units::counted(calls.bins.len() as i64, "interval", "equal intervals")
        ),
        &[
            ("from_ns", "from", Unit::At(calls.begins_ns)),
            ("to_ns", "to", Unit::At(calls.begins_ns)),
            ("read_bytes", "read", Unit::Bytes),
            ("write_bytes", "wrote", Unit::Bytes),
            ("read_rate", "read rate", Unit::Rate),
            ("write_rate", "write rate", Unit::Rate),
            ("calls", "calls", Unit::Count),
            ("latency_ns", "in calls", Unit::Ns),
        ],
    );
    for (i, bin) in calls.bins.iter().enumerate() {
        let rate = |bytes: i64| bytes as f64 * 1e9 / calls.bin_ns as f64;
        let from = calls.begins_ns + i as i64 * calls.bin_ns;
        sheet.push(vec![
            from.into(),
            (from + calls.bin_ns).into(),
            bin.read_bytes.into(),
            bin.write_bytes.into(),
            rate(bin.read_bytes).into(),
            rate(bin.write_bytes).into(),
            bin.calls.into(),
            bin.latency_ns.into(),
        ]);
    }
    sheet
}

/// Calls that failed.
pub fn failed(workflow: &Workflow, calls: &CallStatistics) -> Sheet {
    let count: i64 = calls.failed.iter().map(|f| f.count).sum();
    let mut sheet = Sheet::new(
        format!(
            "{} failed, {} of all",
            units::counted(count, "call", "calls"),
            units::share(count as f64 / calls.calls.max(1) as f64)
        ),
        &[
            ("count", "count", Unit::Count),
            ("op", "op", Unit::Text),
            ("error", "error", Unit::Text),
            ("rule", "rule", Unit::Text),
            ("latency_sum_ns", "time", Unit::Ns),
            ("of_failed", "by failed", Unit::Count),
            ("example", "for example", Unit::Path),
        ],
    );
    for failed in &calls.failed {
        let path = failed
            .file
            .and_then(|file| workflow.file(file).path.as_deref());
        sheet.push(vec![
            failed.count.into(),
            failed.op.name().into(),
            errno_name(failed.errno).into(),
            failed.rule.as_deref().into(),
            failed.latency_ns.into(),
            failed.of_failed.into(),
            path.map(|path| shown_path(workflow, path)).into(),
        ]);
    }
    sheet
}

/// A path as seen from the directory in which the run began.
pub(crate) fn shown_path<'a>(workflow: &Workflow, path: &'a str) -> &'a str {
    let cwd = workflow.runs.first().map_or("", |run| run.cwd.as_str());
    crate::paths::relative(path, cwd)
}

/// `ENOENT` for 2, as on Linux.
fn errno_name(errno: i64) -> String {
    const NAMES: [&str; 40] = [
        "EPERM",
        "ENOENT",
        "ESRCH",
        "EINTR",
        "EIO",
        "ENXIO",
        "E2BIG",
        "ENOEXEC",
        "EBADF",
        "ECHILD",
        "EAGAIN",
        "ENOMEM",
        "EACCES",
        "EFAULT",
        "ENOTBLK",
        "EBUSY",
        "EEXIST",
        "EXDEV",
        "ENODEV",
        "ENOTDIR",
        "EISDIR",
        "EINVAL",
        "ENFILE",
        "EMFILE",
        "ENOTTY",
        "ETXTBSY",
        "EFBIG",
        "ENOSPC",
        "ESPIPE",
        "EROFS",
        "EMLINK",
        "EPIPE",
        "EDOM",
        "ERANGE",
        "EDEADLK",
        "ENAMETOOLONG",
        "ENOLCK",
        "ENOSYS",
        "ENOTEMPTY",
        "ELOOP",
    ];
    let name = usize::try_from(errno - 1).ok().and_then(|i| NAMES.get(i));
    match (name, errno) {
        (Some(name), _) => (*name).into(),
        (None, 61) => "ENODATA".into(),
        (None, 95) => "EOPNOTSUPP".into(),
        (None, 116) => "ESTALE".into(),
        (None, 122) => "EDQUOT".into(),
        (None, errno) => format!("errno {errno}"),
    }
}
