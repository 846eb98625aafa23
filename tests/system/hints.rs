//! Lines of the summary that report what was not recorded, or how a program could run better.

use std::fs;

use crate::support::process::finish;
use crate::support::{Scratch, need_fuse, need_program, prints, run_in, unwrapped};

/// The summary of a run of this command in a directory with a file of 4 MB.
fn summary(command: &[&str]) -> Option<String> {
    if !(need_fuse() && need_program("python3")) {
        return None;
    }
    let scratch = Scratch::new();
    let work = scratch.dir("work");
    fs::write(work.join("data"), vec![b'x'; 4_000_000]).unwrap();
    let mut run = run_in(&work, &scratch.join("trace.db"));
    finish(run.arg("--").args(command)).expect(0);
    Some(unwrapped(&prints(&scratch, &["summary", "trace.db"])))
}

#[test]
fn many_tiny_writes_are_a_finding_with_its_gain() {
    let loop_ = "import sys\nfor i in range(200000): sys.stdout.write('ab\\n')";
    let script = |option: &str| format!("python3 {option} -c \"{loop_}\" | wc -l > n");
    for (option, is_found) in [("-u", true), ("-E", false)] {
        let Some(text) = summary(&["sh", "-c", &script(option)]) else {
            return;
        };
        let found = "makes 200 k tiny writes, 3 B each";
        assert_eq!(text.contains(found), is_found, "{option}: {text}");
    }
}

/// Other work in the kernel is no time of tiny reads.
#[test]
fn tiny_reads_cost_no_more_than_they_took() {
    let reads = "import mmap, os\nfd = os.open('data', os.O_RDONLY)\n\
                 for i in range(3000): os.read(fd, 20)\n\
                 for i in range(4):\n m = mmap.mmap(-1, 200 << 20)\n\
                 \x20for at in range(0, 200 << 20, 4096): m[at] = 1";
    if let Some(text) = summary(&["python3", "-c", reads]) {
        assert!(!text.contains("tiny reads"), "{text}");
    }
}

/// A shell gets the output of each run, itself or through cat, and may give it to the next.
#[test]
fn runs_whose_output_the_shell_read_are_not_to_run_in_parallel() {
    let work = "import sys, time\nwhile time.process_time() < 0.4: pass\nprint(len(sys.argv))";
    let run = format!("python3 -c '{work}'");
    let chains = [
        format!("a=$({run}); b=$({run} $a); c=$({run} $b); echo $c > out"),
        format!("{run} > a; {run} $(cat a) > b; {run} $(cat b) > c"),
    ];
    for chain in chains {
        let Some(text) = summary(&["sh", "-c", &chain]) else {
            return;
        };
        let is_promised = text.contains("in parallel") || text.contains("side by side");
        assert!(!is_promised, "{text}");
    }
    let free = format!("for i in 1 2 3; do {run} $i > o$i; done; cat o1 o2 o3 > all");
    // On a busy machine nothing may be promised at all.
    let found = summary(&["sh", "-c", &free]);
    if let Some(text) = found.filter(|text| text.contains("side by side")) {
        assert!(
            text.contains("0 pairs of them must stay in order"),
            "{text}"
        );
    }
}

#[test]
fn a_pause_beside_another_one_saves_the_difference() {
    let pauses = "sleep 1.2 & sleep 1.0 & sleep 0.8 & wait";
    if let Some(text) = summary(&["sh", "-c", pauses]) {
        assert!(text.contains("remove sleep 1.2 from sh -c"), "{text}");
        assert!(text.contains("→ 1.0 s"), "{text}");
    }
}

#[test]
fn a_failed_step_names_the_file_that_it_could_not_open() {
    if !(need_fuse() && need_program("python3") && need_program("gcc")) {
        return;
    }
    let scratch = Scratch::new();
    let work = scratch.dir("work");
    fs::write(work.join("a.c"), "#include \"stdio.h\"\nint main(\n").unwrap();
    fs::write(work.join("in"), "1\n").unwrap();
    // The last two fail for another reason: a header that is found elsewhere, settings that nobody needs.
    let script = "sort /no/such/ids\npython3 -c 'open(\"config.json\")'\npython3 -c 'open(\"in/x\")'\n\
                  gcc -c a.c\npython3 -c 'import os; os.path.exists(\".settings\"); exit(5)'\nexit 7";
    let mut run = run_in(&work, &scratch.join("trace.db"));
    finish(run.args(["--", "sh", "-c", script])).expect(7);
    let facts = prints(&scratch, &["summary", "trace.db", "--format", "json"]);
    let facts: serde_json::Value = serde_json::from_str(&facts).unwrap();
    let failures = facts["failures"].as_array().unwrap().iter();
    let mut endings: Vec<&str> = failures
        .map(|one| one["ending"].as_str().unwrap())
        .collect();
    endings.sort_unstable();
    endings.dedup();
    let expected = [
        "exit 1",
        "exit 1 (config.json: no such file)",
        "exit 1 (in/x: not a directory)",
        "exit 2 (/no/such/ids: no such file)",
        "exit 5",
        "exit 7",
    ];
    assert_eq!(endings, expected);
    let failed = prints(
        &scratch,
        &["stats", "trace.db", "failed", "--format", "csv"],
    );
    let rows: Vec<&str> = failed.lines().skip(1).collect();
    assert!(failed.contains("/no/such/ids"), "{failed}");
    let of_failed = |row: &&&str| row.split(',').nth_back(1) != Some("0");
    let first = rows.iter().take_while(of_failed).count();
    assert!(
        first > 0 && rows[first..].iter().all(|row| !of_failed(&row)),
        "{failed}"
    );
}

#[test]
fn what_is_read_by_mapping_after_a_small_read_is_said() {
    let reads = "import mmap\nf = open('data', 'rb')\nf.read(4096)\n\
                 m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\nprint(sum(m[::4096]))";
    if let Some(text) = summary(&["python3", "-c", reads]) {
        assert!(
            text.contains("1 of 1 file read by calls only in part"),
            "{text}"
        );
        let rest = text.split("only in part; the other ").nth(1).unwrap();
        assert!(rest.contains(": mapped into memory"), "{text}");
    }
    if let Some(text) = summary(&["head", "-c", "300", "data"]) {
        // A mount does not see mappings.
        let seen = match text.contains("every file call under") {
            true => ": mapped into memory, or not used",
            false => ": not used",
        };
        let rest = text.split("only in part; the other ").nth(1).unwrap();
        assert!(rest.contains(seen), "{text}");
    }
    if let Some(text) = summary(&["sh", "-c", "cat data > copy"]) {
        assert!(!text.contains("mapped into memory"), "{text}");
    }
}

#[test]
fn data_outside_of_the_traced_directories_names_the_option() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let (work, data) = (scratch.dir("work"), scratch.dir("data"));
    fs::write(data.join("in"), vec![b'x'; 4_000_000]).unwrap();
    let script = format!("sort {0}/in > {0}/out", data.display());
    let run = |options: &[&str]| {
        let mut run = run_in(&work, &scratch.join("trace.db"));
        run.args(["--force", "--layer", "fuse"]).args(options);
        finish(run.args(["--", "sh", "-c", &script])).expect(0);
        unwrapped(&prints(&scratch, &["summary", "trace.db"]))
    };
    let text = run(&[]);
    let hint = format!("flowtrace run --dir {}", data.display());
    assert!(text.contains(&hint), "{text}");
    let text = run(&["--dir", data.to_str().unwrap()]);
    assert!(!text.contains("flowtrace run --dir"), "{text}");
    assert!(text.contains("read 4.0 MB"), "{text}");
}
