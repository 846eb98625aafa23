//! The rows of the views about sampled call stacks.

use rusqlite::{Result, Row};

use super::FromRow;

rows! {
    /// A row of the view `stack_samples`, without the function.
    StackSampleRow {
        t_ns: i64,
        upid: Option<i64>,
        tid: i64,
        stack_id: i64,
    }

    /// A row of the view `stack_waits`, without the function.
    StackWaitRow {
        t_ns: i64,
        upid: Option<i64>,
        tid: i64,
        stack_id: i64,
        blocked_ns: i64,
    }

    /// A row of the view `stacks`, without the function.
    StackRow {
        stack_id: i64,
        caller_id: Option<i64>,
        frame_id: i64,
    }

    /// A row of the view `frames`.
    FrameRow {
        frame_id: i64,
        depth: i64,
        function: String,
        line: Option<i64>,
        file: Option<String>,
        module: Option<String>,
        address: i64,
        symbols: Option<String>,
    }
}
