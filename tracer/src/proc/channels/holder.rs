//! Channel ends that one process image has open, and the outcome of an end when it is closed.

use std::collections::BTreeMap;

use flowtrace_schema::{ChannelId, Direction, Upid, Usage};

use super::super::exec_reads::ExecReads;
use super::super::pipe_content::Left;
use super::super::reading::Traffic;

/// Most checks of a process for an end that it made and has not closed.
pub(super) const MAX_READS: u8 = 8;

/// The image that a process runs, and the channel ends that it has open.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) upid: Upid,
    /// Parent process.
    pub(super) parent: Option<u32>,
    pub(super) ends: BTreeMap<(ChannelId, Direction), End>,
    /// True if it has, or had, a second thread: the traffic of one thread is then not all.
    pub(super) threaded: bool,
    /// True if it moves data by calls that are not counted as reads and writes.
    pub(super) splices: bool,
    /// True if its image began by a fork.
    pub(super) forked: bool,
    /// Its traffic at its exit.
    pub(super) last: Option<Traffic>,
}

/// A channel end that is open.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// Row in the trace; `None`: not written yet.
    pub(super) row: Option<u32>,
    pub(super) fd: i32,
    /// Inodes of the sockets; a process that is connected to itself has both.
    pub(super) sockets: [Option<u64>; 2],
    pub(super) from_ns: u64,
    /// True if this image made, connected, accepted or opened it, and did not inherit it.
    pub(super) made: bool,
    /// True if a program that the process started has it, too.
    pub(super) passed: bool,
    /// True if the parent made it and then forked this process.
    pub(super) given: bool,
    /// True if the process runs the program of the maker, as a child of the maker, or a child of that.
    pub(super) of_maker: bool,
    /// Traffic of the process when it was made.
    pub(super) since: Option<Traffic>,
    /// Checks of the process so far because of this end.
    pub(super) reads: u8,
    /// True if the program does not know of the descriptor that it inherited: it leaked.
    pub(super) leaked: bool,
    /// Unread bytes in the pipe when the image began; `None`: others could add to them.
    pub(super) left: Option<Left>,
    /// True if all of these were still unread at the image's end.
    pub(super) is_unread: bool,
}

/// The knowledge about an end that was closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) used: Option<bool>,
    pub(super) bytes: Option<u64>,
    pub(super) at_most_bytes: Option<u64>,
}

impl End {
    /// Adds a socket. Returns true if it is new.
    pub(super) fn add_socket(&mut self, inode: u64) -> bool {
        let is_new = !self.sockets.contains(&Some(inode));
        let free = self.sockets.iter_mut().find(|socket| socket.is_none());
        match free.filter(|_| is_new) {
            Some(free) => *free = Some(inode),
            None => return false,
        }
        true
    }
}

impl Outcome {
    /// No data moved.
    pub(super) const NOTHING: Outcome = Outcome {
        used: Some(false),
        bytes: Some(0),
        at_most_bytes: Some(0),
    };
}

impl Holder {
    pub(super) fn new(upid: Upid, parent: Option<u32>) -> Holder {
        Holder {
            upid,
            parent,
            ends: BTreeMap::new(),
            threaded: false,
            splices: false,
            forked: false,
            last: None,
        }
    }

    /// The state of a child of process `pid`, with the ends that it inherits.
    pub(super) fn fork(&self, upid: Upid, pid: u32, now: u64) -> Holder {
        let inherited = self.ends.iter().map(|(&key, end)| {
            let end = End {
                row: None,
                from_ns: now,
                made: false,
                passed: false,
                given: end.made,
                of_maker: end.made || end.of_maker,
                // A new process has moved nothing yet.
                since: Some(Traffic::default()),
                reads: 0,
                left: None,
                is_unread: false,
                ..*end
            };
            (key, end)
        });
        Holder {
            ends: inherited.collect(),
            forked: true,
            ..Holder::new(upid, Some(pid))
        }
    }

    /// True if it made an end itself.
    pub(super) fn has_made(&self) -> bool {
        self.ends.values().any(|end| end.made)
    }

    /// True if it made a pipe of which it has closed no end so far.
    pub(super) fn is_undecided(&self) -> bool {
        let mut made = self.ends.iter().filter(|(_, end)| end.made);
        made.any(|(key, end)| end.reads < MAX_READS && self.has_both(key.0, key.1))
    }

