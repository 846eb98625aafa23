//! The rows of process images.

use std::sync::Arc;

use rusqlite::{Result, Row};

use super::FromRow;

rows! {
    /// The program of an image: a part of a row of the view `processes`.
    ProgramRow {
        upid: i64,
        parent_upid: Option<i64>,
        prev_upid: Option<i64>,
        origin: Arc<str>,
        exe: Option<Arc<str>>,
        command: Option<Arc<str>>,
        cwd: Option<Arc<str>>,
        rule: Option<Arc<str>>,
    }

    /// A row of the view `processes`.
    ProcessRow {
        upid: i64,
        host: Option<Arc<str>>,
        pid: i64,
        parent_upid: Option<i64>,
        prev_upid: Option<i64>,
        origin: Arc<str>,
        exe: Option<Arc<str>>,
        command: Option<Arc<str>>,
        cwd: Option<Arc<str>>,
        rule: Option<Arc<str>>,
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
        read_calls: Option<i64>,
        write_calls: Option<i64>,
        threads: Option<i64>,
    }
}
