use std::collections::HashMap;
use std::process::Command;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::*;

/// A datagram as the kernel makes it: event type, CPU, time, and the words of the event.
fn datagram(what: u32, words: &[u32]) -> Vec<u8> {
    let mut body = Vec::new();
    for word in [1, 1, 77, 0, 40, what, 3] {
        body.extend(u32::to_ne_bytes(word));
    }
    body.extend(5_000_u64.to_ne_bytes());
    for index in 0..6 {
        body.extend(words.get(index).copied().unwrap_or(0).to_ne_bytes());
    }
    netlink::message(3, 0, &body)
}

fn parsed(what: u32, words: &[u32]) -> Option<What> {
    events(&datagram(what, words))
        .next()
        .map(|event| event.what)
}

#[test]
fn events_are_distinguished() {
    let (parent, child) = (10, 20);
    let forked = datagram(1, &[11, parent, child, child]);
    let expected = Event {
        at_ns: 5_000,
        cpu: 3,
        sequence: 77,
        what: What::Forked { parent, child },
    };
    assert_eq!(events(&forked).collect::<Vec<_>>(), [expected]);
    let thread = What::ThreadBegan { pid: 20, tid: 21 };
    assert_eq!(parsed(1, &[10, 10, 21, 20]), Some(thread));
    assert_eq!(parsed(2, &[20, 20]), Some(What::Executed { pid: 20 }));
    let exited = What::Exited {
        pid: 20,
        tid: 21,
        status: 7 << 8,
    };
    assert_eq!(parsed(0x8000_0000, &[21, 20, 7 << 8, 17]), Some(exited));
    assert_eq!(parsed(0x80, &[20, 20]), Some(What::Other));
    assert_eq!(parsed(0, &[]), None, "an answer is no event");
}

#[test]
fn what_is_cut_short_is_no_event() {
    let whole = datagram(1, &[10, 10, 20, 20]);
    for length in 0..whole.len() {
        assert_eq!(events(&whole[..length]).count(), 0, "{length} bytes");
    }
    // A header that promises no more than is there, before an event that is cut.
    let body = &whole[16..50];
    assert_eq!(events(&netlink::message(3, 0, body)).count(), 0);
    let mut foreign = whole;
    foreign[16] = 2;
    assert_eq!(events(&foreign).count(), 0, "of another module");
}

/// A listener; `None` where the connector cannot be had.
fn listener() -> Option<Connector> {
    match Connector::open() {
        Ok(connector) => Some(connector),
        Err(error) => {
            assert!(
                std::env::var_os("FLOWTRACE_REQUIRE_SYSTEM").is_none_or(|v| v != "1"),
                "no proc connector: {error}"
            );
            eprintln!("skipped: no proc connector: {error}");
            None
        }
    }
}

fn received(connector: &mut Connector) -> Vec<Event> {
    let mut events = Vec::new();
    connector.receive(|event| events.push(event)).unwrap();
    events
}

#[test]
fn a_child_is_reported_from_begin_to_end() {
    let Some(mut connector) = listener() else {
        return;
    };
    let mut child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let mut received_events = Vec::new();
    // The exit is announced just after the parent could wait for it.
    while received_events.len() < 3 {
        received_events.extend(received(&mut connector).into_iter().filter(|event| {
            matches!(event.what,
                What::Forked { child: about, .. }
                | What::Executed { pid: about }
                | What::Exited { pid: about, .. } if about == pid)
        }));
        std::thread::yield_now();
    }
    let own = std::process::id();
    assert_eq!(
        received_events
            .iter()
            .map(|event| event.what)
            .collect::<Vec<_>>(),
        [
            What::Forked {
                parent: own,
                child: pid
            },
            What::Executed { pid },
            What::Exited {
                pid,
                tid: pid,
                status: 7 << 8
            },
        ]
    );
    assert!(received_events.is_sorted_by_key(|event| event.at_ns));
}

/// Does something that the connector reports on each CPU. Adds the events that `listener` has received by
/// then to `events`, and returns the numbers of these marks by CPU.
fn mark(listener: &mut Connector, events: &mut Vec<Event>) -> HashMap<u32, u32> {
    let this = Pid::from_raw(0);
    let cpus = sched_getaffinity(this).unwrap();
    for cpu in (0..CpuSet::count()).filter(|&cpu| cpus.is_set(cpu).unwrap()) {
        let mut one = CpuSet::new();
        one.set(cpu).unwrap();
        sched_setaffinity(this, &one).unwrap();
        prctl::set_name(&prctl::get_name().unwrap()).unwrap();
    }
    sched_setaffinity(this, &cpus).unwrap();
    let own = What::Renamed {
        tid: gettid().as_raw() as u32,
        pid: getpid().as_raw() as u32,
    };
    let new = received(listener);
    let marks = new.iter().filter(|event| event.what == own);
    let marks = marks.map(|event| (event.cpu, event.sequence)).collect();
    events.extend(new);
    marks
}

/// Losses of a listener with a full queue are the events that another listener gets more.
#[test]
fn losses_are_counted_exactly() {
    let (Some(mut late), Some(mut patient)) = (listener(), listener()) else {
        return;
    };
    late.socket.shorten_queue(1 << 16);
    let mut late_got = Vec::new();
    let begin = mark(&mut late, &mut late_got);
    for _ in 0..300 {
        assert!(Command::new("true").status().unwrap().success());
    }
    // Nothing more is dropped once its queue was empty.
    late_got.extend(received(&mut late));
    let dropped = late.dropped();
    let end = mark(&mut late, &mut late_got);

    let all = received(&mut patient);
    assert_eq!((patient.dropped(), late.dropped()), (0, dropped));
    let between = |events: &[Event]| {
        let inside = |e: &&Event| (begin[&e.cpu] + 1..=end[&e.cpu]).contains(&e.sequence);
        events.iter().filter(inside).count() as u64
    };
    let (all, got) = (between(&all), between(&late_got));
    assert!(dropped > 100, "nothing was lost, so nothing is shown");
    assert_eq!(dropped, all - got, "of {all} events {got} were received");
}
