//! The processes that read from a pipe, of those that had it open for reading.
//!
//! Every program that a shell starts in `… | while read k; do expr $k + 1; done` has the pipe as its standard
//! input. For each reader only a bound is known: all that it read from anything but traced files while it had
//! the pipe open, its libraries included. So the bytes are balanced: all that was written was read by one of
//! them. Where the kernel's own records count both sides and these balance, no other process moved any.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::end_use::EndUse;
use super::ends::Ends;
use super::other_reads::OtherReads;
use super::writers::leave_out_silent;
use crate::model::ProcessId;

/// Removes processes from the ends of pipes that the kernel did not count, where it counted as much written
/// as read.
fn leave_out_uncounted(ends: &mut Ends) {
    let counted = |sides: &BTreeMap<ProcessId, EndUse>| -> i64 {
        let used = sides.values().filter(|side| side.is_used);
        used.fold(0, |sum: i64, side| {
            sum.saturating_add(side.at_most_bytes.unwrap_or(0))
        })
    };
    let (written, read) = (counted(&ends.writers), counted(&ends.readers));
    if written > 0 && written == read {
        ends.writers.retain(|_, side| side.is_used);
        ends.readers.retain(|_, side| side.is_used);
    }
}

/// Removes the writers of pipes that wrote nothing into them ([`super::writers`]), and the readers that only
/// had them as their standard input:
///
/// 1. all others, where one reader read from pipes exactly what was written into those that it could read;
/// 2. programs that read the same number of bytes each time, where the others may have read as much as was
///    written;
/// 3. where one reader read as much as was written, those that read less than half of that.
///
/// A process that is known to have read stays, and so does a copy of its parent that read and had no other
/// pipe to read.
pub(super) fn leave_out_bystanders(channels: &mut [Ends], other_reads: &OtherReads) {
    for ends in channels.iter_mut().filter(|ends| !ends.is_socket) {
        leave_out_uncounted(ends);
    }
    leave_out_silent(channels, other_reads);
    // Bytes sent to each reader through pipes, with the time in which it had each pipe open.
    let mut sent: HashMap<ProcessId, Vec<Sent>> = HashMap::new();
    let pipes = channels.iter().filter(|ends| !ends.is_socket);
    for (ends, written) in pipes.filter_map(|ends| Some((ends, ends.written(other_reads)?))) {
        for (&id, side) in &ends.readers {
            sent.entry(id).or_default().push(Sent {
                open_ns: (side.first_ns, side.last_ns),
                within: written,
            });
        }
    }
    for pipes in sent.values_mut() {
        add_within(pipes);
    }
    for ends in channels.iter_mut() {
        if ends.is_socket || ends.readers.len() < 2 {
            continue;
        }
        let Some(written) = ends.written(other_reads).filter(|&bytes| bytes > 0) else {
            continue;
        };
        let raw = |side: &EndUse| side.at_most_bytes.unwrap_or(i64::MAX);
        let piped = |id: ProcessId, side: &EndUse| other_reads.piped(id, side);
        let read_all = |id: ProcessId, side: &EndUse| {
            let pipes = sent.get(&id).map_or(&[][..], Vec::as_slice);
            let all = sent_within(pipes, (side.first_ns, side.last_ns));
            let files = other_reads.files(id).0;
            let is_that = |read| read == written || read == all;
            piped(id, side).is_some_and(|read| is_that(read) || is_that(read.saturating_sub(files)))
        };
        if ends
            .readers
            .iter()
            .any(|(&id, side)| ends.may_have_read_all(id) && read_all(id, side))
        {
            ends.readers
                .retain(|&id, side| side.is_used || read_all(id, side));
            continue;
        }
        let is_sure = |id: ProcessId, side: &EndUse| {
            let is_only = sent.get(&id).is_some_and(|pipes| pipes.len() == 1);
            side.is_used || other_reads.is_copy(id) && is_only && (1..=written).contains(&raw(side))
        };
        if ends
            .readers
            .iter()
            .any(|(&id, side)| ends.may_have_read_all(id) && raw(side) >= written)
        {
            ends.readers
                .retain(|&id, side| is_sure(id, side) || raw(side) >= written / 2);
            // One of the remaining readers has read the data: the least that a program read may have come
            // from pipes, too.
            let others = ends.readers.iter();
            let others = others.filter(|&(&id, side)| piped(id, side) != Some(0));
            let sum = others.fold(0, |sum: i64, (_, side)| sum.saturating_add(raw(side)));
            if sum >= written {
                ends.readers
                    .retain(|&id, side| is_sure(id, side) || piped(id, side) != Some(0));
            }
        }
        if ends
            .readers
            .iter()
            .any(|(&id, side)| ends.may_have_read_all(id) && piped(id, side) >= Some(written))
        {
            ends.readers.retain(|&id, side| {
                is_sure(id, side) || piped(id, side).unwrap_or(raw(side)) >= written / 2
            });
        }
    }
}

