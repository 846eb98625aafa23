use flowtrace_schema::Fidelity;

use super::*;

/// The returns of process 0, by the calls on a file as (time, process, operation, flags or length).
fn found(calls: &[(i64, u32, Op, i64)]) -> Vec<Return> {
    let mut returns = Returns::of(1);
    let mut accesses: HashMap<u32, Access> = HashMap::new();
    for &(at, process, op, value) in calls {
        let call = CallRow {
            start_ns: at,
            duration_ns: 1,
            upid: None,
            tid: None,
            op: Some(op),
            fidelity: Fidelity::Exact,
            flags: Some(value),
            file_id: Some(1),
            offset: None,
            length: Some(value),
            result: 10,
        };
        let access = accesses.entry(process).or_insert_with(|| Access {
            process: ProcessId(process),
            file: FileIndex(0),
            span_ns: (at, at),
            ..Access::default()
        });
        returns.add(access, &call);
        let is_emptied = op == Op::Truncate && value == 0;
        if op.class() == Class::Write || op == Op::Create {
            widen(&mut access.write_ns, at, at + 1);
        }
        access.truncates += i64::from(is_emptied);
    }
    let found = returns.found();
    assert!(found.iter().all(|found| found.process == ProcessId(0)));
    found
}

#[test]
fn what_others_wrote_since_is_read() {
    let filled = [
        (1, 0, Op::Create, 0o101),
        (5, 1, Op::Write, 10),
        (9, 0, Op::Read, 10),
    ];
    let [only] = found(&filled)[..] else { panic!() };
    assert_eq!(
        (only.wrote_until_ns, only.read_ns, only.read_bytes),
        (2, (9, 10), 10)
    );
    // Its own additions in between change nothing: the others' bytes are there, too.
    let added = [
        (1, 0, Op::Write, 10),
        (5, 1, Op::Write, 10),
        (7, 0, Op::Write, 10),
        (9, 0, Op::Read, 10),
        (12, 0, Op::Write, 10),
    ];
    let [only] = found(&added)[..] else { panic!() };
    assert_eq!((only.wrote_until_ns, only.write_ns), (8, Some((12, 13))));
    // An open for reading counts as a read: the file may be mapped.
    let mapped = [
        (1, 0, Op::Create, 0o101),
        (5, 1, Op::Write, 10),
        (9, 0, Op::Open, 0),
    ];
    assert_eq!(found(&mapped)[0].reads, 0);
}

#[test]
fn what_it_wrote_itself_is_no_return() {
    // Its own data, also after others whose contents it discarded, or who came before it.
    let own = [(1, 0, Op::Write, 10), (9, 0, Op::Read, 10)];
    assert_eq!(found(&own), []);
    let emptied = [
        (1, 0, Op::Write, 10),
        (5, 1, Op::Write, 10),
        (7, 0, Op::Truncate, 0),
        (8, 0, Op::Write, 10),
        (9, 0, Op::Read, 10),
    ];
    assert_eq!(found(&emptied), []);
    let before = [
        (1, 1, Op::Write, 10),
        (5, 0, Op::Write, 10),
        (9, 0, Op::Read, 10),
    ];
    assert_eq!(found(&before), []);
}
