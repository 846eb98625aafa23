//! Declared against real dependencies: the files that a Makefile or another description says a file is made
//! from, against the files that its commands read.
//!
//! A file that a command read is declared when it can be reached from one of the files that the command made,
//! over any number of declared prerequisites. If a command read a file that another command made and that is
//! no declared target (as of an earlier line of the same recipe), it counts as having read the files that the
//! other command read.

mod declared;
pub mod text;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

pub use declared::{Declared, Kind, Rule, Unreadable};
use serde::Serialize;

use crate::argv::unquote;
use crate::generate::{Place, StepFiles};
use crate::managers::is_build;

/// Result of the comparison.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Findings {
    /// Rules whose files were made in the traced run.
    pub checked: usize,
    /// Rules that were declared.
    pub declared: usize,
    /// Rules whose file exists and was not made in the traced run.
    pub not_made: usize,
    /// Rules whose file was not made and does not exist: they name things to do, such as `clean`, or nobody
    /// asked for them.
    pub no_files: Vec<String>,
    /// Dependencies that are real and not declared.
    pub missing: Vec<Missing>,
    /// Dependencies that are declared and of which nothing was read.
    pub unused: Vec<Unused>,
    /// Files that were made, are still there, and are declared nowhere.
    pub undeclared_outputs: Vec<Undeclared>,
    /// Commands that made a declared file, each with its own dependencies.
    pub steps: usize,
    /// Commands that ran another build by themselves; the files of that build are not checked.
    pub nested: usize,
}

/// A file that was read to make another one, without being declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// The file that was made.
    pub target: String,
    /// The file that was read for it.
    pub needs: String,
    /// True if the run itself made the file that was read. Then the file may be missing or half written when
    /// both are made at once. Otherwise a change to it goes unnoticed.
    pub is_race: bool,
    /// Command that read it.
    pub command: String,
    /// Process image of that command.
    pub upid: Option<i64>,
    /// Time at which it first opened the file or read its attributes, ns.
    pub first_ns: i64,
    /// Bytes read by calls.
    pub bytes: i64,
    /// True if the file is a directory, into which the command wrote.
    pub is_directory: bool,
    /// True if the file did not exist yet, and the command failed.
    pub was_absent: bool,
}

/// A declared dependency of which nothing was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Unused {
    /// The target.
    pub target: String,
    /// The file that is declared to be needed for it.
    pub needs: String,
}

/// A file that no rule declares.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Undeclared {
    /// The file.
    pub path: String,
    /// Command that made it.
    pub command: String,
}

