//! Joins of things that several files have seen: a file on storage that they share, a pipe between two traced
//! commands, a connection recorded at both of its ends. Each becomes one row.
//!
//! Everything that may appear again is kept in a table of the unfinished file under a key (a path, an inode,
//! a pair of addresses); memory is needed only for joined things.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};

use super::columns::Space;
use super::input::{Host, Input};
use super::translation::{Moved, Translation};
use super::work::Work;
use crate::Result;

/// Largest time between two observations of one connection, beside the error of the clocks, ns.
const SLACK_NS: i64 = 1_000_000_000;

/// A thing that another file may have seen, too. Times are those of the merged file.
pub(super) struct Seen {
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) id: i64,
    pub(super) kind: i64,
    pub(super) inode: Option<(i64, i64)>,
    pub(super) first_ns: i64,
    pub(super) last_ns: i64,
    /// True if its two sides are the other way round than in the key.
    pub(super) is_turned: bool,
}

/// An earlier thing of the same key.
pub(super) struct Known {
    pub(super) id: i64,
    pub(super) kind: i64,
    pub(super) inode: Option<(i64, i64)>,
    pub(super) first_ns: i64,
    pub(super) last_ns: i64,
    pub(super) is_turned: bool,
}

impl Known {
    /// Time between the two, ns; 0 where they overlap.
    pub(super) fn distance_ns(&self, seen: &Seen) -> i64 {
        let gap = self.first_ns.saturating_sub(seen.last_ns);
        gap.max(seen.first_ns.saturating_sub(self.last_ns)).max(0)
    }
}

/// The space of the joined things, and its name in the work tables.
pub(super) fn space_name(space: Space) -> &'static str {
    match space {
        Space::File => "file",
        Space::Channel => "channel",
        _ => "flow",
    }
}

/// Joins things of one input with those of the inputs before it.
pub(super) struct Joiner<'a> {
    work: &'a Work,
    space: Space,
    at: usize,
    offset: i64,
    /// New ids that this input has matched: two things of one file never become one.
    taken: HashSet<i64>,
}

impl<'a> Joiner<'a> {
    pub(super) fn new(work: &'a Work, space: Space, at: usize, translation: &Translation) -> Self {
        Joiner {
            work,
            space,
            at,
            offset: translation.offset(space),
            taken: HashSet::new(),
        }
    }

    /// Joins `seen` with the best of those known under its keys for which `score` gives a number
    /// (the lowest wins), and remembers it for the files to come.
    pub(super) fn join(
        &mut self,
        seen: &Seen,
        score: impl Fn(&Known, &Seen) -> Option<i64>,
    ) -> rusqlite::Result<()> {
        let db = &self.work.db;
        let name = space_name(self.space);
        let mut best: Option<(i64, i64, bool)> = None;
        for key in &seen.keys {
            let mut find = db.prepare_cached(
                "SELECT id, kind, dev, ino, first_ns, last_ns, turned FROM merge_known
                 WHERE key = ?1 AND input < ?2",
            )?;
            let mut rows = find.query(params![key, self.at as i64])?;
            while let Some(row) = rows.next()? {
                let inode: (Option<i64>, Option<i64>) = (row.get(2)?, row.get(3)?);
                let known = Known {
                    id: row.get(0)?,
                    kind: row.get(1)?,
                    inode: inode.0.zip(inode.1),
                    first_ns: row.get(4)?,
                    last_ns: row.get(5)?,
                    is_turned: row.get(6)?,
                };
                if self.taken.contains(&known.id) {
                    continue;
                }
                if let Some(score) = score(&known, seen)
                    && best.is_none_or(|(_, lowest, _)| score < lowest)
                {
                    best = Some((known.id, score, known.is_turned != seen.is_turned));
                }
            }
        }
        let id = match best {
            Some((id, _, is_turned)) => {
                self.taken.insert(id);
                db.prepare_cached(
                    "INSERT INTO merge_moved (space, input, old, new, turned)
                     VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute(params![name, self.at as i64, seen.id, id, is_turned])?;
                id
            }
            None => seen.id.saturating_add(self.offset),
        };
        // Its sides are those of the thing that it was joined with, relative to the key.
        for key in &seen.keys {
            let (dev, ino) = seen.inode.unzip();
            db.prepare_cached(
                "INSERT OR IGNORE INTO merge_known
                   (key, id, input, kind, dev, ino, first_ns, last_ns, turned)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                key,
                id,
                self.at as i64,
                seen.kind,
                dev,
                ino,
                seen.first_ns,
                seen.last_ns,
                // A joined flow keeps the sides of the first.
                best.map_or(seen.is_turned, |(_, _, is_turned)| seen.is_turned
                    != is_turned)
            ])?;
        }
        Ok(())
    }
}

