//! Owners of the ends of connections, for programs that connect to themselves, run one after the other, or
//! fork.

use std::fs;
use std::path::PathBuf;

use crate::lab_of_hosts::need_lab;
use crate::support::{Scratch, need_program};
use crate::{number, succeeds};

/// Runs a server in Python, which prints a line when it is ready, and `clients`, a line of shell that runs
/// `client.py`, in the directory `w`. Returns the trace and the messages of flowtrace.
fn served(scratch: &Scratch, server: &str, client: &str, clients: &str) -> (PathBuf, String) {
    let directory = scratch.dir("w");
    fs::write(directory.join("server.py"), server).unwrap();
    fs::write(directory.join("client.py"), client).unwrap();
    let script = format!(
        r#"cd w
"$FLOWTRACE" run -q --net --interface lo -o ../run.db -- sh -c '
  python3 server.py > ready &
  until grep -q ready ready; do sleep 0.01; done
  {clients}
  wait'
"#
    );
    let error = succeeds(scratch, 1, &script);
    (scratch.join("run.db"), error)
}

/// A program that connects to itself owns both ends.
#[test]
fn a_program_that_talks_to_itself_is_at_both_ends() {
    if !need_lab() || !need_program("python3") {
        return;
    }
    let scratch = Scratch::new();
    let script = r#"
"$FLOWTRACE" run -q --net --interface lo -o run.db -- python3 -c '
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
end, _ = server.accept()
client.sendall(b"x" * 1000)
while len(end.recv(1000, socket.MSG_PEEK)) < 1000: pass
'"#;
    let error = succeeds(&scratch, 1, script);
    let sql = "SELECT COUNT(*) FROM flows WHERE bytes = 1000 AND src_upid = dst_upid";
    assert_eq!(number(&scratch.join("run.db"), sql), 1, "{error}");
}

/// Processes use the same ports one after the other: each connection belongs to its own process, and to no
/// other.
#[test]
fn processes_that_use_the_same_ports_are_distinguished() {
    if !need_lab() || !need_program("python3") {
        return;
    }
    let scratch = Scratch::new();
    let server = r#"
import socket
server = socket.create_server(("127.0.0.1", 7001))
print("ready", flush=True)
for _ in range(3):
    end, _ = server.accept()
    end.recv(10)
    end.shutdown(socket.SHUT_WR)
    end.recv(1)
"#;
    let client = r#"
import socket, sys
client = socket.socket()
client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
client.bind(("127.0.0.1", 7000))
client.connect(("127.0.0.1", 7001))
client.sendall(b"x" * int(sys.argv[1]))
client.recv(1)
"#;
    let clients = "for size in 1 2 3; do python3 client.py $size; done";
    let (trace, error) = served(&scratch, server, client, clients);
    // Each end of each connection once.
    let sql = "SELECT COUNT(*) FROM flow_owners JOIN flows USING (flow_id) WHERE sport = 7000";
    assert_eq!(number(&trace, sql), 6, "{error}");
    let sql = "SELECT COUNT(*) FROM flows JOIN processes ON upid = src_upid
               WHERE sport = 7000 AND command LIKE '%client.py ' || out_bytes";
    assert_eq!(number(&trace, sql), 3, "{error}");
    let sql = "SELECT COUNT(*) FROM flows JOIN processes ON upid = dst_upid
               WHERE sport = 7000 AND command LIKE '%server.py'";
    assert_eq!(number(&trace, sql), 3, "{error}");
}

/// A server forks for each connection, or lets another program talk: these processes are at its end. A child
/// of the client inherits the connection and does not use it.
#[test]
fn who_was_forked_for_a_connection_is_at_its_end() {
    if !need_lab() || !need_program("python3") {
        return;
    }
    let scratch = Scratch::new();
    let server = r#"
import os, socket, subprocess
server = socket.create_server(("127.0.0.1", 7001))
print("ready", flush=True)
for turn in range(4):
    end, _ = server.accept()
    if turn % 2:
        subprocess.Popen(["head", "-c", "3"], stdin=end, stdout=end).wait()
    elif os.fork() == 0:
        end.sendall(end.recv(3))
        end.close()
        with open("forked", "a") as file: print(os.getpid(), file=file)
        os._exit(0)
    end.close()
"#;
    let client = r#"
import os, socket, time
for turn in range(4):
    client = socket.create_connection(("127.0.0.1", 7001))
    child = os.fork()
    if child == 0:
        time.sleep(0.2)
        os._exit(0)
    client.sendall(b"two")
    client.recv(3)
    client.close()
    os.waitpid(child, 0)
"#;
    let (trace, error) = served(&scratch, server, client, "python3 client.py");
    let by = |end: &str, owner: &str| {
        number(
            &trace,
            &format!(
                "SELECT COUNT(*) FROM flows JOIN processes ON upid = {end}_upid
                 WHERE dport = 7001 AND bytes = 6 AND {owner}"
            ),
        )
    };
    assert_eq!(
        by("src", "command LIKE '%client.py' AND origin = 'exec'"),
        4,
        "{error}"
    );
    assert_eq!(by("dst", "command = 'head -c 3'"), 2, "{error}");
    let forked = fs::read_to_string(scratch.join("w/forked")).unwrap();
    let forked: Vec<_> = forked.split_whitespace().collect();
    let owner = format!("origin = 'fork' AND pid IN ({})", forked.join(","));
    assert_eq!(by("dst", &owner), 2, "{error}");
}

/// A child inherits the sockets for datagrams that its parent bound. It is at the end of the parent only where the
/// parent itself is at the other one.
#[test]
fn a_child_that_inherits_a_socket_for_datagrams_is_at_its_own_end() {
    if !need_lab() || !need_program("python3") {
        return;
    }
    let program = r#"
import os, socket, sys
def bound(*port):
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for one in port: made.bind(("127.0.0.1", one))
    return made
def ask(by, close):
    close.close()
    by.sendto(b"question", ("127.0.0.1", 7700))
    by.recv(9)
def answer(by, close):
    close.close()
    by.sendto(b"answer", by.recvfrom(9)[1])
how, by = sys.argv[1:]
nothing = socket.socket()
server = bound(7700)
client = bound(7701) if by == "inherited" else None
child = os.fork()
if (child == 0) == (how == "asks"):
    client = client or (bound() if by == "unbound" else bound(7701))
    ask(client, server if by == "inherited" else nothing)
else:
    answer(server, client if by == "inherited" else nothing)
if child == 0: os._exit(0)
os.wait()
"#;
    let cases = ["own", "unbound", "inherited"].map(|by| [("asks", by), ("answers", by)]);
    for (how, by) in cases.into_iter().flatten() {
        let scratch = Scratch::new();
        fs::write(scratch.join("talk.py"), program).unwrap();
        let script = format!(
            r#""$FLOWTRACE" run -q --net --interface lo -o run.db -- python3 talk.py {how} {by}"#
        );
        let error = succeeds(&scratch, 1, &script);
        let (child, parent) = match how {
            "asks" => ("src", "dst"),
            _ => ("dst", "src"),
        };
        let sql = format!(
            "SELECT COUNT(*) FROM flows AS f JOIN processes AS c ON c.upid = f.{child}_upid
             JOIN processes AS p ON p.upid = f.{parent}_upid
             WHERE f.bytes = 14 AND c.origin = 'fork' AND c.parent_upid = p.upid"
        );
        let found = number(&scratch.join("run.db"), &sql);
        assert_eq!(found, 1, "the child {how}, by a socket: {by}: {error}");
    }
}
