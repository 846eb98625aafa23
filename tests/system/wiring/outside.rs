//! Files outside the traced directories, which are known by their opens where a directory is mounted.

use std::collections::HashSet;
use std::fs;
use std::process::Command;

use super::traced;
use crate::support::process::finish;
use crate::support::{
    PYTHON, Scratch, need_fuse, need_kernel_layer, need_python, need_root, prints, run_in, skip,
};

const MOUNTED: [&str; 2] = ["--layer", "fuse"];

/// Runs `script`, in which `$O` is a directory outside.
fn outside(options: &[&str], script: &str) -> Option<(super::Traced, tempfile::TempDir, String)> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    let path = path.display().to_string();
    let script = format!("O={path}; {script}");
    let is_given = options.contains(&"--layer");
    let mounted = MOUNTED.iter().copied().filter(|_| !is_given);
    let options: Vec<&str> = options.iter().copied().chain(mounted).collect();
    let run = traced(&options, &["sh", "-ec", &script])?;
    Some((run, directory, path))
}

/// A filesystem gives the inode number of a removed file to the next one. By the time that flowtrace reads
/// it, the first file is gone and the next one exists.
#[test]
fn files_that_reuse_an_inode_number_are_distinguished() {
    if !need_kernel_layer() {
        return;
    }
    let script = "
import os, sys
for n in range(1, 101):
    path = f'{sys.argv[1]}/{n}'
    with open(path, 'wb', buffering=0) as file:
        file.write(bytes(n))
        print(path, os.fstat(file.fileno()).st_ino, n)
    os.unlink(path)";
    let options = ["--layer", "kernel"];
    let command = format!("{PYTHON} -c \"{script}\" $O");
    let Some((run, _guard, directory)) = outside(&options, &command) else {
        return;
    };
    let printed = run.finished.stdout_text();
    let lines = printed.lines().map(|line| line.split(' ').collect());
    let made: Vec<Vec<&str>> = lines.collect();
    let numbers: HashSet<&str> = made.iter().map(|made| made[1]).collect();
    if numbers.len() == made.len() {
        return skip("this filesystem does not give inode numbers again at once");
    }
    let expected: Vec<Vec<&str>> = made
        .iter()
        .map(|made| vec![made[0], "1", made[2]])
        .collect();
    let found = run.trace.rows(&format!(
        "SELECT path, COUNT(DISTINCT file_id), SUM(result) FROM calls
         WHERE op = 'write' AND path LIKE '{directory}/%' GROUP BY path ORDER BY MIN(call_id)"
    ));
    assert_eq!(found, expected, "{options:?}");
    let files: i64 = run.trace.one(&format!(
        "SELECT COUNT(*) FROM files WHERE path LIKE '{directory}/%'"
    ));
    assert_eq!(files as usize, made.len(), "{options:?}");
}

/// Program, operation and path of every call on files in `directory`.
fn calls(run: &super::Traced, directory: &str) -> Vec<Vec<String>> {
    run.trace.rows(&format!(
        "SELECT substr(command, 1, instr(command || ' ', ' ') - 1), op, path, fidelity
         FROM calls JOIN processes USING (upid) WHERE path LIKE '{directory}/%'
         ORDER BY call_id"
    ))
}

#[test]
fn opens_are_recorded_with_who_and_how() {
    let script = "echo x > $O/in; cat $O/in > inside; cat inside > $O/out; cat $O/missing || true";
    let Some((run, _guard, path)) = outside(&[], script) else {
        return;
    };
    let row = |program: &str, op: &str, name: &str| {
        [program, op, &format!("{path}/{name}"), "open"].map(str::to_owned)
    };
    let expected = [
        row("sh", "create", "in"),
        row("cat", "open", "in"),
        row("sh", "create", "out"),
        row("cat", "write", "out"),
    ];
    assert_eq!(calls(&run, &path), expected);
    let relations = run.trace.rows(&format!(
        "SELECT DISTINCT path, relation, coverage FROM file_access JOIN files USING (file_id)
         WHERE path LIKE '{path}/%' AND relation <> 'none' ORDER BY path, relation"
    ));
    let relation = |name: &str, relation: &str| {
        [&format!("{path}/{name}"), relation, "open"].map(str::to_owned)
    };
    let expected = [
        relation("in", "create"),
        relation("in", "read"),
        relation("out", "create"),
        relation("out", "write"),
    ];
    assert_eq!(relations, expected);
    let inside: i64 = run
        .trace
        .one("SELECT COUNT(*) FROM calls WHERE path LIKE '%/job/inside' AND fidelity = 'open'");
    assert_eq!(inside, 0, "a call that the mount sees is recorded once");
}

