//! `flowtrace compare` on real runs: equal runs have no finding, changed ones exactly their own. The result
//! depends on timing, so it is not part of the short tests: `tests/long compare`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::process::finish;
use crate::support::{FLOWTRACE, Scratch, need_fuse, run_in};

/// Steps that compute, sort, and wait for each other.
const SCRIPT: &str = "sort -r in > sorted; gzip -9 -c in > in.gz; awk '{ s += $1 } END { print s }' in > sum\n\
                      sort in | uniq -c | tail -n 100 > last; cat sorted in > both; wc -l both > lines\n";

/// Runs the script under trace in a new directory, whose name always has the same length.
fn run(scratch: &Scratch, name: &str, script: &str, numbers: u32) {
    let work = scratch.dir(&format!("{name}.work"));
    let text: String = (1..=numbers).map(|n| format!("{n}\n")).collect();
    fs::write(work.join("in"), text).unwrap();
    fs::write(work.join("script"), script).unwrap();
    let mut run = run_in(&work, &scratch.join(format!("{name}.db")));
    finish(run.args(["--", "bash", "script"])).expect(0);
}

/// The findings as subject, name, change; and the text for people.
fn compared(scratch: &Scratch, a: &str, b: &str) -> (Vec<(String, String, String)>, String) {
    let compare = |format: &str| {
        let mut compare = Command::new(FLOWTRACE);
        compare.args(["compare", "--format", format]);
        compare.args([a, b].map(|name| scratch.join(format!("{name}.db"))));
        finish(&mut compare)
    };
    let json = compare("json");
    let found: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let found: Vec<_> = found["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| {
            let field = |name: &str| finding[name].as_str().unwrap().to_owned();
            (field("subject"), field("name"), field("change"))
        })
        .collect();
    assert_eq!(json.code(), i32::from(!found.is_empty()));
    (found, compare("text").stdout_text())
}

fn repetitions() -> u32 {
    let wished = std::env::var("FLOWTRACE_COMPARE_REPEAT").ok();
    wished.and_then(|n| n.parse().ok()).unwrap_or(20)
}

#[test]
#[ignore = "timing decides"]
fn equal_runs_have_no_finding() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    run(&scratch, "first", SCRIPT, 300_000);
    let mut wrong = Vec::new();
    for n in 0..repetitions() {
        run(&scratch, "other", SCRIPT, 300_000);
        let (found, text) = compared(&scratch, "first", "other");
        if !found.is_empty() {
            wrong.push(format!("repetition {n}: {text}"));
        }
        for name in ["other.db", "other.work"] {
            let path = scratch.join(name);
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "timing decides"]
fn a_change_is_its_finding_and_no_other() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let is_in = |path: &str| Path::new(path).extension().is_none();
    run(&scratch, "first", SCRIPT, 300_000);
    // One step is slower: awk does its work twenty times over.
    let slow = SCRIPT.replace("{ s += $1 }", "{ for (i = 0; i < 40; i++) s += $1 / 40 }");
    run(&scratch, "slow", &slow, 300_000);
    let (found, text) = compared(&scratch, "first", "slow");
    let rules: Vec<_> = found.iter().filter(|f| f.0 == "rule").collect();
    assert!(
        rules.len() == 1 && rules[0].1 == "awk" && rules[0].2 == "cpu",
        "{text}"
    );
    // One step added.
    run(
        &scratch,
        "more",
        &format!("{SCRIPT}md5sum in > md5\n"),
        300_000,
    );
    let (found, text) = compared(&scratch, "first", "more");
    let mut names: Vec<_> = found
        .iter()
        .filter(|f| is_in(&f.1) && f.1 != "script")
        .map(|f| (f.0.as_str(), f.1.as_str(), f.2.as_str()))
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [("file", "md*", "new"), ("rule", "md5sum", "new")],
        "{text}"
    );
    // One input is larger: it is named first, and only its readers read more.
    run(&scratch, "grown", SCRIPT, 600_000);
    let (found, text) = compared(&scratch, "first", "grown");
    assert_eq!(
        (
            found[0].0.as_str(),
            found[0].1.as_str(),
            found[0].2.as_str()
        ),
        ("input", "in", "size"),
        "{text}"
    );
    for rule in ["awk", "cat", "gzip", "sort"] {
        let reads = |f: &&(String, String, String)| f.1 == rule && f.2 == "reads";
        assert_eq!(found.iter().filter(reads).count(), 1, "{rule}: {text}");
    }
    let other = |f: &&(String, String, String)| f.2 == "new" || f.2 == "gone" || f.2 == "count";
    assert_eq!(found.iter().find(other), None, "{text}");
}
