use std::process::Command;

use super::super::netlink::{attribute, message};
use super::*;

/// A datagram of one record, in which only the fields of `set` are set.
fn datagram(version: u16, set: &[(usize, &[u8])]) -> Vec<u8> {
    let mut stats = vec![0; 416];
    stats[..2].copy_from_slice(&version.to_ne_bytes());
    for (offset, bytes) in set {
        stats[*offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    let parts = [attribute(1, &7_u32.to_ne_bytes()), attribute(3, &stats)];
    let aggregate = attribute(4, &parts.concat());
    message(28, 0, &[&[2, 1, 0, 0][..], &aggregate].concat())
}

#[test]
fn a_record_is_read_field_by_field() {
    let word = |value: u64| value.to_ne_bytes();
    let bytes = datagram(
        13,
        &[
            (4, &(7_u32 << 8).to_ne_bytes()),
            (8, &[0x21]),
            (24, &word(1)),
            (72, &word(2)),
            (80, b"a name\0rest"),
            (128, &6_u32.to_ne_bytes()),
            (132, &5_u32.to_ne_bytes()),
            (152, &word(3)),
            (160, &word(u64::MAX)),
            (200, &word(4)),
            (368, &6_u32.to_ne_bytes()),
            (376, &word(9)),
        ],
    );
    let record = records(&bytes).next().unwrap();
    assert_eq!((record.pid, record.parent, record.last), (6, 5, true));
    assert_eq!(
        (record.name.as_slice(), record.lived_us),
        (&b"a name"[..], 9)
    );
    assert_eq!(record.wait_status, Some(7 << 8));
    let costs = record.costs;
    assert_eq!((costs.run_queue_ns, costs.on_cpu_ns), (1, 2));
    assert_eq!((costs.user_ns, costs.sys_ns), (3000, u64::MAX));
    assert_eq!((costs.max_rss_bytes, costs.threads), (4096, 1));
}

#[test]
fn what_is_old_or_cut_short_is_no_record() {
    assert_eq!(records(&datagram(11, &[])).count(), 0);
    let whole = datagram(12, &[]);
    assert_eq!(records(&whole).count(), 1);
    for length in 0..whole.len() {
        assert_eq!(records(&whole[..length]).count(), 0, "{length} bytes");
    }
}

#[test]
fn the_costs_of_a_child_are_reported() {
    let mut taskstats = match Taskstats::open() {
        Ok(taskstats) => taskstats,
        Err(error) => {
            assert!(
                std::env::var_os("FLOWTRACE_REQUIRE_SYSTEM").is_none_or(|v| v != "1"),
                "no taskstats: {error}"
            );
            eprintln!("skipped: no taskstats: {error}");
            return;
        }
    };
    let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
    let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let mut records = Vec::new();
    taskstats
        .receive(|record| records.extend((record.pid == pid).then_some(record)))
        .unwrap();
    let [record] = records.as_slice() else {
        panic!("{records:?}");
    };
    assert!(record.last && record.name == b"sh", "{record:?}");
    assert_eq!(record.parent, std::process::id());
    let lived_ns = record.lived_us * 1000;
    assert!(record.costs.on_cpu_ns > 1_000_000, "{record:?}");
    assert!(record.costs.on_cpu_ns <= lived_ns + 1_000_000, "{record:?}");
    assert!(record.costs.minor_faults > 0 && record.costs.max_rss_bytes > 4096);
}