/// Compares. `is_there` returns true if a file exists now, by its name in a rule.
pub fn check(
    declared: &Declared,
    steps: &[StepFiles],
    is_there: impl Fn(&str) -> bool,
) -> Findings {
    let target = |place: &Place| declared.target(place.path());
    let is_target = |place: &Place| target(place).is_some();
    // Commands that made each file that is no target.
    let mut maker: HashMap<&Place, Vec<usize>> = HashMap::new();
    let mut made: HashSet<&str> = HashSet::new();
    for (at, step) in steps.iter().enumerate() {
        for place in step.writes.keys() {
            made.insert(place.path());
            if !is_target(place) {
                maker.entry(place).or_default().push(at);
            }
        }
    }
    // A file is complete only when the same command has made all of it.
    let mut made_with: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, step) in steps
        .iter()
        .enumerate()
        .filter(|(_, step)| !is_build(&step.rule))
    {
        for place in step.writes.keys() {
            made_with.entry(place.path()).or_default().push(at);
        }
    }
    let mut findings = Findings {
        declared: declared.rules.len(),
        nested: steps.iter().filter(|step| is_build(&step.rule)).count(),
        ..Findings::default()
    };
    let mut checked: BTreeSet<&str> = BTreeSet::new();
    let mut read_for: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut seen: HashSet<(String, String)> = HashSet::new();
    for (at, step) in steps.iter().enumerate() {
        let targets: BTreeSet<&str> = step.writes.keys().filter_map(target).collect();
        let targets: Vec<&str> = targets.into_iter().collect();
        let is_own = |place: &Place| target(place).is_some_and(|own| targets.contains(&own));
        if targets.is_empty() || is_build(&step.rule) {
            continue;
        }
        findings.steps += 1;
        checked.extend(&targets);
        let (mut noticed, mut before) = (HashSet::new(), HashSet::new());
        for target in &targets {
            declared.reach(target, true, &mut noticed);
            declared.reach(target, false, &mut before);
        }
        // Of a command that made something: true if it has ended before this one may begin, because some of
        // its files are declared; and true if it made a target.
        let judged = |by: usize| {
            let written = || steps[by].writes.keys();
            let is_before = written().any(|place| before.contains(place.path()));
            (
                by == at || is_before || written().any(is_own),
                written().any(&is_target),
            )
        };
        let mut makers_of_it: BTreeMap<usize, (bool, bool)> = BTreeMap::new();
        for (by, place) in readings(steps, at, &maker) {
            let path = place.path();
            let makers = made_with.get(path).map_or(&[][..], Vec::as_slice);
            let links = steps[by].links.iter().map(Place::path);
            let read: Vec<&str> = links.chain([path]).collect();
            for target in &targets {
                read_for.entry(target).or_default().extend(&read);
            }
            let (mut is_after, mut of_target) = (false, false);
            for &by in makers {
                let (is_before, makes_target) =
                    *makers_of_it.entry(by).or_insert_with(|| judged(by));
                is_after |= is_before;
                of_target |= makes_target;
            }
            let is_declared = match (maker.contains_key(place), makers.is_empty()) {
                // Made by an earlier line of the recipe, or together with something that is declared.
                (true, _) => is_after || !of_target,
                (false, true) => noticed.contains(path),
                // A prerequisite that only an earlier build found does not order the commands.
                (false, false) => before.contains(path) || is_after,
            };
            // A file that is gone, while the target made from it exists, was made by the build itself, as a
            // response file.
            let is_of_build = || {
                let mut targets = targets.iter();
                makers.is_empty() && !is_there(path) && targets.any(|target| is_there(target))
            };
            let reading = steps[by].reads[place];
            if is_own(place) || is_declared || reading.is_free || is_of_build() {
                continue;
            }
            let target = targets[0].to_owned();
            if !seen.insert((target.clone(), path.to_owned())) {
                continue;
            }
            findings.missing.push(Missing {
                target,
                needs: path.into(),
                is_race: made.contains(path),
                command: steps[by].command.to_string(),
                upid: steps[by].upid,
                first_ns: reading.first_ns,
                bytes: reading.bytes,
                is_directory: false,
                was_absent: false,
            });
        }
        if let Some(missing) = missing_directory(declared, steps, at, targets[0], &before)
            && seen.insert((missing.target.clone(), missing.needs.clone()))
        {
            findings.missing.push(missing);
        }
        // All files of a command count as complete as soon as one of them is.
        for &by in makers_of_it.keys().filter(|&&by| by != at) {
            for target in &targets {
                let read = read_for.entry(target).or_default();
                read.extend(steps[by].writes.keys().map(Place::path));
            }
        }
    }
    for at in 0..steps.len() {
        findings
            .missing
            .extend(missed(declared, steps, at, (&made, &made_with)));
    }
    findings
        .missing
        .sort_by(|a, b| (!a.is_race, &a.target, &a.needs).cmp(&(!b.is_race, &b.target, &b.needs)));
    findings.checked = checked.len();
    let others = declared.rules.keys().map(String::as_str);
    let others = others.filter(|rule| !checked.contains(rule));
    let (there, absent): (Vec<&str>, Vec<&str>) =
        others.partition(|rule| made.contains(rule) || is_there(rule));
    findings.not_made = there.len();
    findings.no_files = absent.into_iter().map(String::from).collect();
    for target in &checked {
        let Some(rule) = declared.rules.get(*target) else {
            continue;
        };
        let none = BTreeSet::new();
        let read = read_for.get(target).unwrap_or(&none);
        for needs in &rule.needs {
            let real = declared.links.get(needs).unwrap_or(needs);
            let is_used = read.contains(needs.as_str())
                || read.contains(real.as_str())
                || declared.phony.contains_key(needs)
                || !declared.is_file(needs, &made);
            if !is_used {
                findings.unused.push(Unused {
                    target: (*target).into(),
                    needs: needs.clone(),
                });
            }
        }
    }
    let mut undeclared: BTreeMap<&str, &str> = BTreeMap::new();
    for step in steps {
        for (place, &lasts) in &step.writes {
            if lasts && place.is_below() && !is_target(place) {
                undeclared.entry(place.path()).or_insert(&step.command);
            }
        }
    }
    findings.undeclared_outputs = undeclared
        .into_iter()
        .map(|(path, command)| Undeclared {
            path: path.into(),
            command: command.into(),
        })
        .collect();
    findings
}

