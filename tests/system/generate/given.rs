//! Files and commands that a shell passed to programs: commands as files, and inputs that were not read.

use std::fs;

use super::engines::has_engine;
use super::{contents, traced};

/// A map and reduce over files.
const GIVEN: &str = r#"
set -e
mkdir -p out/parts
split -n l/3 -d in out/parts/p.
for part in out/parts/p.*; do grep -c 1 "$part" > out/n.${part##*.} || true; done
sort -m <(sort in) <(sort -r in | sort) <(sort in2) | head -n 20 > out/top
diff <(sort in) <(sort in2) > out/diff || true
paste --delimiters=, <(cut -c1 in) in > out/pasted
tee >(sort -r > out/reversed) >(wc -l > out/count) < in > /dev/null
sort in > >(tail -n 3 > out/tail)
# The shell does not wait for them.
until [ -s out/reversed ] && [ -s out/count ] && [ -s out/tail ]; do sleep 0.1; done
awk '{ s += $1 } END { print s }' out/n.* > out/total
while read -r name; do sort -r in > "out/$name"; done < list
"#;

#[test]
fn commands_given_as_files_come_back() {
    let Some(traced) = traced(GIVEN, &[], &["bash", "script"]) else {
        return;
    };
    traced.comes_back();
    let text = traced.text("make");
    for line in [
        "sort -m <(sort in) <(sort -r in | sort) <(sort in2) | head -n 20 > out/top",
        "diff <(sort in) <(sort in2) > out/diff",
        "sort in > >(tail -n 3 > out/tail)",
        "sort -r in < /dev/null > out/a",
        // The step needs the directory to exist, and its time does not matter.
        "| $(STEPS)/mkdir_1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn snakemake_runs_them() {
    if !has_engine("snakemake") {
        return;
    }
    let Some(traced) = traced(GIVEN, &[], &["bash", "script"]) else {
        return;
    };
    let copy = traced.by_engine("snakemake", "snakemake", &["--quiet", "--cores", "2", "-s"]);
    fs::remove_dir_all(copy.join(".snakemake")).unwrap();
    let _ = fs::remove_dir_all(copy.join(".flowtrace"));
    assert_eq!(contents(&traced.original), contents(&copy));
}

/// Variables that a script unset are unset again, also in a script that the first one wrote.
#[test]
fn what_was_unset_and_what_was_written_come_back() {
    let script = "unset HOME\nsort in > o\nprintf '#!/bin/sh\\nwc -l < in > made\\n' > tool.sh\n\
                  chmod +x tool.sh\n./tool.sh\ncat o > o2; ln o2 hard; (cat in > o2); sort hard > last\n";
    if let Some(traced) = traced(script, &["--env", "HOME"], &["bash", "script"]) {
        traced.comes_back();
        assert!(traced.text("make").contains("env -u HOME sort in > o"));
    }
}
