//! Adds one call to the totals of an access.

use flowtrace_schema::open_flags::{O_ACCMODE, O_APPEND, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY};
use flowtrace_schema::{CallRow, Class, Op};

use crate::model::Access;
/// Notes an open after which reads or changes may be unseen. An empty file, such as a lock, has nothing to
/// map.
pub(super) fn add_unseen(access: &mut Access, call: &CallRow, only_opens: bool, has_data: bool) {
    let mode = call.flags.map_or(O_RDONLY, |flags| flags & O_ACCMODE);
    access.read_opens += i64::from(mode == O_RDWR && has_data);
    access.is_blind = mode == O_RDWR && has_data || mode == O_WRONLY && only_opens;
    access.blind_opens += i64::from(access.is_blind);
}

/// Adds one successful call.
pub(super) fn add(access: &mut Access, call: &CallRow) {
    let end = call.start_ns.saturating_add(call.duration_ns);
    access.calls += 1;
    access.span_ns.1 = access.span_ns.1.max(end);
    let Some(op) = call.op else { return };
    if matches!(op, Op::Create | Op::Mknod | Op::Mkdir | Op::Symlink) {
        access.creates += 1;
    }
    if matches!(op, Op::Create | Op::Mknod) {
        widen(&mut access.write_ns, call.start_ns, end);
    }
    access.alterations += i64::from(alters(op));
    match op.class() {
        Class::Open => {
            access.first_open_ns.get_or_insert(call.start_ns);
            let flags = call.flags.unwrap_or(-1);
            let is_plain = flags & O_ACCMODE == O_RDONLY;
            access.read_opens += i64::from(is_plain);
            access.plain_read_opens += i64::from(is_plain);
            let may_write = matches!(flags & O_ACCMODE, O_WRONLY | O_RDWR);
            let only_adds = flags & (O_APPEND | O_TRUNC) == O_APPEND;
            access.write_opens += i64::from(may_write);
            access.append_opens += i64::from(may_write && only_adds);
            access.truncates += i64::from(flags >= 0 && flags & O_TRUNC != 0);
        }
        Class::Read => {
            access.reads += 1;
            // A process that moves data by calls through its descriptor needs no mapping.
            access.blind_opens -= i64::from(std::mem::take(&mut access.is_blind));
            access.read_bytes = access.read_bytes.saturating_add(call.result);
            access.read_time_ns = access.read_time_ns.saturating_add(call.duration_ns);
            widen(&mut access.read_ns, call.start_ns, end);
        }
        Class::Write => {
            access.changes += 1;
            access.write_time_ns = access.write_time_ns.saturating_add(call.duration_ns);
            widen(&mut access.write_ns, call.start_ns, end);
            if matches!(op, Op::Write | Op::CopyTo) {
                access.writes += 1;
                access.write_bytes = access.write_bytes.saturating_add(call.result);
            }
            access.truncates += i64::from(op == Op::Truncate && call.length.unwrap_or(0) == 0);
        }
        Class::Sync => {
            access.syncs += 1;
            access.sync_time_ns = access.sync_time_ns.saturating_add(call.duration_ns);
        }
        Class::Attribute if matches!(op, Op::Getattr | Op::Access) => access.checks += 1,
        Class::Control if op == Op::Mmap => {
            let length = call.length.unwrap_or(0).max(0);
            access.mapped_bytes = access.mapped_bytes.saturating_add(length);
        }
        _ => {}
    }
}

/// Returns true if a call changes a name or an attribute of an existing file.
pub(super) fn alters(op: Op) -> bool {
    use Op::*;
    matches!(
        op,
        Rename | Link | Unlink | Rmdir | Chmod | Chown | Utimens | Setxattr | Removexattr | Setattr
    )
}

pub(super) fn widen(span: &mut Option<(i64, i64)>, from: i64, to: i64) {
    *span = Some(span.map_or((from, to), |(first, last)| (first.min(from), last.max(to))));
}
