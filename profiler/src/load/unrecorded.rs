//! Runs that went on after the process that writes the trace had ended.

use flowtrace_render::units;
use flowtrace_schema::{Result, Trace};

use crate::signals::signal_name;

/// From when on nothing of the run was recorded, why, and how the run ended, in a sentence without its full
/// stop; `None`: no note beside the trace says so.
///
/// # Errors
/// When the file cannot be read.
pub fn unrecorded(trace: &Trace) -> Result<Option<String>> {
    let Some(note) = trace.unrecorded() else {
        return Ok(None);
    };
    let hosts = trace.hosts()?;
    let begin = hosts.first().map_or(note.from_unix_ns, |h| h.epoch_unix_ns);
    let after = |unix_ns: i64| units::duration(unix_ns.saturating_sub(begin).max(0));
    let why = match note.by_signal {
        Some(signal) => format!("was killed by {}", signal_name(signal.into())),
        None => "ended, which is a bug".into(),
    };
    let end = match note.end {
        None => "the run went on, and its end is not known".into(),
        Some(end) => {
            let ended = match (end.exit_signal, end.exit_code) {
                (Some(signal), _) => format!(" and was ended by {}", signal_name(signal.into())),
                (None, Some(code)) => format!(", exit {code}"),
                (None, None) => String::new(),
            };
            format!("the run went on until {}{ended}", after(end.unix_ns))
        }
    };
    Ok(Some(format!(
        "nothing was recorded later than {} after the begin of the recording, when the recorder process of flowtrace \
         {why}; {end}",
        after(note.from_unix_ns)
    )))
}
