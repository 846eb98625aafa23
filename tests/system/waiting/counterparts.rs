//! Waits name the process that they wait for.

use super::{Traced, inodes, layers};
use crate::support::{PYTHON, need_fuse, prints};

/// A reader of an empty pipe waits for its late writer.
#[test]
fn a_reader_waits_for_a_late_writer() {
    if !need_fuse() {
        return;
    }
    let run = Traced::shell("(readlink /proc/$BASHPID/fd/1 >&2; sleep 1; echo late) | cat");
    let pipe = &inodes(&run.finished.stderr)[0];
    let condition =
        format!("reason = 'channel' AND op = 'read' AND side = 'read' AND object = {pipe}");
    run.trace.assert_sampled("cat", &condition, 300);
    if run.trace.knows_channels() {
        // The subshell is to write; its wait for its child is a wait of its own.
        let late = run.trace.rows(
            "SELECT q.upid, SUM(w.overlap_ns) > 300000000 FROM waits AS w
             JOIN processes AS p USING (upid) JOIN processes AS q ON q.upid = w.counterpart_upid
             WHERE p.command = 'cat' AND w.reason = 'channel' AND w.used IS NOT 0
             GROUP BY q.upid",
        );
        let [writer] = &late[..] else {
            panic!("{late:?}\n{}", run.trace.all_samples());
        };
        assert_eq!(writer[1], "1", "{}", run.trace.all_samples());
        let reason: String = run.trace.one(&format!(
            "SELECT reason FROM waits WHERE upid = {} ORDER BY duration_ns DESC LIMIT 1",
            writer[0]
        ));
        assert_eq!(reason, "child");
    }
}

/// A writer of a full pipe waits for its late reader.
#[test]
fn a_writer_waits_for_a_late_reader() {
    if !need_fuse() {
        return;
    }
    let run =
        Traced::shell("head -c 1M /dev/zero | (readlink /proc/$BASHPID/fd/0 >&2; sleep 1; wc -c)");
    let pipe = &inodes(&run.finished.stderr)[0];
    let condition = format!("reason = 'channel' AND side = 'write' AND object = {pipe}");
    run.trace.assert_sampled("head%", &condition, 300);
}

/// The root cause of the wait is the program that the reader's shell runs meanwhile, which has the pipe open
/// and reads nothing.
#[test]
fn a_writer_waits_for_what_comes_before_its_reader() {
    if !need_fuse() {
        return;
    }
    let script = "head -c 3000000 /dev/zero | (sleep 0.8; wc -c)";
    for layer in layers() {
        let run = Traced::by(layer, "bash", &["-c", script]);
        if !run.trace.knows_channels() {
            continue;
        }
        let path = run.scratch.join("trace.db");
        let waits = prints(&run.scratch, &["waits", path.to_str().unwrap()]);
        let did = run.trace.what_sleep_did();
        assert!(
            waits.contains(&format!("for sleep, which {did}: head")),
            "{layer}: {waits}\n{}",
            run.trace.all_samples()
        );
        run.trace.assert_sleeps_decide(&run.scratch, &path);
    }
}

/// The ends of a pair of sockets have different inodes.
#[test]
fn a_socket_is_named_by_the_end_that_waits() {
    if !need_fuse() {
        return;
    }
    let script = "
import os, socket, time
ours, theirs = socket.socketpair()
if os.fork() == 0:
    ours.close()
    time.sleep(1)
    theirs.send(b'x')
    os._exit(0)
theirs.close()
print(os.readlink(f'/proc/self/fd/{ours.fileno()}'), flush=True)
ours.recv(1)
os.wait()";
    let run = Traced::python(script);
    let socket = &inodes(&run.finished.stdout_text())[0];
    let condition = format!("reason = 'channel' AND op = 'recvfrom' AND object = {socket}");
    run.trace.assert_sampled("%", &condition, 300);
}

