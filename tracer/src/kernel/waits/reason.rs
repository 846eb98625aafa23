//! Reasons why threads are blocked.

use flowtrace_schema::{Activity, FileId};

use super::super::sample::{InCall, WaitedFile};
use super::super::state;
use super::super::syscalls::{waited_for, waited_in};
use super::files::Files;
use crate::proc::observer::ChannelLookup;
use crate::proc::sampler::calls::Waits;
use crate::proc::sampler::doing::{self, Doing, is_timed};
use crate::proc::sampler::objects::{Holder, Target};

/// Activity of a thread, and its file if that is on a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) doing: Doing,
    pub(super) file: Option<FileId>,
    /// True if it ends by itself after a time.
    timed: bool,
}

impl From<Activity> for Reason {
    fn from(activity: Activity) -> Reason {
        Reason {
            doing: activity.into(),
            file: None,
            timed: false,
        }
    }
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// A thread of the tree.
    Thread,
    /// A timer, if the wait has a time limit.
    Timer,
    /// Anything else, or it goes on.
    Unknown,
}

impl Reason {
    /// The wait ended. If a thread of the tree ended it and its object is unknown, it was something that
    /// passes from one thread to the other; and an open that waited was that of a FIFO. A wait for a lock
    /// that no thread of the tree ended before its time limit counts as sleep, and one for several
    /// descriptors that a timer ended, which keeps its objects.
    pub(super) fn ended(mut self, ending: Ending) -> Reason {
        let is_open = self.doing.activity == Activity::File
            && matches!(self.doing.op, Some("open" | "openat" | "openat2"));
        match (self.doing.activity, ending) {
            (Activity::Other, Ending::Thread) => self.doing.activity = Activity::Channel,
            (_, Ending::Thread) if is_open => self.doing.activity = Activity::Channel,
            (Activity::Lock, Ending::Timer | Ending::Unknown) if self.timed => {
                self.doing.activity = Activity::Sleep;
                self.doing.objects.clear();
            }
            (Activity::Channel | Activity::Event | Activity::Other, Ending::Timer)
                if self.timed =>
            {
                self.doing.activity = Activity::Sleep;
            }
            _ => {}
        }
        self
    }
}

/// A blocked thread.
pub(super) struct Blocked<'a> {
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// State in the record of the switch.
    pub(super) state: u16,
    /// The call in which it waits.
    pub(super) call: Option<(u32, InCall)>,
    /// True if it still is blocked, so that its memory shows the object of the wait.
    pub(super) fresh: bool,
    /// The object that was found while it was still blocked, in a call with this number and these first
    /// arguments.
    pub(super) polled: Option<&'a ((u32, u64, u64), Reason)>,
}

impl Blocked<'_> {
    pub(super) fn reason(&self, channels: &dyn ChannelLookup, files: &dyn Files) -> Reason {
        if self.state & state::TRACED != 0 {
            return Activity::Tracer.into();
        }
        if self.state & state::STOPPED != 0 {
            return Activity::Stopped.into();
        }
        // A wait that signals interrupt is not for storage, and the other way round.
        let is_deep = self.state & state::UNINTERRUPTIBLE != 0;
        let outside = if is_deep {
            Activity::Fault
        } else {
            Activity::Other
        };
        let Some((number, in_call)) = self.call else {
            return outside.into();
        };
        let arguments = in_call.arguments;
        let call = waited_in(number);
        let is_futex = call.name == "futex";
        let mut file = None;
        let mut doing = match call.waits {
            Waits::Unknown => return outside.into(),
            Waits::Poll
            | Waits::Select
            | Waits::Epoll
            | Waits::Event
            | Waits::Child
            | Waits::ChildById
            | Waits::Sleep
            | Waits::Signal
                if is_deep =>
            {
                return Activity::Fault.into();
            }
            Waits::Lock if is_deep && is_futex => return Activity::Fault.into(),
            Waits::OpenFile => Activity::File.into(),
            Waits::Task => Doing::from(match call.name {
                "execve" | "execveat" => Activity::File,
                "exit" | "exit_group" => Activity::Other,
                // The parent of a vfork, which goes on when its child execs or ends.
                _ => Activity::Child,
            }),
            Waits::Poll | Waits::Select | Waits::Epoll if !self.fresh => match self.polled {
                Some((key, reason)) if *key == (number, arguments[0], arguments[1]) => {
                    return reason.clone();
                }
                _ => Activity::Other.into(),
            },
            _ => {
                let holder = Holder {
                    pid: self.pid,
                    tid: self.tid,
                };
                let named = waited_for(number).map(|at| at.map(|at| arguments[at] as u32));
                let targets = &mut |fd: i32| {
                    let is_it = |named: &Option<u32>| *named == Some(fd.cast_unsigned());
                    let Some(place) = named.iter().position(is_it) else {
                        // One of several in memory.
                        return holder.target(fd);
                    };
                    let waited = in_call.files[place]?;
                    file = file.or_else(|| files.file(waited.inode));
                    Some(target(waited))
                };
                doing::in_call(holder, call, arguments, channels, targets)
            }
        };
        if doing.activity == Activity::Other && is_deep && call.waits != Waits::Task {
            doing.activity = Activity::Fault;
        }
        doing.op = Some(call.name);
        Reason {
            file: file.filter(|_| doing.activity == Activity::File),
            timed: is_timed(call, arguments)
                || matches!(call.waits, Waits::Poll | Waits::Select | Waits::Epoll),
            doing,
        }
    }
}

/// The kind of a file that the kernel named.
fn target(file: WaitedFile) -> Target {
    match file.mode & libc::S_IFMT {
        libc::S_IFIFO | libc::S_IFSOCK => Target::Channel(file.inode.number),
        libc::S_IFCHR => Target::Terminal,
        0 => Target::Event,
        _ => Target::File,
    }
}
