//! The state of a thread from its position in the kernel.

use std::fs;

use flowtrace_schema::{Activity, Side, WaitObject};

use super::super::observer::ChannelLookup;
use super::calls::{Abi, Call, Waits};
use super::objects::{Holder, Target};
use super::text::{self, Position};

/// State of a thread. Consecutive equal ones are one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Doing {
    pub(crate) activity: Activity,
    pub(crate) op: Option<&'static str>,
    pub(crate) objects: Vec<WaitObject>,
}

impl From<Activity> for Doing {
    fn from(activity: Activity) -> Doing {
        Doing {
            activity,
            op: None,
            objects: Vec::new(),
        }
    }
}

/// `F_OFD_SETLKW` and `F_SETLKW` wait for a record lock (fcntl(2)).
const LOCKING: [u64; 2] = [libc::F_SETLKW as u64, libc::F_OFD_SETLKW as u64];

/// State of a thread that does not run. `None`: it is over.
pub(super) fn blocked(
    holder: Holder,
    abi: Abi,
    position: Position,
    channels: &dyn ChannelLookup,
) -> Option<Doing> {
    let Position::In(number, arguments) = position else {
        return outside(holder);
    };
    let call = abi.call(number);
    // The thread is at the begin or end of a call, for example stopped there by strace.
    let function = wait_channel(holder);
    if function.starts_with(b"ptrace_stop") {
        return Some(Activity::Tracer.into());
    }
    let mut doing = match call.waits {
        Waits::OpenFile => opening(&function),
        Waits::Task => task(holder, Some(call.name))?,
        _ => {
            let targets = &mut |fd| holder.target(fd);
            in_call(holder, call, arguments, channels, targets)
        }
    };
    doing.op = (call.waits != Waits::Unknown).then_some(call.name);
    Some(doing)
}

/// The state of a thread in a call that neither opens a file nor makes or ends a task. `targets` returns the
/// kind of file of a descriptor.
pub(crate) fn in_call(
    holder: Holder,
    call: Call,
    arguments: [u64; 6],
    channels: &dyn ChannelLookup,
    targets: &mut dyn FnMut(i32) -> Option<Target>,
) -> Doing {
    let mut wait = Wait { channels, targets };
    let [first, second, third, ..] = arguments;
    match call.waits {
        Waits::ReadFd => wait.on(first, Side::Read),
        Waits::WriteFd => wait.on(first, Side::Write),
        Waits::MoveFd(at) => wait.on_either((first, Side::Read), (arguments[at], Side::Write)),
        Waits::SendFile => wait.on_either((second, Side::Read), (first, Side::Write)),
        Waits::Poll => wait.on_any(holder.polled(first, second)),
        Waits::Select => wait.on_any(holder.selected(first, second, third)),
        Waits::Epoll => match holder.epolled(first as i32) {
            members if members.is_empty() => Activity::Event.into(),
            members => wait.on_any(members),
        },
        Waits::Storage => Activity::File.into(),
        Waits::Child => child(first),
        // Only P_PID names a pid (waitid(2)).
        Waits::ChildById => child(if first == u64::from(libc::P_PID) {
            second
        } else {
            0
        }),
        Waits::Fcntl if !LOCKING.contains(&second) => Activity::Other.into(),
        // Threads that wait at one address wait for one lock, whatever it is.
        Waits::Lock if is_timed(call, arguments) && holder.is_alone() => Activity::Sleep.into(),
        Waits::Lock if call.name == "futex" => thing(Activity::Lock, first),
        Waits::Lock | Waits::Fcntl | Waits::FileLock => Activity::Lock.into(),
        Waits::Sleep => Activity::Sleep.into(),
        Waits::Signal => Activity::Signal.into(),
        Waits::Event => Activity::Event.into(),
        Waits::OpenFile | Waits::Task | Waits::Unknown => Activity::Other.into(),
    }
}

/// True for a wait in futex(2) with a time limit. Without another thread that could end it, the limit is its
/// purpose: so Python and others sleep until something happens.
pub(crate) fn is_timed(call: Call, arguments: [u64; 6]) -> bool {
    const OF_OPERATION: u64 = 0x7f;
    let operation = (arguments[1] & OF_OPERATION) as libc::c_int;
    let waits = [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET].contains(&operation);
    call.name == "futex" && waits && arguments[3] != 0
}

