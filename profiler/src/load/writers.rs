//! The processes that wrote into a pipe, of those that had it open for writing.
//!
//! All processes that a command starts have its captured standard error open, and mostly none writes there.
//! For each writer only a bound is known: all that it wrote anywhere while it had the pipe open. So the bytes
//! are balanced, as those of readers.

use std::collections::{HashMap, HashSet};

use super::end_use::EndUse;
use super::ends::Ends;
use super::other_reads::OtherReads;
use crate::model::ProcessId;

/// Removes writers of pipes:
///
/// 1. those that wrote as much as went into traced files (a program that has the standard input of its helper
///    open),
/// 2. those that could write elsewhere, too, where the processes that had no other reader wrote all that this
///    one read.
pub(super) fn leave_out_silent(channels: &mut [Ends], other_reads: &OtherReads) {
    for ends in channels.iter_mut().filter(|ends| !ends.is_socket) {
        // Spliced bytes are not counted: of processes that wrote nothing at all one may have spliced.
        let may_be = |id: ProcessId, side: &EndUse, least: i64| {
            let bytes = side.at_most_bytes;
            side.is_used
                || bytes.is_none_or(|bytes| bytes < least || bytes != other_reads.files(id).1)
        };
        ends.writers.retain(|&id, side| may_be(id, side, 1));
        if ends.writers.iter().any(|(&id, side)| may_be(id, side, 0)) {
            ends.writers.retain(|&id, side| may_be(id, side, 0));
        }
    }
    let writers = Writers::of(channels);
    let served = writers.served(channels, other_reads);
    for ends in channels.iter_mut().filter(|ends| !ends.is_socket) {
        let mut readers = ends.readers.keys();
        if let (Some(reader), None) = (readers.next(), readers.next())
            && served.contains(reader)
        {
            ends.writers
                .retain(|id, side| side.is_used || writers.reader.get(id) == Some(&Some(*reader)));
        }
    }
}

/// Bytes that each process may have written into channels.
struct Writers {
    /// The only process that could read them; `None`: there were several.
    reader: HashMap<ProcessId, Option<ProcessId>>,
    /// Greatest number of bytes, traced files included; `None`: not known.
    bytes: HashMap<ProcessId, Option<i64>>,
}

impl Writers {
    fn of(channels: &[Ends]) -> Writers {
        let mut writers = Writers {
            reader: HashMap::new(),
            bytes: HashMap::new(),
        };
        for ends in channels {
            for (&id, side) in &ends.writers {
                let bytes = writers.bytes.entry(id).or_insert(Some(0));
                *bytes = bytes.zip(side.at_most_bytes).map(|(a, b)| a.max(b));
                // Two readers are enough to show that there are several.
                let others = ends.readers.keys().filter(|&&reader| reader != id);
                for &reader in others.take(2) {
                    let only = writers.reader.entry(id).or_insert(Some(reader));
                    *only = only.filter(|&known| known == reader);
                }
            }
        }
        writers
    }

    /// Processes that read from pipes just as much as was written by processes that had no other reader.
    fn served(&self, channels: &[Ends], other_reads: &OtherReads) -> HashSet<ProcessId> {
        let mut sent: HashMap<ProcessId, Option<i64>> = HashMap::new();
        for (&writer, reader) in &self.reader {
            let Some(reader) = *reader else { continue };
            let bytes = self.bytes.get(&writer).copied().flatten();
            let sum = sent.entry(reader).or_insert(Some(0));
            *sum = sum.zip(bytes).map(|(sum, bytes)| {
                sum.saturating_add(bytes.saturating_sub(other_reads.files(writer).1))
            });
        }
        let mut read: HashMap<ProcessId, Option<i64>> = HashMap::new();
        for ends in channels {
            for (&reader, side) in &ends.readers {
                let most = read.entry(reader).or_insert(Some(0));
                *most = most.zip(side.at_most_bytes).map(|(a, b)| a.max(b));
            }
        }
        let is_all = |(reader, bytes): (ProcessId, Option<i64>)| {
            let bytes = bytes.filter(|&bytes| bytes > 0)?;
            (read.get(&reader).copied().flatten() == Some(bytes)).then_some(reader)
        };
        sent.into_iter().filter_map(is_all).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn sides(of: &[(u32, i64)]) -> BTreeMap<ProcessId, EndUse> {
        let side = |bytes| EndUse {
            at_most_bytes: Some(bytes),
            first_ns: 0,
            last_ns: 1,
            is_used: false,
            is_counted: false,
        };
        let sides = of.iter().map(|&(id, bytes)| (ProcessId(id), side(bytes)));
        sides.collect()
    }

    /// `subprocess.run('1 | 2', capture_output=True)` of process 0: the pipe between both, the output, the errors.
    fn captured(read_bytes: i64) -> Vec<Vec<u32>> {
        let ends = |writers: &[(u32, i64)], readers: &[(u32, i64)]| Ends {
            writers: sides(writers),
            readers: sides(readers),
            ..Ends::default()
        };
        let mut channels = [
            ends(&[(1, 5000)], &[(2, 9000)]),
            ends(&[(2, 5)], &[(0, read_bytes)]),
            ends(&[(1, 5000), (2, 5)], &[(0, read_bytes)]),
        ];
        leave_out_silent(&mut channels, &OtherReads::default());
        let left = channels.iter();
        left.map(|ends| ends.writers.keys().map(|id| id.0).collect())
            .collect()
    }

    #[test]
    fn who_has_another_reader_sent_nothing_where_the_others_sent_all() {
        assert_eq!(captured(5), [vec![1], vec![2], vec![2]]);
    }

    #[test]
    fn who_wrote_but_into_files_sent_nothing_even_alone() {
        let left = |bytes: i64| {
            let mut channels = [Ends {
                writers: sides(&[(0, bytes)]),
                readers: sides(&[(1, 9000)]),
                ..Ends::default()
            }];
            let other_reads = OtherReads::of_files(vec![(0, 257)]);
            leave_out_silent(&mut channels, &other_reads);
            channels[0].writers.len()
        };
        assert_eq!(left(257), 0);
        assert_eq!(left(258), 1);
        // Bytes spliced into a pipe are not counted.
        let mut channels = [Ends {
            writers: sides(&[(0, 0)]),
            readers: sides(&[(1, 9000)]),
            ..Ends::default()
        }];
        leave_out_silent(&mut channels, &OtherReads::default());
        assert_eq!(channels[0].writers.len(), 1);
    }

    #[test]
    fn an_error_message_keeps_all_who_may_have_written_it() {
        assert_eq!(captured(45), [vec![1], vec![2], vec![1, 2]]);
    }
}
