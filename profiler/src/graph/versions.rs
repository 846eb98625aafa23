//! Versions of a file: they show which process read what which other process had written.
//!
//! Only the first and last times of reading and writing are known per process, so a version begins where a
//! process starts to change a file after another has begun to read it.

use crate::model::{Access, Relation, Return};

/// The versions of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// For every version: true if its contents build on those of the one before. The first version of a file
    /// that was there already has no writer.
    pub builds_on_previous: Vec<bool>,
    /// The versions that each access, in the order given, wrote and read.
    pub uses: Vec<Use>,
}

/// The versions (counted from 0) that one access touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// The version that it wrote.
    pub wrote: Option<usize>,
    /// The version that it read, where that is not the one that it wrote.
    pub read: Option<usize>,
    /// The version that it read after others had changed the file later than it, where that is none of the
    /// above.
    pub reread: Option<usize>,
    /// The version that it wrote afterwards.
    pub rewrote: Option<usize>,
}

/// Begin of a version.
struct Version {
    start_ns: i64,
    builds_on_previous: bool,
    /// Time until which its writers read data that others wrote after them.
    reread_until_ns: i64,
}

impl Version {
    /// The contents before the run.
    const FOUND: Version = Version {
        start_ns: i64::MIN,
        builds_on_previous: false,
        reread_until_ns: i64::MIN,
    };
}

/// Begin of a process's writing; `rewrites` if it had read data that others wrote.
struct Writing {
    start_ns: i64,
    access: usize,
    rewrites: bool,
}

/// Changes of the file by processes, in the order of time.
fn writings(accesses: &[&Access], returns: &[Option<Return>]) -> Vec<Writing> {
    let mut writings = Vec::new();
    for (i, access) in accesses.iter().enumerate() {
        if access.relation() < Relation::Write {
            continue;
        }
        let rewritten = returns[i].and_then(|found| found.write_ns);
        let first = Some((access.write_start(), false));
        for (start_ns, rewrites) in first
            .into_iter()
            .chain(rewritten.map(|(start, _)| (start, true)))
        {
            writings.push(Writing {
                start_ns,
                access: i,
                rewrites,
            });
        }
    }
    writings.sort_by_key(|w| (w.start_ns, accesses[w.access].process, w.rewrites));
    writings
}

/// Divides the history of one file into versions. `returns` has for every access the calls that its process
/// made after it had read data that others wrote later than it.
pub fn versions(accesses: &[&Access], returns: &[Option<Return>]) -> Versions {
    // Includes the last reads: a process that had read all before a writer began has nothing of it.
    let reading = accesses
        .iter()
        .filter_map(|access| Some([first_read(access)?, last_read(access)]));
    let rereading = returns
        .iter()
        .flatten()
        .map(|found| [found.read_ns.0, found.read_ns.1]);
    let mut reads: Vec<i64> = reading.chain(rereading).flatten().collect();
    reads.sort_unstable();

    let mut uses = vec![Use::default(); accesses.len()];
    let mut versions: Vec<Version> = Vec::new();
    let mut next_read = 0;
    let mut is_read = false;
    for writing in writings(accesses, returns) {
        let access = accesses[writing.access];
        let returned = returns[writing.access];
        let start = writing.start_ns;
        // A process that stores through a mapping had the contents before.
        let is_update = access.is_update_unseen();
        while reads.get(next_read).is_some_and(|&at| at < start) {
            is_read = true;
            next_read += 1;
        }
        is_read |= is_update;
        if is_read && versions.is_empty() {
            // The file was read before any process wrote: it was there before the run.
            versions.push(Version::FOUND);
        }
        let current = versions.len().checked_sub(1);
        // A process that reads data that others wrote after it shares no version with them.
        let is_reread = versions
            .last()
            .is_some_and(|version| returned.is_some() || version.reread_until_ns > start);
        if versions.is_empty() || is_read || is_reread {
            let later = returned.map_or(0, |found| found.truncates);
            let truncates = match writing.rewrites {
                true => later,
                false => access.truncates - later,
            };
            versions.push(Version {
                start_ns: start,
                builds_on_previous: current.is_some() && truncates <= 0,
                reread_until_ns: i64::MIN,
            });
            let own_read = first_read(access).is_some_and(|at| at < start || is_update);
            if is_read && own_read && !writing.rewrites {
                // The version at its last read, at most the one before its own writing.
                let last = last_read(access);
                let seen = versions.partition_point(|version| version.start_ns <= last);
                uses[writing.access].read = current.map(|current| current.min(seen.max(1) - 1));
            }
            is_read = false;
        }
        if let (Some(version), Some(found)) = (versions.last_mut(), returned) {
            version.reread_until_ns = version.reread_until_ns.max(found.read_ns.1);
        }
        let at = Some(versions.len() - 1);
        match writing.rewrites {
            true => uses[writing.access].rewrote = at,
            false => uses[writing.access].wrote = at,
        }
    }
    // The newest version that it can have seen, by its last read.
    let seen = |last: i64| versions.partition_point(|version| version.start_ns <= last);
    for (i, access) in accesses.iter().enumerate() {
        match (access.relation(), returns[i]) {
            (Relation::Read, _) => uses[i].read = Some(seen(last_read(access)).max(1) - 1),
            (Relation::Write | Relation::Create, Some(found)) => {
                let used = uses[i];
                let own = [used.wrote, used.rewrote];
                let newest = (0..seen(found.read_ns.1)).rev().map(Some);
                uses[i].reread = newest
                    .into_iter()
                    .find(|version| !own.contains(version))
                    .flatten()
                    .filter(|&version| used.read != Some(version));
            }
            _ => {}
        }
    }
    if versions.is_empty() {
        versions.push(Version::FOUND);
    }
    Versions {
        builds_on_previous: versions.iter().map(|v| v.builds_on_previous).collect(),
        uses,
    }
}

