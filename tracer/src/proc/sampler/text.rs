//! Decoding of the files of /proc that a sample consists of. No content makes it fail; it returns `None`.

use flowtrace_schema::Side;

/// Content of `/proc/PID/task/TID/syscall` (proc_pid_syscall(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// It runs, or is about to.
    Running,
    /// Blocked, and in no system call.
    Outside,
    /// Blocked in the call of that number, with these arguments.
    In(i64, [u64; 6]),
}

impl Position {
    pub(super) fn parse(text: &[u8]) -> Option<Position> {
        let text = str::from_utf8(text).ok()?.trim_end();
        if text == "running" {
            return Some(Position::Running);
        }
        let mut words = text.split(' ');
        let number: i64 = words.next()?.parse().ok()?;
        if number < 0 {
            return Some(Position::Outside);
        }
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            let word = words.next()?.strip_prefix("0x")?;
            *argument = u64::from_str_radix(word, 16).ok()?;
        }
        Some(Position::In(number, arguments))
    }
}

/// Content of `/proc/PID/task/TID/schedstat`: the thread's CPU time and waits so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scheduled {
    /// Time on a CPU, as of its last tick while it runs.
    pub(super) on_cpu_ns: u64,
    /// Time waiting for one, as of the end of the last wait.
    pub(super) run_queue_ns: u64,
    /// Number of times that it was put on a CPU.
    pub(super) slices: u64,
}

impl Scheduled {
    pub(super) fn parse(text: &[u8]) -> Option<Scheduled> {
        let mut words = str::from_utf8(text).ok()?.split_ascii_whitespace();
        let mut number = || words.next()?.parse().ok();
        Some(Scheduled {
            on_cpu_ns: number()?,
            run_queue_ns: number()?,
            slices: number()?,
        })
    }
}

/// State of a task, the third field of its `stat`.
pub(super) fn state(stat: &[u8]) -> Option<u8> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    match stat.get(name_end + 1..)? {
        [b' ', state, ..] => Some(*state),
        _ => None,
    }
}

/// Inode in the target of a descriptor's link, as in `pipe:[17]`.
pub(super) fn inode_in(link: &[u8], kind: &str) -> Option<u64> {
    let number = link.strip_prefix(kind.as_bytes())?.strip_prefix(b":[")?;
    str::from_utf8(number.strip_suffix(b"]")?)
        .ok()?
        .parse()
        .ok()
}

/// Descriptors of an epoll, from its `fdinfo`, each with a side that it waits at.
pub(super) fn epoll_targets(fdinfo: &[u8]) -> Vec<(i32, Side)> {
    String::from_utf8_lossy(fdinfo)
        .lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix("tfd:")?.split_ascii_whitespace();
            let fd = words.next()?.parse().ok()?;
            let events = words.nth(1).unwrap_or_default();
            let events = u32::from_str_radix(events, 16).unwrap_or(0);
            Some((fd, side_of(events)))
        })
        .collect()
}

/// Descriptors of an array of `pollfd` (poll(2)).
pub(super) fn poll_targets(array: &[u8]) -> Vec<(i32, Side)> {
    array
        .chunks_exact(8)
        .filter_map(|entry| {
            let fd = i32::from_ne_bytes(entry[..4].try_into().ok()?);
            let events = u16::from_ne_bytes(entry[4..6].try_into().ok()?);
            (fd >= 0).then(|| (fd, side_of(events.into())))
        })
        .collect()
}

/// A wait for both, reading and writing, counts as one for reading: a buffer is rarely full.
fn side_of(events: u32) -> Side {
    let read = (libc::POLLIN | libc::POLLRDHUP | libc::POLLPRI) as u32;
    if events & libc::POLLOUT as u32 != 0 && events & read == 0 {
        Side::Write
    } else {
        Side::Read
    }
}

/// Members of an `fd_set` (select(2)).
pub(super) fn set_members(set: &[u8]) -> Vec<i32> {
    let bits = (0..).zip(
        set.iter()
            .flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1)),
    );
    bits.filter(|&(_, bit)| bit == 1)
        .map(|(fd, _)| fd)
        .collect()
}

/// Decodes any bytes as each of these files.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(bytes: &[u8]) {
    if let Some(Position::In(number, _)) = Position::parse(bytes) {
        assert!(number >= 0);
        for abi in [bytes, &bytes[bytes.len().min(4)..]].map(super::calls::Abi::of_auxv) {
            let _ = abi.call(number);
        }
    }
    let _ = (Scheduled::parse(bytes), state(bytes));
    for kind in ["pipe", "socket"] {
        let _ = inode_in(bytes, kind);
    }
    assert!(poll_targets(bytes).len() <= bytes.len() / 8);
    assert!(epoll_targets(bytes).len() <= bytes.len());
    let members = set_members(bytes);
    assert!(members.iter().all(|&fd| (fd as usize) < bytes.len() * 8));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions() {
        assert_eq!(Position::parse(b"running\n"), Some(Position::Running));
        let outside = Position::parse(b"-1 0x7ffe 0x55ab\n");
        assert_eq!(outside, Some(Position::Outside));
        let read = b"0 0x3 0x7f00 0x20000 0x0 0xffffffff 0x5 0x7ffd 0x7f11\n";
        let arguments = [3, 0x7f00, 0x20000, 0, 0xffff_ffff, 5];
        assert_eq!(Position::parse(read), Some(Position::In(0, arguments)));
        for spoilt in ["", "x", "0 0x3", "0 3 4 5 6 7 8", "99999999999999999999"] {
            assert_eq!(Position::parse(spoilt.as_bytes()), None, "{spoilt}");
        }
    }

    #[test]
    fn small_files() {
        let sum = Scheduled::parse(b"10 20 3\n").unwrap();
        assert_eq!((sum.on_cpu_ns, sum.run_queue_ns, sum.slices), (10, 20, 3));
        assert_eq!(Scheduled::parse(b"10 20\n"), None);
        assert_eq!(state(b"7 (a) R (\xff) D 1 7"), Some(b'D'));
        assert_eq!(state(b"7 (a)"), None);
        assert_eq!(inode_in(b"pipe:[17]", "pipe"), Some(17));
        assert_eq!(inode_in(b"pipe:[17]", "socket"), None);
        assert_eq!(inode_in(b"pipe:[x]", "pipe"), None);
    }

    #[test]
    fn sets_of_descriptors() {
        let epoll = b"pos:\t0\nflags:\t02\nmnt_id:\t14\n\
            tfd:        5 events: 80000019 data:                5  pos:0 ino:1 sdev:9\n\
            tfd:        7 events:        4 data:                7  pos:0 ino:2 sdev:9\ntfd: y\n";
        assert_eq!(epoll_targets(epoll), [(5, Side::Read), (7, Side::Write)]);
        let mut array = Vec::new();
        for (fd, events) in [(3, libc::POLLIN), (-1, 0), (4, libc::POLLOUT)] {
            array.extend(i32::to_ne_bytes(fd));
            array.extend(i16::to_ne_bytes(events));
            array.extend([0, 0]);
        }
        assert_eq!(poll_targets(&array), [(3, Side::Read), (4, Side::Write)]);
        assert_eq!(set_members(&[0b101, 0, 1]), [0, 2, 16]);
    }
}
