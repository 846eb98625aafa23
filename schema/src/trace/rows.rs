//! The typed rows of the views, each declared once: its fields are the columns of that name.

use std::sync::Arc;

use rusqlite::{Result, Row};

/// A row that can be read by the names of its columns, which are looked up once for all rows.
pub(super) trait FromRow: Sized {
    const COLUMNS: &'static [&'static str];

    /// `at` has the places of [`Self::COLUMNS`]; `texts` is the same for all rows.
    fn read(row: &Row<'_>, at: &[usize], texts: &mut Texts) -> Result<Self>;
}

macro_rules! rows {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the columns are documented in sql/views.sql")]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl FromRow for $name {
            const COLUMNS: &'static [&'static str] = &[$(stringify!($field),)*];

            fn read(row: &Row<'_>, at: &[usize], texts: &mut $crate::trace::rows::Texts) -> Result<Self> {
                let mut at = at.iter().copied();
                let mut next = || at.next().unwrap_or(usize::MAX);
                Ok($name { $($field: {
                    const IS_AMOUNT: bool = $crate::trace::rows::amounts::is_amount(stringify!($field));
                    let (place, name) = (next(), stringify!($field));
                    let value = $crate::trace::rows::texts::Column::read(row, place, texts)?;
                    match IS_AMOUNT {
                        true => $crate::trace::rows::amounts::checked(value, place, name)?,
                        false => value,
                    }
                },)* })
            }
        }
    )*};
}

pub(super) mod amounts;
mod growth;
mod network;
mod process;
mod stacks;
mod texts;

pub use growth::{BeganRow, DataRow, EndRow, EndedRow, GrowingSampleRow, MeasuredRow};
pub use network::{
    CaptureRow, FlowBetween, FlowCaptureRow, FlowMeasure, FlowOwnerRow, FlowRow, HostRow,
    NetworkTotals, NodeRow,
};
pub use process::{ProcessRow, ProgramRow};
pub use stacks::{FrameRow, StackRow, StackSampleRow, StackWaitRow};
pub(super) use texts::Texts;

