//! What a program begins with besides its arguments: redirected descriptors, the file mode creation
//! mask, whether its environment is that of the first program, and how much of the machine it may use. With these a
//! command can be run again as it was.

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

/// What the first program of the run began with, and the key for comparing environments.
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
    /// A number for an environment, each variable of which is ended by a NUL. Two that differ in a
    /// variable that is not recorded have different ones. The key is drawn anew for each run and
    /// never written down, so that nobody can try out values against it.
    pub(super) fn digest(&mut self, environ: &[u8], wanted: &Wanted) -> u64 {
        let key = &self.key;
        self.digests
            .get(environ, || digest_by(key, environ, wanted))
    }

    /// Records what process `pid` began with as image `upid`: all of the first program, of later ones what is
    /// different. `umask`: `None` for that of the first program, of which it is looked up where it was not told: it
    /// may have another one by then unless it is held.
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
        // Of a program that is gone already nothing else is to be said.
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
    // A sum, because shells hand the same variables on in another order.
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

    /// By the time that it could be looked up the program may have another one.
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
