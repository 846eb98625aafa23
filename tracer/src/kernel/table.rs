//! Descriptors of a process, as far as they are files of a view.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::rc::Rc;

use super::open_file::OpenFile;
use crate::proc::sampler::objects::Target;

/// Descriptors from this number on are not followed.
const MOST: usize = 1 << 20;

/// A descriptor.
#[derive(Clone, Debug)]
struct Entry {
    open: Rc<OpenFile>,
    close_on_exec: bool,
}

/// Whether a new program keeps a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Yes,
    No,
    /// Not known.
    Maybe,
}

impl From<bool> for Kept {
    /// By whether an exec is to close it.
    fn from(close_on_exec: bool) -> Kept {
        if close_on_exec { Kept::No } else { Kept::Yes }
    }
}

/// What is known of a descriptor.
#[derive(Clone, Debug)]
enum Slot {
    /// Nothing: closed, or come by in a way that is not followed.
    Unknown,
    /// It is no file of a view, or one whose data FUSE records.
    Elsewhere,
    /// Likewise, and was opened by a name: a directory, a device, a file that the kernel makes up. No pipe or
    /// socket, for FIFOs are told of.
    Named,
    /// Likewise, and this; whether a new program keeps it.
    Known(Target, Kept),
    /// It was a file of a view when somebody looked, and may have been another thing before.
    Suspect,
    /// Another thread changed it while the table was copied: this is the one or the other.
    Doubted,
    /// Records were dropped that told of it, and nobody can be asked any more.
    Lost,
    /// A file of a view.
    Open(Entry),
}

/// What a descriptor stands for, on its way to another table.
#[derive(Clone, Debug)]
pub(super) struct Sent(Slot);

/// What stands behind a descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found<'table> {
    /// Nothing that is known.
    Unknown,
    /// Nothing of a view.
    Elsewhere,
    /// Nothing of a view, but something that has a name.
    Named,
    /// Nothing of a view, but this.
    Known(Target),
    /// This.
    Open(&'table Rc<OpenFile>),
}

pub(super) type SharedTable = Rc<RefCell<Table>>;

/// The descriptors of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    slots: Vec<Slot>,
    /// It may have descriptors that were sent to it, or taken from another process.
    pub(super) receives: bool,
    /// An io_uring may do anything with them.
    unreported: bool,
    /// One was replaced before it was looked at: what was seen then was its successor.
    pub(super) mistaken: bool,
    /// What became of descriptors of late, in the order of time.
    recent: VecDeque<Touch>,
}

/// Descriptors were made or closed.
#[derive(Clone, Debug)]
struct Touch {
    at: u64,
    tid: u32,
    fds: RangeInclusive<u64>,
}

/// A call that was told to begin to close a descriptor has done so by then, ns.
const CLOSING_NS: u64 = 10_000_000;
/// How long is remembered what became of descriptors, ns.
const RECENT_NS: u64 = 100_000_000;
/// Most that is kept of what became of descriptors.
const TOUCHES: usize = 1024;

impl Slot {
    /// Whether it was looked at, and when it became that is not known yet.
    fn is_held(&self) -> bool {
        matches!(self, Slot::Open(entry) if entry.open.waiting.borrow().is_some())
    }
}

impl Table {
    /// Of the standard streams of the command, which it inherits.
    pub(super) fn inherited() -> Table {
        Table {
            slots: vec![Slot::Elsewhere; 3],
            receives: false,
            unreported: false,
            mistaken: false,
            recent: VecDeque::new(),
        }
    }

    /// From now on descriptors come and go, and positions move, without a call that tells.
    pub(super) fn set_unreported(&mut self) {
        (self.receives, self.unreported) = (true, true);
        for open in self.open_files() {
            open.set_unreported();
        }
    }

    /// Whether descriptors come and go without a call that tells.
    pub(super) fn is_untold(&self) -> bool {
        self.unreported
    }

    fn slot(&self, fd: u64) -> Slot {
        let slot = self.slots.get(fd as u32 as usize);
        slot.cloned().unwrap_or(Slot::Unknown)
    }

