//! One statement per record. Statements are prepared once and cached by the connection.

use std::collections::HashMap;

use rusqlite::{Connection, Result, params};

use super::commands::Commands;
use super::packets::PacketTable;
use super::{channels, network, stacks};
use crate::{Loss, Record, SampleRecord, Side, quote_argv};

/// Rows of the connection's statement cache: every statement below stays prepared.
const STATEMENTS: usize = 64;

pub(super) fn losses(db: &Connection, losses: &HashMap<Loss, u64>) -> Result<()> {
    let mut upsert = db.prepare_cached(
        "INSERT INTO loss (source, counter, severity, value, meaning) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (source, counter) DO UPDATE SET value = excluded.value",
    )?;
    for (loss, value) in losses {
        let (source, counter, severity, meaning) = loss.describe();
        upsert.execute(params![
            source,
            counter,
            severity.name(),
            *value as i64,
            meaning
        ])?;
    }
    Ok(())
}

pub(super) fn record(db: &Connection, record: &Record, commands: &mut Commands) -> Result<()> {
    match record {
        Record::Host(r) => {
            db.set_prepared_statement_cache_capacity(STATEMENTS);
            db.prepare_cached(
                "INSERT INTO host (host_id, name, boot_id, system, cpus, memory_bytes, epoch_unix_ns)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                r.id.0,
                r.name,
                r.boot_id,
                r.system,
                r.cpus,
                r.memory_bytes.map(|v| v as i64),
                r.epoch_unix_ns
            ])?;
        }
        Record::HostClock(r) => {
            db.prepare_cached(
                "UPDATE host SET monotonic_ns = ?2, wall_error_ns = ?3 WHERE host_id = ?1",
            )?
            .execute(params![r.host.0, r.monotonic_ns, r.wall_error_ns])?;
        }
        Record::Launch(r) => {
            db.prepare_cached(
                "UPDATE run SET launcher = ?2, job = ?3, rank = ?4 WHERE run_id = ?1",
            )?
            .execute(params![r.run.0, r.launcher, r.job, r.rank])?;
        }
        Record::Run(r) => {
            db.prepare_cached(
                "INSERT INTO run (run_id, host_id, command, command_raw, cwd, cwd_raw, version,
                   file_layer, process_layer)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                r.id.0,
                r.host.0,
                r.command.as_ref().map(|t| t.text()),
                r.command.as_ref().and_then(|t| t.raw()),
                r.cwd.text(),
                r.cwd.raw(),
                r.version,
                r.file_layer.name(),
                r.process_layer.name()
            ])?;
        }
        Record::RunEnd(r) => {
            db.prepare_cached(
                "UPDATE run SET end_ns = ?2, exit_code = ?3, exit_signal = ?4 WHERE run_id = ?1",
            )?
            .execute(params![r.id.0, r.end_ns as i64, r.exit_code, r.exit_signal])?;
        }
        Record::TracedDirectory(r) => {
            db.prepare_cached(
                "INSERT INTO traced_directory (run_id, path, path_raw, source, source_raw,
                   file_layer, fuse_flags, attribute_ttl_ns, filesystem)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                r.run.0,
                r.path.text(),
                r.path.raw(),
                r.source.as_ref().map(|t| t.text()),
                r.source.as_ref().and_then(|t| t.raw()),
                r.file_layer.name(),
                r.fuse_flags.map(|v| v as i64),
                r.attribute_ttl_ns as i64,
                r.filesystem
            ])?;
        }
        Record::ProcessStart(r) => {
            let command = r.argv.as_deref().map(|argv| quote_argv(arguments(argv)));
            let argv_raw = match &command {
                Some(command) if command.raw().is_some() => r.argv.as_deref(),
                _ => None,
            };
            let same = match &command {
                Some(command) => commands.same(db, r.upid, command, argv_raw)?,
                None => None,
            };
            let own = command.as_ref().filter(|_| same.is_none());
            db.prepare_cached(
                "INSERT INTO process (upid, host_id, pid, parent_upid, prev_upid, origin, exe,
                   exe_raw, command, argv_raw, command_upid, cwd, cwd_raw, start_ns, environment_upid)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
            )?
            .execute(params![
                r.upid.0,
                r.host.0,
                r.pid,
                r.parent.map(|id| id.0),
                r.prev.map(|id| id.0),
                r.origin.name(),
                r.exe.as_ref().map(|t| t.text()),
                r.exe.as_ref().and_then(|t| t.raw()),
                own.map(|t| t.text()),
                argv_raw.filter(|_| same.is_none()),
                same.map(|id| id.0),
                r.cwd.as_ref().map(|t| t.text()),
                r.cwd.as_ref().and_then(|t| t.raw()),
                r.start_ns as i64,
                r.environment.map(|id| id.0)
            ])?;
        }
        Record::ProcessEnd(r) => {
            let u = &r.usage;
            let int = |v: Option<u64>| v.map(|v| v as i64);
            db.prepare_cached(
                "UPDATE process SET end_ns = ?2, exit_code = ?3, exit_signal = ?4, user_ns = ?5,
                   sys_ns = ?6, on_cpu_ns = ?7, run_queue_ns = ?8, tracer_ns = ?9,
                   max_rss_bytes = ?10, minor_faults = ?11, major_faults = ?12,
                   voluntary_switches = ?13, involuntary_switches = ?14, read_calls = ?15,
                   write_calls = ?16, read_bytes = ?17, write_bytes = ?18, threads = ?19,
                   thread_ns = ?20, block_io_ns = ?21, inner_pid = ?22
                 WHERE upid = ?1",
            )?
            .execute(params![
                r.upid.0,
                int(r.end_ns),
                r.exit_code,
                r.exit_signal,
                int(u.user_ns),
                int(u.sys_ns),
                int(u.on_cpu_ns),
                int(u.run_queue_ns),
                int(u.tracer_ns),
                int(u.max_rss_bytes),
                int(u.minor_faults),
                int(u.major_faults),
                int(u.voluntary_switches),
                int(u.involuntary_switches),
                int(u.read_calls),
                int(u.write_calls),
                int(u.read_bytes),
                int(u.write_bytes),
                u.threads,
                int(u.thread_ns),
                int(u.block_io_ns),
                r.inner_pid
            ])?;
        }
        Record::Thread(r) => {
            db.prepare_cached(
                "INSERT INTO thread (upid, tid, start_ns, end_ns) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![
                r.upid.0,
                r.tid.0,
                r.start_ns as i64,
                r.end_ns.map(|v| v as i64)
            ])?;
        }
        Record::Sample(r) => sample(db, r)?,
        Record::Stack(r) => stacks::record(db, r)?,
        Record::Sampled(r) => {
            db.prepare_cached(
                "UPDATE process SET samples = ?2, sampled_ns = ?3, sampled_waiting_ns = ?4,
                   sampled_storage_ns = ?5, sampled_tracer_ns = ?6, waits_exact = ?7,
                   sampled_queue_ns = ?8, sampled_device_ns = ?9 WHERE upid = ?1",
            )?
            .execute(params![
                r.upid.0,
                r.samples as i64,
                r.sampled_ns as i64,
                r.waiting_ns as i64,
                r.storage_ns as i64,
                r.tracer_ns as i64,
                r.exact,
                r.queue_ns.map(|v| v as i64),
                r.device_ns.map(|v| v as i64)
            ])?;
        }
        Record::Counter(r) => {
            db.prepare_cached(
                "INSERT INTO counter (counter_id, name, unit, meaning) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![r.id, r.name, r.unit, r.meaning])?;
        }
        Record::HostSample(r) => {
            db.prepare_cached(
                "INSERT INTO host_sample (t_ns, host_id, counter_id, value)
                 VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![r.t_ns as i64, r.host.0, r.counter, r.value as i64])?;
        }
        Record::Interpolated(r) => {
            db.prepare_cached(
                "INSERT INTO host_sample (t_ns, host_id, counter_id, value, interpolated)
                 VALUES (?1, ?2, ?3, ?4, 1)",
            )?
            .execute(params![r.t_ns as i64, r.host.0, r.counter, r.value as i64])?;
        }
        Record::Node(r) => {
            db.prepare_cached(
                "INSERT OR REPLACE INTO node (host_id, received, expected, ignored, sessions,
                   period_ms, drift_ppb, final) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                r.host.0,
                r.received as i64,
                r.expected as i64,
                r.ignored as i64,
                r.sessions as i64,
                r.period_ms,
                r.drift_ppb,
                r.is_final
            ])?;
            // The node's times are on the scale of the collector already: nothing remains to be added.
            db.prepare_cached(
                "UPDATE host SET clock_error_ns = ?2, clock_method = 'exchange' WHERE host_id = ?1",
            )?
            .execute(params![r.host.0, r.error_ns.map(|v| v as i64)])?;
        }
        Record::Environment { upid, name, value } => {
            db.prepare_cached(
                "INSERT INTO environment_variable (upid, name, value, value_raw)
                 VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![upid.0, name.text(), value.text(), value.raw()])?;
        }
        Record::Descriptor(r) => {
            db.prepare_cached(
                "INSERT OR IGNORE INTO descriptor (upid, fd, target, target_raw, flags, position)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                r.upid.0,
                r.fd,
                r.target.text(),
                r.target.raw(),
                r.flags,
                r.position as i64
            ])?;
        }
        Record::HereDocument {
            upid,
            fd,
            channel,
            bytes,
            content,
        } => {
            db.prepare_cached(
                "INSERT OR IGNORE INTO here_document (upid, fd, channel_id, bytes, content)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                upid.0,
                fd,
                channel.0,
                bytes,
                content.as_deref().map(str::as_bytes)
            ])?;
        }
        Record::Setting {
            upid,
            umask,
            environment,
            cpus,
            cpu_quota_ns,
        } => {
            db.prepare_cached(
                "INSERT OR IGNORE INTO setting (upid, umask, environment, cpus, cpu_quota_ns)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                upid.0,
                umask,
                environment.map(|v| v as i64),
                cpus,
                cpu_quota_ns.map(|v| v as i64)
            ])?;
        }
        Record::File(r) => {
            db.prepare_cached(
                "INSERT INTO file (file_id, host_id, dev, ino, kind, size_bytes, first_ns, last_ns,
                   coverage)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8)",
            )?
            .execute(params![
                r.id.0,
                r.host.0,
                r.inode.map(|(dev, _)| dev as i64),
                r.inode.map(|(_, ino)| ino as i64),
                r.kind as u8,
                r.size_bytes.map(|v| v as i64),
                r.first_ns as i64,
                r.coverage as u8
            ])?;
        }
        Record::FileSize { file, size_bytes } => {
            db.prepare_cached("UPDATE file SET size_bytes = ?2 WHERE file_id = ?1")?
                .execute(params![file.0, *size_bytes as i64])?;
        }
        Record::Name(r) => {
            // The same name twice from the same time on: the two may differ in bytes that are not UTF-8, but
            // no two links are made in one ns.
            db.prepare_cached(
                "INSERT OR IGNORE INTO file_name (file_id, directory_id, name, name_raw, from_ns)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                r.file.0,
                r.directory.map_or(0, |id| id.0),
                r.name.text(),
                r.name.raw(),
                r.from_ns as i64
            ])?;
        }
        Record::NameEnd {
            file,
            directory,
            name,
            at_ns,
        } => {
            db.prepare_cached(
                "UPDATE file_name SET to_ns = MAX(from_ns, ?5)
                 WHERE file_id = ?1 AND directory_id = ?2 AND name = ?3 AND name_raw IS ?4
                   AND to_ns IS NULL",
            )?
            .execute(params![
                file.0,
                directory.0,
                name.text(),
                name.raw(),
                *at_ns as i64
            ])?;
        }
        Record::DirectoryPath {
            directory,
            path,
            from_ns,
        } => {
            db.prepare_cached(
                "INSERT INTO directory_path (directory_id, path, path_raw, from_ns)
                 VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![
                directory.0,
                path.text(),
                path.raw(),
                *from_ns as i64
            ])?;
        }
        Record::DirectoryPathEnd { directory, at_ns } => {
            db.prepare_cached(
                "UPDATE directory_path SET to_ns = MAX(from_ns, ?2)
                 WHERE directory_id = ?1 AND to_ns IS NULL",
            )?
            .execute(params![directory.0, *at_ns as i64])?;
        }
        Record::Channel(r) => channels::channel(db, r)?,
        Record::ChannelEnd(r) => channels::end(db, r)?,
        Record::ChannelEndClosed(r) => channels::closed(db, r)?,
        Record::ChannelTraffic(r) => channels::traffic(db, r)?,
        Record::AllTraffic(upid) => channels::all_traffic(db, *upid)?,
        Record::Capture(r) => network::capture(db, r)?,
        Record::CaptureEnd(r) => network::capture_end(db, r)?,
        Record::Flow(r) => network::flow(db, r)?,
        Record::FlowOptions(r) => network::flow_options(db, r)?,
        Record::FlowSeen(r) => PacketTable::seen(db, r)?,
        Record::FlowOwner(r) => network::flow_owner(db, r)?,
        Record::SocketEnd(r) => network::socket_end(db, r)?,
        Record::FlowSample(r) => network::flow_sample(db, r)?,
        // Losses are summed before they are stored.
        Record::Lost { .. } => {}
    }
    Ok(())
}

