//! The names that workflow managers gave to their jobs, as names of steps.
//!
//! If a manager names the rule in a job's arguments, that is the name of the job's processes. If it keeps a
//! record beside the run, this is read once, when the run ends: Snakemake notes the rule and the command for
//! each output (`.snakemake/metadata`), Nextflow writes the name of the task into its `.command.run`. A job
//! without either keeps the names of its programs; nothing is guessed.

mod records;

use std::collections::HashMap;

use flowtrace_schema::ProgramRow;
pub use records::Records;

use crate::argv::unquote;
use crate::managers::{runner, shell_line};

/// Changes the rules of rows that belong to a job of a manager into the job's name. `records` holds the files
/// that managers left beside the run; `None` where only the trace is available.
pub fn name_jobs(rows: &[ProgramRow], rules: &mut [String], records: Option<&mut Records>) {
    let mut records = records;
    let mut at: HashMap<i64, usize> = HashMap::with_capacity(rows.len());
    // Job of each row, as the row that began it.
    let mut job: Vec<Option<usize>> = Vec::with_capacity(rows.len());
    let mut names: HashMap<usize, String> = HashMap::new();
    let found =
        |at: &HashMap<i64, usize>, upid: Option<i64>| upid.and_then(|upid| at.get(&upid).copied());
    for (i, row) in rows.iter().enumerate() {
        let parent = found(&at, row.parent_upid);
        let before = found(&at, row.prev_upid);
        at.insert(row.upid, i);
        let argv = match &*row.origin {
            "fork" => Vec::new(),
            _ => row.command.as_deref().map(unquote).unwrap_or_default(),
        };
        let own = of_arguments(&argv).or_else(|| {
            let records = records.as_deref_mut()?;
            records.name(row.cwd.as_deref(), &argv)
        });
        let inherited = before
            .and_then(|i| job[i])
            .or_else(|| parent.and_then(|i| job[i]));
        job.push(match own {
            Some(name) => {
                names.insert(i, distinct(name));
                Some(i)
            }
            None => inherited,
        });
        if let Some(name) = job[i].and_then(|job| names.get(&job)) {
            rules[i].clone_from(name);
        }
    }
}

/// The name of a rule, changed where a manager or shell has the same name, so that it is not taken for one.
fn distinct(name: String) -> String {
    match runner(&name) {
        Some(_) => format!("rule {name}"),
        None => name,
    }
}

/// The rule that Snakemake makes the process of a single job run, by its arguments.
fn of_arguments(argv: &[String]) -> Option<String> {
    const OPTION: &str = "--target-jobs";
    let inner;
    let mut words = argv;
    if !words.iter().any(|word| word == OPTION) {
        // A shell that starts it.
        let line = shell_line(argv).filter(|line| line.contains(OPTION))?;
        inner = unquote(line);
        words = &inner;
    }
    let from = words.iter().position(|word| word == OPTION)?;
    let jobs = words[from + 1..]
        .iter()
        .take_while(|word| !word.starts_with("--"));
    let mut rules = jobs.map(|job| job.split(':').next().unwrap_or(job));
    let first = rules.next().filter(|rule| !rule.is_empty())?;
    // A process that runs several rules has the name of none.
    rules.all(|rule| rule == first).then(|| first.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules;

    fn row(
        upid: i64,
        parent: Option<i64>,
        prev: Option<i64>,
        command: &str,
        cwd: &str,
    ) -> ProgramRow {
        ProgramRow {
            upid,
            parent_upid: parent,
            prev_upid: prev,
            command: Some(command.into()),
            cwd: Some(cwd.into()),
            origin: "exec".into(),
            ..ProgramRow::default()
        }
    }

    fn named(rows: &[ProgramRow], records: Option<&mut Records>) -> Vec<String> {
        let mut rules = rules::of_rows(rows, &mut rules::Unseen);
        name_jobs(rows, &mut rules, records);
        rules
    }

    #[test]
    fn arguments_name_the_job_and_all_below_it() {
        let job =
            "'cd /w && python3 -m snakemake --target-jobs '\\''plot:i=1'\\'' --allowed-rules plot'";
        let rows = [
            row(1, None, None, "python3 /usr/bin/snakemake -j2", "/w"),
            row(2, Some(1), None, &format!("/bin/sh -c {job}"), "/w"),
            row(
                3,
                Some(2),
                None,
                "python3 -m snakemake --target-jobs plot:i=1 --cores 2",
                "/w",
            ),
            row(4, Some(3), None, "uname -p", "/w"),
            row(
                5,
                Some(1),
                None,
                "python3 -m snakemake --target-jobs a:i=1 b:i=1 --cores 2",
                "/w",
            ),
            row(
                6,
                Some(1),
                None,
                "python3 -m snakemake --target-jobs make: --cores 2",
                "/w",
            ),
        ];
        let expected = [
            "snakemake",
            "plot",
            "plot",
            "plot",
            "python3 -m snakemake",
            "rule make",
        ];
        assert_eq!(named(&rows, None), expected);
    }

    #[test]
    fn a_shell_that_starts_one_program_is_no_second_one() {
        let rows = [
            row(
                1,
                None,
                None,
                "perl /usr/bin/parallel 'gzip {}' ::: a",
                "/w",
            ),
            row(2, Some(1), None, "/bin/sh -c 'gzip a > b'", "/w"),
            row(3, Some(2), None, "gzip a", "/w"),
        ];
        assert_eq!(named(&rows, None), ["parallel", "sh -c", "gzip"]);
    }

    #[test]
    fn records_beside_the_run_name_their_jobs() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let metadata = root.join(".snakemake/metadata");
        std::fs::create_dir_all(&metadata).unwrap();
        let note = |name: &str, text: &str| std::fs::write(metadata.join(name), text).unwrap();
        note(
            "eA==",
            r#"{"rule": "sorted", "shellcmd": "sort -n a | head > x"}"#,
        );
        note("eQ==", r#"{"rule": "late", "shellcmd": null}"#);
        note("bad", "no json");
        let task = root.join("work/ab/cd");
        std::fs::create_dir_all(&task).unwrap();
        std::fs::write(
            task.join(".command.run"),
            "#!/bin/bash\n### ---\n### name: 'ALIGN:SORT (s1)'\n",
        )
        .unwrap();
        let (root, task) = (root.to_str().unwrap(), task.to_str().unwrap());
        let rows = [
            row(1, None, None, "python3 /usr/bin/snakemake -j2", root),
            row(
                2,
                Some(1),
                None,
                "/bin/bash -c 'set -euo pipefail;  sort -n a | head > x'",
                root,
            ),
            row(3, Some(2), None, "sort -n a", root),
            row(
                4,
                Some(1),
                None,
                "/bin/bash -c 'set -euo pipefail;  other'",
                root,
            ),
            row(5, None, None, &format!("bash {task}/.command.run"), root),
            row(
                6,
                Some(5),
                None,
                &format!("bash -ue {task}/.command.sh"),
                task,
            ),
            row(7, Some(1), None, "bash .command.run", task),
        ];
        let mut records = Records::default();
        assert_eq!(
            named(&rows, Some(&mut records)),
            [
                "snakemake",
                "sorted",
                "sorted",
                "bash -c",
                "ALIGN:SORT",
                "ALIGN:SORT",
                "ALIGN:SORT"
            ]
        );
        assert_eq!(
            named(&rows[..2], None)[1],
            "bash -c",
            "without what lies beside the run"
        );
    }
}
