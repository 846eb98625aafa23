//! State of a program at its begin besides its arguments: redirected descriptors, the file mode creation
//! mask, a digest of its environment, and the part of the machine that it may use. With these a command can
//! be run again as it was.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::hash::{BuildHasher, RandomState};

use flowtrace_schema::{DescriptorRecord, Record, Recorder, Text, Upid};

use super::confined::{Confined, Limits};
use super::environment::{OfLast, Wanted};
use super::snapshot::ProcessSnapshot;

/// Variables that shells and make count up or set anew for every program.
const ALWAYS_OTHER: &[&[u8]] = &[
    b"_",
    b"PWD",
    b"OLDPWD",
    b"SHLVL",
    b"LINES",
    b"COLUMNS",
    b"MAKEFLAGS",
    b"MFLAGS",
    b"MAKEOVERRIDES",
    b"MAKE_TERMOUT",
    b"MAKE_TERMERR",
];

/// State at the begin of the first program of the run, and the key for comparing environments.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    first: Option<First>,
    key: RandomState,
    digests: OfLast<u64>,
    limits: Option<Limits>,
}

#[derive(Debug)]
struct First {
    descriptors: BTreeMap<i32, OsString>,
    umask: Option<u32>,
    environment: Option<u64>,
    confined: Confined,
}

impl Inherited {
    /// A digest of an environment, each variable of which is ended by a NUL. Two environments that differ in
    /// any variable, recorded or not, have different digests. The key is drawn anew for each run and never
    /// written down, so that nobody can test guesses of values with it.
    pub(super) fn digest(&mut self, environ: &[u8], wanted: &Wanted) -> u64 {
        let key = &self.key;
        self.digests
            .get(environ, || digest_by(key, environ, wanted))
    }

    /// Records the state of process `pid` at the begin of image `upid`: all of the first program, and the
    /// differences of later ones. `umask`: `None` for that of the first program, which is read where it was
    /// not reported: the program may have changed it by then unless it is stopped.
    pub(super) fn record(
        &mut self,
        recorder: &Recorder,
        pid: u32,
        upid: Upid,
        umask: Option<u32>,
        environment: Option<u64>,
        snapshot: &dyn ProcessSnapshot,
    ) {
        let umask = umask.or_else(|| match &self.first {
            Some(first) => first.umask,
            None => umask_of(pid),
        });
        // Nothing else can be read of a program that is gone.
        let limits = self.limits.get_or_insert_with(Limits::here);
        let confined = limits.of(pid).unwrap_or_else(|| match &self.first {
            Some(first) => first.confined.clone(),
            None => Confined::default(),
        });
        let targets = snapshot.targets();
        for (&fd, target) in &targets {
            let of_first = self.first.as_ref().and_then(|f| f.descriptors.get(&fd));
            if of_first == Some(target) {
                continue;
            }
            let (flags, position) = snapshot.state(fd).unwrap_or_default();
            recorder.record(Record::Descriptor(Box::new(DescriptorRecord {
                upid,
                fd,
                target: Text::from(target.clone()),
                flags,
                position,
            })));
        }
        let is_other = self.first.as_ref().is_none_or(|first| {
            (first.umask, first.environment, &first.confined) != (umask, environment, &confined)
        });
        if is_other {
            recorder.record(Record::Setting {
                upid,
                umask,
                environment,
                cpus: confined.cpus.clone(),
                cpu_quota_ns: confined.quota_ns,
            });
        }
        self.first.get_or_insert(First {
            descriptors: targets,
            umask,
            environment,
            confined,
        });
    }
}

fn digest_by(key: &RandomState, environ: &[u8], wanted: &Wanted) -> u64 {
    let entries = environ.split(|&byte| byte == 0);
    let kept = entries.filter(|entry| {
        let name = entry.split(|&byte| byte == b'=').next().unwrap_or_default();
        !entry.is_empty() && !ALWAYS_OTHER.contains(&name) && !wanted.matches(name)
    });
    // A sum, because shells pass the same variables on in another order.
    kept.fold(0, |sum: u64, entry| sum.wrapping_add(key.hash_one(entry)))
}

fn umask_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(mask.trim(), 8).ok()
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::LiveSnapshot;
    use super::*;

    #[test]
    fn environments_are_compared_but_for_what_always_differs() {
        let mut inherited = Inherited::default();
        let wanted = Wanted::new(&["ASKED".into()]).unwrap();
        let mut digest = |environ: &[u8]| inherited.digest(environ, &wanted);
        let one = digest(b"A=1\0B=2\0_=x\0PWD=/\0ASKED=1\0");
        assert_eq!(one, digest(b"B=2\0A=1\0SHLVL=3\0ASKED=2\0"));
        assert_ne!(one, digest(b"A=1\0B=3\0"));
        assert_ne!(one, digest(b"A=1\0"));
        assert_ne!(one, Inherited::default().digest(b"A=1\0B=2\0", &wanted));
    }

    /// The program may have another open file under this number when it is read.
    #[test]
    fn reported_files_of_the_first_program_are_not_looked_up() {
        let own = std::process::id();
        let now = umask_of(own).unwrap();
        let first = |umask| {
            let mut inherited = Inherited::default();
            let recorder = Recorder::nowhere();
            inherited.record(&recorder, own, Upid(1), umask, None, &LiveSnapshot(own));
            inherited.first.unwrap().umask
        };
        assert_eq!(first(Some(now ^ 0o77)), Some(now ^ 0o77));
        assert_eq!(first(None), Some(now));
    }
}
