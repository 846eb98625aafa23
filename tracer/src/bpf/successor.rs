//! A program that another one at the same tracepoint goes on with, instead of being at that tracepoint by itself: with two of them the kernel takes
//! its slow way to both, at each call of the machine.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::code::{Code, GO_ON, MAP, R1, R2, R3};
use super::{Kind, Map};

/// Nothing at first.
#[derive(Debug)]
pub(crate) struct Successor(Map);

impl Successor {
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn new() -> io::Result<Successor> {
        Map::new(Kind::Programs, size_of::<u32>(), 1).map(Successor)
    }

    /// From now on it is this one, which is made for the same tracepoint.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn set(&self, program: &OwnedFd) -> io::Result<()> {
        self.0.put(0, &(program.as_raw_fd() as u32))
    }
}

impl AsFd for Successor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Code {
    /// The end of a program that has a successor; the context is in a register. Jumps of `leaves` end here.
    pub(crate) fn leave_to(&mut self, context: u8, successor: BorrowedFd<'_>) {
        self.land_leaves();
        self.copy(R1, context);
        self.map(R2, MAP, successor);
        self.set(R3, 0);
        self.call(GO_ON);
        // There is none.
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::super::code::{ATOMIC_64, MEMORY_OF_MAP};
    use super::super::{load, run};
    use super::*;

    #[test]
    fn it_is_run_after_the_program_once_there_is_one() {
        const CONTEXT: u8 = 6;
        let successor = match Successor::new() {
            Ok(successor) => successor,
            Err(error) => return eprintln!("skipped: programs in the kernel: {error}"),
        };
        let counts = Map::new(Kind::Array, 16, 1).unwrap();
        let counting = |place| {
            let mut code = Code::default();
            code.copy(CONTEXT, R1);
            code.map(R1, MEMORY_OF_MAP, counts.as_fd());
            code.set(R2, 1);
            code.put(ATOMIC_64, R1, R2, place, 0);
            code
        };
        let mut first = counting(0);
        first.leave_to(CONTEXT, successor.as_fd());
        let mut second = counting(8);
        second.leave();
        let [first, second] = [first, second].map(|code| load(&code.all).unwrap());
        run(&first, 0).unwrap();
        assert_eq!(counts.get(0).unwrap(), [1, 0]);
        successor.set(&second).unwrap();
        run(&first, 0).unwrap();
        assert_eq!(counts.get(0).unwrap(), [2, 1]);
    }
}