/// Blocked outside of any call: by a page that must be read, or in a stop.
fn outside(holder: Holder) -> Option<Doing> {
    Some(Doing::from(match state_of(holder)? {
        b't' => Activity::Tracer,
        b'T' => Activity::Stopped,
        b'R' => Activity::Runnable,
        b'Z' | b'X' => return None,
        _ => Activity::Fault,
    }))
}

/// In a call that makes, changes or ends a task: mostly stopped by the tracer there.
fn task(holder: Holder, op: Option<&str>) -> Option<Doing> {
    Some(Doing::from(match state_of(holder)? {
        b't' => Activity::Tracer,
        b'T' => Activity::Stopped,
        b'R' => Activity::Runnable,
        b'Z' | b'X' => return None,
        _ => match op {
            Some("execve" | "execveat") => Activity::File,
            Some("exit" | "exit_group") => Activity::Other,
            // The parent of a vfork, which goes on when its child execs or ends.
            _ => Activity::Child,
        },
    }))
}

/// True if a thread is stopped, by job control or by its tracer. A thread that is over is not.
pub(super) fn is_halted(holder: Holder) -> bool {
    state_of(holder).is_some_and(|state| matches!(state, b'T' | b't'))
}

fn state_of(holder: Holder) -> Option<u8> {
    text::state(&fs::read(holder.path("stat")).ok()?)
}

/// Name of the kernel function in which the thread is blocked; empty where it is hidden.
fn wait_channel(holder: Holder) -> Vec<u8> {
    fs::read(holder.path("wchan")).unwrap_or_default()
}

/// An open waits for storage, but that of a FIFO for a process that opens the other end.
fn opening(function: &[u8]) -> Doing {
    // In any other function the wait counts as one for storage.
    if function.starts_with(b"wait_for_partner") || function.starts_with(b"fifo_open") {
        Activity::Channel.into()
    } else {
        Activity::File.into()
    }
}

fn child(pid: u64) -> Doing {
    // 0 and negative numbers stand for groups, or any child.
    let pid = u64::from((pid as i32).max(0).unsigned_abs());
    match pid {
        0 => Activity::Child.into(),
        pid => thing(Activity::Child, pid),
    }
}

/// A wait for one object that is no channel.
fn thing(activity: Activity, object: u64) -> Doing {
    let object = WaitObject {
        object,
        side: None,
        channel: None,
    };
    Doing {
        activity,
        op: None,
        objects: vec![object],
    }
}

struct Wait<'a> {
    channels: &'a dyn ChannelLookup,
    targets: &'a mut dyn FnMut(i32) -> Option<Target>,
}

impl Wait<'_> {
    fn on(&mut self, fd: u64, side: Side) -> Doing {
        // The kernel takes an int from the register.
        match (self.targets)(fd as i32) {
            Some(Target::Channel(inode)) => Doing {
                activity: Activity::Channel,
                op: None,
                objects: vec![self.channel(inode, side)],
            },
            Some(Target::Terminal) => Activity::Terminal.into(),
            Some(Target::File) => Activity::File.into(),
            Some(Target::Event) => Activity::Event.into(),
            None => Activity::Other.into(),
        }
    }

    /// A wait for one of two descriptors: the one that is a channel, if only one is.
    fn on_either(&mut self, from: (u64, Side), to: (u64, Side)) -> Doing {
        let [from, to] = [from, to].map(|(fd, side)| self.on(fd, side));
        match (from.activity, to.activity) {
            (Activity::Channel, Activity::Channel) => Doing {
                objects: [from.objects, to.objects].concat(),
                ..from
            },
            (_, Activity::Channel) => to,
            _ => from,
        }
    }

    fn on_any(&mut self, members: Vec<(i32, Side)>) -> Doing {
        if members.is_empty() {
            return Activity::Sleep.into();
        }
        let mut objects = Vec::new();
        let mut terminal = false;
        for (fd, side) in members {
            match (self.targets)(fd) {
                Some(Target::Channel(inode)) => objects.push(self.channel(inode, side)),
                Some(Target::Terminal) => terminal = true,
                _ => {}
            }
        }
        objects.sort_unstable_by_key(|object| (object.object, object.side == Some(Side::Write)));
        objects.dedup();
        let activity = match (objects.is_empty(), terminal) {
            (false, _) => Activity::Channel,
            (true, true) => Activity::Terminal,
            (true, false) => Activity::Event,
        };
        Doing {
            activity,
            op: None,
            objects,
        }
    }

    fn channel(&self, inode: u64, side: Side) -> WaitObject {
        WaitObject {
            object: inode,
            side: Some(side),
            channel: self.channels.of_inode(inode),
        }
    }
}
