//! Job and rank that launchers and batch systems give to each of the commands that they start. Names the
//! trace of one rank among many.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use flowtrace_schema::LaunchRecord;

use crate::failure::{Failure, OWN_FAILURE};

/// A launcher: its name, the variable with the rank, those with the job (joined by a dot).
///
/// In the order of search: `mpirun` inside of a job of Slurm inherits the variables of Slurm, which
/// are then the same for all of its ranks. GNU parallel may start any of them.
const LAUNCHERS: &[(&str, &str, &[&str])] = &[
    ("openmpi", "OMPI_COMM_WORLD_RANK", &["PMIX_NAMESPACE"]),
    ("mvapich", "MV2_COMM_WORLD_RANK", &["MV2_COMM_WORLD_JOBID"]),
    ("jsrun", "JSM_NAMESPACE_RANK", &["LSB_JOBID"]),
    ("slurm", "SLURM_PROCID", &["SLURM_JOB_ID", "SLURM_STEP_ID"]),
    ("flux", "FLUX_TASK_RANK", &["FLUX_JOB_ID"]),
    ("alps", "ALPS_APP_PE", &["ALPS_APP_ID"]),
    ("mpich", "PMI_RANK", &["PMI_JOBID"]),
    ("pmix", "PMIX_RANK", &["PMIX_NAMESPACE"]),
    ("pbs", "PBS_TASKNUM", &["PBS_JOBID"]),
    ("lsf", "LSF_PM_TASKID", &["LSB_JOBID"]),
    ("pbs", "PBS_ARRAY_INDEX", &["PBS_JOBID"]),
    ("torque", "PBS_ARRAYID", &["PBS_JOBID"]),
    ("gridengine", "SGE_TASK_ID", &["JOB_ID"]),
    (
        "aws-batch",
        "AWS_BATCH_JOB_ARRAY_INDEX",
        &["AWS_BATCH_JOB_ID"],
    ),
    ("parallel", "PARALLEL_SEQ", &["PARALLEL_PID"]),
];

/// Variables of jobs of a batch system, for commands that no launcher of it started (`ssh`, `pbsdsh`).
const JOBS: &[&str] = &["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"];

/// The launcher that started this process as one of many; `None`: no known one.
pub(crate) fn launch() -> Option<LaunchRecord> {
    of_variables(|name| std::env::var_os(name))
}

fn of_variables(variable: impl Fn(&str) -> Option<OsString>) -> Option<LaunchRecord> {
    let text = |name: &&str| {
        let value = variable(name)?.into_string().ok()?;
        // Job ids are short; the id goes into names of files and into the trace.
        (!value.is_empty() && value.len() <= 200).then_some(value)
    };
    let job = |names: &[&str]| {
        let parts: Vec<String> = names.iter().filter_map(text).collect();
        (!parts.is_empty()).then(|| parts.join("."))
    };
    let batch_job = || JOBS.iter().find_map(text);
    // A launcher inside the job of a batch system may not give the job.
    let of_rank = LAUNCHERS.iter().find_map(|&(name, rank, jobs)| {
        let rank: i64 = text(&rank)?.parse().ok()?;
        Some(LaunchRecord {
            launcher: name.into(),
            job: job(jobs).or_else(batch_job),
            rank: Some(rank),
            ..LaunchRecord::default()
        })
    });
    of_rank.or_else(|| {
        batch_job().map(|job| LaunchRecord {
            launcher: "batch".into(),
            job: Some(job),
            ..LaunchRecord::default()
        })
    })
}

/// Makes an empty file of a name that nobody else has: `trace.HOST.RANK.db`, without a rank
/// `trace.HOST.PID.db`, and another number behind if there is one already. Making the file keeps two
/// recorders from one file, even on a filesystem that several machines share.
pub(crate) fn reserve(directory: &Path, launch: Option<&LaunchRecord>) -> Result<PathBuf, Failure> {
    let host = nix::sys::utsname::uname()
        .map_or_else(|_| OsString::from("host"), |names| names.nodename().into());
    let number = launch
        .and_then(|launch| launch.rank)
        .unwrap_or_else(|| i64::from(std::process::id()));
    let cannot = |path: &Path, error: &io::Error| {
        Failure::new(
            OWN_FAILURE,
            format!("cannot create {}: {error}", path.display()),
        )
        .hint("name a directory that can be made and written on every machine")
    };
    std::fs::create_dir_all(directory).map_err(|error| cannot(directory, &error))?;
    for attempt in 1..10_000 {
        let path = directory.join(name(&host, number, attempt));
        match File::create_new(&path) {
            Ok(_) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(cannot(&path, &error)),
        }
    }
    let error = io::Error::other("there are 10 000 traces of that name already");
    Err(cannot(&directory.join(name(&host, number, 1)), &error))
}

/// Removes a name that was reserved and to which nothing was written.
pub(crate) fn release(path: &Path) {
    if path.metadata().is_ok_and(|metadata| metadata.len() == 0) {
        let _ = std::fs::remove_file(path);
    }
}

fn name(host: &OsStr, number: i64, attempt: u32) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let host: String = host
        .to_string_lossy()
        .chars()
        .filter(|&c| allowed(c))
        .collect();
    match attempt {
        1 => format!("trace.{host}.{number}.db"),
        n => format!("trace.{host}.{number}.{n}.db"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launched(variables: &[(&str, &str)]) -> Option<(String, Option<String>, Option<i64>)> {
        let find = |name: &str| {
            let found = variables.iter().find(|(n, _)| *n == name)?;
            Some(OsString::from(found.1))
        };
        of_variables(find).map(|l| (l.launcher, l.job, l.rank))
    }

    #[test]
    fn the_innermost_launcher_gives_the_rank() {
        let slurm = [
            ("SLURM_PROCID", "0"),
            ("SLURM_JOB_ID", "77"),
            ("SLURM_STEP_ID", "2"),
        ];
        assert_eq!(
            launched(&slurm),
            Some(("slurm".into(), Some("77.2".into()), Some(0)))
        );
        let both = [&slurm[..2], &[("OMPI_COMM_WORLD_RANK", "5")]].concat();
        assert_eq!(
            launched(&both),
            Some(("openmpi".into(), Some("77".into()), Some(5)))
        );
    }

    #[test]
    fn without_a_rank_the_job_is_kept_and_without_both_nothing() {
        assert_eq!(
            launched(&[("PBS_JOBID", "9.server")]),
            Some(("batch".into(), Some("9.server".into()), None))
        );
        assert_eq!(launched(&[("PMI_RANK", "x"), ("HOME", "/root")]), None);
    }

    #[test]
    fn no_two_get_the_same_name() {
        let directory = tempfile::tempdir().unwrap();
        let launch = LaunchRecord {
            rank: Some(3),
            ..LaunchRecord::default()
        };
        let first = reserve(directory.path(), Some(&launch)).unwrap();
        let second = reserve(directory.path(), Some(&launch)).unwrap();
        assert_ne!(first, second);
        assert!(first.to_str().unwrap().ends_with(".3.db"), "{first:?}");
        assert!(second.to_str().unwrap().ends_with(".3.2.db"), "{second:?}");
        release(&first);
        assert!(!first.exists());
        // A directory is made, but not below a file.
        reserve(&directory.path().join("new/one"), None).unwrap();
        let refused = reserve(&first.with_extension("2.db").join("x"), None).unwrap_err();
        assert!(refused.to_string().contains("cannot create"), "{refused}");
    }
}
