//! A call between its entry and its return.

use std::rc::Rc;

use super::super::open_file::OpenFile;
use super::super::syscalls::{At, Data, Does, Moves};
use super::super::table::SharedTable;
use crate::opens::OpenedFile;

/// A call that has not returned.
pub(super) struct UnderWay {
    pub(super) number: u32,
    pub(super) does: Does,
    pub(super) at: u64,
    pub(super) arguments: [u64; 6],
    /// What its descriptor was; for [`Does::Moves`] that which is read.
    pub(super) open: Option<Rc<OpenFile>>,
    /// That which [`Does::Moves`] writes to.
    pub(super) to: Option<Rc<OpenFile>>,
    /// Inodes of the pipes or sockets that were in their place.
    pub(super) channels: [Option<u64>; 2],
    /// Bytes that several messages have.
    pub(super) moved: Option<u64>,
    /// The file outside that an open was told to give.
    pub(super) outside: Option<OpenedFile>,
    /// It moves data, and what its descriptor was is lost.
    pub(super) unplaced: bool,
    /// A descriptor that may be somebody else's was closed by the time that it was looked at.
    pub(super) gone: bool,
    /// It makes a descriptor, and these tables were copied meanwhile: they may have it, too.
    pub(super) copies: Vec<SharedTable>,
}

impl UnderWay {
    /// The open files whose position it uses.
    fn positions(&self) -> [Option<&Rc<OpenFile>>; 2] {
        let uses = |offset: Option<usize>| offset.is_none_or(|at| self.arguments[at] == 0);
        match self.does {
            Does::Data(data) if self.at_position(data.at) => [self.open.as_ref(), None],
            Does::Seeks => [self.open.as_ref(), None],
            Does::Moves(Moves {
                from_offset,
                to_offset,
                ..
            }) => [
                self.open.as_ref().filter(|_| uses(from_offset)),
                self.to.as_ref().filter(|_| uses(to_offset)),
            ],
            _ => [None, None],
        }
    }

    pub(super) fn at_position(&self, at: At) -> bool {
        match at {
            At::Position => true,
            At::Argument(_) => false,
            At::ArgumentOrPosition(argument) => self.arguments[argument] == u64::MAX,
        }
    }

    pub(super) fn enter(&self) {
        self.positions()
            .into_iter()
            .flatten()
            .for_each(|open| open.enter());
    }

    /// It will not be seen to return.
    pub(super) fn give_up(&self) {
        for open in self.positions().into_iter().flatten() {
            open.leave();
            open.position.set(None);
        }
    }

    pub(super) fn moves_data(&self) -> bool {
        matches!(self.does, Does::Data(_) | Does::Moves(_))
    }

    /// Whether it returns a descriptor that there was not before.
    pub(super) fn makes_descriptor(&self) -> bool {
        match self.does {
            Does::Opens(_) | Does::Makes | Does::Takes | Does::Duplicates(_) => true,
            Does::Controls => {
                [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC].contains(&(self.arguments[1] as i32))
            }
            _ => false,
        }
    }

    /// Whether a new program will not have what it receives.
    pub(super) fn receives_to_close(&self) -> bool {
        let Does::Data(Data {
            socket: Some(socket),
            ..
        }) = self.does
        else {
            return false;
        };
        self.arguments[socket.flags] & libc::MSG_CMSG_CLOEXEC as u64 != 0
    }

    pub(super) fn flags_say_close(&self) -> bool {
        match self.does {
            Does::Opens(Some(flags)) => self.arguments[flags] & libc::O_CLOEXEC as u64 != 0,
            _ => false,
        }
    }
}
