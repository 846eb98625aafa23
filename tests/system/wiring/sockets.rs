//! Sockets, and descriptors that are passed through them. The workload prints its own connections.

use std::collections::BTreeSet;

use super::{Traced, traced};
use crate::support::PYTHON;

/// Runs `talk` with a parent that calls `serve()` and a child that calls `ask()`; both print `pid inode` of
/// the socket through which they talk.
fn talk(parts: &str) -> Option<Traced> {
    let script = format!(
        "
import os, socket, sys
def report(s):
    line = '%d %d\\n' % (os.getpid(), os.fstat(s.fileno()).st_ino)
    os.write(1, line.encode())
{parts}
pid = os.fork()
if pid == 0:
    ask()
    os._exit(0)
serve()
assert os.waitpid(pid, 0)[1] == 0
"
    );
    traced(&[], &[PYTHON, "-c", &script])
}

/// Pids and inodes of the processes that talked, by their own output.
fn truth(run: &Traced) -> (BTreeSet<String>, BTreeSet<String>) {
    let text = run.finished.stdout_text();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .map(|(pid, inode)| (pid.to_owned(), inode.to_owned()))
        .unzip()
}

/// Checks that there is one channel of a kind, that its inode is one of the printed ones, and that both
/// processes have an end of it.
#[track_caller]
fn assert_one_channel(run: &Traced, kind: &str) -> String {
    let (pids, inodes) = truth(run);
    let channels = run.trace.rows(&format!(
        "SELECT channel_id, inode, name FROM channels WHERE kind = '{kind}'"
    ));
    let [channel] = &channels[..] else {
        panic!("{kind}: {channels:?}");
    };
    assert!(inodes.contains(&channel[1]), "{inodes:?}: {channel:?}");
    let holders = run.trace.rows(&format!(
        "SELECT DISTINCT pid FROM channel_ends JOIN processes USING (upid)
         WHERE channel_id = {} AND used IS NOT 0",
        channel[0]
    ));
    let holders: BTreeSet<String> = holders.into_iter().flatten().collect();
    assert_eq!(holders, pids, "{kind}");
    channel[2].clone()
}

#[test]
fn a_tcp_connection_on_one_host_is_one_channel() {
    let run = talk(
        "
listener = socket.create_server(('127.0.0.1', 0))
def ask():
    s = socket.create_connection(listener.getsockname()); report(s)
    s.sendall(b'x' * 1000)
def serve():
    s = listener.accept()[0]; report(s)
    while s.recv(4096): pass
",
    );
    let Some(run) = run else { return };
    let name = assert_one_channel(&run, "tcp");
    assert_eq!(name.matches("127.0.0.1:").count(), 2, "{name}");
}

#[test]
fn a_connection_made_without_waiting_is_one_channel() {
    let run = talk(
        "
import select
listener = socket.create_server(('127.0.0.1', 0))
def ask():
    s = socket.socket(); s.setblocking(False)
    s.connect_ex(listener.getsockname()); report(s)
    select.select([], [s], [])
    s.sendall(b'x' * 1000)
def serve():
    s = listener.accept()[0]; report(s)
    while s.recv(4096): pass
",
    );
    let Some(run) = run else { return };
    let name = assert_one_channel(&run, "tcp");
    assert_eq!(name.matches("127.0.0.1:").count(), 2, "{name}");
}

#[test]
fn a_unix_socket_has_the_path_of_its_server() {
    let run = talk(
        "
path = os.getcwd() + '/socket'
listener = socket.socket(socket.AF_UNIX); listener.bind(path); listener.listen()
def ask():
    s = socket.socket(socket.AF_UNIX); s.connect(path); report(s)
    s.sendall(b'x')
def serve():
    s = listener.accept()[0]; report(s); s.recv(1)
",
    );
    let Some(run) = run else { return };
    let path = run.scratch.join("job/socket").display().to_string();
    assert_eq!(assert_one_channel(&run, "unix"), path);
}

#[test]
fn datagrams_go_to_the_address_of_the_receiver() {
    let run = talk(
        "
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); receiver.bind(('127.0.0.1', 0))
def ask():
    receiver_address = receiver.getsockname(); receiver.close()
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(receiver_address); report(s)
    s.send(b'x')
def serve():
    report(receiver); receiver.recv(1)
",
    );
    let Some(run) = run else { return };
    assert_one_channel(&run, "udp");
}

/// A process that sends to an address without connecting has an end of the receiver's channel.
fn sent_to(kind: &str, receiver: &str, send: &str) {
    let run = talk(&format!(
        "
{receiver}
to = receiver.getsockname()
if to[0] == '0.0.0.0': to = ('127.0.0.1', to[1])
def ask():
    receiver.close()
    s = socket.socket(receiver.family, socket.SOCK_DGRAM)
    for _ in range(3): {send}
    report(s)
def serve():
    report(receiver)
    for _ in range(3): receiver.recv(1)
"
    ));
    let Some(run) = run else { return };
    assert_one_channel(&run, kind);
}

