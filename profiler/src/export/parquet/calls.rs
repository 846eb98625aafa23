//! The view `calls`, of which there may be a hundred million rows: read from its table, with the names
//! of files looked up here instead of once per row in SQL.

use std::collections::HashMap;

use flowtrace_schema::{CallRow, Fidelity, Op, Trace};
use parquet::data_type::ByteArray;

use super::{Error, Hosts, Rows};

/// Reads all calls. The columns are those of the view, in its order.
pub(super) fn read<'a>(trace: &Trace, hosts: &'a Hosts, rows: &mut Rows<'a>) -> Result<(), Error> {
    let names = Names::of(trace)?;
    let pids: HashMap<i64, i64> = trace
        .processes()?
        .iter()
        .map(|process| (process.upid, process.pid))
        .collect();
    // Many in a row are of one process.
    let mut last: (Option<i64>, Option<&str>, Option<i64>) = (None, None, None);
    let mut taken = true;
    trace.for_each_call(|call| {
        let Some(op) = call.op.filter(|_| taken) else {
            return;
        };
        if last.0 != call.upid || call.upid.is_none() {
            let host = call.upid.and_then(|upid| hosts.of_process.get(&upid));
            let pid = call.upid.and_then(|upid| pids.get(&upid).copied());
            last = (call.upid, host.map(String::as_str), pid);
        }
        let (_, host, pid) = last;
        add(rows, host, call, op, pid, &names);
        taken = rows.added(host);
    })?;
    Ok(())
}

fn add<'a>(
    rows: &mut Rows<'a>,
    host: Option<&'a str>,
    call: &CallRow,
    op: Op,
    pid: Option<i64>,
    names: &Names,
) {
    let mut columns = rows.of(host).iter_mut();
    let mut next = || columns.next().expect("the view has these columns");
    next().integer(Some(call.start_ns));
    next().integer(Some(call.start_ns));
    next().integer(Some(call.duration_ns));
    next().integer(call.upid);
    next().integer(call.tid.or(pid));
    next().text(Some(names.ops[op as usize].clone()));
    next().integer(call.file_id);
    next().text(call.file_id.and_then(|id| names.files.get(&id).cloned()));
    next().integer(call.offset);
    next().integer(call.length);
    next().integer(Some(call.result));
    next().text(Some(names.fidelities[call.fidelity as usize].clone()));
    next().integer(call.flags);
}

/// Texts that many rows share.
struct Names {
    ops: Vec<ByteArray>,
    fidelities: Vec<ByteArray>,
    /// The last name of each file.
    files: HashMap<i64, ByteArray>,
}

impl Names {
    fn of(trace: &Trace) -> Result<Names, Error> {
        let mut last = HashMap::new();
        for name in trace.file_names()? {
            let rank = (name.to_ns.is_none(), name.from_ns);
            let best = last.entry(name.file_id).or_insert((rank, String::new()));
            if rank >= best.0 {
                *best = (rank, name.path);
            }
        }
        let op = |number| Op::from_number(number).map_or("", Op::name);
        Ok(Names {
            ops: (0..64).map(|number| ByteArray::from(op(number))).collect(),
            fidelities: Fidelity::ALL
                .iter()
                .map(|fidelity| ByteArray::from(fidelity.name()))
                .collect(),
            files: last
                .into_iter()
                .map(|(file, (_, path))| (file, ByteArray::from(path.into_bytes())))
                .collect(),
        })
    }
}
