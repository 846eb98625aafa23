//! Every process from its begin to its end, whatever it does to hide: the scenes of
//! `tests/programs/lifetimes.c`, which print what must be seen.

mod ancestry;
mod costs;
mod environment;
mod execs;
mod letting_go;
mod namespaces;
mod privilege;
mod signals;
mod storms;
mod threads;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::process::{Finished, start};
use crate::support::programs::program;
use crate::support::trace::{Image, Trace};
use crate::support::{Scratch, need_fuse, run_in};

/// Longest time a scene may take on a busy machine; more is a hang.
const LIMIT: Duration = Duration::from_secs(240);

/// A directory in which scenes are played.
struct Stage {
    scratch: Scratch,
    program: PathBuf,
}

/// A scene that was played under trace.
struct Played {
    finished: Finished,
    trace: Trace,
    /// Path of the program of the scenes, as it names itself.
    program: String,
}

impl Stage {
    fn new() -> Option<Stage> {
        if !need_fuse() {
            return None;
        }
        let program = program("lifetimes", &[])?;
        let scratch = Scratch::new();
        Some(Stage { scratch, program })
    }

    fn trace_path(&self) -> PathBuf {
        self.scratch.join("trace.db")
    }

    /// `flowtrace run --force [OPTIONS] --`, without a command.
    fn run(&self, options: &[&str]) -> Command {
        let mut command = run_in(&self.scratch.dir("job"), &self.trace_path());
        command.arg("--force").args(options).arg("--");
        command
    }

    /// Plays a scene, which must end with `code`.
    #[track_caller]
    fn play(&self, scene: &[&str], code: i32) -> Played {
        let mut command = self.run(&[]);
        command.arg(&self.program).args(scene);
        self.finish(&mut command, code)
    }

    /// Runs a shell script in which `$0` is the program of the scenes.
    #[track_caller]
    fn shell(&self, script: &str, code: i32) -> Played {
        let mut command = self.run(&[]);
        command.args(["sh", "-c", script]).arg(&self.program);
        self.finish(&mut command, code)
    }

    #[track_caller]
    fn finish(&self, command: &mut Command, code: i32) -> Played {
        let finished = start(command).wait(LIMIT).expect(code);
        Played {
            finished,
            trace: Trace::open_complete(&self.trace_path()),
            program: self.program.display().to_string(),
        }
    }
}

impl Played {
    /// The number that the scene printed after `name`.
    #[track_caller]
    fn said(&self, name: &str) -> i64 {
        let text = self.finished.stdout_text();
        let said = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        said.unwrap_or_else(|| panic!("no {name} in {text:?}"))
    }

    /// The images of process `pid`, in order.
    #[track_caller]
    fn images_of(&self, pid: i64) -> Vec<Image> {
        let sql = format!("SELECT upid FROM processes WHERE pid = {pid}");
        let upids: Vec<i64> = self
            .trace
            .rows(&sql)
            .iter()
            .map(|r| r[0].parse().unwrap())
            .collect();
        let images = self.trace.images().into_iter();
        images.filter(|image| upids.contains(&image.upid)).collect()
    }

    /// Number of rows for which a condition holds.
    #[track_caller]
    fn count(&self, condition: &str) -> i64 {
        self.trace
            .one(&format!("SELECT COUNT(*) FROM processes WHERE {condition}"))
    }

    /// Value of a counter of losses; 0 if nothing was counted.
    fn lost(&self, counter: &str) -> i64 {
        self.trace.one(&format!(
            "SELECT COALESCE(SUM(value), 0) FROM losses WHERE counter = '{counter}'"
        ))
    }

    /// The scene's own process: the first one of the run.
    fn first(&self) -> Image {
        self.trace.images().into_iter().next().expect("a process")
    }
}

/// Returns true if no process whose arguments name `path` is left, stopped or not.
fn nobody_is_left(path: &Path) -> bool {
    let name = path.as_os_str().as_encoded_bytes();
    let processes = std::fs::read_dir("/proc").expect("procfs").flatten();
    let pids = processes.filter(|p| p.file_name().to_string_lossy().parse::<u32>().is_ok());
    pids.filter_map(|p| std::fs::read(p.path().join("cmdline")).ok())
        .all(|cmdline| !cmdline.windows(name.len()).any(|part| part == name))
}