/// Time at which an access began to read. A reader by mapping shows only its open; a writer that opened for
/// both and made no read call is assumed not to have read.
fn first_read(access: &Access) -> Option<i64> {
    match access.read_ns {
        Some((first, _)) => Some(first),
        None if access.relation() == Relation::Read || access.is_update_unseen() => {
            Some(access.first_open_ns.unwrap_or(access.span_ns.0))
        }
        None => None,
    }
}

/// Latest time at which an access may have read. A mapping may be read until the file is closed.
fn last_read(access: &Access) -> i64 {
    access.read_ns.map_or(access.span_ns.1, |(_, last)| last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ProcessId;

    fn access(process: u32, read: Option<(i64, i64)>, write: Option<(i64, i64)>) -> Access {
        Access {
            process: ProcessId(process),
            reads: i64::from(read.is_some()),
            changes: i64::from(write.is_some()),
            read_ns: read,
            write_ns: write,
            ..Access::default()
        }
    }

    fn of(accesses: &[Access]) -> Versions {
        versions(
            &accesses.iter().collect::<Vec<_>>(),
            &vec![None; accesses.len()],
        )
    }

    fn wrote(version: usize) -> Use {
        Use {
            wrote: Some(version),
            ..Use::default()
        }
    }

    fn read(version: usize) -> Use {
        Use {
            read: Some(version),
            ..Use::default()
        }
    }

    #[test]
    fn one_writer_and_its_readers_share_a_version() {
        let found = of(&[
            access(1, None, Some((0, 10))),
            access(2, Some((12, 20)), None),
            access(3, Some((5, 30)), None),
        ]);
        assert_eq!(found.builds_on_previous, [false]);
        assert_eq!(found.uses, [wrote(0), read(0), read(0)]);
    }

    #[test]
    fn appending_makes_a_version_only_after_somebody_has_read() {
        let found = of(&[
            access(1, None, Some((0, 1))),
            access(2, None, Some((2, 3))),
            access(3, Some((4, 5)), None),
            access(4, None, Some((6, 7))),
            access(5, Some((8, 9)), None),
        ]);
        assert_eq!(found.builds_on_previous, [false, true]);
        assert_eq!(found.uses, [wrote(0), wrote(0), read(0), wrote(1), read(1)]);
    }

    #[test]
    fn an_update_in_place_reads_one_version_and_writes_the_next() {
        let found = of(&[
            access(1, Some((0, 3)), Some((4, 5))),
            access(2, Some((6, 7)), None),
        ]);
        assert_eq!(found.builds_on_previous, [false, true]);
        assert_eq!(
            found.uses[0],
            Use {
                wrote: Some(1),
                read: Some(0),
                ..Use::default()
            }
        );
        assert_eq!(found.uses[1], read(1));
    }

    #[test]
    fn who_read_long_before_it_wrote_has_nothing_of_what_came_between() {
        let found = of(&[
            access(1, Some((0, 1)), Some((30, 31))),
            access(2, None, Some((10, 11))),
            access(3, Some((20, 21)), None),
        ]);
        assert_eq!(found.builds_on_previous, [false, true, true]);
        assert_eq!(
            (found.uses[0].read, found.uses[0].wrote),
            (Some(0), Some(2))
        );
        // A writer after the last read makes a version of its own, though the reader began before.
        let found = of(&[
            access(1, None, Some((0, 1))),
            access(2, Some((3, 7)), None),
            access(3, None, Some((5, 6))),
            access(4, None, Some((10, 11))),
        ]);
        assert_eq!(found.uses, [wrote(0), read(1), wrote(1), wrote(2)]);
    }

    #[test]
    fn reading_back_what_one_wrote_is_no_version() {
        let found = of(&[access(1, Some((2, 9)), Some((0, 5)))]);
        assert_eq!(found.builds_on_previous, [false]);
        assert_eq!(found.uses, [wrote(0)]);
    }

    #[test]
    fn contents_that_were_thrown_away_are_not_built_on() {
        let mut again = access(3, None, Some((6, 7)));
        again.truncates = 1;
        let found = of(&[
            access(1, None, Some((0, 1))),
            access(2, Some((2, 3)), None),
            again,
        ]);
        assert_eq!(found.builds_on_previous, [false, false]);
    }
}