#[test]
fn what_goes_through_an_inherited_descriptor_is_that_of_who_moves_it() {
    // Wrappers, a program that moves no data, and writes of the shell itself between them.
    let script = "seq 100 > in; { sort in; } > $O/q; { echo hi; sh -c 'sort in; true'; } > $O/r; \
        { sh -c 'read line'; wc -l; } < $O/q > o; { env sleep 0; } > $O/empty; \
        { sed -n 1p in; echo a; sed -n 2p in; } >> $O/q; { cat in; rm $O/gone; } > $O/gone";
    let Some((run, _guard, path)) = outside(&[], script) else {
        return;
    };
    let moved = run.trace.rows(&format!(
        "SELECT substr(command, 1, instr(command || ' ', ' ') - 1), op, substr(path, {}), offset, result
         FROM calls JOIN processes USING (upid)
         WHERE path LIKE '{path}/%' AND op IN ('read', 'write') ORDER BY call_id",
        path.len() + 2
    ));
    let expected = [
        ["sort", "write", "q", "0", "292"],
        ["sort", "write", "r", "3", "292"],
        ["sh", "read", "q", "0", "2"],
        ["wc", "read", "q", "2", "290"],
        ["sed", "write", "q", "292", "2"],
        ["sed", "write", "q", "296", "2"],
        ["cat", "write", "gone", "0", "292"],
    ];
    assert_eq!(moved, expected);
}

#[test]
fn sizes_are_those_at_the_end() {
    let script = "seq 1000 > $O/grown; seq 1000 >> $O/grown; cat $O/grown > inside; seq 10 > $O/gone; \
        cat $O/gone > inside; rm $O/gone";
    let Some((run, _guard, path)) = outside(&[], script) else {
        return;
    };
    let sizes = format!("SELECT size_bytes FROM files WHERE path LIKE '{path}/%' ORDER BY file_id");
    assert_eq!(run.trace.rows(&sizes), [["7786"], ["21"]]);
}

#[test]
fn names_follow_renames_and_removals() {
    let script = "mkdir $O/d; echo x > $O/d/a; mv $O/d/a $O/d/b; mv $O/d $O/e; cat $O/e/b > c; \
        echo y > $O/gone; rm $O/gone; echo z > $O/gone";
    let Some((run, _guard, path)) = outside(&[], script) else {
        return;
    };
    let names = run.trace.rows(&format!(
        "SELECT substr(path, {}), to_ns IS NULL FROM file_names WHERE path LIKE '{path}/%'
         ORDER BY file_id, from_ns",
        path.len() + 2
    ));
    let expected = [
        ["d/a", "0"],
        ["d/b", "0"],
        ["e/b", "1"],
        ["gone", "0"],
        ["gone", "1"],
    ];
    assert_eq!(names, expected);
}