/// A process that waits for several pipes waits for each of them.
#[test]
fn a_poll_waits_for_all_of_its_channels() {
    if !need_fuse() {
        return;
    }
    let script = "
import os, select, signal, socket, time
pipes = [os.pipe() for _ in range(3)]
for reader, _ in pipes:
    print(os.readlink(f'/proc/self/fd/{reader}'), flush=True)
# As late as can be: on a busy machine the sleep is over soon enough.
if os.fork() == 0:
    time.sleep(1)
    os._exit(0)
for _, writer in pipes:
    os.close(writer)
CALL
";
    let calls = [
        (
            "poll",
            "p = select.poll()\nfor r, _ in pipes: p.register(r, select.POLLIN)\np.poll()",
        ),
        ("select%", "select.select([r for r, _ in pipes], [], [])"),
        (
            "pselect6",
            "select.select([r for r, _ in pipes], [], [], 100)",
        ),
        (
            "epoll%",
            "p = select.epoll()\nfor r, _ in pipes: p.register(r, select.EPOLLIN)\np.poll()",
        ),
    ];
    let all = layers()
        .iter()
        .flat_map(|layer| calls.map(|(op, call)| (layer, op, call)));
    for (layer, op, call) in all {
        let script = script.replace("CALL", call);
        let run = Traced::by(layer, PYTHON, &["-c", &script]);
        let mut expected = inodes(&run.finished.stdout_text());
        expected.sort_unstable();
        let found = run.trace.rows(
            "SELECT object, op, side, SUM(duration_ns) > 300000000 FROM waits
             WHERE reason = 'channel' GROUP BY object, op, side ORDER BY CAST(object AS TEXT)",
        );
        let objects: Vec<_> = found.iter().map(|row| row[0].clone()).collect();
        assert_eq!(objects, expected, "{op}: {}", run.trace.all_samples());
        for row in found {
            assert_eq!(row[2..], ["read", "1"], "{row:?}");
            // The library may make any of these calls.
            assert!(
                [
                    "poll",
                    "ppoll",
                    "select",
                    "pselect6",
                    "epoll_wait",
                    "epoll_pwait"
                ]
                .contains(&row[1].as_str()),
                "{row:?}"
            );
        }
    }
}

/// A parent waits for the children that lived at that time, or for the one that it named.
#[test]
fn a_parent_waits_for_its_children() {
    if !need_fuse() {
        return;
    }
    let run = Traced::shell("sleep 0.2; sleep 1; true");
    run.trace
        .assert_sampled("bash%", "reason = 'child' AND op = 'wait4'", 300);
    let named = run.trace.rows(
        "SELECT q.command, SUM(w.overlap_ns) > 300000000 FROM waits AS w
         JOIN processes AS q ON q.upid = w.counterpart_upid
         WHERE w.reason = 'child' AND q.origin = 'exec' GROUP BY q.command ORDER BY 1",
    );
    assert!(
        named.contains(&vec!["sleep 1".to_owned(), "1".to_owned()]),
        "{named:?}\n{}",
        run.trace.all_samples()
    );
    let script = "
import os, time
def child(seconds):
    pid = os.fork()
    if pid == 0:
        time.sleep(seconds)
        os._exit(0)
    return pid
children = [child(1.0), child(2.0)]
os.waitpid(children[0], 0)
print(*children)
os.wait()";
    let run = Traced::python(script);
    let text = run.finished.stdout_text();
    let first = text.split_whitespace().next().expect("pids");
    run.trace
        .assert_sampled("%", &format!("reason = 'child' AND object = {first}"), 300);
    let others: i64 = run.trace.one(&format!(
        "SELECT COUNT(*) FROM waits AS w JOIN processes AS q ON q.upid = w.counterpart_upid
         WHERE w.reason = 'child' AND w.object IS NOT NULL AND q.pid <> {first}"
    ));
    assert_eq!(others, 0, "whoever asks for one child waits for no other");
}

/// The parent of a vfork waits for its child to exec.
#[test]
fn the_parent_of_a_vfork_waits_for_its_child() {
    if !need_fuse() {
        return;
    }
    // The child cannot go on before another process writes to the FIFO that it opens for its standard input.
    let script = "
import os, time
os.mkfifo('fifo')
if os.fork() == 0:
    time.sleep(1)
    with open('fifo', 'w') as fifo: fifo.write('x')
    os._exit(0)
pid = os.posix_spawn('/bin/cat', ['cat'], os.environ,
    file_actions=[(os.POSIX_SPAWN_OPEN, 0, 'fifo', os.O_RDONLY, 0)])
os.waitpid(pid, 0)
os.wait()";
    let run = Traced::python(script);
    let parent = "reason = 'child' AND op IN ('clone', 'clone3', 'vfork')";
    run.trace.assert_sampled("%python3%", parent, 300);
}
