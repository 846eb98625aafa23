//! Selection of the environment variables that are recorded: those that name the job, task or rank that a
//! process belongs to, those of the locale, and those that the user asks for. Environments contain passwords,
//! so nothing else is ever kept.

use std::sync::Arc;

use flowtrace_schema::{Text, Upid};
use globset::{Glob, GlobSet, GlobSetBuilder};

/// The variables in which workflow managers, batch systems and launchers pass the id of a job to its process.
/// Names only, never a pattern: a variable of a later version may be a secret. (Snakemake sets none for its
/// jobs.)
const JOB_IDS: &[&str] = &[
    // Nextflow: directory of the task, container or box of the task (.command.run).
    "NXF_TASK_WORKDIR",
    "NXF_BOXID",
    // Pegasus: node of the workflow, workflow (pegasus-kickstart).
    "PEGASUS_DAG_JOB_ID",
    "PEGASUS_WF_UUID",
    "PEGASUS_WF_LABEL",
    // HTCondor: cluster.process where the submitter sets it, and slot.
    "CONDOR_JOBID",
    "_CONDOR_SLOT",
    // Airflow (BashOperator).
    "AIRFLOW_CTX_DAG_ID",
    "AIRFLOW_CTX_TASK_ID",
    "AIRFLOW_CTX_DAG_RUN_ID",
    "AIRFLOW_CTX_TRY_NUMBER",
    // GNU parallel: number of the job, slot, process id of parallel (man parallel).
    "PARALLEL_SEQ",
    "PARALLEL_JOBSLOT",
    "PARALLEL_PID",
    // make: depth of recursion.
    "MAKELEVEL",
    // Slurm: job, step, array, task (man sbatch, srun).
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_STEP_ID",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    // PBS and Torque (man qsub).
    "PBS_JOBID",
    "PBS_JOBNAME",
    "PBS_ARRAY_INDEX",
    "PBS_ARRAYID",
    "PBS_TASKNUM",
    // LSF (man bsub).
    "LSB_JOBID",
    "LSB_JOBINDEX",
    "LSB_JOBNAME",
    // Grid Engine (man qsub).
    "JOB_ID",
    "JOB_NAME",
    "SGE_TASK_ID",
    // Flux (man flux-environment).
    "FLUX_JOB_ID",
    "FLUX_TASK_RANK",
    // AWS Batch.
    "AWS_BATCH_JOB_ID",
    "AWS_BATCH_JOB_ARRAY_INDEX",
    // MPI: rank, size, rank on this machine, of Open MPI, MPICH and its kin, PMI and PMIx.
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMI_SIZE",
    "PMIX_RANK",
    "PMIX_NAMESPACE",
];

/// The variables that decide how standard tools sort, count and write, so that a run cannot be
/// repeated without them (POSIX.1-2017, XBD 8.2 and 8.3).
const LOCALE: &[&str] = &[
    "LANG",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_NUMERIC",
    "LC_TIME",
    "TZ",
];

/// Names and values of variables, in the order of names. Shared, because most processes
/// have their parent's.
pub(crate) type Variables = Arc<[(Text, Text)]>;

/// The image that stands for image `upid` in the record of its variables, and true if that is `upid` itself.
/// An image with the variables of the image before shares its row.
pub(super) fn stands_for(
    upid: Upid,
    variables: &Variables,
    before: (&Variables, Option<Upid>),
) -> (Option<Upid>, bool) {
    match variables {
        none if none.is_empty() => (None, false),
        same if same == before.0 => (before.1, false),
        _ => (Some(upid), true),
    }
}

/// The variables to record.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    asked: GlobSet,
}

impl Wanted {
    /// The built-in names and those that match one of `patterns`, in the form of a shell's.
    ///
    /// # Errors
    /// Fails if a pattern is not valid; the text names it.
    pub fn new(patterns: &[String]) -> Result<Wanted, String> {
        let mut asked = GlobSetBuilder::new();
        for pattern in patterns {
            asked.add(Glob::new(pattern).map_err(|error| error.to_string())?);
        }
        let asked = asked.build().map_err(|error| error.to_string())?;
        Ok(Wanted { asked })
    }

    /// The variables to record out of an environment, each ended by a NUL.
    pub(crate) fn of(&self, environ: &[u8]) -> Variables {
        let entries = environ.split(|&byte| byte == 0);
        let entries = entries.filter_map(|entry| {
            let equals = entry.iter().position(|&byte| byte == b'=')?;
            let (name, value) = (&entry[..equals], &entry[equals + 1..]);
            let text = |bytes: &[u8]| Text::from(bytes.to_vec());
            self.matches(name).then(|| (text(name), text(value)))
        });
        let mut variables: Vec<_> = entries.collect();
        // Shells pass the same variables on in another order.
        variables.sort_by(|(one, _), (other, _)| one.as_os_str().cmp(other.as_os_str()));
        variables.into()
    }

    /// True if this variable is recorded.
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        // Compared by length first: few bytes of a usual environment are read twice.
        let mut built_in = JOB_IDS.iter().chain(LOCALE);
        built_in.any(|known| known.as_bytes() == name)
            || (!self.asked.is_empty()
                && str::from_utf8(name).is_ok_and(|name| self.asked.is_match(name)))
    }
}

/// Result of a computation from the environment of the last program: most programs have the environment of
/// the one before.
#[derive(Debug, Default)]
pub(super) struct OfLast<T> {
    last: Option<(Vec<u8>, T)>,
}

impl<T: Clone> OfLast<T> {
    /// The result of `make` for `environ`.
    pub(super) fn get(&mut self, environ: &[u8], make: impl FnOnce() -> T) -> T {
        match &self.last {
            Some((last, made)) if last == environ => made.clone(),
            _ => {
                let made = make();
                self.last = Some((environ.to_vec(), made.clone()));
                made
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(wanted: &Wanted, environ: &[u8]) -> Vec<String> {
        let variables = wanted.of(environ);
        let shown = variables
            .iter()
            .map(|(n, v)| format!("{}={}", n.text(), v.text()));
        shown.collect()
    }

    #[test]
    fn nothing_is_kept_that_was_not_asked_for() {
        let environ =
            b"PATH=/bin\0LC_ALL=C\0SLURM_JOB_ID=17\0AWS_SECRET_ACCESS_KEY=x\0MY_A=1=2\0MY_B=\0\0=\0no\0";
        let built_in = Wanted::new(&[]).unwrap();
        assert_eq!(names(&built_in, environ), ["LC_ALL=C", "SLURM_JOB_ID=17"]);
        let asked = Wanted::new(&["MY_?".into(), "{PATH,HOME}".into()]).unwrap();
        assert_eq!(
            names(&asked, environ),
            [
                "LC_ALL=C",
                "MY_A=1=2",
                "MY_B=",
                "PATH=/bin",
                "SLURM_JOB_ID=17"
            ]
        );
        assert!(names(&built_in, b"").is_empty());
    }

    #[test]
    fn the_same_environment_is_read_once() {
        let mut of_last = OfLast::default();
        let lengths = [&b"A=1\0"[..], b"A=1\0", b"A=12\0", b"A=1\0"].map(|environ| {
            let mut is_read = false;
            let length = of_last.get(environ, || {
                is_read = true;
                environ.len()
            });
            (length, is_read)
        });
        assert_eq!(lengths, [(4, true), (4, false), (5, true), (4, true)]);
    }

    #[test]
    fn a_pattern_that_is_none_is_an_error() {
        let error = Wanted::new(&["A[".into()]).unwrap_err();
        assert!(error.contains("A["), "{error}");
    }
}
