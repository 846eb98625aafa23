//! The one list of what can be missing from a trace. Every part that drops something counts it with one of
//! these counters, and every report ends with the counters that are not 0.

/// The importance of a loss to the reader of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Known and harmless.
    Info,
    /// Limits what a report can say.
    Notice,
    /// Rows are missing.
    DataLoss,
    /// The recording itself failed.
    Error,
}

impl Severity {
    /// Name stored in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Notice => "notice",
            Severity::DataLoss => "data_loss",
            Severity::Error => "error",
        }
    }
}

macro_rules! losses {
    ($($variant:ident $source:literal $counter:literal $severity:ident $meaning:literal,)*) => {
        /// A counter of losses.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum Loss {
            $(#[doc = $meaning] $variant,)*
        }

        impl Loss {
            /// All counters.
            pub const ALL: &'static [Loss] = &[$(Loss::$variant),*];

            /// Part of flowtrace that lost something, name of the counter, severity, and meaning.
            pub const fn describe(self) -> (&'static str, &'static str, Severity, &'static str) {
                match self {
                    $(Loss::$variant => ($source, $counter, Severity::$severity, $meaning)),*
                }
            }
        }
    };
}

losses! {
    StoreFull "store" "disk_full" Error
        "times the disk of the trace was full; rows of that time are missing",
    StoreFailed "store" "write_failed" Error
        "times the trace could not be written for another reason; rows of that time are missing",
    RowsDropped "store" "rows_dropped" DataLoss
        "rows not stored because the trace could not be written",
    FilesNotTraced "files" "not_traced" Notice
        "directories whose file calls could not be seen on this machine; run flowtrace doctor",
    InheritedFiles "files" "inherited_unseen" Notice
        "open files that the command inherited, other than its standard streams: what the command does with them is not seen",
    PathNotSeen "files" "own_path_not_seen" Notice
        "directories mounted at another path: calls that use the usual absolute path are not seen",
    MountsInside "files" "mounts_inside" Notice
        "mounts that the workflow made below a traced directory: only opens of files there are seen",
    UnknownCaller "files" "unknown_caller" Notice
        "file calls whose process could not be identified",
    OutOfDescriptors "files" "out_of_descriptors" Error
        "file calls that failed because flowtrace had no descriptor left; without flowtrace they might have worked; raise ulimit -Hn",
    WritebackPages "files" "writeback_calls" Info
        "writes of changed pages by the kernel, whose true writer is not known",
    WritebackRefused "files" "writeback_refused" DataLoss
        "writes of changed pages that the real filesystem refused (full disk, quota, I/O error): what a program stored through a mapping is not in its file",
    Excluded "files" "excluded_calls" Info
        "calls on files that --include or --exclude leave out of the trace",
    CallsDropped "files" "calls_dropped" DataLoss
        "calls that have no row because the kernel dropped their records when flowtrace was behind",
    DescriptorsNotFollowed "files" "descriptors_not_followed" DataLoss
        "files that processes read or wrote without an open in the run: they came over a socket or otherwise from outside, or were opened by a handle; these reads and writes are not recorded",
    CallsUnreconciled "files" "calls_unreconciled" Notice
        "process images for which the kernel counted other numbers of reads and writes than were recorded: rows of theirs may be missing",
    AsyncIo "files" "async_io_unseen" Notice
        "processes that began to use io_submit: their io_submit calls on files that they had open before are not seen",
    Rings "files" "io_uring_used" Notice
        "processes that began to use io_uring: not all that they read and write is seen. Reads and writes at the current position (offset -1) of files of a traced mount that they had open before may go to a wrong place, so that these files differ from those of an untraced run (docs/filesystem.md)",
    StaleLookup "files" "reply_failed" Notice
        "replies that the kernel no longer wanted, as after an interrupted call",
    ProcUnreadable "processes" "proc_unreadable" Notice
        "process images whose files in /proc could not be read in part or whole",
    ExitUnseen "processes" "exit_unseen" Notice
        "processes whose end was not seen: they were no longer followed, or the kernel dropped the event",
    SecretsMasked "processes" "secrets_masked" Info
        "passwords and keys in command lines that were masked; --keep-secrets stores them",
    ArgumentsCut "processes" "arguments_cut" Notice
        "process images with more than 128 KiB of arguments, of which the rest is not stored: command ends with …",
    StillRunning "processes" "still_running" Info
        "processes that were still running when the recording ended, as the shell that works in a traced mount",
    SetuidExec "processes" "setuid_not_granted" Notice
        "programs with set-user-id, set-group-id or file capabilities that ran without them because an ordinary user traces, or serves a traced mount",
    TracerRefused "processes" "tracer_refused" Notice
        "programs that trace others (strace, gdb, …) and failed: a process can have one tracer; flowtrace run --no-ptrace leaves it to them",
    LetGo "processes" "let_go" Info
        "processes that outlived the command and were detached by --detach; what they did later is not known",
    ThreadsNotSampled "samples" "threads_not_sampled" Notice
        "threads not sampled, for want of descriptors or of the right to read their state",
    SamplesSkipped "samples" "samples_skipped" Info
        "samples left out so that sampling takes at most 1.5 % of a CPU; durations of states are less exact",
    SwitchesDropped "samples" "switches_dropped" Notice
        "records of the scheduler that the kernel dropped because flowtrace was behind: the states of threads that lived then are not exact",
    StacksDropped "samples" "stacks_dropped" Notice
        "records of sampled call stacks that the kernel dropped because flowtrace was behind: samples are missing, or belong to a process image before",
    StacksIncomplete "samples" "stacks_incomplete" Info
        "sampled call stacks that could not be unwound to their begin: the frames further out are missing",
    SymbolsLeftOut "samples" "symbols_left_out" Notice
        "files with code in sampled call stacks whose debug information was not read, because it is too large or the time for it was over: functions have no lines",
    TopologyUnseen "processes" "topology_not_seen" Notice
        "runs whose system calls on names and channels could not be stopped: files outside the traced directories and channels that open and close between two execs are not seen",
    TopologyLeftOut "processes" "topology_left_out" Info
        "runs whose calls on names and channels were not asked for (--no-topology, or --detach): files outside the traced directories and channels that open and close between two execs are not seen",
    DescriptorsUnreadable "processes" "descriptors_unreadable" Notice
        "processes whose open descriptors could not be read: pipes and sockets that they had open may be missing",
    SeenLate "processes" "seen_at_first_request" Info
        "processes known only from their first file call on; shorter ones are not known at all",
    EventsDropped "processes" "events_dropped" DataLoss
        "announcements of forks, execs and exits, of the whole machine, that the kernel dropped: processes may be missing",
    CostsDropped "processes" "costs_dropped" Notice
        "records of the costs of ended threads, of the whole machine, that the kernel dropped: costs may be too low",
    ClocksNotRelated "merge" "clocks_not_related" Notice
        "machines whose clocks were put on one scale by wall clocks of unknown error: times across machines may be off",
    CostsSampled "processes" "costs_sampled" Info
        "processes whose costs are at best those of the last reading of /proc before they ended",
    NotCaptured "packets" "not_captured" Notice
        "interfaces whose packets could not be captured; run flowtrace doctor",
    InterfaceGone "packets" "interface_gone" DataLoss
        "interfaces that were deleted or left the network namespace while they were captured: packets under their name later are not in the trace",
    InterfaceEnded "packets" "interface_ended" Info
        "interfaces that were deleted, or left a network namespace that the workflow made, while they were captured: their captures end there; a later interface of the same name has a capture of its own",
    PacketsDropped "packets" "kernel_dropped" DataLoss
        "packets that the kernel dropped before they could be captured: what is computed from packets lacks them",
    PacketsUnstored "packets" "unstored" DataLoss
        "packets that were captured and dropped because the trace could not be written as fast",
    DropsUnknown "packets" "drops_unknown" Info
        "imported captures that do not say whether packets were dropped while they were made",
    CaptureDamaged "packets" "damaged_files" DataLoss
        "imported captures that end within a record, are damaged or are no captures: packets behind that place are missing",
    FramesBroken "packets" "broken_frames" Notice
        "frames whose headers contradict themselves or their length; they are not in the trace",
    HeadersCut "packets" "headers_cut" Notice
        "frames kept too short for their headers: those without addresses are not in the trace, others lack options; capture with a snap length of at least 128",
    FramesNotIp "packets" "not_ip" Info
        "frames of other protocols than IP (ARP, spanning tree, …), which are not in the trace",
    LinkUnknown "packets" "link_type_unknown" DataLoss
        "frames of interfaces whose link type flowtrace does not know; they are not in the trace",
    TimesImplausible "packets" "implausible_times" Notice
        "packets more than a year from the bulk of them by their timestamps; they are not in the trace",
    FlowsForgotten "packets" "flows_forgotten" Info
        "flows no longer followed because there were too many at once: if they went on, they are two flows in the trace",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_distinct() {
        let mut keys: Vec<_> = Loss::ALL
            .iter()
            .map(|l| (l.describe().0, l.describe().1))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), Loss::ALL.len());
    }
}