/// The directory that a step wrote into, that the command of another rule made, and that nothing declares to
/// come first: neither the directory nor a rule that may make directories is among `before`. Only the
/// innermost one is returned.
fn missing_directory(
    declared: &Declared,
    steps: &[StepFiles],
    at: usize,
    target: &str,
    before: &HashSet<&str>,
) -> Option<Missing> {
    let makers = declared.make_directories.as_ref()?;
    if makers.contains(target) || before.iter().any(|name| makers.contains(*name)) {
        return None;
    }
    let step = &steps[at];
    let maker_of = |directory: &str| {
        let earlier = steps[..at].iter();
        earlier
            .filter(|other| !is_build(&other.rule))
            .find(|other| {
                other
                    .directories
                    .iter()
                    .any(|made| made.path() == directory)
            })
    };
    let mut directories: BTreeSet<&str> = BTreeSet::new();
    for place in step.writes.keys().filter(|place| place.is_below()) {
        directories.extend(place.path().rsplit_once('/').map(|(above, _)| above));
    }
    let is_own = |directory: &str| {
        let mut own = step.directories.iter().chain(&step.checked);
        own.any(|place| place.path() == directory)
    };
    directories.into_iter().find_map(|directory| {
        let maker = maker_of(directory)?;
        // A file made together with something that is declared comes first.
        let is_before = maker
            .writes
            .keys()
            .any(|place| before.contains(place.path()));
        if is_before || is_own(directory) || before.contains(directory) {
            return None;
        }
        Some(Missing {
            target: target.into(),
            needs: directory.into(),
            is_race: true,
            command: step.command.to_string(),
            upid: step.upid,
            first_ns: step.start_ns,
            bytes: 0,
            is_directory: true,
            was_absent: false,
        })
    })
}

/// Files that a failed command did not find and that another rule makes: a rule names the file, or its
/// command made it later in the run. The target of the failed command is the file that it had begun, else a
/// name among its arguments.
fn missed(
    declared: &Declared,
    steps: &[StepFiles],
    at: usize,
    (made, made_with): (&HashSet<&str>, &HashMap<&str, Vec<usize>>),
) -> Vec<Missing> {
    let step = &steps[at];
    let rule = |name: &str| declared.target(name);
    let begun = step.writes.keys().find_map(|place| rule(place.path()));
    let named = || {
        let words = unquote(&step.command);
        words.iter().find_map(|word| {
            let is_it = |name: &&String| {
                let above = name.strip_suffix(word.as_str());
                above.is_some_and(|above| above.is_empty() || above.ends_with('/'))
            };
            let mut names = declared.rules.keys();
            let name = names.find(|name| is_it(name) && !made.contains(name.as_str()));
            name.map(String::as_str)
        })
    };
    if step.missed.is_empty() || is_build(&step.rule) {
        return Vec::new();
    }
    let Some(target) = begun.or_else(named) else {
        return Vec::new();
    };
    let mut before = HashSet::new();
    declared.reach(target, false, &mut before);
    let comes_after = |&by: &usize| {
        let mut written = steps[by].writes.keys();
        by != at && !written.any(|place| before.contains(place.path()))
    };
    let missed = step.missed.iter().filter(|(place, _)| {
        let path = place.path();
        let makers = made_with.get(path).map_or(&[][..], Vec::as_slice);
        let is_made = rule(path).is_some() || !makers.is_empty();
        let is_first = path == target || before.contains(path);
        is_made && !is_first && makers.iter().all(comes_after)
    });
    missed
        .map(|(place, &first_ns)| Missing {
            target: target.into(),
            needs: place.path().into(),
            is_race: true,
            command: step.command.to_string(),
            upid: step.upid,
            first_ns,
            bytes: 0,
            is_directory: false,
            was_absent: true,
        })
        .collect()
}

/// Files that a step read, itself and through files of other steps that are no targets, each with the step
/// that read it.
fn readings<'a>(
    steps: &'a [StepFiles],
    step: usize,
    maker: &HashMap<&Place, Vec<usize>>,
) -> Vec<(usize, &'a Place)> {
    let mut found = Vec::new();
    let mut seen = HashSet::from([step]);
    let mut left = vec![step];
    while let Some(at) = left.pop() {
        for place in steps[at].reads.keys() {
            found.push((at, place));
            for &by in maker.get(place).into_iter().flatten() {
                // Only files made before: a later one cannot have been read.
                if by < step && seen.insert(by) {
                    left.push(by);
                }
            }
        }
    }
    found
}
