//! The first lines of a summary: how the run ended, and whether the trace can be trusted for it.

use flowtrace_render::units;

use super::facts::{Facts, Loss};

pub(super) fn processes(facts: &Facts) -> String {
    units::counted(facts.processes, "process", "processes")
}

/// The text in place of the processes, where none were recorded.
pub fn not_recorded(has_packets: bool) -> &'static str {
    match has_packets {
        true => "what ran is not known: only packets were recorded",
        false => "what ran is not known: no processes were recorded",
    }
}

/// The end of the run, in one line.
pub(crate) fn headline(facts: &Facts) -> String {
    let command = match &facts.command {
        Some(command) => units::shorten(&units::plain(command), 60),
        None => "the recording".into(),
    };
    let length = units::duration(facts.duration_ns);
    let end = if facts.is_incomplete && !facts.is_live {
        ending_of_incomplete(facts)
    } else if facts.is_live {
        format!("is still being recorded, {length} so far")
    } else if facts.is_cut_short {
        format!("was cut short after {length} or later, its end was not recorded")
    } else {
        match (&facts.exit_signal_name, facts.exit_code) {
            (Some(signal), _) => format!("was ended by {signal} after {length}"),
            (None, Some(code)) => format!("finished in {length}, exit {code}"),
            (None, None) => format!("finished in {length}"),
        }
    };
    let end = match (facts.failed_runs, facts.runs) {
        (0, _) | (_, 0 | 1) => end,
        (failed, runs) => format!("{end} ({failed} of {runs} runs failed, this one first)"),
    };
    let runs = match facts.runs {
        0 | 1 => String::new(),
        n => {
            let hosts = units::counted(facts.hosts as i64, "host", "hosts");
            format!(" ({n} runs on {hosts})")
        }
    };
    // A short time is not worth mentioning; a server that went on for a while is.
    let ended_ns = facts.recording_ns - facts.begins_ns;
    let after_ns = ended_ns - facts.duration_ns;
    let is_known = !facts.is_cut_short && !facts.is_incomplete;
    let left_behind = if after_ns > 1_000_000_000 && is_known {
        let until = units::duration(ended_ns);
        format!(" (what it left behind ended after {until})")
    } else {
        String::new()
    };
    let execs = units::counted(facts.execs, "exec", "execs");
    let bound = if facts.is_incomplete { "at least " } else { "" };
    let ran = match facts.process_layer.as_str() {
        "none" if facts.runs > 0 => not_recorded(facts.network.is_some()).into(),
        _ => format!("{bound}{}, {execs}", processes(facts)),
    };
    format!("{command}{runs} {end}{left_behind} · {ran}")
}

/// The end of a run with missing rows: its own row may be there, but not the duration of the command.
fn ending_of_incomplete(facts: &Facts) -> String {
    let length = units::duration(facts.recording_ns);
    if facts.is_cut_short || facts.runs == 0 {
        return format!("was recorded in part for {length} or longer, its end is not stored");
    }
    let end = match (&facts.exit_signal_name, facts.exit_code) {
        (Some(signal), _) => format!("was ended by {signal}"),
        (None, Some(code)) => format!("ended with exit {code}"),
        (None, None) => "ended".into(),
    };
    format!("{end}, recorded in part for {length}")
}

/// The first lines when rows are missing.
pub(super) fn incomplete(facts: &Facts) -> Vec<String> {
    let is_of_store = |loss: &&Loss| loss.source == "store" && loss.value > 0;
    let of_store: Vec<_> = facts.losses.iter().filter(is_of_store).collect();
    let dropped = of_store.iter().find(|loss| loss.counter == "rows_dropped");
    let rows = match dropped {
        Some(loss) => format!(
            "{} could not be stored",
            units::counted(loss.value, "row", "rows")
        ),
        None => "rows could not be stored".into(),
    };
    let is_full = of_store.iter().any(|loss| loss.counter == "disk_full");
    let why = if is_full {
        ": the disk of the trace was full"
    } else {
        ""
    };
    vec![
        format!("{rows}{why}"),
        "what follows is about the rest; anything may be missing from it".into(),
    ]
}
