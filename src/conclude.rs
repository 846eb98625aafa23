//! The end of a recording: rules are inferred and stored, and the run is explained in a few lines.

use std::io::Write;
use std::path::Path;

use flowtrace_profiler::load::{self, load_at_end};
use flowtrace_profiler::rules;
use flowtrace_profiler::text::summary::{self, Style};
use flowtrace_schema::{Displaced, Trace, Unrecorded};

use crate::failure::{Failure, OWN_FAILURE};
use crate::{explained, output};

/// The failure of a trace that is no longer where it was written. A file at its path now, if there is one, is
/// another's.
pub(crate) fn displaced(trace: &Path, how: Displaced) -> Failure {
    let shown = output::shown(trace).display();
    Failure::new(
        OWN_FAILURE,
        match how {
            Displaced::Deleted => {
                format!(
                    "{shown} was deleted while it was written: nothing of the recording is left"
                )
            }
            Displaced::Moved => {
                format!(
                    "{shown} was moved while it was written: the recording is under its new name"
                )
            }
        },
    )
}

/// Says where an older trace is now whose place the new one took.
pub(crate) fn say_kept(kept: &Path) {
    message!(
        "flowtrace: the older trace is now {}",
        output::shown(kept).display()
    );
}

/// Says from when on nothing was recorded, though the run went on. Nothing is said of a trace without a note.
pub(crate) fn say_unrecorded(trace: &Path) {
    if Unrecorded::of(trace).is_none() {
        return;
    }
    let opened = Trace::open(trace);
    if let Ok(Some(unrecorded)) = opened.and_then(|trace| load::unrecorded(&trace)) {
        message!(
            "flowtrace: {}: {unrecorded}",
            output::shown(trace).display()
        );
    }
}

/// Stores the inferred rules in `trace`, and prints the summary on standard error if asked to.
pub(crate) fn conclude(trace: &Path, print: bool) -> Result<(), Failure> {
    let opened = Trace::open_to_store(trace)?;
    let seen = opened.store_inferred_ends();
    if !print {
        opened.store_rules(rules::infer_at_end(&opened)?)?;
        return Ok(seen?);
    }
    let workflow = load_at_end(&opened)?;
    // Readers infer the rules themselves if they could not be stored, as on a full disk.
    let stored = opened.store_rules(workflow.rules());
    let verdict = explained::verdict(&opened, &workflow)?;
    let error = std::io::stderr();
    let style = Style {
        width: output::width_of(std::io::stderr()),
        is_coloured: output::takes_colour(&error),
    };
    let text = summary::with_verdict(&workflow, output::shown(trace), style, &verdict);
    // The reader of standard error may be gone; the trace is complete all the same.
    let _ = error.lock().write_all(text.as_bytes());
    stored?;
    Ok(seen?)
}