#[test]
fn datagrams_are_sent_without_connecting() {
    let receiver =
        "receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); receiver.bind(('', 0))";
    sent_to("udp", receiver, "s.sendto(b'x', to)");
}

#[test]
fn messages_are_sent_without_connecting() {
    let receiver =
        "receiver = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); receiver.bind(('::1', 0))";
    sent_to("udp", receiver, "s.sendmsg([b'x'], [], 0, to)");
}

#[test]
fn several_messages_are_sent_without_connecting() {
    let receiver = "
import ctypes, struct
def send_two(s, to):
    address = struct.pack('=H', socket.AF_INET) + struct.pack('!H4s8x', to[1], socket.inet_aton(to[0]))
    kept = [ctypes.create_string_buffer(bytes, len(bytes)) for bytes in (address, b'x')]
    one, piece = kept[0], ctypes.create_string_buffer(struct.pack('@PN', ctypes.addressof(kept[1]), 1))
    header = struct.pack('@PI4xPNPNi4xI4x', ctypes.addressof(one), 16, ctypes.addressof(piece), 1, 0, 0, 0, 0)
    assert ctypes.CDLL(None).sendmmsg(s.fileno(), ctypes.create_string_buffer(2 * header), 2, 0) == 2
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); receiver.bind(('127.0.0.1', 0))";
    sent_to("udp", receiver, "send_two(s, to)");
}

#[test]
fn datagrams_are_sent_to_a_name() {
    let receiver = "receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); receiver.bind(os.getcwd() + '/log')";
    sent_to("unix", receiver, "s.sendto(b'x', to)");
}

#[test]
fn a_socket_pair_is_one_channel() {
    let run = talk(
        "
one, other = socket.socketpair()
def ask():
    one.close(); report(other); other.sendall(b'x')
def serve():
    other.close(); report(one); one.recv(1)
",
    );
    let Some(run) = run else { return };
    assert_one_channel(&run, "socketpair");
}

#[test]
fn who_was_passed_a_descriptor_holds_it() {
    let run = talk(
        "
one, other = socket.socketpair()
def ask():
    one.close()
    passed = socket.recv_fds(other, 1, 1)[1][0]
    os.write(passed, b'through the passed end')
    os.write(1, b'%d %d\\n' % (os.getpid(), os.fstat(passed).st_ino))
def serve():
    other.close()
    r, w = os.pipe()
    socket.send_fds(one, [b'x'], [w]); os.close(w)
    assert os.read(r, 100) == b'through the passed end'
",
    );
    let Some(run) = run else { return };
    let (_, inodes) = truth(&run);
    let inode = inodes.first().expect("the inode that it printed");
    let writers = format!(
        "SELECT origin, direction FROM channel_ends JOIN channels USING (channel_id)
         JOIN processes USING (upid) WHERE inode = {inode} AND used IS NOT 0 ORDER BY direction"
    );
    let expected = [["exec", "read"], ["fork", "write"]];
    assert_eq!(run.trace.rows(&writers), expected);
}

/// eBPF programs report descriptors that come with a message; other layers see those that are open for long
/// enough.
#[test]
fn a_descriptor_that_was_passed_and_closed_at_once_is_recorded() {
    let run = talk(
        "
one, other = socket.socketpair()
def ask():
    one.close()
    for n in range(20):
        passed = socket.recv_fds(other, 1, 3)[1]
        os.write(passed[0], b'x'); os.write(passed[-1], b'y')
        for fd in passed: os.close(fd)
def serve():
    other.close()
    for n in range(20):
        (r, w), (s, t) = os.pipe(), socket.socketpair()
        for ends in [(r, w), (s.fileno(), t.fileno())]:
            inodes = tuple(os.fstat(fd).st_ino for fd in ends)
            os.write(1, b'%d %d, %d\\n' % (os.getpid(), *inodes))
        socket.send_fds(one, [b'x'], [w, w, t.fileno()]); os.close(w); t.close()
        assert os.read(r, 100) == b'x' and s.recv(100) == b'y'
        os.close(r); s.close()
",
    );
    let Some(run) = run else { return };
    if run.trace.one::<String>("SELECT process_layer FROM runs") != "ebpf" {
        return;
    }
    let (_, inodes) = truth(&run);
    assert_eq!(inodes.len(), 40);
    for ends in inodes {
        let holders: i64 = run.trace.one(&format!(
            "SELECT COUNT(DISTINCT upid) FROM channel_ends JOIN channels USING (channel_id)
             WHERE inode IN ({ends}) AND used IS NOT 0"
        ));
        assert_eq!(holders, 2, "{ends}");
    }
}