/// Bytes sent to a reader through a pipe.
struct Sent {
    /// Time in which the reader had the pipe open, ns.
    open_ns: (i64, i64),
    /// Bytes through this pipe; after [`add_within`] those through all pipes that it had open within this
    /// time.
    within: i64,
}

/// The order in which a pipe that is open within the time of another comes before it.
fn inner_first((first_ns, last_ns): (i64, i64)) -> (Reverse<i64>, i64) {
    (Reverse(first_ns), last_ns)
}

/// Sorts the pipes of one reader, and gives each the bytes through all that were open within its time.
fn add_within(pipes: &mut [Sent]) {
    pipes.sort_unstable_by_key(|pipe| inner_first(pipe.open_ns));
    let mut ends: Vec<i64> = pipes.iter().map(|pipe| pipe.open_ns.1).collect();
    ends.sort_unstable();
    ends.dedup();
    // Sums of the bytes by the end of the time, as a Fenwick tree.
    let mut sums = vec![0_i64; ends.len() + 1];
    for same in pipes.chunk_by_mut(|a, b| a.open_ns == b.open_ns) {
        let place = ends.partition_point(|&end| end < same[0].open_ns.1) + 1;
        let own = same
            .iter()
            .fold(0, |sum: i64, pipe| sum.saturating_add(pipe.within));
        let mut at = place;
        while at < sums.len() {
            sums[at] = sums[at].saturating_add(own);
            at += at & at.wrapping_neg();
        }
        let (mut at, mut all) = (place, 0_i64);
        while at > 0 {
            all = all.saturating_add(sums[at]);
            at &= at - 1;
        }
        for pipe in same {
            pipe.within = all;
        }
    }
}

