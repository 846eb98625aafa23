//! Joins of things that several traces saw.

use super::*;

fn connection(recorder: &Recorder, name: &str, inode: u64) {
    process(recorder, 1, None, 1);
    recorder.record(Record::Channel(Box::new(ChannelRecord {
        id: ChannelId(1),
        host: HostId(1),
        kind: ChannelKind::Tcp,
        inode,
        name: Some(name.into()),
        capacity_bytes: None,
    })));
    recorder.record(Record::ChannelEnd(ChannelEndRecord {
        id: 1,
        channel: ChannelId(1),
        upid: Upid(1),
        fd: 3,
        direction: Direction::Both,
        from_ns: 10,
    }));
    recorder.record(Record::ChannelEndClosed(ChannelEndClosed {
        id: 1,
        to_ns: Some(20),
        used: Some(true),
        bytes: None,
        at_most_bytes: None,
    }));
}

#[test]
fn one_boot_is_one_clock_and_its_files_are_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name| directory.path().join(name);
    let made = |monotonic, epoch| Made {
        epoch,
        monotonic: Some(monotonic),
        ..NODE
    };
    make(&at("a.db"), &made(500, 1_000_000), |recorder| {
        process(recorder, 1, None, 1);
        file(recorder, 1, (1, 2), FileKind::Directory, "/w");
        file(recorder, 2, (1, 7), FileKind::File, "/w/data");
        file(recorder, 3, (1, 8), FileKind::File, "/w/gone");
        call(recorder, 10, 1, 2, Op::Write);
    });
    // The wall clock says 900 ns later; the clock of the boot 300.
    make(&at("b.db"), &made(800, 1_000_900), |recorder| {
        process(recorder, 1, None, 1);
        file(recorder, 1, (1, 2), FileKind::Directory, "/w");
        // The inode is used again.
        file(recorder, 2, (1, 8), FileKind::File, "/w/new");
        file(recorder, 3, (1, 7), FileKind::File, "/w/data");
        call(recorder, 10, 1, 3, Op::Read);
    });
    let (report, db) = merged(&options(directory.path(), &["a.db", "b.db"]));
    assert_eq!(report.joined_files, 2);
    assert_eq!(report.hosts.len(), 1);
    assert_eq!(report.hosts[0].error_ns, Some(0));
    assert_eq!(
        rows(
            &db,
            "SELECT path, COUNT(*), MIN(from_ns) FROM file_names GROUP BY 1 ORDER BY 1"
        ),
        ["/w 1 5", "/w/data 1 5", "/w/gone 1 5", "/w/new 1 305"]
    );
    assert_eq!(
        rows(&db, "SELECT start_ns, upid, op, file_id FROM calls"),
        ["10 1 write 2", "310 2 read 2"]
    );
    assert_eq!(
        rows(
            &db,
            "SELECT size_bytes, last_ns FROM files WHERE path = '/w/data'"
        ),
        ["30 312"]
    );
}

#[test]
fn shared_storage_is_known_by_its_paths() {
    let directory = tempfile::tempdir().unwrap();
    let other = Made {
        host: "n2",
        boot: "b2",
        ..NODE
    };
    for (name, made, device) in [("a.db", &NODE, 1), ("b.db", &other, 9)] {
        make(&directory.path().join(name), made, |recorder| {
            file(recorder, 1, (device, 7), FileKind::File, "/shared/x");
            file(recorder, 2, (device, 8), FileKind::File, "/tmp/x");
        });
    }
    let mut options = options(directory.path(), &["a.db", "b.db"]);
    assert_eq!(merged(&options).0.joined_files, 0);
    options.replace = true;
    options.shared = vec![PathBuf::from("/shared/")];
    let (report, db) = merged(&options);
    assert_eq!(report.joined_files, 1);
    assert_eq!(
        rows(&db, "SELECT path FROM files ORDER BY 1"),
        ["/shared/x", "/tmp/x", "/tmp/x"]
    );
}

#[test]
fn a_connection_between_two_machines_is_one_channel_and_one_flow() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name| directory.path().join(name);
    let other = Made {
        host: "n2",
        boot: "b2",
        ..NODE
    };
    make(&at("a.db"), &NODE, |r| {
        connection(r, "10.0.0.1:5000 10.0.0.2:80", 77);
    });
    make(&at("b.db"), &other, |r| {
        connection(r, "10.0.0.2:80 10.0.0.1:5000", 77);
    });
    let flow = |name, ends: &str, counts: &str, dir| {
        let db = Connection::open(at(name)).unwrap();
        db.execute_batch(&format!(
            "INSERT INTO capture (capture_id, host_id, interface, source)
             VALUES (1, 1, 'eth0', 'ring');
             INSERT INTO flow (flow_id, capture_id, src, sport, dst, dport, proto, first_ns)
             VALUES (1, 1, {ends}, 'tcp', 10);
             INSERT INTO flow_owner (flow_id, side, upid, evidence) VALUES (1, 'src', 1, 'calls');
             INSERT INTO flow_capture (flow_id, capture_id, first_ns, last_ns, out_packets,
               out_bytes, back_packets, back_bytes, src_local)
             VALUES (1, 1, 10, 20, {counts}, 1);
             INSERT INTO packet (at, what, flow_id, payload_bytes, header_bytes)
             VALUES (12 * 64, 8 + {dir}, 1, 5, 55);"
        ))
        .unwrap();
    };
    flow(
        "a.db",
        "'10.0.0.1', 5000, '10.0.0.2', 80",
        "3, 90, 1, 10",
        0,
    );
    // Its capture began late and took the answer for the beginning.
    flow(
        "b.db",
        "'10.0.0.2', 80, '10.0.0.1', 5000",
        "1, 10, 3, 80",
        1,
    );
    let (report, db) = merged(&options(directory.path(), &["a.db", "b.db"]));
    assert_eq!((report.joined_channels, report.joined_flows), (1, 1));
    assert_eq!(
        rows(&db, "SELECT channel_id, upid FROM channel_ends ORDER BY 2"),
        ["1 1", "1 2"]
    );
    assert_eq!(
        rows(
            &db,
            "SELECT src, sport, dst, src_upid, dst_upid, packets, bytes, out_packets FROM flows"
        ),
        ["10.0.0.1 5000 10.0.0.2 1 2 4 100 3"]
    );
    assert_eq!(
        rows(
            &db,
            "SELECT capture_id, flow_id, dir FROM packets ORDER BY 1"
        ),
        ["1 1 0", "2 1 0"]
    );
    let local =
        "SELECT capture_id, COALESCE(src_local, 0), COALESCE(dst_local, 0) FROM flow_capture";
    assert_eq!(rows(&db, local), ["1 1 0", "2 0 1"]);
}