rows! {
    /// A row of the view `runs`.
    RunRow {
        run_id: i64,
        host: Option<String>,
        command: Option<String>,
        cwd: String,
        version: String,
        file_layer: String,
        process_layer: String,
        started_unix_ns: Option<i64>,
        end_ns: Option<i64>,
        exit_code: Option<i64>,
        exit_signal: Option<i64>,
        start_ns: i64,
        job: Option<String>,
        rank: Option<i64>,
    }

    /// A row of the view `traced_directories`.
    TracedDirectoryRow {
        path: String,
        source: Option<String>,
        file_layer: String,
        attribute_ttl_ns: i64,
        filesystem: Option<String>,
    }

    /// The activity of a thread over an interval of samples; a thread that waited for several channels at
    /// once has a row for each.
    ActivityRow {
        /// The interval, the same in all rows of one.
        sample_id: i64,
        /// Begin.
        t_ns: i64,
        /// End.
        end_ns: i64,
        /// Process image.
        upid: i64,
        /// Thread.
        tid: i64,
        /// Activity, a number of [`crate::Activity`].
        activity: i64,
        /// Samples that agree; of an exact interval its length in steps of 0.1 ms.
        samples: i64,
        /// Process image of the thread that ended the wait.
        waker_upid: Option<i64>,
        /// `read` or `write`: side of the channel.
        side: Option<String>,
        /// Channel that it waited for.
        channel_id: Option<i64>,
        /// Inode of the channel or file; pid of the child.
        object: Option<i64>,
    }

    /// A row of the view `files`.
    FileRow {
        file_id: i64,
        path: Option<String>,
        kind: Arc<str>,
        size_bytes: Option<i64>,
        first_ns: i64,
        last_ns: Option<i64>,
        coverage: Arc<str>,
    }

    /// A row of the view `file_names`.
    NameRow {
        file_id: i64,
        path: String,
        from_ns: i64,
        to_ns: Option<i64>,
    }

    /// A name that is no UTF-8, from the view `file_names`.
    RawNameRow {
        file_id: i64,
        path_raw: Vec<u8>,
    }

    /// An end of a pipe or socket, from the view `channel_ends`.
    ChannelEndRow {
        /// The channel.
        channel_id: i64,
        /// Kind of channel.
        kind: Arc<str>,
        /// Process image.
        upid: i64,
        /// `read`, `write` or `both`.
        direction: String,
        /// First seen.
        from_ns: i64,
        /// Time of the close; `None`: the end of the image.
        to_ns: Option<i64>,
        /// Bytes that went through it; `None`: not counted.
        bytes: Option<i64>,
        /// Upper bound of these bytes.
        at_most_bytes: Option<i64>,
        /// 0: no data moved; 1: data moved; `None`: it may have.
        used: Option<i64>,
    }

    /// The activity of a thread over an interval in which all samples agree.
    SampleRow {
        /// Own id.
        sample_id: i64,
        /// Begin.
        t_ns: i64,
        /// End.
        end_ns: i64,
        /// Process image.
        upid: i64,
        /// Thread.
        tid: i64,
        /// Number of the activity: place in `Activity::ALL`.
        activity: i64,
        /// True if it was blocked in `futex(2)`: on a lock in its own memory.
        is_futex: bool,
        /// Side of the channel or terminal at which it waited.
        side: Option<String>,
        /// Number of samples.
        samples: i64,
        /// Channel it waited for.
        channel_id: Option<i64>,
        /// Child it waited for; `None`: any.
        child_pid: Option<i64>,
        /// Process image of the thread that ended the wait, where the scheduler reported it.
        waker_upid: Option<i64>,
    }

    /// Counted traffic of an image through one side of a socket.
    SocketTrafficRow {
        channel_id: i64,
        upid: i64,
        /// `read` or `write`.
        side: String,
        /// Bytes; `None`: they do not follow from the calls.
        bytes: Option<i64>,
        /// 1: none is missing.
        exact: i64,
    }

    /// Numbers of waits of an image at a socket.
    SocketWaitsRow {
        channel_id: i64,
        upid: i64,
        /// In calls that write.
        writes: i64,
        /// Until it could write, alone or among others.
        write_polls: i64,
        /// In calls that read.
        reads: i64,
        /// Until it could read that one.
        read_polls: i64,
        /// Until it could read it or others.
        interests: i64,
        /// 1: after a wait in a call that reads it waited there again, so that the first wait brought data.
        went_on: i64,
    }

    /// The time up to which the activity of a thread is known.
    LastSampleRow {
        upid: i64,
        last_ns: i64,
    }

    /// The ports of a socket, by which flows are found.
    SocketPortsRow {
        channel_id: i64,
        port: i64,
        peer_port: i64,
    }

    /// One of several channels that a thread waited for at once.
    PolledRow {
        /// The sample.
        sample_id: i64,
        /// Side of the channel.
        side: String,
        /// The channel, where it is known.
        channel_id: Option<i64>,
    }

    /// Time for which the processes of a step were blocked on storage, and the parts of it in which requests
    /// of their own were in a queue or at a device, ns.
    StorageRow {
        step: String,
        storage_ns: i64,
        queue_ns: i64,
        device_ns: i64,
    }

    /// The time accounting of a process image, from the view `processes`.
    TimesRow {
        upid: i64,
        host: Option<Arc<str>>,
        cwd: Option<Arc<str>>,
        on_cpu_ns: Option<i64>,
        run_queue_ns: Option<i64>,
        storage_ns: Option<i64>,
        wait_ns: Option<i64>,
        tracer_ns: Option<i64>,
        thread_ns: Option<i64>,
        threads: Option<i64>,
        samples: Option<i64>,
        major_faults: Option<i64>,
        minor_faults: Option<i64>,
        voluntary_switches: Option<i64>,
        involuntary_switches: Option<i64>,
        max_rss_bytes: Option<i64>,
    }

    /// A counter of a machine at one instant.
    CounterRow {
        /// Machine.
        host_id: i64,
        /// Name, as in the view `counters`.
        counter: Arc<str>,
        /// Time of the sample.
        t_ns: i64,
        /// Its value.
        value: i64,
    }

    /// A row of the view `environment`.
    VariableRow {
        upid: i64,
        name: String,
        value: String,
    }

    /// A row of the view `descriptors`.
    DescriptorRow {
        upid: i64,
        fd: i64,
        target: String,
        flags: i64,
        position: i64,
    }

    /// A row of the view `here_documents`.
    HereDocumentRow {
        upid: i64,
        fd: i64,
        content: String,
    }

    /// A row of the view `settings`.
    SettingRow {
        upid: i64,
        umask: Option<i64>,
        environment: Option<i64>,
        cpus: Option<String>,
        cpu_quota_ns: Option<i64>,
    }

    /// A call that took or freed locks of a file for which another process waited, or that closed the file.
    LockCallRow {
        /// Begin.
        start_ns: i64,
        /// End: for a call that takes a lock, the time when it had the lock.
        end_ns: i64,
        /// Process image.
        upid: i64,
        /// Number of the operation: `Flock`, `Setlk`, `Flush` or `Release` of [`crate::Op`].
        op: i64,
        /// Kind of lock as `fcntl(2)` numbers it.
        kind: Option<i64>,
        /// Result: negative if the call failed.
        result: i64,
        /// File.
        file_id: i64,
        /// Begin of the range, bytes.
        offset: Option<i64>,
        /// Length of the range, bytes; 0: to the end of the file.
        length: Option<i64>,
    }

    /// A name under which nothing had been found, and the file that then had the name.
    AppearedRow {
        /// The row of the absent file.
        absent_id: i64,
        /// The file that came.
        file_id: i64,
        /// Time when it had the name.
        from_ns: i64,
    }

    /// An end of a FIFO or connection that a process image opened.
    OpenedEndRow {
        /// Channel.
        channel_id: i64,
        /// Process image.
        upid: i64,
        /// Time when it had opened the end.
        from_ns: i64,
        /// `read`, `write` or `both`.
        direction: String,
        /// True for a connection, false for a FIFO.
        is_connection: bool,
        /// True if the image had it from its begin.
        is_inherited: bool,
    }

    /// Accesses of a process image to a file or name, from which the generator of specifications derives the
    /// order of steps: calls of one kind are one row, those that change names one row each.
    ActionRow {
        /// Process image.
        upid: i64,
        /// File.
        file_id: i64,
        /// Operation, as in the view `operations`.
        op: Arc<str>,
        /// Its class.
        class: Arc<str>,
        /// Open flags or mode.
        flags: Option<i64>,
        /// True if it failed.
        failed: bool,
        /// Begin of the first.
        first_ns: i64,
        /// End of the last.
        last_ns: i64,
        /// Number of calls.
        calls: i64,
        /// Bytes moved, by reads and writes.
        bytes: i64,
        /// The value set, of truncate: the greatest.
        length: Option<i64>,
    }

    /// An end of a pipe or FIFO that may have been used.
    PipeRow {
        /// The channel.
        channel_id: i64,
        /// `pipe` or `fifo`.
        kind: Arc<str>,
        /// Its inode.
        inode: Option<i64>,
        /// Process image.
        upid: i64,
        /// Its descriptor, the lowest of several.
        fd: Option<i64>,
        /// `read`, `write` or `both`.
        direction: String,
    }

    /// A successful file call, to be played again.
    ReplayedCallRow {
        /// Begin.
        start_ns: i64,
        /// Time until the reply.
        duration_ns: i64,
        /// Process image.
        upid: i64,
        /// Operation, as in the view `operations`.
        op: Arc<str>,
        /// File.
        file_id: i64,
        /// Position of data calls.
        offset: Option<i64>,
        /// Bytes asked for, or the value set.
        length: Option<i64>,
        /// Bytes moved, or another result.
        result: i64,
        /// Open flags, rename flags or mode.
        flags: Option<i64>,
        /// Kind of file, as in the view `files`.
        kind: Arc<str>,
    }

    /// A row of the view `losses`.
    LossRow {
        source: String,
        counter: String,
        value: i64,
        meaning: String,
        severity: String,
    }

    /// Costs of a process image, from the view `processes`.
    CostRow {
        upid: i64,
        storage_ns: Option<i64>,
        wait_ns: Option<i64>,
        thread_ns: Option<i64>,
        max_rss_bytes: Option<i64>,
        read_bytes: Option<i64>,
        write_bytes: Option<i64>,
    }

    /// A time for which job control had stopped a thread.
    StopRow {
        upid: i64,
        t_ns: i64,
        end_ns: i64,
    }

    /// A row of the view `host_samples`.
    HostSampleRow {
        t_ns: i64,
        host: Option<Arc<str>>,
        counter: Arc<str>,
        value: i64,
    }

    /// A row of the view `channels`.
    ChannelRow {
        channel_id: i64,
        kind: String,
        name: Option<String>,
        capacity_bytes: Option<i64>,
    }
}

/// Name of a missing layer in the views.
const NO_LAYER: &str = "none";

impl LossRow {
    /// True if data is missing: not a mere notice.
    pub fn has_lost_data(&self) -> bool {
        self.value > 0 && matches!(self.severity.as_str(), "error" | "data_loss")
    }
}

impl TracedDirectoryRow {
    /// True if the calls on its files were recorded.
    pub fn is_seen(&self) -> bool {
        self.file_layer != NO_LAYER
    }
}

impl RunRow {
    /// True if calls on files were recorded, at least those that move data.
    pub fn sees_file_calls(&self) -> bool {
        self.file_layer != NO_LAYER
    }

    /// True if processes were recorded.
    pub fn sees_processes(&self) -> bool {
        self.process_layer != NO_LAYER
    }

    /// True if the descriptors of processes were read: redirections, pipes and sockets are known.
    pub fn sees_descriptors(&self) -> bool {
        ["ptrace", "ebpf"].contains(&&*self.process_layer)
    }
}