/// The name of a file made by `link`, with the first name removed or not, and of a file that was made without
/// a name.
#[test]
fn names_follow_links() {
    const MADE: &str = "
import ctypes, os, sys
libc, here, empty_path, follow = ctypes.CDLL(None), -100, 0x1000, 0x400
for place, name in enumerate(['by-descriptor', 'by-proc']):
    made = os.open(sys.argv[1], os.O_TMPFILE | os.O_RDWR, 0o644)
    os.write(made, b'x')
    new = f'{sys.argv[1]}/{name}'.encode()
    result = libc.linkat(made, b'', here, new, empty_path) if place == 0 else \
        libc.linkat(here, b'/proc/self/fd/%d' % made, here, new, follow)
    assert result == 0";
    let with_python = need_python("ctypes") && need_root();
    for options in [&[][..], &["--ptrace"]] {
        let mut script =
            "echo x > $O/a; ln $O/a $O/b; rm $O/a; cat $O/b > c; echo y > $O/d; ln -f $O/d $O/e; "
                .to_owned();
        if with_python {
            script += &format!("{PYTHON} -c \"{MADE}\" $O");
        }
        let Some((run, _guard, path)) = outside(options, &script) else {
            return;
        };
        let names = run.trace.rows(&format!(
            "SELECT substr(path, {}), to_ns IS NULL FROM file_names WHERE path LIKE '{path}/%'
             ORDER BY file_id, from_ns, path",
            path.len() + 2
        ));
        let mut expected = vec![["a", "0"], ["b", "1"], ["d", "1"], ["e", "1"]];
        if with_python {
            expected.extend([["by-descriptor", "1"], ["by-proc", "1"]]);
        }
        assert_eq!(names, expected, "{options:?}");
        let files: i64 = run.trace.one(&format!(
            "SELECT COUNT(DISTINCT file_id) FROM file_names WHERE path LIKE '{path}/%'"
        ));
        assert_eq!(files as usize, expected.len() - 2, "{options:?}");
    }
}

#[test]
fn a_link_out_of_the_mount_leads_to_the_real_file() {
    let script =
        "echo x > $O/data; ln -s $O/data link; cat link > copy; cd /; cat ./$O/data > /dev/null";
    let Some((run, _guard, path)) = outside(&[], script) else {
        return;
    };
    let opened = calls(&run, &path);
    let data = format!("{path}/data");
    let ops: Vec<_> = opened.iter().map(|row| (&*row[1], &*row[2])).collect();
    assert_eq!(
        ops,
        [("create", &*data), ("open", &*data), ("open", &*data)]
    );
    let files: i64 = run
        .trace
        .one(&format!("SELECT COUNT(*) FROM files WHERE path = '{data}'"));
    assert_eq!(files, 1, "one inode is one file");
}

#[test]
fn links_on_the_way_out_of_a_mount_are_followed() {
    // A directory that is a link, a link whose target does not exist yet, and dots: `there` is a link, so
    // `there/..` is outside.
    let script = "mkdir $O/d inner; ln -s $O/d there; echo x > there/new; ln -s $O/late to; echo y > to; \
        echo z > inner/../there/../up; cat inner/../there/new > inner/../copy";
    let Some((run, _guard, path)) = outside(&[], script) else {
        return;
    };
    let opened = calls(&run, &path);
    let ops: Vec<_> = opened
        .iter()
        .map(|row| (&*row[1], &row[2][path.len()..]))
        .collect();
    let expected = [
        ("create", "/d/new"),
        ("create", "/late"),
        ("create", "/up"),
        ("open", "/d/new"),
    ];
    assert_eq!(ops, expected);
    let copy = "SELECT COUNT(*) FROM calls WHERE path LIKE '%/copy' AND op IN ('open', 'create')";
    assert_eq!(
        run.trace.one::<i64>(copy),
        1,
        "a call that the mount sees is recorded once"
    );
}

#[test]
fn what_the_workflow_mounts_is_seen_by_its_opens() {
    if !need_root() {
        return;
    }
    // With namespaces of its own, and in that of the run.
    for script in [
        "mkdir m; unshare -m sh -ec 'mount -t tmpfs t m; echo x > m/in; cat m/in > copy'",
        "mkdir m; mount -t tmpfs t m; echo x > m/in; cat m/in > copy; mount -o remount,ro m; umount m",
    ] {
        let Some(run) = traced(&MOUNTED, &["sh", "-ec", script]) else {
            return;
        };
        let opened =
            "SELECT op FROM calls WHERE path LIKE '%/job/m/in' AND fidelity = 'open' ORDER BY 1";
        assert_eq!(run.trace.rows(opened).len(), 2, "{script}");
        let copies = "SELECT fidelity FROM calls WHERE path LIKE '%/job/copy' AND op = 'create'";
        assert_eq!(run.trace.rows(copies), [["exact"]]);
        let losses = "SELECT counter, value FROM losses WHERE source = 'files'";
        assert_eq!(run.trace.rows(losses), [["mounts_inside", "1"]], "{script}");
    }
}

