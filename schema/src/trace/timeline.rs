//! Reading rows with times: samples of threads, ends of channels, counters of machines.

use std::collections::{HashMap, HashSet};

use super::Trace;
use super::rows::{
    AppearedRow, CounterRow, LastSampleRow, LockCallRow, OpenedEndRow, PolledRow, SampleRow,
    StopRow, StorageRow, TimesRow, VariableRow,
};
use crate::op::FLAGS_MASK;
use crate::{Activity, Class, FileKind, Op, Result};

/// Bytes that one process image read and wrote in file calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// Bytes of calls that began where the one before on the same file had ended.
    pub sequential_bytes: i64,
    /// Bytes of all calls.
    pub bytes: i64,
}

impl Trace {
    /// The activities of threads, by thread and time. `channel_id` of a thread that waited for several
    /// channels is NULL: [`Trace::polled`] has them.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn samples(&self) -> Result<Vec<SampleRow>> {
        self.rows(
            "SELECT sample_id, t_ns, end_ns, upid, tid, activity, samples,
               COALESCE(side, CASE WHEN activity = 3 AND op GLOB '*write*' THEN 'write' END) AS side,
               COALESCE(op = 'futex', 0) AS is_futex,
               COALESCE(channel_id, CASE activity WHEN 2 THEN
                 (SELECT c.channel_id FROM channel AS c WHERE c.inode = object LIMIT 1) END)
                 AS channel_id,
               CASE activity WHEN 6 THEN object END AS child_pid, waker_upid
             FROM sample ORDER BY upid, tid, t_ns, sample_id",
        )
    }

    /// Times for which job control had stopped threads: image, begin and end in ns, in the order of images
    /// and time.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn stops(&self) -> Result<Vec<StopRow>> {
        self.rows(&format!(
            "SELECT upid, t_ns, end_ns FROM sample WHERE activity = {} ORDER BY upid, t_ns",
            Activity::Stopped as i64
        ))
    }

    /// The time up to which the activity of each thread is known, of the threads that have not ended of
    /// images that have not: image and ns.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn threads_alive(&self) -> Result<Vec<(i64, i64)>> {
        let rows: Vec<LastSampleRow> = self.rows(
            "SELECT s.upid AS upid, MAX(s.end_ns) AS last_ns
             FROM sample AS s JOIN process AS p ON p.upid = s.upid AND p.end_ns IS NULL
             WHERE NOT EXISTS (SELECT 1 FROM thread AS t
               WHERE t.upid = s.upid AND t.tid = s.tid AND t.end_ns IS NOT NULL)
             GROUP BY s.upid, s.tid",
        )?;
        Ok(rows
            .into_iter()
            .map(|row| (row.upid, row.last_ns))
            .collect())
    }

    /// True if a thread was seen to wait for a lock, and no record says who freed it.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn has_lock_waits(&self) -> Result<bool> {
        self.value(&format!(
            "SELECT EXISTS (SELECT 1 FROM sample WHERE activity = {} AND waker_upid IS NULL)",
            Activity::Lock as i64
        ))
    }

    /// The calls that opened files for whose locks a thread was seen to wait, took or freed these, in the order of time.
    /// Most traces have none, and then no call is read.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn lock_calls(&self) -> Result<Vec<LockCallRow>> {
        let waited: bool = self.value(&format!(
            "SELECT EXISTS (SELECT 1 FROM sample
               WHERE activity = {} AND op IN ('flock', 'fcntl'))",
            Activity::Lock as i64
        ))?;
        if !waited {
            return Ok(Vec::new());
        }
        self.lock_rows(&format!(
            "COALESCE(result, 0) >= 0 AND file_id IN
               (SELECT file_id FROM call
                WHERE what & 63 IN ({}, {}) AND duration_ns > 1000000)
             ORDER BY start_ns",
            Op::Flock as i64,
            Op::Setlk as i64
        ))
    }

    /// As [`Trace::lock_calls`], of some files, by file, with the calls that failed.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn lock_attempts(&self, files: &HashSet<i64>) -> Result<Vec<LockCallRow>> {
        let files: Vec<String> = files.iter().map(i64::to_string).collect();
        self.lock_rows(&format!(
            "file_id IN ({}) ORDER BY file_id, start_ns",
            files.join(", ")
        ))
    }

    fn lock_rows(&self, which: &str) -> Result<Vec<LockCallRow>> {
        self.rows(&format!(
            "SELECT start_ns, start_ns + duration_ns AS end_ns, upid, what & 63 AS op,
               (what >> 8 & {FLAGS_MASK}) - 1 AS kind, COALESCE(result, 0) AS result, file_id, offset, length
             FROM call
             WHERE what & 63 IN ({}, {}, {}, {}, {}, {}) AND upid IS NOT NULL AND {which}",
            Op::Flock as i64,
            Op::Setlk as i64,
            Op::Flush as i64,
            Op::Release as i64,
            Op::Open as i64,
            Op::Create as i64,
        ))
    }

    /// Names that were looked up before they were there, in the order of time. The text fixes the order of
    /// the join: by its own choice SQLite pairs every name with every absent file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn appeared(&self) -> Result<Vec<AppearedRow>> {
        self.rows(&format!(
            "SELECT a.file_id AS absent_id, n.file_id, n.from_ns
             FROM file AS f CROSS JOIN file_name AS a ON a.file_id = f.file_id AND f.kind = {}
             CROSS JOIN file_name AS n ON n.directory_id = a.directory_id AND n.name = a.name
               AND n.from_ns = a.to_ns AND n.file_id <> a.file_id
             ORDER BY n.from_ns",
            FileKind::Absent as i64
        ))
    }

    /// The processes that opened the ends of FIFOs and of connections, in the order of channels and time: an
    /// open, and who accepts a connection, waits for the other end.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn opened_ends(&self) -> Result<Vec<OpenedEndRow>> {
        self.rows(
            "SELECT channel_id, upid, from_ns, direction, kind <> 'fifo' AS is_connection,
               from_ns <= start_ns + 1000000 AS is_inherited
             FROM channel_ends JOIN channels USING (channel_id) JOIN process USING (upid)
             WHERE kind IN ('fifo', 'tcp', 'unix') ORDER BY channel_id, from_ns",
        )
    }

    /// True if the scheduler reported all activities of threads, and samples none.
    pub fn is_exact(&self) -> bool {
        // Traces of earlier versions have no such column.
        let found = self.value("SELECT COUNT(*) > 0 AND MIN(exact) = 1 FROM sample");
        found.unwrap_or(None) == Some(true)
    }

    /// The channels of waits for any of several, in the order of the samples.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn polled(&self) -> Result<Vec<PolledRow>> {
        self.rows(
            "SELECT sample_id, side,
               COALESCE(channel_id,
                 (SELECT c.channel_id FROM channel AS c WHERE c.inode = object LIMIT 1)) AS channel_id
             FROM polled ORDER BY sample_id, channel_id",
        )
    }

    /// The time accounting of every process image, in the order of their ids.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn process_times(&self) -> Result<Vec<TimesRow>> {
        self.rows(
            "SELECT upid, host, cwd, on_cpu_ns, run_queue_ns, storage_ns, wait_ns, tracer_ns,
               thread_ns, threads, samples, major_faults, minor_faults, voluntary_switches,
               involuntary_switches, max_rss_bytes
             FROM processes ORDER BY upid",
        )
    }

    /// Waits for storage by step, the longest first, where the states of requests to devices were recorded;
    /// empty elsewhere.
    pub fn storage(&self) -> Vec<StorageRow> {
        // Traces of earlier versions have no such columns.
        let rows = self.rows(
            "SELECT COALESCE(rule, exe, 'pid ' || pid) AS step, SUM(storage_ns) AS storage_ns,
               SUM(storage_queue_ns) AS queue_ns, SUM(storage_device_ns) AS device_ns
             FROM processes WHERE storage_device_ns IS NOT NULL AND storage_ns IS NOT NULL
             GROUP BY step HAVING SUM(storage_ns) > 0 ORDER BY 2 DESC, 1",
        );
        rows.unwrap_or_default()
    }

    /// Counters of the machines, by counter and time.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn host_counters(&self) -> Result<Vec<CounterRow>> {
        self.rows(
            "SELECT s.host_id, c.name AS counter, s.t_ns, s.value
             FROM host_sample AS s JOIN counter AS c USING (counter_id)
             ORDER BY s.host_id, c.name, s.t_ns",
        )
    }

    /// The bytes that each process image read and wrote in file calls, and those of calls that began
    /// where its read, or write, before on the same file had ended.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn sequences(&self) -> Result<HashMap<i64, Sequence>> {
        // One pass in the order of time: SQL would sort all calls by file first.
        let mut ends: HashMap<(i64, Option<i64>, Class), i64> = HashMap::new();
        let mut sums: HashMap<i64, Sequence> = HashMap::new();
        self.for_each_call(|call| {
            let (Some(upid), Some(offset), Some(op)) = (call.upid, call.offset, call.op) else {
                return;
            };
            let class = op.class();
            if call.result <= 0 || !matches!(class, Class::Read | Class::Write) {
                return;
            }
            let end = ends.entry((upid, call.file_id, class)).or_default();
            let sum = sums.entry(upid).or_default();
            sum.bytes = sum.bytes.saturating_add(call.result);
            if *end == offset {
                sum.sequential_bytes = sum.sequential_bytes.saturating_add(call.result);
            }
            *end = offset.saturating_add(call.result);
        })?;
        Ok(sums)
    }

    /// The value that every process image has of an environment variable, where it was recorded.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn environment(&self, name: &str) -> Result<Vec<(i64, String)>> {
        let rows: Vec<VariableRow> = self.rows("SELECT upid, name, value FROM environment")?;
        let wanted = rows.into_iter().filter(|row| row.name == name);
        Ok(wanted.map(|row| (row.upid, row.value)).collect())
    }

    /// The time of the last sample of a thread or counter of the machine, ns.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn last_sample_ns(&self) -> Result<Option<i64>> {
        self.value(
            "SELECT NULLIF(MAX(COALESCE((SELECT MAX(end_ns) FROM sample), -1),
                               COALESCE((SELECT MAX(t_ns) FROM host_sample), -1)), -1)",
        )
    }

    /// The time of the last packet, ns, by the clock of its capture's host; `None`: there is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn last_packet_ns(&self) -> Result<Option<i64>> {
        self.value("SELECT MAX(at) / 64 FROM packet")
    }
}
