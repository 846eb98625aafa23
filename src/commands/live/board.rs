//! What all viewers of a run see: the newest picture in parts, each with the number of its last change.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use flowtrace_profiler::live::{Budget, Follower, Limiting, Picture, Search, State};
use flowtrace_profiler::load::load;
use flowtrace_profiler::report::{self, Limits};
use flowtrace_schema::Trace;
use serde::Serialize;

use crate::failure::Failure;

/// Shortest time between two pictures.
const REFRESH: Duration = Duration::from_millis(500);
/// Shortest time between two searches for the limit.
const SEARCH: Duration = Duration::from_secs(2);
/// Attempts to read a trace before it counts as unreadable.
const ATTEMPTS: u32 = 20;
/// Shortest time between two readings of a trace that grows fast.
const BREATH: Duration = Duration::from_millis(5);

/// The shared state of the follower and the connections.
#[derive(Debug, Default)]
pub(super) struct Board {
    shown: Mutex<Shown>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Shown {
    version: u64,
    parts: BTreeMap<&'static str, (u64, Arc<str>)>,
    title: String,
    report: Option<Arc<[u8]>>,
    /// True if the page becomes the report.
    is_over: bool,
    viewers: usize,
    was_read: bool,
}

/// News for a viewer.
#[derive(Debug)]
pub(super) enum News {
    /// Changed parts as one JSON object, and the version that a viewer has with them.
    Parts(u64, String),
    /// The report is there.
    Report,
    /// Nothing.
    Nothing,
}

/// A viewer, as long as it is connected.
#[derive(Debug)]
pub(super) struct Viewer<'a>(&'a Board);

impl Drop for Viewer<'_> {
    fn drop(&mut self) {
        self.0.lock().viewers -= 1;
    }
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a viewer; `None`: there are too many.
    pub(super) fn viewer(&self) -> Option<Viewer<'_>> {
        const MOST: usize = 64;
        let mut shown = self.lock();
        if shown.viewers >= MOST {
            return None;
        }
        shown.viewers += 1;
        Some(Viewer(self))
    }

    /// Viewers that are connected.
    pub(super) fn viewers(&self) -> usize {
        self.lock().viewers
    }

    /// True if somebody has the report.
    pub(super) fn was_read(&self) -> bool {
        self.lock().was_read
    }

    /// Title of the page.
    pub(super) fn title(&self) -> String {
        self.lock().title.clone()
    }

    /// The report, once there is one.
    pub(super) fn report(&self) -> Option<Arc<[u8]>> {
        let mut shown = self.lock();
        shown.was_read |= shown.report.is_some();
        shown.report.clone()
    }

    /// True if the page has become the report.
    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// All parts as one JSON object.
    pub(super) fn all(&self) -> String {
        joined(&self.lock(), 0)
    }

    /// The parts that have changed since a version; waits for them for some time.
    pub(super) fn news(&self, since: u64, patience: Duration) -> News {
        let shown = self.lock();
        let waits = |shown: &mut Shown| shown.version <= since && !shown.is_over;
        let waited = self.changed.wait_timeout_while(shown, patience, waits);
        let (shown, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if shown.is_over {
            return News::Report;
        }
        match shown.version > since {
            true => News::Parts(shown.version, joined(&shown, since)),
            false => News::Nothing,
        }
    }

    fn show(&self, picture: &Picture, limiting: &Limiting) -> Result<(), Failure> {
        let mut shown = self.lock();
        let version = shown.version + 1;
        let has_report = shown.report.is_some();
        let head = Head {
            head: &picture.head,
            has_report,
        };
        let mut is_changed = false;
        for (name, json) in [
            ("head", json(&head)?),
            ("running", json(&picture.running)?),
            ("steps", json(&picture.steps)?),
            ("files", json(&picture.files)?),
            ("machine", json(&picture.machine)?),
            ("nodes", json(&picture.nodes)?),
            ("failures", json(&picture.failures)?),
            ("managers", json(&picture.managers)?),
            ("graph", json(&picture.graph)?),
            ("limit", json(limiting)?),
        ] {
            let is_new = shown
                .parts
                .get(name)
                .is_none_or(|(_, known)| **known != *json);
            if is_new {
                shown.parts.insert(name, (version, json.into()));
                is_changed = true;
            }
        }
        if is_changed {
            shown.version = version;
            shown.title = match picture.head.command.as_str() {
                "" => "flowtrace live".into(),
                command => format!("{command} · flowtrace live"),
            };
            self.changed.notify_all();
        }
        Ok(())
    }

    fn end(&self, report: Vec<u8>, is_over: bool) {
        let mut shown = self.lock();
        shown.report = Some(report.into());
        shown.is_over = is_over;
        self.changed.notify_all();
    }
}

/// The parts that have changed since a version, as one JSON object.
fn joined(shown: &Shown, since: u64) -> String {
    let parts = shown.parts.iter();
    let parts = parts.filter(|(_, (version, _))| *version > since);
    let parts: Vec<String> = parts
        .map(|(name, (_, json))| format!("\"{name}\":{json}"))
        .collect();
    format!("{{{}}}", parts.join(","))
}

/// The head, with what only the server knows.
#[derive(Serialize)]
struct Head<'a> {
    #[serde(flatten)]
    head: &'a flowtrace_profiler::live::Head,
    /// True if there is a report.
    has_report: bool,
}

fn json(part: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(part)
        .map_err(|error| Failure::new(1, format!("cannot write JSON: {error}")))
}

/// Follows a trace until its recording has ended, and shows it on the board; then makes its report.
pub(super) fn follow(mut follower: Follower, trace: &Path, board: &Board) -> Result<(), Failure> {
    let budget = Budget::default();
    let mut search = Search::new(Duration::ZERO, SEARCH);
    let mut shown = None::<Instant>;
    let mut failures = 0;
    loop {
        let is_live = follower.is_being_recorded();
        let is_all = match follower.advance() {
            Ok(is_all) => is_all,
            // The end of a recording moves its log into the file; the next attempt succeeds.
            Err(_) if failures < ATTEMPTS => {
                failures += 1;
                thread::sleep(REFRESH);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        failures = 0;
        let limiting = search.limiting(&follower)?;
        let is_last = is_all && !is_live;
        if is_last || shown.is_none_or(|last| last.elapsed() >= REFRESH) {
            let picture = follower.picture(limiting)?;
            board.show(&picture, limiting)?;
            shown = Some(Instant::now());
            if is_last {
                return conclude(&mut follower, picture.head.state, trace, board, limiting);
            }
        }
        follower.rest()?;
        thread::sleep(budget.pause(if is_all { REFRESH } else { BREATH }));
    }
}

fn conclude(
    follower: &mut Follower,
    state: State,
    trace: &Path,
    board: &Board,
    limiting: &Limiting,
) -> Result<(), Failure> {
    let trace = Trace::open(trace)?;
    let workflow = load(&trace)?;
    let report = report::gather(&workflow, &trace, Limits::default())?;
    let mut page = Vec::new();
    report.write_html(&mut page)?;
    // The page of a recording that was cut short stays, and says so.
    board.end(page, state == State::Ended);
    let picture = follower.picture(limiting)?;
    board.show(&picture, limiting)
}