/// The things of an input that were joined with others: the pairs of ids, and those that are turned.
pub(super) fn moved(work: &Work, space: Space, at: usize) -> Result<(Moved, Vec<i64>)> {
    let read = || -> rusqlite::Result<(Moved, Vec<i64>)> {
        let mut find = work.db.prepare_cached(
            "SELECT old, new, turned FROM merge_moved WHERE space = ?1 AND input = ?2 ORDER BY old",
        )?;
        let mut rows = find.query(params![space_name(space), at as i64])?;
        let (mut moved, mut turned) = (Vec::new(), Vec::new());
        while let Some(row) = rows.next()? {
            moved.push((row.get(0)?, row.get(1)?));
            if row.get(2)? {
                turned.push(row.get(0)?);
            }
        }
        Ok((moved, turned))
    };
    read().map_err(|e| work.error(e))
}

/// Kernels of which several files have seen machines.
pub(super) fn shared_kernels(inputs: &[Input]) -> HashSet<String> {
    let mut files: HashMap<&str, usize> = HashMap::new();
    for input in inputs {
        let own: HashSet<&str> = input.hosts.iter().map(Host::kernel).collect();
        for kernel in own {
            *files.entry(kernel).or_default() += 1;
        }
    }
    let several = files.into_iter().filter(|(_, files)| *files > 1);
    several.map(|(kernel, _)| kernel.to_owned()).collect()
}

fn key(parts: &[&[u8]]) -> Vec<u8> {
    parts.join(&0)
}

/// Joins the files of an input: by device, inode and path within one kernel, by path below one of
/// the prefixes that all machines share. A path alone is not enough within a kernel, where files
/// come and go under one name; nor is the inode, which is used again.
///
/// # Errors
/// When one of the files refuses.
pub(super) fn files(
    work: &Work,
    (at, input, db): (usize, &Input, &Connection),
    translation: &Translation,
    (kernels, prefixes): (&HashSet<String>, &[Vec<u8>]),
) -> Result<()> {
    let is_met = |host: i64| {
        input
            .host(host)
            .is_some_and(|h| kernels.contains(h.kernel()))
    };
    if prefixes.is_empty() && !input.hosts.iter().any(|host| is_met(host.id)) {
        return Ok(());
    }
    let mut joiner = Joiner::new(work, Space::File, at, translation);
    let mut run = || -> rusqlite::Result<()> {
        let mut files = db.prepare(
            "SELECT f.file_id, host_id, dev, ino, f.kind, first_ns, last_ns FROM file AS f
             JOIN file_kind AS k USING (kind) WHERE k.name <> 'absent' ORDER BY f.file_id",
        )?;
        let mut names = db.prepare(
            "SELECT DISTINCT COALESCE(path_raw, CAST(path AS BLOB)) FROM file_names
             WHERE file_id = ?1",
        )?;
        let mut rows = files.query([])?;
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            let host: i64 = row.get(1)?;
            let inode: (Option<i64>, Option<i64>) = (row.get(2)?, row.get(3)?);
            let mut keys = Vec::new();
            let mut paths = names.query([id])?;
            while let Some(path) = paths.next()? {
                let path: Vec<u8> = path.get(0)?;
                if let Some(host) = input.host(host).filter(|host| is_met(host.id)) {
                    keys.push(key(&[b"file", host.kernel().as_bytes(), &path]));
                }
                if prefixes.iter().any(|prefix| is_below(&path, prefix)) {
                    keys.push(key(&[b"shared", &path]));
                }
            }
            if keys.is_empty() {
                continue;
            }
            let time = |at: i64| translation.integer(super::columns::Change::Time, at);
            let seen = Seen {
                keys,
                id,
                kind: translation.integer(super::columns::change("file", "kind"), row.get(4)?),
                inode: inode.0.zip(inode.1),
                first_ns: time(row.get(5)?),
                last_ns: time(row.get(6)?),
                is_turned: false,
            };
            joiner.join(&seen, |known, seen| {
                is_same_file(known, seen, !prefixes.is_empty())
            })?;
        }
        Ok(())
    };
    run().map_err(|e| input.error(e))
}

