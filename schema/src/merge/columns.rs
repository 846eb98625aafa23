//! The kind of each column of each table: an id to renumber, a time to shift, a number of a dictionary, or a
//! plain value. Recognised by name, so that a new table is copied correctly as long as it keeps to the names
//! that all tables share.

/// Ids that are counted from 1 in every file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Run,
    Upid,
    File,
    Channel,
    ChannelEnd,
    Sample,
    Capture,
    Flow,
    Module,
    Frame,
    Function,
    Stack,
    StackThread,
}

impl Space {
    /// All spaces, with the table and column that define the ids.
    pub(super) const ALL: [(Space, &'static str, &'static str); 13] = [
        (Space::Run, "run", "run_id"),
        (Space::Upid, "process", "upid"),
        (Space::File, "file", "file_id"),
        (Space::Channel, "channel", "channel_id"),
        (Space::ChannelEnd, "channel_end", "end_id"),
        (Space::Sample, "sample", "sample_id"),
        (Space::Capture, "capture", "capture_id"),
        (Space::Flow, "flow", "flow_id"),
        (Space::Module, "stack_module", "module_id"),
        (Space::Frame, "stack_frame", "frame_id"),
        (Space::Function, "stack_function", "function_id"),
        (Space::Stack, "stack", "stack_id"),
        (Space::StackThread, "stack_thread", "thread_id"),
    ];
}

/// A table that numbers names which every file may number differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dictionary {
    Host,
    Counter,
    FileKind,
    Fidelity,
    Activity,
}

/// The change of a value on its way into the merged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing.
    Keep,
    /// A time, which is shifted.
    Time,
    /// A time of a sample of a stack, in its own unit, which is shifted.
    StackTime,
    /// An id, which is renumbered.
    Id(Space),
    /// A number of a dictionary.
    Name(Dictionary),
    /// Operation, fidelity and flags of a call in one number.
    What,
    /// The key of a packet: a time and a number.
    PacketKey,
    /// Capture, way and direction of a packet in one number; the direction turns round with the flow.
    PacketWhat,
    /// A side of a flow, which turns round with it.
    Side,
}

/// The change of the values of a column.
pub(super) fn change(table: &str, column: &str) -> Change {
    match (table, column) {
        ("call", "what") => Change::What,
        ("packet", "at") => Change::PacketKey,
        ("stack_sample" | "stack_wait", "at") => Change::StackTime,
        ("stack", "caller_id") => Change::Id(Space::Stack),
        ("packet", "what") => Change::PacketWhat,
        ("flow_owner" | "flow_sample", "side") => Change::Side,
        ("file", "kind") => Change::Name(Dictionary::FileKind),
        ("file", "coverage") => Change::Name(Dictionary::Fidelity),
        ("sample", "activity") => Change::Name(Dictionary::Activity),
        (_, "run_id") => Change::Id(Space::Run),
        (_, "host_id") => Change::Name(Dictionary::Host),
        (_, "counter_id") => Change::Name(Dictionary::Counter),
        (_, "file_id" | "directory_id") => Change::Id(Space::File),
        (_, "channel_id") => Change::Id(Space::Channel),
        (_, "end_id") => Change::Id(Space::ChannelEnd),
        (_, "sample_id") => Change::Id(Space::Sample),
        (_, "capture_id") => Change::Id(Space::Capture),
        (_, "flow_id") => Change::Id(Space::Flow),
        (_, "module_id") => Change::Id(Space::Module),
        (_, "frame_id") => Change::Id(Space::Frame),
        (_, "function_id") => Change::Id(Space::Function),
        (_, "stack_id") => Change::Id(Space::Stack),
        (_, "thread_id") => Change::Id(Space::StackThread),
        (_, column) if column == "upid" || column.ends_with("_upid") => Change::Id(Space::Upid),
        (_, "t_ns" | "from_ns" | "to_ns" | "start_ns" | "end_ns" | "first_ns" | "last_ns") => {
            Change::Time
        }
        _ => Change::Keep,
    }
}

/// The column that this one changes places with when its flow turns round.
pub(super) fn turned(column: &str) -> Option<String> {
    for (a, b) in [("src", "dst"), ("out_", "back_")] {
        if let Some(rest) = column.strip_prefix(a) {
            return Some(format!("{b}{rest}"));
        }
        if let Some(rest) = column.strip_prefix(b) {
            return Some(format!("{a}{rest}"));
        }
    }
    match column {
        "sport" => Some("dport".into()),
        "dport" => Some("sport".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{contract, doc};

    /// Columns that have names of ids or times and are neither.
    const PLAIN: &[(&str, &str)] = &[("host", "boot_id"), ("stack_module", "build_id")];

    #[test]
    fn every_id_has_its_space() {
        for table in doc::relations(contract::TABLES) {
            for (column, _) in &table.columns {
                let is_id = column.ends_with("_id") || column.ends_with("upid");
                let is_plain = PLAIN.contains(&(table.name.as_str(), column.as_str()));
                assert!(
                    !is_id || is_plain || change(&table.name, column) != Change::Keep,
                    "{}.{column}: say in merge/columns.rs what merging does with it",
                    table.name
                );
            }
        }
    }
}
