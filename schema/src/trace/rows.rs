//! The typed rows of the views, each declared once: its fields are the columns of that name.

use rusqlite::{Result, Row};

/// A row that can be read by the names of its columns.
pub(super) trait FromRow: Sized {
    fn read(row: &Row<'_>) -> Result<Self>;
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
            fn read(row: &Row<'_>) -> Result<Self> {
                Ok($name { $($field: row.get(stringify!($field))?,)* })
            }
        }
    )*};
}

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
    }

    /// A row of the view `traced_directories`.
    TracedDirectoryRow {
        path: String,
        source: Option<String>,
        file_layer: String,
        attribute_ttl_ns: i64,
    }

    /// A row of the view `processes`.
    ProcessRow {
        upid: i64,
        host: Option<String>,
        pid: i64,
        parent_upid: Option<i64>,
        prev_upid: Option<i64>,
        origin: String,
        exe: Option<String>,
        command: Option<String>,
        cwd: Option<String>,
        rule: Option<String>,
        start_ns: i64,
        end_ns: Option<i64>,
        exit_code: Option<i64>,
        exit_signal: Option<i64>,
        user_ns: Option<i64>,
        sys_ns: Option<i64>,
        on_cpu_ns: Option<i64>,
        run_queue_ns: Option<i64>,
        tracer_ns: Option<i64>,
        max_rss_bytes: Option<i64>,
        read_bytes: Option<i64>,
        write_bytes: Option<i64>,
        threads: Option<i64>,
    }

    /// A row of the view `files`.
    FileRow {
        file_id: i64,
        path: Option<String>,
        kind: String,
        size_bytes: Option<i64>,
        first_ns: i64,
        last_ns: Option<i64>,
        coverage: String,
    }

    /// A row of the view `file_names`.
    NameRow {
        file_id: i64,
        path: String,
        from_ns: i64,
        to_ns: Option<i64>,
    }

    /// What one process image did to one file, as the view `file_access`, with the moments of
    /// reading and of writing told apart. All but the number of calls is of successful ones.
    DataAccessRow {
        /// Process image.
        upid: i64,
        /// File.
        file_id: i64,
        /// Times it was opened, a creation included.
        opens: i64,
        /// Times it was created.
        creates: i64,
        /// Calls of class read.
        reads: i64,
        /// Bytes they returned.
        read_bytes: i64,
        /// Calls that wrote bytes.
        writes: i64,
        /// Bytes they wrote.
        write_bytes: i64,
        /// Calls of class write: writes, truncations, allocations.
        changes: i64,
        /// Truncations to nothing.
        truncates: i64,
        /// Opens that allowed reading.
        read_opens: i64,
        /// Opens that allowed writing.
        write_opens: i64,
        /// Begin of the first call of class read.
        first_read_ns: Option<i64>,
        /// End of the last one.
        last_read_ns: Option<i64>,
        /// Begin of the first call that created the file or changed its data.
        first_write_ns: Option<i64>,
        /// End of the last one.
        last_write_ns: Option<i64>,
        /// Begin of the first open.
        first_open_ns: Option<i64>,
        /// Begin of the first call of any kind.
        first_ns: i64,
        /// End of the last call of any kind.
        last_ns: i64,
        /// Calls of any kind.
        calls: i64,
    }

    /// An end of a pipe or socket that may have been used, from the view `channel_ends`.
    ChannelEndRow {
        /// The channel.
        channel_id: i64,
        /// What it is.
        kind: String,
        /// Process image.
        upid: i64,
        /// `read`, `write` or `both`.
        direction: String,
        /// First seen.
        from_ns: i64,
        /// Given up; `None`: at the end of the image.
        to_ns: Option<i64>,
        /// No more bytes than these went through it.
        at_most_bytes: Option<i64>,
    }

    /// A row of the view `descriptors`.
    DescriptorRow {
        upid: i64,
        fd: i64,
        target: String,
        flags: i64,
        position: i64,
    }

    /// A row of the view `settings`.
    SettingRow {
        upid: i64,
        umask: Option<i64>,
        environment: Option<i64>,
    }

    /// A row of the view `environment`.
    VariableRow {
        upid: i64,
        name: String,
        value: String,
    }

    /// What a process image did to a file or name, of which the generator of specifications makes
    /// the order of steps: calls of one kind together, those that change names one by one.
    ActionRow {
        /// Process image.
        upid: i64,
        /// File.
        file_id: i64,
        /// Operation, as in the view `operations`.
        op: String,
        /// Its class.
        class: String,
        /// Open flags or mode.
        flags: Option<i64>,
        /// Whether it failed.
        failed: bool,
        /// Begin of the first.
        first_ns: i64,
        /// End of the last.
        last_ns: i64,
        /// How many.
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
        kind: String,
        /// Its inode.
        inode: Option<i64>,
        /// Process image.
        upid: i64,
        /// `read`, `write` or `both`.
        direction: String,
    }

    /// A row of the view `losses`.
    LossRow {
        source: String,
        counter: String,
        value: i64,
        meaning: String,
        severity: String,
    }
}