/// Bytes through the pipes that a reader had open within a time.
fn sent_within(pipes: &[Sent], open_ns: (i64, i64)) -> i64 {
    let at = pipes.binary_search_by_key(&inner_first(open_ns), |pipe| inner_first(pipe.open_ns));
    at.map_or(0, |at| pipes[at].within)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn side(at_most_bytes: Option<i64>) -> EndUse {
        EndUse {
            at_most_bytes,
            first_ns: 0,
            last_ns: 1,
            is_used: false,
            is_counted: false,
        }
    }

    fn numbered(first: u32, sizes: &[Option<i64>]) -> BTreeMap<ProcessId, EndUse> {
        let sides = sizes.iter().copied().map(side);
        (first..).map(ProcessId).zip(sides).collect()
    }

    #[test]
    fn bytes_of_all_pipes_that_were_open_no_longer() {
        let times = [(0, 9), (2, 5), (2, 5), (1, 5), (3, 4), (4, 9), (0, 3)];
        let mut pipes: Vec<Sent> = (0..times.len())
            .map(|at| Sent {
                open_ns: times[at],
                within: 1 << at,
            })
            .collect();
        add_within(&mut pipes);
        for (first, last) in times {
            let is_within = |at: &usize| first <= times[*at].0 && times[*at].1 <= last;
            let expected = (0..times.len())
                .filter(is_within)
                .map(|at| 1 << at)
                .sum::<i64>();
            assert_eq!(
                sent_within(&pipes, (first, last)),
                expected,
                "{first} {last}"
            );
        }
    }

    fn left(ends: &Ends) -> Vec<u32> {
        ends.readers.keys().map(|id| id.0).collect()
    }

    /// Processes 0 to 2 write, 3 is a copy of its parent, 4 to 6 run one program that reads 6228 bytes of its own.
    fn loop_of_a_shell() -> OtherReads {
        let program = |n| (n >= 4).then(|| Arc::from("/bin/expr"));
        OtherReads {
            copies: (0..7).map(|n| n == 3).collect(),
            program: (0..7).map(program).collect(),
            least: HashMap::from([(Arc::from("/bin/expr"), 6228)]),
            ..OtherReads::default()
        }
    }

    #[test]
    fn who_read_too_little_only_inherited_the_pipe() {
        let of = |sizes: [Option<i64>; 3]| {
            let mut channels = [Ends {
                writers: numbered(0, &[Some(1_000_000)]),
                readers: numbered(1, &sizes),
                ..Ends::default()
            }];
            leave_out_bystanders(&mut channels, &OtherReads::default());
            left(&channels[0])
        };
        assert_eq!(of([Some(5400), Some(1_005_400), None]), [2, 3]);
        // Two processes share the pipe: neither read it all.
        assert_eq!(of([Some(700_000), Some(300_000), Some(5400)]), [1, 2, 3]);
    }

    /// The master of a pool has both ends of the pipe by which it distributes work, and reads a lot
    /// elsewhere.
    #[test]
    fn who_writes_into_a_pipe_does_not_read_it_all() {
        let of = |is_fifo| {
            let mut channels = [Ends {
                writers: numbered(0, &[Some(700)]),
                readers: numbered(0, &[Some(1_484_109), Some(190), Some(280)]),
                is_fifo,
                ..Ends::default()
            }];
            leave_out_bystanders(&mut channels, &OtherReads::default());
            left(&channels[0])
        };
        assert_eq!(of(false), [0, 1, 2]);
        assert_eq!(of(true), [0]);
    }

    #[test]
    fn a_shell_that_read_all_leaves_nothing_to_what_it_starts() {
        let mut channels = [Ends {
            writers: numbered(0, &[Some(2); 3]),
            readers: numbered(3, &[Some(6), Some(6228), Some(6228), Some(6228)]),
            ..Ends::default()
        }];
        leave_out_bystanders(&mut channels, &loop_of_a_shell());
        assert_eq!(left(&channels[0]), [3]);
    }

    #[test]
    fn what_tee_wrote_into_a_file_nobody_reads_from_its_pipe() {
        let mut channels = [Ends {
            writers: numbered(0, &[Some(12)]),
            readers: numbered(3, &[Some(6), Some(6228), Some(6228)]),
            ..Ends::default()
        }];
        let mut reads = loop_of_a_shell();
        reads.files = vec![(0, 6)];
        leave_out_bystanders(&mut channels, &reads);
        assert_eq!(left(&channels[0]), [3]);
    }

    #[test]
    fn answers_that_the_shell_took_in_between_are_distinguished() {
        let answer = |n, at| {
            let mut readers = numbered(3, &[Some(9)]);
            let side = readers.values_mut().next().unwrap();
            (side.first_ns, side.last_ns) = (at, at);
            Ends {
                writers: numbered(n, &[Some(3)]),
                readers,
                ..Ends::default()
            }
        };
        let mut channels = vec![Ends {
            writers: numbered(0, &[Some(2); 3]),
            readers: numbered(3, &[Some(15), Some(6228), Some(6228), Some(6228)]),
            ..Ends::default()
        }];
        channels.extend([answer(4, 0), answer(5, 1), answer(6, 1)]);
        leave_out_bystanders(&mut channels, &loop_of_a_shell());
        assert_eq!(left(&channels[0]), [3]);
        assert_eq!(left(&channels[3]), [3]);
    }

    #[test]
    fn a_program_that_reads_more_than_else_reads_the_pipe() {
        // Three processes that each read a share of the pipe.
        let mut channels = [Ends {
            writers: numbered(0, &[Some(300)]),
            readers: numbered(4, &[Some(6328), Some(6328), Some(6328)]),
            ..Ends::default()
        }];
        leave_out_bystanders(&mut channels, &loop_of_a_shell());
        assert_eq!(left(&channels[0]), [4, 5, 6]);
        // One of them read it all.
        channels[0].readers = numbered(4, &[Some(6528), Some(6228), Some(6228)]);
        leave_out_bystanders(&mut channels, &loop_of_a_shell());
        assert_eq!(left(&channels[0]), [4]);
        // A program that runs once may have read it all; then those that read the same each time read none.
        channels[0].readers = numbered(4, &[Some(6228), Some(6228), Some(6228), Some(9000)]);
        leave_out_bystanders(&mut channels, &loop_of_a_shell());
        assert_eq!(left(&channels[0]), [7]);
    }

    #[test]
    fn where_the_kernel_counted_as_much_written_as_read_nobody_else_moved_any() {
        let ends = |read: i64| {
            let mut ends = Ends {
                writers: numbered(0, &[Some(60), Some(6)]),
                readers: numbered(2, &[Some(read), Some(900)]),
                ..Ends::default()
            };
            for sides in [&mut ends.writers, &mut ends.readers] {
                sides.values_mut().next().unwrap().is_used = true;
            }
            let mut channels = [ends];
            leave_out_bystanders(&mut channels, &OtherReads::default());
            (channels[0].writers.len(), left(&channels[0]))
        };
        assert_eq!(ends(60), (1, vec![2]));
        // Some of the bytes are missing: the others may have read them.
        assert_eq!(ends(40), (2, vec![2, 3]));
    }

    #[test]
    fn a_shell_that_took_the_first_line_stays() {
        let mut channels = [Ends {
            writers: numbered(0, &[Some(3893)]),
            readers: numbered(3, &[Some(2), Some(10_119)]),
            ..Ends::default()
        }];
        leave_out_bystanders(&mut channels, &loop_of_a_shell());
        assert_eq!(left(&channels[0]), [3, 4]);
    }
}
