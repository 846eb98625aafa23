//! The same random operations on the mount and on a plain directory: the results, the errors and the final
//! trees must be the same.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::mounted::{Mounted, Way};
use crate::random::Random;
use crate::{child, long};

mod steps;

use steps::{Side, describe, runs, step};

/// Number of sequences, unless FLOWTRACE_MODEL_SEQUENCES is set.
const SEQUENCES: u64 = 200;
const STEPS: usize = 60;

/// Everything below a directory: attributes and content.
fn tree(directory: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{prefix}/{}", path.file_name().unwrap().to_string_lossy());
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = if metadata.is_file() {
            runs(&fs::read(&path).unwrap())
        } else {
            String::new()
        };
        found.insert(name.clone(), describe(&path).unwrap() + &content);
        if metadata.is_dir() {
            tree(&path, &name, found);
        }
    }
}

#[test]
fn the_mount_behaves_as_a_plain_directory() {
    let sequences = long::number("FLOWTRACE_MODEL_SEQUENCES", SEQUENCES);
    for way in Way::ALL {
        let Some(mounted) = Mounted::new(way.options()) else {
            return;
        };
        let plain = mounted.trace.with_file_name("plain");
        fs::create_dir(&plain).unwrap();
        let sequences = sequences.to_string();
        let sequences = Path::new(&sequences);
        child::run(
            "model",
            &[&mounted.seen, &mounted.source, &plain, sequences],
        );
    }
}

/// Entered through `child`: the pages of a mapping must not be served by this process.
pub(crate) fn run(seen: &Path, source: &Path, plain: &Path, sequences: &Path) {
    let sequences: u64 = sequences.to_str().unwrap().parse().unwrap();
    for sequence in 0..sequences {
        let below = |top: &Path| top.join(sequence.to_string());
        let [seen, source, plain] = [below(seen), below(source), below(plain)];
        fs::create_dir(&seen).unwrap();
        fs::create_dir(&plain).unwrap();
        let sides = [Side::new(&seen, &source), Side::new(&plain, &plain)];
        compare(sequence, sides);
        // Otherwise the names of thousands of sequences would be kept.
        fs::remove_dir_all(&seen).unwrap();
        fs::remove_dir_all(&plain).unwrap();
    }
}

fn compare(sequence: u64, [mut ours, mut theirs]: [Side<'_>; 2]) {
    let mut random = Random(sequence);
    let mut history = Vec::new();
    for _ in 0..STEPS {
        let step = step(&mut random);
        history.push(step.clone());
        let (ours, theirs) = (ours.run(&step), theirs.run(&step));
        assert_eq!(ours, theirs, "sequence {sequence} after {history:#?}");
    }
    let [ours, theirs] = [ours.top(), theirs.top()].map(|top| {
        let mut found = BTreeMap::new();
        tree(top, "", &mut found);
        found
    });
    assert_eq!(ours, theirs, "sequence {sequence}: {history:#?}");
}
