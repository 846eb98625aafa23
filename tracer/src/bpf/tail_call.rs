//! A tail call: one eBPF program continues with another one, which is not attached to the tracepoint by
//! itself. With two programs at a tracepoint the kernel takes its slow path to both, at each call of the
//! machine.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{Kind, Map};

/// The target of a tail call; none at first.
#[derive(Debug)]
pub(crate) struct TailCall(Map);

impl TailCall {
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn new() -> io::Result<TailCall> {
        Map::new(Kind::Programs, size_of::<u32>(), 1).map(TailCall)
    }

    /// Makes `program`, which is made for the same tracepoint, the target from now on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn set(&self, program: &OwnedFd) -> io::Result<()> {
        self.0.put(0, &(program.as_raw_fd() as u32))
    }
}

impl AsFd for TailCall {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::object::Use;
    use super::super::objects::{self, Source};
    use super::super::run;
    use super::*;

    #[test]
    fn it_runs_after_the_program_once_there_is_one() {
        let tail_call = match TailCall::new() {
            Ok(tail_call) => tail_call,
            Err(error) => return eprintln!("skipped: eBPF programs: {error}"),
        };
        let object = objects::open(Source::Tests).unwrap();
        let uses = [("tail_call", Use::Shared(tail_call.as_fd()))];
        let mut loaded = object.load(&["first", "second"], &uses).unwrap();
        let counts = loaded.map(".bss.counts").unwrap();
        let [first, second] = &loaded.programs[..] else {
            panic!("two programs");
        };
        run(first).unwrap();
        assert_eq!(counts.get(0).unwrap(), [1, 0]);
        tail_call.set(second).unwrap();
        run(first).unwrap();
        assert_eq!(counts.get(0).unwrap(), [2, 1]);
    }
}
