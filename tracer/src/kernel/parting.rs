//! A process that lets go of what we hold, so that we need not wait for it.
#![expect(unsafe_code)]

use std::io;

/// Has what this process holds open by now closed by another one, which does nothing else: whoever
/// closes it here afterwards is not the last, and for tracepoints of perf only the last has to wait until
/// no processor uses them any more, some 0.2 s in all.
///
/// # Errors
/// When no process can be made.
pub(super) fn leave_to_another() -> io::Result<()> {
    // Without a signal at its end: nobody is to hear of it, or to find it by waiting for any child.
    let flags: libc::c_ulong = 0;
    // SAFETY: without flags clone(2) is fork(2), whatever the order of its arguments, all of them 0; the
    // child calls nothing but _exit(2), which is allowed after a fork of a process with threads.
    let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0usize, 0usize, 0usize, 0usize) };
    match child {
        0 => {
            // SAFETY: ends the child, as said.
            unsafe { libc::_exit(0) }
        }
        1.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn another_lets_go_as_well() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        leave_to_another().unwrap();
        drop(writer);
        // Ends when the other has let go of its end, too.
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }
}