/// Score of a match of two files: the same inode first, then the nearest in time.
fn is_same_file(known: &Known, seen: &Seen, by_path: bool) -> Option<i64> {
    if known.kind != seen.kind {
        return None;
    }
    let far = i64::MAX / 4;
    match (known.inode, seen.inode) {
        (None, None) => Some(known.distance_ns(seen).min(far)),
        (Some(a), Some(b)) if a == b => Some(known.distance_ns(seen).min(far)),
        // Other machines have other device numbers.
        (Some(a), Some(b)) if by_path && a.1 == b.1 => {
            Some(far.saturating_add(known.distance_ns(seen).min(far)))
        }
        _ if by_path => Some((2 * far).saturating_add(known.distance_ns(seen).min(far))),
        _ => None,
    }
}

fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || prefix.ends_with(b"/"))
}

/// The prefixes as paths are stored: without a slash at the end.
pub(super) fn prefixes(paths: &[impl AsRef<Path>]) -> Vec<Vec<u8>> {
    let bytes = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
    let trimmed = |path: Vec<u8>| match path.as_slice() {
        [rest @ .., b'/'] if !rest.is_empty() => rest.to_vec(),
        _ => path,
    };
    paths
        .iter()
        .map(|path| trimmed(bytes(path.as_ref())))
        .collect()
}

/// The shared directories below which the merged file has no file.
pub(super) fn unmatched(db: &Connection, shared: &[PathBuf]) -> rusqlite::Result<Vec<PathBuf>> {
    let mut left: Vec<(Vec<u8>, &PathBuf)> = prefixes(shared).into_iter().zip(shared).collect();
    if left.is_empty() {
        return Ok(Vec::new());
    }
    let mut names =
        db.prepare("SELECT DISTINCT COALESCE(path_raw, CAST(path AS BLOB)) FROM file_names")?;
    let mut rows = names.query([])?;
    while let Some(row) = rows.next()?.filter(|_| !left.is_empty()) {
        let path: Vec<u8> = row.get(0)?;
        left.retain(|(prefix, _)| !is_below(&path, prefix));
    }
    Ok(left.into_iter().map(|(_, path)| path.clone()).collect())
}

/// Two addresses in an order that both ends agree on, and true if they were swapped for that. `None` for
/// addresses of loopback or of no interface, which mean something else on every machine.
pub(super) fn endpoints(a: &str, b: &str) -> Option<(String, String, bool)> {
    let is_turned = b < a;
    let (a, b) = if is_turned { (b, a) } else { (a, b) };
    let is_own = |text: &str| {
        let address: Option<std::net::SocketAddr> = text.parse().ok();
        address.is_none_or(|address| address.ip().is_loopback() || address.ip().is_unspecified())
    };
    (!is_own(a) && !is_own(b)).then(|| (a.to_owned(), b.to_owned(), is_turned))
}

/// Joins pipes within one kernel by their inode, connections by their two addresses; both where
/// they were seen about the same time, for inodes and ports are used again.
///
/// # Errors
/// When one of the files refuses.
pub(super) fn channels(
    work: &Work,
    (at, input, db): (usize, &Input, &Connection),
    translation: &Translation,
    (kernels, error_ns): (&HashSet<String>, i64),
) -> Result<()> {
    let mut joiner = Joiner::new(work, Space::Channel, at, translation);
    let mut run = || -> rusqlite::Result<()> {
        let mut channels = db.prepare(
            "SELECT c.channel_id, c.host_id, c.kind, c.inode, c.name, MIN(e.from_ns),
               MAX(COALESCE(e.to_ns, p.end_ns, e.from_ns))
             FROM channel AS c JOIN channel_end AS e USING (channel_id)
             LEFT JOIN process AS p USING (upid) GROUP BY c.channel_id ORDER BY c.channel_id",
        )?;
        let mut rows = channels.query([])?;
        while let Some(row) = rows.next()? {
            let host: i64 = row.get(1)?;
            let kind: String = row.get(2)?;
            let inode: Option<i64> = row.get(3)?;
            let name: Option<String> = row.get(4)?;
            let kernel = input.host(host).map(Host::kernel);
            let kernel = kernel.filter(|kernel| kernels.contains(*kernel));
            let key = match (kind.as_str(), kernel, inode, name.as_deref()) {
                ("pipe", Some(kernel), Some(inode), _) => {
                    key(&[b"pipe", kernel.as_bytes(), &inode.to_le_bytes()])
                }
                ("fifo", Some(kernel), Some(inode), Some(name)) => key(&[
                    b"fifo",
                    kernel.as_bytes(),
                    &inode.to_le_bytes(),
                    name.as_bytes(),
                ]),
                ("tcp" | "udp", _, _, Some(name)) => {
                    let ends = name.split_once(' ').and_then(|(a, b)| endpoints(a, b));
                    let Some((a, b, _)) = ends else { continue };
                    key(&[kind.as_bytes(), a.as_bytes(), b.as_bytes()])
                }
                _ => continue,
            };
            let time = |at: i64| translation.integer(super::columns::Change::Time, at);
            let seen = Seen {
                keys: vec![key],
                id: row.get(0)?,
                kind: 0,
                inode: None,
                first_ns: time(row.get(5)?),
                last_ns: time(row.get(6)?),
                is_turned: false,
            };
            joiner.join(&seen, |known, seen| near(known, seen, error_ns))?;
        }
        Ok(())
    };
    run().map_err(|e| input.error(e))
}

