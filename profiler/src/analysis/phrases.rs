//! Phrases about bottlenecks and serial steps that findings and tables share.

use flowtrace_render::units;

use crate::analysis::bottlenecks::chart::subject_name;
use crate::analysis::bottlenecks::{Bottlenecks, Cause, Resource, Subject};
use crate::analysis::serial::{Need, RunBy, Serial};
use crate::timeline::Timeline;
/// A share in the form for people.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p > 0.0 && p < 0.95 => "<1 %".into(),
        p => format!("{p:.0} %"),
    }
}

/// The resource that a cause lacked, with the number that supports it, in words.
pub fn want(cause: &Cause, cpus: Option<i64>) -> String {
    let cores = match (cause.cpu, cpus) {
        (Some(busy), Some(cpus))
            if busy * cpus as f64 - cause.own_cores > 0.25 * cpus as f64 + 0.1 =>
        {
            format!(
                ", {:.1} of {cpus} cores, others of the machine took {:.1}",
                cause.own_cores,
                busy * cpus as f64 - cause.own_cores
            )
        }
        (Some(busy), Some(cpus)) if busy >= 0.9 => match cpus {
            1 => ", the core busy".into(),
            2 => ", both cores busy".into(),
            n => format!(", all {n} cores busy"),
        },
        // The machine counts in ticks of some ms, which miss short work.
        (Some(busy), Some(cpus)) if busy * cpus as f64 >= 0.5 * cause.own_cores => {
            format!(", {:.1} of {cpus} cores busy", busy * cpus as f64)
        }
        _ => String::new(),
    };
    let lacked = match cause.resource {
        Resource::Cpu => format!("CPU{cores}"),
        Resource::Cpus => format!("it waited for a CPU{cores}"),
        Resource::Limit => match &cause.limit {
            Some(limit) => format!("it waited for a CPU{cores}: {}", limit.text()),
            None => format!(
                "it waited for a CPU while others were idle{cores}: an affinity mask or a quota keeps it from them"
            ),
        },
        Resource::Disk => "storage".into(),
        Resource::Mount => {
            "file calls, slow because they are traced; with --no-mount they are not".into()
        }
        Resource::Memory => "memory".into(),
        Resource::Lock => "locks".into(),
        Resource::Sleep => "it sleeps".into(),
        Resource::Stopped => "it was stopped (SIGSTOP or Ctrl-Z)".into(),
        Resource::Tracer => {
            "its tracer had stopped it (flowtrace where it records by ptrace, strace, a debugger)"
                .into()
        }
        Resource::Network => "the network".into(),
        Resource::HandOver => "handing over in small pieces".into(),
        Resource::Other => "neither CPU nor storage".into(),
    };
    match cause.at_work {
        Some(at_work) => format!("{lacked}; {}", of_its(at_work)),
        None => lacked,
    }
}

/// The number of instances at work, in words.
pub fn of_its((at_work, alive): (f64, f64)) -> String {
    format!("{at_work:.0} of its {alive:.0} instances at work")
}

/// Name of the step or channel of a cause.
pub fn who(result: &Bottlenecks, cause: &Cause) -> String {
    match cause.task {
        Some(task) => result.tasks.tasks[task].name(),
        None => subject_name(result, &Subject::Edges(cause.edges.clone())),
    }
}

/// Share of a run below which a limit does not matter.
pub(crate) const MATTERS: f64 = 0.1;

/// The statement that no step limited the run for long.
pub(crate) fn nothing(result: &Bottlenecks) -> String {
    let longest = result.causes.first().map(|cause| {
        let name = units::shorten(&units::plain(&who(result, cause)), 40);
        format!(", at most {name} for {}", percent(cause.share))
    });
    format!(
        "nothing stands out: no step limited the run for {} of it{}",
        percent(MATTERS),
        longest.unwrap_or_default()
    )
}

/// The source of what is known about waits, in words.
pub fn evidence_of(timeline: &Timeline) -> &'static str {
    match (timeline.is_sampled(), timeline.exact) {
        (false, _) => "from totals alone",
        (true, true) => "exact",
        (true, false) => "sampled",
    }
}

