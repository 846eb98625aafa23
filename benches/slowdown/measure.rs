//! Rounds: every way after the other, and what each cost.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::statistics::{Quartiles, quartiles};
use crate::storm;
use crate::ways::Way;
use crate::workloads::{Directory, Gauge, Workload};

/// What one row of the table is made of.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    /// Costs of each way in each round; a cost is a time for the same work.
    rounds: Vec<Vec<(Way, f64)>>,
}

/// How a cost is shown.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    Seconds,
    /// Seconds for this many files.
    PerFile(usize),
    Fio(crate::fio::Job),
}

impl Row {
    /// What a way cost.
    pub(crate) fn cost(&self, way: Way) -> Option<Quartiles> {
        quartiles(self.rounds.iter().filter_map(|r| of(r, way)).collect())
    }

    /// How many times as much a way cost as another one in the same round.
    pub(crate) fn ratio(&self, way: Way, to: Way) -> Option<Quartiles> {
        let ratio = |round: &Vec<_>| Some(of(round, way)? / of(round, to)?);
        quartiles(self.rounds.iter().filter_map(ratio).collect())
    }
}

fn of(round: &[(Way, f64)], way: Way) -> Option<f64> {
    round.iter().find(|(w, _)| *w == way).map(|(_, cost)| *cost)
}

/// Runs a workload in each way, `rounds` times. The first row is the whole.
pub(crate) fn rounds(
    workload: &Workload,
    root: &Path,
    rounds: usize,
    ways: &[Way],
) -> Result<Vec<Row>, String> {
    let names = workload.rows().into_iter().enumerate();
    let mut rows: Vec<_> = names
        .map(|(number, name)| Row {
            name,
            unit: match workload.gauge {
                Gauge::Clock => Unit::Seconds,
                Gauge::Storm { .. } if number == 0 => Unit::Seconds,
                Gauge::Storm { files } => Unit::PerFile(files),
                Gauge::Fio(job) => Unit::Fio(job),
            },
            rounds: vec![Vec::new(); rounds],
        })
        .collect();
    for round in 0..rounds {
        for turn in 0..ways.len() {
            let way = ways[(round + turn) % ways.len()];
            let costs = run(workload, root, way).map_err(|e| format!("{}: {e}", way.name()))?;
            for (row, cost) in rows.iter_mut().zip(costs) {
                row.rounds[round].push((way, cost));
            }
        }
    }
    Ok(rows)
}

/// One run: what the whole and each part of it cost.
fn run(workload: &Workload, root: &Path, way: Way) -> Result<Vec<f64>, String> {
    let copied = root.join("work");
    let directory = match &workload.directory {
        Directory::Copy(input) => {
            copy(input, &copied).map_err(|e| format!("cannot prepare: {e}"))?;
            &copied
        }
        Directory::Itself(directory) => directory,
    };
    let trace = root.join("trace.db");
    let mut line = way.command(directory, &trace);
    line.extend(workload.argv.iter().cloned());
    let mut command = Command::new(&line[0]);
    command
        .args(&line[1..])
        .envs(workload.variables.iter().map(|(n, v)| (n, v)))
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(match workload.gauge {
            Gauge::Clock => Stdio::null(),
            Gauge::Storm { .. } | Gauge::Fio(_) => Stdio::piped(),
        })
        .stderr(Stdio::piped());
    let start = Instant::now();
    let output = command
        .spawn()
        .and_then(std::process::Child::wait_with_output);
    let seconds = start.elapsed().as_secs_f64();
    let output = output.map_err(|e| format!("cannot start {}: {e}", line[0]))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}", output.status, said.trim_end()));
    }
    let _ = fs::remove_file(&trace);
    if let Directory::Copy(_) = workload.directory {
        fs::remove_dir_all(&copied).map_err(|e| format!("cannot clean up: {e}"))?;
    }
    match workload.gauge {
        Gauge::Clock => Ok(vec![seconds]),
        Gauge::Storm { .. } => {
            let mut costs = vec![seconds];
            costs.extend(storm::parts(&output.stdout)?);
            Ok(costs)
        }
        Gauge::Fio(job) => Ok(vec![job.cost(&output.stdout)?]),
    }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