    /// True if it closes an end of a pipe, now or with its image, that it did not have in order to use it:
    ///
    /// - It has both ends to its end, as the children of a jobserver do; `is_used`: something else shows that
    ///   it used this one all the same, for example that it is its standard input.
    /// - It inherited both and keeps the other one, as one side of a pipeline does.
    /// - It inherited it from a remoter ancestor than its parent, and keeps one for the same direction that
    ///   its parent made, as a part of a pipeline inside `$( )` does.
    /// - It made the pipe, passed this end on to a program, and closed it itself.
    /// - The end leaked into a program through an exec.
    ///
    /// A shell that made a pipe, wrote a here-document into it and then became the program that reads it used
    /// both ends.
    pub(super) fn has_no_need(
        &self,
        key: (ChannelId, Direction),
        with_image: bool,
        by_exec: bool,
        is_used: bool,
    ) -> bool {
        let Some(end) = self.ends.get(&key) else {
            return false;
        };
        let has_both = self.has_both(key.0, key.1);
        let keeps_given = || {
            let mut ends = self.ends.iter();
            ends.any(|(other, end)| end.given && other.1 == key.1 && *other != key)
        };
        let whole = has_both && with_image && !(end.made && by_exec) && !is_used;
        let one_of_two = has_both && !with_image && !end.made;
        let older = !with_image && !end.made && !end.given && keeps_given();
        let passed_on = !with_image && end.made && end.passed;
        whole || one_of_two || older || passed_on || end.leaked
    }

    /// True if it has only one end, for this direction, of a pipe that its own program made.
    pub(super) fn keeps_a_side(&self, direction: Direction) -> bool {
        let mut ends = self.ends.iter();
        ends.any(|(key, end)| {
            key.1 == direction && end.of_maker && !self.has_both(key.0, direction)
        })
    }

    /// True if a program that was executed has this end, and not the other one, as its standard input or
    /// output: it was put there to be used.
    pub(super) fn is_standard(&self, key: (ChannelId, Direction)) -> bool {
        let is_standard = |(channel, direction)| {
            let end = self.ends.get(&(channel, direction));
            end.is_some_and(|end| match direction {
                Direction::Read => end.fd == libc::STDIN_FILENO,
                Direction::Write => [libc::STDOUT_FILENO, libc::STDERR_FILENO].contains(&end.fd),
                Direction::Both => false,
            })
        };
        let other = opposite(key.1).map(|direction| (key.0, direction));
        !self.forked && is_standard(key) && !other.is_some_and(is_standard)
    }

    /// True if it has the opposite end, too.
    pub(super) fn has_both(&self, channel: ChannelId, direction: Direction) -> bool {
        opposite(direction).is_none_or(|opposite| self.ends.contains_key(&(channel, opposite)))
    }
}

/// The direction of the other end of a pipe.
pub(super) fn opposite(direction: Direction) -> Option<Direction> {
    match direction {
        Direction::Read => Some(Direction::Write),
        Direction::Write => Some(Direction::Read),
        Direction::Both => None,
    }
}

/// Bytes and calls of reading and writing while an end was open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) read_calls: u64,
    pub(super) read_bytes: u64,
    pub(super) write_bytes: u64,
}

impl Moved {
    /// Those of a whole image.
    pub(super) fn in_all(usage: &Usage) -> Option<Moved> {
        Some(Moved {
            read_calls: usage.read_calls?,
            read_bytes: usage.read_bytes?,
            write_bytes: usage.write_bytes?,
        })
    }

    /// True if these reads may be those of the kernel for the next exec: the headers of the program and of
    /// its interpreter, in a few calls (fs/binfmt_elf.c). It counts them as reads of the image that made the
    /// exec.
    pub(super) fn may_be_exec(self) -> bool {
        self.read_calls <= 8 && (256..=4096).contains(&self.read_bytes)
    }

    /// The counts without the reads of the exec that ended the image.
    pub(super) fn before_exec(self, exec: Option<ExecReads>) -> Moved {
        let before = exec.and_then(|exec| exec.before(self.read_bytes));
        match before {
            Some(read_bytes) => Moved { read_bytes, ..self },
            None if self.may_be_exec() => Moved {
                read_calls: 0,
                read_bytes: 0,
                ..self
            },
            None => self,
        }
    }
}