/// The number of observations that a verdict rests on, in words.
pub fn samples_of(samples: u64, timeline: &Timeline) -> String {
    match samples {
        0 => "from totals alone".into(),
        _ if timeline.exact => "exact".into(),
        n => units::counted(n as i64, "sample", "samples"),
    }
}

/// A stretch of steps that ran one after another, in words, with the time that another order could save.
pub fn serial_line(serial: &Serial) -> String {
    let saving = format!("; that could save {}", units::duration(serial.saving_ns));
    serial_text(serial, &saving)
}

/// A stretch of steps that ran one after another, in words.
pub(crate) fn serial_text(serial: &Serial, saving: &str) -> String {
    let steps: Vec<String> = serial
        .steps
        .iter()
        .take(3)
        .map(|(name, count, ns)| {
            let times = if *count > 1 {
                format!(" ×{count}")
            } else {
                String::new()
            };
            format!("{}{times} {}", units::plain(name), units::duration(*ns))
        })
        .collect();
    let more = match serial.steps.len().saturating_sub(3) {
        0 => String::new(),
        n => format!(", +{n} more"),
    };
    let remedy = match (serial.run_by, &serial.needs) {
        (RunBy::Shell, _) => String::new(),
        (RunBy::Make, None) => "; make -j would".into(),
        (RunBy::Make, needs) => format!("; with make -j{}", if_declared(needs.as_ref())),
        (RunBy::Recipe, needs) => format!(
            "; make -j would, with a target for each{}",
            if_declared(needs.as_ref())
        ),
        (RunBy::Snakemake, needs) => format!(
            "; snakemake --cores {:.0} would{}",
            serial.cores,
            if_declared(needs.as_ref())
        ),
        (RunBy::MakeWithJobs, _) => {
            " if the makefile lets them (flowtrace check lists its orders that nothing seen needs)"
                .into()
        }
    };
    format!(
        "{} runs steps one after another that could run side by side: {}{more}{saving}{remedy}",
        units::plain(&serial.name),
        steps.join(", "),
    )
}

/// The advice for a stretch of steps that ran one after another.
pub(crate) fn serial_action(serial: &Serial) -> String {
    /// Kinds of steps that are named.
    const NAMED: usize = 2;
    let name = units::shorten(&units::plain(&serial.name), 40);
    let step = |(name, count, _): &(String, usize, i64)| {
        let step = units::shorten(&units::plain(name), 40);
        match count {
            0 | 1 => step,
            count => format!("{step} ×{count}"),
        }
    };
    let steps = match serial.steps.as_slice() {
        [(step, count, _)] if *count > 1 => {
            format!("the {count} {}", units::shorten(&units::plain(step), 40))
        }
        steps => {
            let named: Vec<String> = steps.iter().take(NAMED).map(step).collect();
            let others = if steps.len() > NAMED {
                " and others"
            } else {
                ""
            };
            format!(
                "{}{others}",
                named.join(if others.is_empty() { " and " } else { ", " })
            )
        }
    };
    // No trace shows if the makefile declares all that its rules need of each other.
    let check = match serial.needs {
        Some(_) => ", after flowtrace check",
        None => "",
    };
    match serial.run_by {
        RunBy::Shell => format!("run {steps} of {name} side by side"),
        RunBy::Make => format!("run {steps} side by side with {name} -j{check}"),
        // Targets that are no files may be of their own already.
        RunBy::Recipe => {
            format!("run {steps} side by side with {name} -j, a target for each{check}")
        }
        RunBy::Snakemake => {
            let cores = serial.cores;
            format!("run {steps} side by side with {name} --cores {cores:.0}{check}")
        }
        RunBy::MakeWithJobs => format!("let {name} run {steps} side by side"),
    }
}

/// The condition for advice to a make of which a step needed the output of another one: no trace shows if a
/// rule declares that.
pub fn if_declared(need: Option<&Need>) -> String {
    need.map_or(String::new(), |need| {
        let what = need.what.trim_end_matches('/');
        format!(
            ", if its rules declare all that they need of each other, as {} needs {}: flowtrace check first",
            units::plain(&need.used_by),
            units::plain(what.rsplit('/').next().unwrap_or(what))
        )
    })
}
