//! What lies in a pipe to which nobody can add when a program begins, such as a here-document: told before the program can read it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::super::pipe_content::LONGEST;
use super::bytes::{half, word};
use super::format::{MEMORY, Maps, NUMBERED, STEP, TID};
use super::layout::Layout;
use super::memory::{
    BUFFER, LAST_PIPE, LENGTH, LYING, OTHER, OUTER, PAGE, PIECE, PLACE, TAIL, field, in_part,
};
use super::table::{BUFFERS_SEEN, INODE, LEFT, Pipes, entry};
use crate::bpf::code::{
    ADD, Code, IF_EQUAL, IF_GREATER, IF_NOT_EQUAL, IF_SAME, LOAD_32, LOAD_64, MAP, MULTIPLY_NUMBER,
    NO_WAKEUP, OUTPUT, R0, R1, R2, R3, R4, READ_KERNEL, STACK, STORE_32, STORE_64,
};
use crate::bpf::ring::Ring;

/// A record, what lies in one buffer: the pipe's inode, the thread, how much lies in all, and the bytes.
const THREAD: usize = 8;
const IN_ALL: usize = 12;
const BYTES: usize = 16;
/// Bytes of a buffer.
const MOST: i32 = 4096;
/// Bytes that are kept for who asks for them; then the memory starts anew.
const KEPT: usize = 1 << 22;

impl Code {
    /// Tells what lies in the pipes that the task has open as its first descriptors, if nobody can add to it; of one pipe after the other
    /// where several programs begin with the same.
    pub(super) fn contents(&mut self, layout: &Layout, maps: &Maps<'_>) {
        let Some(pages) = maps.pages else {
            return;
        };
        let open = &layout.open;
        self.put(LOAD_64, R1, MEMORY, LYING, 0);
        let nothing = self.jump(IF_EQUAL, R1, 0, 0);
        let unread = self.find_table(layout);
        let each = self.begin_loop(maps);
        self.put(STORE_64, STACK, STEP, OUTER, 0);
        let closed = self.file(STEP);
        self.describe(Pipes::Contents, layout, maps);
        self.put(LOAD_64, R1, MEMORY, entry(LEFT), 0);
        let mut others = vec![
            closed,
            self.jump(IF_EQUAL, R1, 0, 0),
            self.jump(IF_GREATER, R1, 0, LONGEST.cast_signed()),
        ];
        self.put(STORE_32, MEMORY, R1, in_part(IN_ALL), 0);
        self.put(LOAD_32, R1, MEMORY, field(TID), 0);
        self.put(STORE_32, MEMORY, R1, in_part(THREAD), 0);
        self.put(LOAD_64, R1, MEMORY, entry(INODE), 0);
        self.put(STORE_64, MEMORY, R1, in_part(0), 0);
        self.put(LOAD_64, R2, MEMORY, LAST_PIPE, 0);
        others.push(self.jump(IF_SAME, R1, R2, 0));
        self.put(LOAD_64, R3, MEMORY, OTHER, 0);
        self.read(TAIL, 4, R3, open.tail);

        let buffers = self.begin_loop(maps);
        let all = self.no_more_buffers();
        self.next_buffer(layout);
        self.put(STORE_64, MEMORY, R3, BUFFER, 0);
        self.clear(PLACE);
        self.clear(LENGTH);
        for (to, size, offset) in [
            (PAGE, 8, open.page),
            (PLACE, 4, open.place),
            (LENGTH, 4, open.length),
        ] {
            self.put(LOAD_64, R3, MEMORY, BUFFER, 0);
            self.read(to, size, R3, offset);
        }
        self.put(LOAD_64, R3, MEMORY, PAGE, 0);
        self.put(MULTIPLY_NUMBER, R3, 0, 0, pages.scale);
        self.set_wide(R1, pages.base);
        self.put(ADD, R3, R1, 0, 0);
        self.put(LOAD_64, R1, MEMORY, PLACE, 0);
        self.put(ADD, R3, R1, 0, 0);
        self.put(LOAD_64, R2, MEMORY, LENGTH, 0);
        others.push(self.jump(IF_GREATER, R2, 0, MOST));
        self.put(STORE_64, STACK, R2, PIECE, 0);
        self.place(R1, in_part(BYTES));
        self.call(READ_KERNEL);
        others.push(self.jump(IF_NOT_EQUAL, R0, 0, 0));
        self.map(R1, MAP, maps.contents);
        self.place(R2, in_part(0));
        self.put(LOAD_64, R3, STACK, PIECE, 0);
        self.add(R3, BYTES as i32);
        self.set(R4, NO_WAKEUP);
        self.call(OUTPUT);
        // No room.
        others.push(self.jump(IF_NOT_EQUAL, R0, 0, 0));
        self.end_loop(buffers, BUFFERS_SEEN as i32 + 1);

        self.land(all);
        self.put(LOAD_64, R1, MEMORY, in_part(0), 0);
        self.put(STORE_64, MEMORY, R1, LAST_PIPE, 0);
        for jump in others {
            self.land(jump);
        }
        self.put(LOAD_64, STEP, STACK, OUTER, 0);
        self.end_loop(each, NUMBERED.cast_signed());
        self.land(unread);
        self.land(nothing);
    }
}

/// What was told.
#[derive(Debug)]
pub(crate) struct Contents(Mutex<Told>);

#[derive(Debug)]
struct Told {
    ring: Ring,
    /// By thread and the inode of the pipe.
    all: HashMap<(u32, u64), Pieces>,
    /// Of all.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Pieces {
    in_all: usize,
    bytes: Vec<u8>,
}

impl Contents {
    pub(super) fn of(ring: Ring) -> Contents {
        Contents(Mutex::new(Told {
            ring,
            all: HashMap::new(),
            bytes: 0,
        }))
    }

    /// What lay in the pipe with this inode when thread `tid` began a program of which the record has been read; it is asked for once.
    /// `None`: it is no text, or was not told.
    pub(super) fn take(&self, tid: u32, inode: u64) -> Option<String> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.receive();
        let pieces = told.all.remove(&(tid, inode))?;
        told.bytes -= pieces.bytes.len();
        let is_whole = pieces.bytes.len() == pieces.in_all;
        String::from_utf8(pieces.bytes).ok().filter(|_| is_whole)
    }
}

impl Told {
    fn receive(&mut self) {
        let Told { ring, all, bytes } = self;
        ring.drain_all(|record| {
            let parts = || {
                let thread = half(record, THREAD)?;
                let in_all = half(record, IN_ALL)? as usize;
                Some(((thread, word(record, 0)?), in_all, record.get(BYTES..)?))
            };
            let Some((key, in_all, piece)) = parts() else {
                return;
            };
            if *bytes > KEPT {
                all.clear();
                *bytes = 0;
            }
            let pieces = all.entry(key).or_default();
            // A program before this one, of which nobody has asked.
            if pieces.in_all != in_all || pieces.bytes.len() >= in_all {
                *bytes -= pieces.bytes.len();
                pieces.bytes.clear();
            }
            pieces.in_all = in_all;
            pieces.bytes.extend_from_slice(piece);
            *bytes += piece.len();
        });
    }
}