impl From<Traffic> for Moved {
    fn from(traffic: Traffic) -> Moved {
        Moved {
            read_calls: traffic.read_calls,
            read_bytes: traffic.read_bytes,
            write_bytes: traffic.write_bytes,
        }
    }
}

/// The outcome of an end, from all that its image read and wrote while the end was open.
///
/// - It moved nothing in the direction of the end: the end was not used.
/// - It did not need the end ([`Holder::has_no_need`]): it does not count as a user.
/// - Otherwise the end may have been used, for all of the traffic at most.
pub(super) fn outcome(
    direction: Direction,
    moved: Option<Moved>,
    splices: bool,
    no_need: bool,
) -> Outcome {
    let at_most_bytes = match direction {
        _ if splices => None,
        Direction::Read => moved.map(|moved| moved.read_bytes),
        Direction::Write => moved.map(|moved| moved.write_bytes),
        Direction::Both => None,
    };
    if at_most_bytes == Some(0) {
        return Outcome::NOTHING;
    }
    Outcome {
        used: no_need.then_some(false),
        bytes: None,
        at_most_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_counts_as_used_unless_something_speaks_against_it() {
        let moved = |read_bytes, write_bytes| {
            Some(Moved {
                read_calls: 5,
                read_bytes,
                write_bytes,
            })
        };
        let quiet = outcome(Direction::Write, moved(10, 0), false, false);
        assert_eq!((quiet.used, quiet.bytes), (Some(false), Some(0)));
        let busy = outcome(Direction::Write, moved(10, 7), false, false);
        assert_eq!((busy.used, busy.bytes), (None, None));
        assert_eq!(busy.at_most_bytes, Some(7));
        let both = outcome(Direction::Write, moved(10, 7), false, true);
        assert_eq!(both.used, Some(false));
        let splices = outcome(Direction::Write, moved(10, 0), true, false);
        assert_eq!((splices.used, splices.at_most_bytes), (None, None));
        let unread = outcome(Direction::Read, None, false, false);
        assert_eq!(unread, Outcome::default());
        let headers = moved(1580, 7).map(|moved| moved.before_exec(None));
        let copied = outcome(Direction::Read, headers, false, false);
        assert_eq!(copied.used, Some(false));
        for more in [moved(5000, 7), moved(6, 7)] {
            assert_eq!(more.map(|moved| moved.before_exec(None)), more);
        }
        let exec = Some(ExecReads {
            program: 1580,
            script: 100,
        });
        for (read, before) in [(1580, 0), (1584, 4), (1680, 0), (1684, 4)] {
            let before = moved(before, 7);
            assert_eq!(moved(read, 7).map(|moved| moved.before_exec(exec)), before);
        }
    }

    #[test]
    fn a_child_inherits_what_it_did_not_make() {
        let mut parent = Holder::new(Upid(1), None);
        let end = End {
            row: Some(4),
            fd: 5,
            sockets: [None; 2],
            from_ns: 1,
            made: true,
            passed: false,
            given: false,
            of_maker: false,
            since: None,
            reads: 3,
            leaked: false,
            left: None,
            is_unread: false,
        };
        let key = (ChannelId(1), Direction::Read);
        parent.ends.insert(key, end);
        assert!(parent.has_made() && !parent.has_both(key.0, key.1));
        let end = parent.ends.get_mut(&key).unwrap();
        assert!(end.add_socket(70) && !end.add_socket(70) && end.add_socket(71));
        assert!(!end.add_socket(72), "a connection has two sockets");
        let child = parent.fork(Upid(2), 77, 9);
        assert!(!child.has_made() && child.forked);
        assert!(child.ends[&key].given && child.ends[&key].of_maker);
        let grandchild = child.fork(Upid(3), 78, 9);
        assert!(!grandchild.ends[&key].given && grandchild.ends[&key].of_maker);
        assert_eq!(child.ends[&key].row, None);
        assert_eq!((child.ends[&key].fd, child.ends[&key].from_ns), (5, 9));
        assert_eq!(child.ends[&key].sockets, [Some(70), Some(71)]);
    }
}