/// A sample, and each object of the wait if there are several.
fn sample(db: &Connection, r: &SampleRecord) -> Result<()> {
    let one = match r.objects[..] {
        [one] => Some(one),
        _ => None,
    };
    db.prepare_cached(
        "INSERT INTO sample (sample_id, t_ns, end_ns, upid, tid, activity, op, side, object,
               channel_id, file_id, samples, exact, waker_upid, waker_tid)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
             ON CONFLICT (sample_id) DO UPDATE SET end_ns = excluded.end_ns,
               samples = excluded.samples, waker_upid = excluded.waker_upid,
               waker_tid = excluded.waker_tid",
    )?
    .execute(params![
        r.id as i64,
        r.start_ns as i64,
        r.end_ns as i64,
        r.upid.0,
        r.tid.0,
        r.activity as u8,
        r.op,
        one.and_then(|o| o.side).map(Side::name),
        one.map(|o| o.object as i64),
        one.and_then(|o| o.channel).map(|id| id.0),
        r.file.map(|id| id.0),
        r.samples,
        r.exact,
        r.waker.map(|waker| waker.upid.0),
        r.waker.map(|waker| waker.tid.0)
    ])?;
    // The objects of a row that is written again are stored already.
    if r.objects.len() > 1 {
        for object in &r.objects {
            db.prepare_cached(
                "INSERT OR IGNORE INTO polled (sample_id, object, side, channel_id)
                 VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![
                r.id as i64,
                object.object as i64,
                object.side.map_or("read", Side::name),
                object.channel.map(|id| id.0)
            ])?;
        }
    }
    Ok(())
}

/// Splits `/proc/PID/cmdline`: every argument is ended by a NUL. A process that rewrote its
/// title may leave the last one open.
fn arguments(argv: &[u8]) -> impl Iterator<Item = &[u8]> {
    argv.strip_suffix(b"\0")
        .unwrap_or(argv)
        .split(|&b| b == 0)
        .take(if argv.is_empty() { 0 } else { usize::MAX })
}