/// The thread's descriptor of that number refers to another file than the descriptor of its process.
#[test]
fn a_thread_with_descriptors_of_its_own_opens_its_own_file() {
    let threads = "import ctypes, os, sys, threading
os.chdir(sys.argv[1])
ready, go = threading.Event(), threading.Event()
def own():
    ctypes.CDLL(None).unshare(0x400)
    ready.set(); go.wait()
    assert os.open('by_thread', os.O_CREAT | os.O_WRONLY) == fd
thread = threading.Thread(target=own); thread.start(); ready.wait()
fd = os.open('by_main', os.O_CREAT | os.O_WRONLY); go.set(); thread.join()";
    let script = format!(r#"{PYTHON} -c "{threads}" $O"#);
    for options in [&[][..], &["--ptrace"]] {
        let Some((run, _guard, path)) = outside(options, &script) else {
            return;
        };
        let made = format!(
            "SELECT path FROM calls WHERE op IN ('open', 'create') AND path LIKE '{path}/by_%' ORDER BY 1"
        );
        let [main, thread] = ["by_main", "by_thread"].map(|name| vec![format!("{path}/{name}")]);
        assert_eq!(run.trace.rows(&made), [main, thread], "{options:?}");
    }
}

/// The kernel does not report the path of such a file: the trace has no name for it, and no wrong one.
#[test]
fn a_file_with_a_path_too_long_to_report_has_none() {
    let deep = "import os, sys
os.chdir(sys.argv[1])
for _ in range(20): os.mkdir('d' * 250); os.chdir('d' * 250)
open('x', 'w').write('hello'); os.rename('x', 'y'); open('y').read()";
    let script = format!(r#"{PYTHON} -c "{deep}" $O; echo x > $O/x"#);
    let Some((run, _guard, path)) = outside(&[], &script) else {
        return;
    };
    let of_nameless = "SELECT op FROM calls JOIN files USING (file_id)
        WHERE files.path IS NULL AND fidelity = 'open' ORDER BY call_id";
    assert_eq!(run.trace.rows(of_nameless), [["create"], ["open"]]);
    let named = format!("SELECT path FROM files WHERE path LIKE '{path}/%'");
    assert_eq!(run.trace.rows(&named), [[format!("{path}/x")]]);
}

/// In another namespace paths mean other files, but the file itself shows that it was just made.
#[test]
fn a_file_made_in_another_namespace_or_root_has_its_maker() {
    if !need_root() {
        return;
    }
    // The same names exist below the other root.
    let inside = "import os, sys
o = sys.argv[1]; os.chroot(o + '/root')
for _ in range(2): open('/d/in', 'a').write('x')
open(o + '/there', 'w').close(); os.rename(o + '/there', o + '/kept')";
    let script = format!(
        r#"echo x > $O/there; echo x > $O/moved; mkdir -p $O/root/d $O/root$O; sleep 0.1
        unshare -m sh -ec 'echo y > $0/new; echo y >> $0/new; : >> $0/there; mv $0/moved $0/on' $O
        {PYTHON} -c "{inside}" $O"#
    );
    let Some((run, _guard, path)) = outside(&[], &script) else {
        return;
    };
    let ops = |name: &str| {
        let made = calls(&run, &path).into_iter();
        let made = made.filter(|row| row[2] == format!("{path}/{name}"));
        made.map(|row| row[1].clone()).collect::<Vec<_>>()
    };
    assert_eq!(ops("new"), ["create", "open"]);
    assert_eq!(ops("there"), ["create", "open"]);
    assert_eq!(ops("on"), ["create"]);
    assert_eq!(ops("root/d/in"), ["create", "open"]);
}

#[test]
fn system_files_are_known_and_devices_are_not() {
    let Some((run, _guard, _)) = outside(&[], "cat /etc/passwd /etc/none /dev/null > copy || true")
    else {
        return;
    };
    let opened = "SELECT path FROM calls WHERE fidelity = 'open' AND path IN
        ('/etc/passwd', '/etc/none', '/dev/null')";
    assert_eq!(run.trace.rows(opened), [["/etc/passwd"]]);
}

/// Installed packages belong to the machine, but files that the workflow makes among them are its own. gzip
/// opens its input with O_NOCTTY, as GCC does with headers.
#[test]
fn what_the_workflow_makes_among_system_files_is_its_own() {
    let script = "d=$O/node_modules; mkdir $d; seq 9 > $d/made; gzip -c $d/made > $O/out.gz; echo x > $d/left";
    let Some((run, _guard, path)) = outside(&[], script) else {
        return;
    };
    let table = ["stats", "trace.db", "unread", "--format", "json"];
    let unread: Vec<serde_json::Value> =
        serde_json::from_str(&prints(&run.scratch, &table)).unwrap();
    let size = |name: &str| fs::metadata(format!("{path}/{name}")).unwrap().len();
    let found: Vec<(&str, u64)> = unread
        .iter()
        .map(|row| {
            (
                row["path"].as_str().unwrap(),
                row["write_bytes"].as_u64().unwrap(),
            )
        })
        .collect();
    let [packed, left] = ["out.gz", "node_modules/left"].map(|name| format!("{path}/{name}"));
    let expected = [(packed.as_str(), size("out.gz")), (left.as_str(), 2)];
    assert_eq!(found, expected);
}

#[test]
fn calls_are_left_alone_on_request() {
    let Some((run, _guard, path)) = outside(&["--no-topology"], "echo x > $O/in; cat $O/in > copy")
    else {
        return;
    };
    assert!(calls(&run, &path).is_empty());
}

/// A call that the filter selects fails if no listener answers it.
#[test]
fn without_a_listener_there_is_no_filter() {
    if !need_fuse() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display().to_string();
    let script = format!("O={path}; echo x > $O/in; cat $O/in > copy");
    let command = ["sh", "-ec", &script];
    let Some(run) = super::traced(&["--announced"], &command) else {
        return;
    };
    assert!(calls(&run, &path).is_empty());
    let copy = fs::read_to_string(run.scratch.join("job/copy")).unwrap();
    assert_eq!(copy, "x\n");
}

/// Programs that opened the files themselves moved data, but no row shows how much.
#[test]
fn statistics_say_what_is_not_known_of_files_outside() {
    let script = "seq 1000 > $O/by_shell; dd if=$O/by_shell of=$O/by_dd status=none; \
        sort < $O/by_dd > sorted";
    for options in [&[][..], &["--layer", "kernel"]] {
        let is_kernel = !options.is_empty();
        if is_kernel && !need_kernel_layer() {
            continue;
        }
        let Some((run, ..)) = outside(options, script) else {
            return;
        };
        for (table, says) in [
            (
                "rules",
                "moved in 2 files outside of the traced directories (7.8 kB)",
            ),
            ("calls", "4 opens outside of the traced directories"),
            (
                "calls",
                "7.8 kB moved through files there that programs inherited open",
            ),
        ] {
            let text = prints(&run.scratch, &["stats", "trace.db", table]);
            assert_eq!(text.contains(says), !is_kernel, "{says}: {text}");
        }
    }
}

/// Who started flowtrace chose where its output goes: no option of the run is advised for that.
#[test]
fn streams_that_the_caller_opened_outside_are_no_data_of_the_run() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let guard = tempfile::tempdir().unwrap();
    let mut run = run_in(&scratch.dir("job"), &scratch.join("trace.db"));
    run.args(MOUNTED);
    run.args(["--", "sh", "-c", "echo x > in; seq 1000"]);
    let mut outer = Command::new("sh");
    outer.args(["-c", "exec \"$@\" > \"$0\""]);
    outer.arg(guard.path().join("log")).arg(run.get_program());
    outer.args(run.get_args()).current_dir(scratch.join("job"));
    finish(&mut outer).expect(0);
    let text = prints(&scratch, &["summary", "trace.db"]);
    assert!(!text.contains("outside"), "{text}");
}
