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
        storage_ns: Option<i64>,
        wait_ns: Option<i64>,
        tracer_ns: Option<i64>,
        max_rss_bytes: Option<i64>,
        read_bytes: Option<i64>,
        write_bytes: Option<i64>,
        threads: Option<i64>,
    }

    /// What a thread was doing over an interval of samples; one that waited for several channels
    /// at once has a row for each.
    ActivityRow {
        /// The interval, the same in all rows of one.
        sample_id: i64,
        /// Begin.
        t_ns: i64,
        /// End.
        end_ns: i64,
        /// Process image.
        upid: i64,
        /// What it was doing, a number of [`crate::Activity`].
        activity: i64,
        /// Samples that agree.
        samples: i64,
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
        /// 1: data moved; `None`: it may have.
        used: Option<i64>,
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
