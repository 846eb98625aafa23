//! What is run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::options::Options;
use crate::{LeftOut, fio, in_path, storm};

/// Where the distribution's Python is, which has the packages from apt.
const PYTHON: &str = "/usr/bin/python3";

/// Directories to work in.
pub(crate) struct Places {
    /// Inputs, fresh working directories, traces.
    pub(crate) root: PathBuf,
    /// The files that fio reads and writes.
    pub(crate) fio: PathBuf,
}

/// Something to run.
pub(crate) struct Workload {
    pub(crate) name: String,
    /// The command line, started in the working directory.
    pub(crate) argv: Vec<String>,
    pub(crate) variables: Vec<(&'static str, String)>,
    pub(crate) directory: Directory,
    pub(crate) gauge: Gauge,
    /// Whether the bars for a filesystem apply: it is named in them.
    pub(crate) filesystem: bool,
    /// Whether the bar for real work with `cached` applies.
    pub(crate) real_work: bool,
}

/// Where a workload works.
pub(crate) enum Directory {
    /// In a fresh copy of this one.
    Copy(PathBuf),
    /// In this one: it leaves it as it was.
    Itself(PathBuf),
}

/// How the cost of a run is found out.
#[derive(Clone, Copy)]
pub(crate) enum Gauge {
    /// Seconds from start to exit.
    Clock,
    /// As `Clock`, and what the storm says of its parts.
    Storm {
        /// How many files there are, to show a part per file.
        files: usize,
    },
    /// Bandwidth that fio reports.
    Fio(fio::Job),
}

impl Workload {
    /// Names of the rows that a run fills: the whole, then its parts.
    pub(crate) fn rows(&self) -> Vec<String> {
        let mut rows = vec![self.name.clone()];
        if let Gauge::Storm { .. } = self.gauge {
            rows.extend(storm::PARTS.map(|part| format!("  {part}")));
        }
        rows
    }

    pub(crate) fn is_fio(&self) -> bool {
        matches!(self.gauge, Gauge::Fio(_))
    }
}

/// The workloads that are asked for and can be run here; why others cannot.
pub(crate) fn find(
    options: &Options,
    places: &Places,
    left_out: &mut LeftOut,
) -> Result<Vec<Workload>, String> {
    let mut found = small(options, places)?;
    if !options.quick {
        let montage_pp = vec![("PROJECT", "mProjectPP".to_owned())];
        for (name, folder, program, variables, real_work) in [
            ("cbuild", "cbuild", "gcc", vec![], true),
            ("montage-pp", "montage", "mProjectPP", montage_pp, false),
            ("montage", "montage", "mProject", vec![], true),
        ] {
            if !options.wants(name, name) {
                continue;
            }
            match prepare(folder, &places.root.join(format!("input-{name}")), program) {
                Ok((script, input)) => found.push(Workload {
                    name: name.to_owned(),
                    argv: vec![text(&script)?, ".".to_owned(), "2".to_owned()],
                    variables,
                    directory: Directory::Copy(input),
                    gauge: Gauge::Clock,
                    filesystem: true,
                    real_work,
                }),
                Err(reason) => left_out.push((name.to_owned(), reason)),
            }
        }
    }
    let jobs = fio::jobs(options.quick);
    let jobs = jobs.into_iter().map(|job| (job.name(), job));
    let jobs: Vec<_> = jobs.filter(|(n, _)| options.wants(n, "fio")).collect();
    if jobs.is_empty() {
        return Ok(found);
    }
    if !in_path("fio") {
        left_out.push(("fio".to_owned(), "no program fio (package fio)".to_owned()));
        return Ok(found);
    }
    fio::prepare(&places.fio)?;
    found.extend(jobs.into_iter().map(|(name, job)| Workload {
        name,
        argv: job.argv(options.quick),
        variables: vec![],
        directory: Directory::Itself(places.fio.clone()),
        gauge: Gauge::Fio(job),
        filesystem: true,
        real_work: false,
    }));
    Ok(found)
}

/// Those that need nothing but a shell.
fn small(options: &Options, places: &Places) -> Result<Vec<Workload>, String> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = std::env::current_exe().map_err(|e| format!("where is this program? {e}"))?;
    let empty = places.root.join("empty");
    fs::create_dir(&empty).map_err(|e| format!("{}: {e}", empty.display()))?;
    let files = options.files;
    let words = if options.quick { "200000" } else { "1000000" };
    let spawn = "i=0; while [ $i -lt 500 ]; do /bin/true; i=$((i+1)); done";
    let workload = |name: &str, argv| Workload {
        name: name.to_owned(),
        argv,
        variables: vec![("WORDS", words.to_owned())],
        directory: Directory::Copy(empty.clone()),
        gauge: Gauge::Clock,
        filesystem: false,
        real_work: false,
    };
    let wordcount = vec![text(&checkout.join("examples/wordcount.sh"))?];
    let bytes = [
        "dd",
        "if=/dev/zero",
        "of=/dev/null",
        "bs=1",
        "count=4000000",
    ];
    let to_a_file = ["dd", "if=/dev/zero", "of=out", "bs=1", "count=200000"];
    let small_files = if options.quick { 500 } else { 20_000 };
    let small_files = format!(
        "for n in range({small_files}): open(f'{{n}}', 'w').write('x' * 100)\n\
         for n in range({small_files}): open(f'{{n}}').read()"
    );
    let python = [PYTHON, "-c", &small_files].map(str::to_owned).to_vec();
    let shell = ["sh", "-c", spawn].map(str::to_owned).to_vec();
    let mut all = vec![
        workload("wordcount", wordcount),
        Workload {
            gauge: Gauge::Storm { files },
            filesystem: true,
            ..workload("metadata", storm::argv(&text(&own)?, files))
        },
        Workload {
            filesystem: true,
            ..workload("small-files", python)
        },
        workload("spawn", shell),
        workload("syscalls", bytes.map(str::to_owned).to_vec()),
        workload("bytes", to_a_file.map(str::to_owned).to_vec()),
    ];
    all.retain(|w| options.wants(&w.name, &w.name));
    Ok(all)
}

/// Makes the input of a reference workload; its script and the input.
fn prepare(folder: &str, input: &Path, program: &str) -> Result<(PathBuf, PathBuf), String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../shared/workloads")
        .join(folder)
        .canonicalize()
        .map_err(|_| "no ../shared/workloads beside the checkout".to_owned())?;
    for needed in [program, "make"] {
        if !in_path(needed) {
            return Err(format!("no program {needed}"));
        }
    }
    let made = Command::new(folder.join("data.sh"))
        .arg(input)
        .env("PYTHON", PYTHON)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output();
    match made {
        Ok(output) if output.status.success() => Ok((folder.join("run.sh"), input.to_owned())),
        Ok(output) => Err(format!(
            "its data.sh failed: {}",
            String::from_utf8_lossy(&output.stderr).trim_end()
        )),
        Err(e) => Err(format!("its data.sh cannot be started: {e}")),
    }
}

fn text(path: &Path) -> Result<String, String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| format!("{}: not UTF-8", path.display()))
}
