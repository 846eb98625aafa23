//! The recording of runs, and the notes if it was not the same for all.

use flowtrace_schema::LossRow;
use serde::Serialize;

use crate::model::Workflow;
use crate::paths::relative_to;

/// The way a run was recorded, which decides what was seen of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recording {
    /// The source of calls on files of the traced directories, as in the SQL view `runs`.
    pub files: String,
    /// The source of processes, as in the SQL view `runs`.
    pub processes: String,
    /// True if pipes and files outside the traced directories were recorded.
    pub elsewhere: bool,
    /// True if files were left out (`--include`, `--exclude`).
    pub left_out: bool,
    /// The traced directories, relative to the one in which the command was started.
    pub directories: Vec<String>,
}

impl Recording {
    pub(super) fn of(workflow: &Workflow) -> Recording {
        let joined = |of: fn(&flowtrace_schema::RunRow) -> &str| {
            let mut all: Vec<&str> = workflow.runs.iter().map(of).collect();
            all.sort_unstable();
            all.dedup();
            all.join(", ")
        };
        let cwd = workflow.runs.first().map_or("", |run| run.cwd.as_str());
        let traced = workflow.directories.iter();
        let mut directories: Vec<String> = traced
            .map(|directory| match directory.path == cwd {
                true => ".".into(),
                false => relative_to(&directory.path, cwd).to_owned(),
            })
            .collect();
        directories.sort();
        directories.dedup();
        let excluded = |loss: &LossRow| loss.counter == "excluded_calls" && loss.value > 0;
        Recording {
            files: joined(|run| &run.file_layer),
            processes: joined(|run| &run.process_layer),
            elsewhere: workflow.sees_outside(),
            left_out: workflow.losses.iter().any(excluded),
            directories,
        }
    }

    /// The properties that can differ between recordings: name, and value in words. Directories of a
    /// replay are its own and left out.
    pub(super) fn aspects(&self, is_replay: bool) -> [(&'static str, Option<String>); 5] {
        let seen = match self.elsewhere {
            true => "seen",
            false => "not seen",
        };
        let files = match self.left_out {
            true => "some",
            false => "all",
        };
        let directories = self.directories.join(", ");
        [
            ("file calls", Some(self.files.clone())),
            ("processes", Some(self.processes.clone())),
            ("pipes and files elsewhere", Some(seen.into())),
            ("files recorded", Some(files.into())),
            ("traced directories", (!is_replay).then_some(directories)),
        ]
    }
}