    pub(super) fn look(&self, fd: u64) -> Found<'_> {
        // The kernel looks at the low half only.
        match self.slots.get(fd as u32 as usize) {
            None | Some(Slot::Unknown | Slot::Doubted) => Found::Unknown,
            Some(Slot::Named) => Found::Named,
            Some(Slot::Elsewhere | Slot::Suspect | Slot::Lost) => Found::Elsewhere,
            Some(Slot::Known(target, _)) => Found::Known(*target),
            Some(Slot::Open(entry)) if entry.open.is_void.get() => Found::Unknown,
            Some(Slot::Open(entry)) => Found::Open(&entry.open),
        }
    }

    pub(super) fn get(&self, fd: u64) -> Option<&Rc<OpenFile>> {
        match self.look(fd) {
            Found::Open(open) => Some(open),
            Found::Unknown | Found::Elsewhere | Found::Named | Found::Known(_) => None,
        }
    }

    /// Descriptor `fd` came by in an unknown way, and was a file of a view when somebody looked.
    pub(super) fn suspect(&mut self, fd: u64) {
        self.put(fd, Slot::Suspect);
    }

    /// What descriptor `fd` was nobody will know.
    pub(super) fn lose(&mut self, fd: u64) {
        self.put(fd, Slot::Lost);
    }

    pub(super) fn is_lost(&self, fd: u64) -> bool {
        matches!(self.slots.get(fd as u32 as usize), Some(Slot::Lost))
    }

    /// Records were dropped: what is no file of a view may be one by now, and is looked at when it is next used.
    /// The standard streams are served by FUSE, which tells of them.
    pub(super) fn doubt(&mut self) {
        for slot in self.slots.iter_mut().skip(3) {
            if let Slot::Elsewhere | Slot::Named | Slot::Lost = slot {
                *slot = Slot::Unknown;
            }
        }
    }

    /// Whether descriptor `fd`, of which nothing is known, may be a file that another process knows.
    pub(super) fn is_strange(&self, fd: u64) -> bool {
        let slot = self.slots.get(fd as u32 as usize);
        self.receives || matches!(slot, Some(Slot::Doubted | Slot::Open(_)))
    }

    /// Thread `tid` made or closed descriptors.
    pub(super) fn touched(&mut self, at: u64, tid: u32, fds: RangeInclusive<u64>) {
        if let Some(last) = self.recent.back_mut()
            && (last.tid, &last.fds) == (tid, &fds)
        {
            last.at = at;
            return;
        }
        let is_old = |touch: &mut Touch| touch.at + RECENT_NS < at;
        while self.recent.pop_front_if(is_old).is_some() {}
        if self.recent.len() >= TOUCHES {
            self.recent.pop_front();
        }
        self.recent.push_back(Touch { at, tid, fds });
    }

    /// That of a process which thread `tid` made, in a call that it began then. What other threads changed while it was copied is one
    /// thing or the other; not so what the maker has changed since.
    pub(super) fn forked(&self, since: u64, tid: u32) -> Table {
        let mut copy = self.clone();
        copy.recent.clear();
        let all = self.slots.len() as u64;
        let recent = self.recent.iter();
        for touch in recent.filter(|touch| touch.at + CLOSING_NS >= since) {
            let (first, last) = (*touch.fds.start(), *touch.fds.end());
            let end = last.min(first.saturating_add(all)).min(MOST as u64);
            for fd in first..=end {
                match touch.tid == tid {
                    true => copy.put(fd, self.slot(fd)),
                    false => copy.put(fd, Slot::Doubted),
                }
            }
        }
        copy.mistaken = false;
        copy
    }

    /// What descriptor `fd` stands for, to be sent to another process. `None`: that is not known.
    pub(super) fn send(&self, fd: u64) -> Option<Sent> {
        let slot = self.slots.get(fd as u32 as usize)?;
        let is_known = match slot {
            Slot::Unknown | Slot::Suspect | Slot::Doubted | Slot::Lost => false,
            Slot::Elsewhere | Slot::Named | Slot::Known(..) => true,
            Slot::Open(entry) => !entry.open.is_void.get(),
        };
        is_known.then(|| Sent(slot.clone()))
    }

    /// Descriptor `fd` was received and stands for that.
    pub(super) fn receive(&mut self, fd: u64, sent: Sent, close_on_exec: bool) {
        let slot = match sent.0 {
            Slot::Open(Entry { open, .. }) => return self.set(fd, Some(open), close_on_exec),
            Slot::Known(target, _) => Slot::Known(target, close_on_exec.into()),
            other => other,
        };
        self.put(fd, slot);
    }

    /// Descriptor `fd` may have come by another thread's call while the table was copied.
    pub(super) fn doubt_unknown(&mut self, fd: u64) {
        if let Found::Unknown = self.look(fd) {
            self.put(fd, Slot::Doubted);
        }
    }

    /// Whether nothing has become of it since.
    pub(super) fn is_suspect(&self, fd: u64) -> bool {
        matches!(self.slots.get(fd as u32 as usize), Some(Slot::Suspect))
    }

    /// Descriptor `fd`, if it is no file of a view, stands for this until it is closed.
    pub(super) fn know(&mut self, fd: u64, target: Target) {
        if !matches!(self.look(fd), Found::Open(_)) && !self.is_suspect(fd) {
            self.put(fd, Slot::Known(target, Kept::Maybe));
        }
    }

    /// Descriptor `fd` stands for this from now on.
    pub(super) fn hold(&mut self, fd: u64, target: Target, close_on_exec: bool) {
        self.put(fd, Slot::Known(target, close_on_exec.into()));
    }

    /// The pipe or socket that descriptor `fd` is known to stand for, by its inode.
    pub(super) fn channel(&self, fd: u64) -> Option<u64> {
        match self.look(fd) {
            Found::Known(Target::Channel(inode)) => Some(inode),
            _ => None,
        }
    }

    /// Descriptor `fd` is this open file now, or nothing of a view.
    pub(super) fn set(&mut self, fd: u64, open: Option<Rc<OpenFile>>, close_on_exec: bool) {
        if let Some(open) = open.as_ref().filter(|_| self.unreported) {
            open.set_unreported();
        }
        let slot = match open {
            Some(open) => Slot::Open(Entry {
                open,
                close_on_exec,
            }),
            None => Slot::Elsewhere,
        };
        self.put(fd, slot);
    }

    /// Descriptor `fd` was opened by a name, and is this open file or nothing of a view.
    pub(super) fn opened(&mut self, fd: u64, open: Option<Rc<OpenFile>>, close_on_exec: bool) {
        match open {
            Some(open) => self.set(fd, Some(open), close_on_exec),
            None => self.put(fd, Slot::Named),
        }
    }

    pub(super) fn close(&mut self, fd: u64) {
        self.put(fd, Slot::Unknown);
    }

    fn put(&mut self, fd: u64, slot: Slot) {
        let fd = fd as u32 as usize;
        if self.slots.len() <= fd && fd < MOST && !matches!(slot, Slot::Unknown) {
            self.slots.resize(fd + 1, Slot::Unknown);
        }
        if let Some(place) = self.slots.get_mut(fd) {
            // Rows are held no more once the look is known to have come before.
            self.mistaken |= place.is_held();
            *place = slot;
        }
    }

    /// Closes, or with `mark` only marks to be closed by an exec, all from `first` to `last`.
    pub(super) fn close_range(&mut self, first: u64, last: u64, mark: bool) {
        let (first, last) = (first as u32 as usize, last as u32 as usize);
        for entry in self
            .slots
            .iter_mut()
            .take(last.saturating_add(1))
            .skip(first)
        {
            match entry {
                Slot::Open(kept) if mark => kept.close_on_exec = true,
                Slot::Known(_, kept) if mark => *kept = Kept::No,
                _ if mark => {}
                _ => {
                    self.mistaken |= entry.is_held();
                    *entry = Slot::Unknown;
                }
            }
        }
    }

    pub(super) fn set_close_on_exec(&mut self, fd: u64, close: bool) {
        match self.slots.get_mut(fd as u32 as usize) {
            Some(Slot::Open(entry)) => entry.close_on_exec = close,
            Some(Slot::Known(_, kept)) => *kept = close.into(),
            _ => {}
        }
    }

    /// A new program keeps what is not to be closed.
    pub(super) fn exec(&mut self) {
        // A ring is closed then (io_uring_setup(2)).
        self.unreported = false;
        for entry in &mut self.slots {
            if matches!(entry, Slot::Open(entry) if entry.close_on_exec) {
                *entry = Slot::Unknown;
            } else if let Slot::Suspect = entry {
                // Whether it was to be closed is not known.
                *entry = Slot::Elsewhere;
            } else if let Slot::Known(_, Kept::Maybe | Kept::No) = entry {
                *entry = Slot::Unknown;
            }
        }
    }

    pub(super) fn open_files(&self) -> impl Iterator<Item = &Rc<OpenFile>> {
        self.descriptors().map(|(_, open)| open)
    }

    /// The descriptors of files.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = (usize, &Rc<OpenFile>)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(fd, slot)| match slot {
            Slot::Open(entry) if entry.open.is_void.get() => None,
            Slot::Open(entry) => Some((fd, &entry.open)),
            Slot::Unknown
            | Slot::Doubted
            | Slot::Elsewhere
            | Slot::Named
            | Slot::Known(..)
            | Slot::Suspect
            | Slot::Lost => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use flowtrace_schema::FileId;

    use super::*;

    fn open(file: u32) -> Option<Rc<OpenFile>> {
        Some(Rc::new(OpenFile::new(Some(FileId(file)), false)))
    }

    fn files(table: &Table) -> Vec<u32> {
        table.open_files().filter_map(|o| Some(o.file?.0)).collect()
    }

    #[test]
    fn an_exec_closes_what_is_marked() {
        let mut table = Table::default();
        for (fd, close) in [(3, false), (4, true), (5, false), (9, false)] {
            table.set(fd, open(fd as u32), close);
        }
        table.set_close_on_exec(5, true);
        table.set_close_on_exec(4, false);
        table.exec();
        assert_eq!(files(&table), [3, 4, 9]);
        table.close_range(4, u64::from(u32::MAX), true);
        assert_eq!(files(&table), [3, 4, 9]);
        table.exec();
        assert_eq!(files(&table), [3]);
        table.close_range(0, 3, false);
        assert!(table.get(3).is_none() && table.get(77).is_none());
    }

    #[test]
    fn after_a_loss_it_is_looked_at_again() {
        let mut table = Table::inherited();
        table.set(3, None, false);
        table.set(4, open(1), false);
        table.lose(5);
        table.opened(6, None, false);
        assert!(matches!(table.look(6), Found::Named));
        assert!(table.is_lost(5) && matches!(table.look(5), Found::Elsewhere));
        table.doubt();
        assert!(matches!(table.look(2), Found::Elsewhere));
        assert!(matches!(table.look(3), Found::Unknown));
        assert!(matches!(table.look(5), Found::Unknown));
        assert!(matches!(table.look(6), Found::Unknown));
        assert_eq!(files(&table), [1]);
    }

    #[test]
    fn a_copy_shares_the_open_files() {
        let mut table = Table::default();
        table.set(3, open(1), false);
        let mut copy = table.clone();
        copy.get(3).unwrap().advance(10);
        assert_eq!(table.get(3).unwrap().position.get(), Some(10));
        copy.close(3);
        assert!(table.get(3).is_some());
        table.set(1 << 40 | 3, None, false);
        assert!(table.get(3).is_none(), "the low half counts");
        assert!(matches!(table.look(3), Found::Elsewhere));
        table.close(3);
        assert!(matches!(table.look(3), Found::Unknown));
        table.set(1 << 30, open(2), false);
        assert!(table.get(1 << 30).is_none());
    }
}