fn near(known: &Known, seen: &Seen, error_ns: i64) -> Option<i64> {
    let distance = known.distance_ns(seen);
    (distance <= SLACK_NS.saturating_add(error_ns)).then_some(distance)
}

/// Joins flows that were captured at both of their ends.
///
/// # Errors
/// When one of the files refuses.
pub(super) fn flows(
    work: &Work,
    (at, input, db): (usize, &Input, &Connection),
    translation: &Translation,
    error_ns: i64,
) -> Result<()> {
    if input.columns(db, "flow")?.is_empty() {
        return Ok(());
    }
    let mut joiner = Joiner::new(work, Space::Flow, at, translation);
    let mut run = || -> rusqlite::Result<()> {
        let mut flows = db.prepare(
            "SELECT f.flow_id, src, sport, dst, dport, proto, f.first_ns,
               COALESCE(MAX(c.last_ns), f.first_ns)
             FROM flow AS f LEFT JOIN flow_capture AS c USING (flow_id)
             GROUP BY f.flow_id ORDER BY f.flow_id",
        )?;
        let mut rows = flows.query([])?;
        while let Some(row) = rows.next()? {
            let end = |address: usize, port: usize| -> rusqlite::Result<String> {
                let (address, port): (String, Option<i64>) = (row.get(address)?, row.get(port)?);
                let port = u16::try_from(port.unwrap_or(0)).unwrap_or(0);
                let ip: Option<std::net::IpAddr> = address.parse().ok();
                Ok(ip.map_or(address, |ip| {
                    std::net::SocketAddr::new(ip, port).to_string()
                }))
            };
            let Some((a, b, is_turned)) = endpoints(&end(1, 2)?, &end(3, 4)?) else {
                continue;
            };
            let proto: String = row.get(5)?;
            let time = |at: i64| translation.integer(super::columns::Change::Time, at);
            let seen = Seen {
                keys: vec![key(&[
                    b"flow",
                    proto.as_bytes(),
                    a.as_bytes(),
                    b.as_bytes(),
                ])],
                id: row.get(0)?,
                kind: 0,
                inode: None,
                first_ns: time(row.get(6)?),
                last_ns: time(row.get(7)?),
                is_turned,
            };
            joiner.join(&seen, |known, seen| near(known, seen, error_ns))?;
        }
        Ok(())
    };
    run().map_err(|e| input.error(e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_name_a_connection_alike() {
        let a = endpoints("10.0.0.2:80", "10.0.0.1:5000").unwrap();
        let b = endpoints("10.0.0.1:5000", "10.0.0.2:80").unwrap();
        assert_eq!((&a.0, &a.1), (&b.0, &b.1));
        assert_ne!(a.2, b.2);
        assert_eq!(endpoints("127.0.0.1:80", "127.0.0.1:81"), None);
        assert_eq!(endpoints("0.0.0.0:80", "10.0.0.1:81"), None);
    }

    #[test]
    fn a_prefix_covers_whole_names() {
        let prefixes = prefixes(&["/shared/"]);
        assert!(is_below(b"/shared/a", &prefixes[0]));
        assert!(is_below(b"/shared", &prefixes[0]));
        assert!(!is_below(b"/sharedness", &prefixes[0]));
    }
}
