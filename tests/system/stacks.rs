//! Sampled call stacks: the shares that a program counts itself, whole stacks without frame pointers, the right
//! image across an exec, as root and as an ordinary user.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use crate::support::process::finish;
use crate::support::programs::program;
use crate::support::trace::Trace;
use crate::support::user::User;
use crate::support::{
    FLOWTRACE, PYTHON, Scratch, checkout, flowtrace, missing, need_fuse, need_kernel_layer,
    need_program, need_python, prints, run_in, skip, succeeds, unwrapped,
};

const OPTIONS: &[&str] = &["-O2", "-g", "-fomit-frame-pointer"];
const FUNCTIONS: [&str; 3] = ["work_most", "work_less", "work_deep"];

/// Returns true if stacks can be sampled, as flowtrace itself finds; otherwise skips the test.
fn need_stacks() -> bool {
    let doctor = Command::new(FLOWTRACE).arg("doctor").output().unwrap();
    let found = String::from_utf8_lossy(&doctor.stdout).into_owned();
    let works = |line: &str| line.starts_with("ok") && line.contains("(--stacks)");
    found.lines().any(works) || missing("the kernel samples no call stacks")
}

/// The shares that the program printed.
fn counted(output: &str) -> HashMap<String, f64> {
    let words: Vec<&str> = output.split_whitespace().collect();
    let pairs = words.chunks_exact(2);
    pairs
        .map(|pair| (pair[0].to_owned(), pair[1].parse().unwrap()))
        .collect()
}

/// Compares the samples in each function with its counted share: they differ by chance.
fn compare(trace: &Trace, output: &str) {
    let rows = trace.rows("SELECT function, COUNT(*) FROM stack_samples GROUP BY function");
    let count = |row: &Vec<String>| row[1].parse::<f64>().unwrap();
    let all: f64 = rows.iter().map(count).sum();
    assert!(all > 150.0, "{rows:?}");
    let counted = counted(output);
    for name in FUNCTIONS {
        let own: f64 = rows.iter().filter(|row| row[0] == name).map(count).sum();
        let share = counted[name];
        let chance = (share * (1.0 - share) / all).sqrt();
        assert!(
            (own / all - share).abs() < 0.01 + 4.0 * chance,
            "{name}: {share} counted, {own} of {all} sampled: {rows:?}"
        );
    }
    // Before `main` a process is in the exec and in the loader.
    let reaching = |outermost: &str| -> i64 {
        trace.one(&format!(
            "WITH RECURSIVE outer (sample, caller_id, function) AS (
               SELECT s.rowid, k.caller_id, k.function
               FROM stack_sample AS s JOIN stacks AS k USING (stack_id)
               UNION ALL
               SELECT sample, k.caller_id, k.function
               FROM outer JOIN stacks AS k ON k.stack_id = outer.caller_id),
             working (sample) AS (SELECT sample FROM outer WHERE function GLOB 'work_*')
             SELECT COUNT(DISTINCT sample) FROM outer
             WHERE function = '{outermost}' AND sample IN (SELECT sample FROM working)"
        ))
    };
    let (whole, cut) = (reaching("main"), reaching("[incomplete]"));
    assert!(
        whole as f64 >= 0.9 * all && cut as f64 <= 0.02 * all,
        "of {all} samples {whole} reach main, {cut} are incomplete"
    );
}

#[test]
fn samples_are_where_the_time_was_spent() {
    if !need_fuse() || !need_stacks() {
        return;
    }
    let Some(hot) = program("hot", OPTIONS) else {
        return;
    };
    let scratch = Scratch::new();
    let path = scratch.join("t.db");
    let mut run = run_in(&scratch, &path);
    let output = finish(run.args(["--stacks", "--"]).arg(&hot).arg("3")).expect(0);
    let trace = Trace::open(&path);
    compare(&trace, &output.stdout_text());
    let lines = trace.rows(
        "SELECT DISTINCT file LIKE '%/hot.c', line > 0, symbols FROM frames WHERE function = 'work_deep'",
    );
    assert_eq!(lines, [["1", "1", "dwarf"]]);
    let summary = unwrapped(&prints(&scratch, &["summary", "t.db"]));
    assert!(summary.contains(" in work_most (hot.c:"), "{summary}");
    let limiting = prints(&scratch, &["bottlenecks", "t.db"]);
    assert!(limiting.contains(" in work_most (hot.c:"), "{limiting}");
    let folded = prints(&scratch, &["critical-path", "t.db", "--stacks"]);
    assert!(
        folded.lines().any(|line| line.contains(";main;work_most ")),
        "{folded}"
    );
    let deep = format!(";main;{}", "work_deep;".repeat(30));
    assert!(folded.contains(&deep), "{folded}");
}

/// The stacks of threads that waited: the shares of the time that the program counts itself, up to its own function.
#[test]
fn waits_are_where_the_time_was_spent() {
    if !need_kernel_layer() || !need_stacks() {
        return;
    }
    let Some(waits) = program("waits", OPTIONS) else {
        return;
    };
    let scratch = Scratch::new();
    let path = scratch.join("t.db");
    let mut run = Command::new(FLOWTRACE);
    run.current_dir(&*scratch);
    run.args(["run", "-o", "t.db", "--stacks", "--"]);
    let output = finish(run.arg(&waits).arg("4")).expect(0).stdout_text();
    let trace = Trace::open(&path);
    let seconds_in = |function: &str| -> f64 {
        trace.one::<f64>(&format!(
            "WITH RECURSIVE outer (at, caller_id, function) AS (
               SELECT s.rowid, k.caller_id, k.function FROM stack_wait AS s JOIN stacks AS k USING (stack_id)
               UNION ALL
               SELECT at, k.caller_id, k.function FROM outer JOIN stacks AS k ON k.stack_id = outer.caller_id)
             SELECT COALESCE(SUM(blocked_us), 0) / 1e6 FROM stack_wait
             WHERE at IN (SELECT at FROM outer WHERE function = '{function}')"
        ))
    };
    let main = seconds_in("main");
    assert!((3.5..4.1).contains(&main), "{main} s in main");
    for (name, share) in counted(&output) {
        let sampled = seconds_in(&name) / main;
        assert!(
            (sampled - share).abs() < 0.05,
            "{name}: {share} counted, {sampled} sampled"
        );
    }
    let folded = prints(&scratch, &["export", "t.db", "folded", "--waits"]);
    assert!(folded.contains(";main;wait_for_data;"), "{folded}");
    assert!(folded.contains(";writes;"), "{folded}");
}

#[test]
fn an_ordinary_user_samples_the_command() {
    if !need_fuse() || !need_stacks() || !need_program("setpriv") {
        return;
    }
    let Some(hot) = program("hot", OPTIONS) else {
        return;
    };
    let paranoid =
        std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if paranoid.trim().parse().is_ok_and(|level: i32| level > 2) {
        missing("perf_event_paranoid is above 2");
        return;
    }
    let scratch = Scratch::new();
    let user = User::new(&scratch);
    let own = user.home.join("hot");
    std::fs::copy(&hot, &own).unwrap();
    let mut run = user.command(&user.flowtrace);
    run.current_dir(&user.home)
        .args([
            "run",
            "--quiet",
            "--no-summary",
            "--stacks",
            "-o",
            "t.db",
            "--",
        ])
        .arg(&own)
        .arg("3");
    let output = finish(&mut run).expect(0);
    let trace = Trace::open(&user.home.join("t.db"));
    compare(&trace, &output.stdout_text());
}

/// A page with the functions of each step, used as a person would; and every format for other programs.
#[test]
fn the_samples_can_be_seen() {
    if !need_fuse() || !need_stacks() {
        return;
    }
    let Some(hot) = program("hot", OPTIONS) else {
        return;
    };
    let scratch = Scratch::new();
    let path = scratch.join("t.db");
    let mut run = run_in(&scratch, &path);
    finish(run.args(["--stacks", "--"]).arg(&hot).arg("1")).expect(0);
    let text = |format: &str| prints(&scratch, &["export", "t.db", format]);
    let speedscope: serde_json::Value = serde_json::from_str(&text("speedscope")).unwrap();
    let profile = &speedscope["profiles"][0];
    let samples = profile["samples"].as_array().unwrap().len();
    assert_eq!(profile["weights"].as_array().unwrap().len(), samples);
    let weights = profile["weights"].as_array().unwrap().iter();
    let time: u64 = weights.map(|weight| weight.as_u64().unwrap()).sum();
    let folded: u64 = text("folded")
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum();
    assert!(
        folded.abs_diff(time / 1000) <= samples as u64,
        "{folded} µs of {time} ns"
    );
    let firefox: serde_json::Value = serde_json::from_str(&text("firefox")).unwrap();
    let threads = firefox["threads"].as_array().unwrap();
    let lengths = threads
        .iter()
        .map(|thread| thread["samples"]["length"].as_u64());
    assert_eq!(lengths.map(Option::unwrap).sum::<u64>() as usize, samples);
    for format in ["pprof", "perfetto"] {
        let output = flowtrace(&scratch, &["export", "t.db", format]);
        let name = b"work_most";
        assert!(
            output.stdout.windows(name.len()).any(|part| part == name),
            "{format}"
        );
    }
    prints(&scratch, &["report", "t.db", "-o", "t.html"]);
    if !need_python("json") {
        return;
    }
    if !succeeds("chromium", &["--version"]) {
        return skip("no Chromium");
    }
    let mut browser = Command::new(PYTHON);
    browser
        .arg("-B")
        .arg(checkout("tests/browser/flame.py"))
        .arg(scratch.join("t.html"));
    finish(&mut browser).expect(0);
}

#[test]
fn two_runs_are_compared_by_function() {
    if !need_fuse() || !need_stacks() {
        return;
    }
    let Some(hot) = program("hot", OPTIONS) else {
        return;
    };
    let scratch = Scratch::new();
    for (trace, seconds) in [("a.db", "0.7"), ("b.db", "2")] {
        let mut run = run_in(&scratch, &scratch.join(trace));
        finish(run.args(["--stacks", "--"]).arg(&hot).arg(seconds)).expect(0);
    }
    let compare =
        |format: &str| flowtrace(&scratch, &["compare", "a.db", "b.db", "--format", format]);
    let text = String::from_utf8(compare("text").stdout).unwrap();
    let line = text
        .lines()
        .find(|line| line.contains("function work_most in hot"));
    assert!(
        line.is_some_and(|line| line.contains(" on CPU (+")),
        "{text}"
    );
    let page = String::from_utf8(compare("html").stdout).unwrap();
    assert!(
        page.contains("differential flame graph") && page.contains("work_deep: "),
        "{page}"
    );
}

/// A process that runs two programs, many times: each sample belongs to the image whose program it was in.
#[test]
fn samples_belong_to_the_right_image_across_an_exec() {
    if !need_fuse() || !need_stacks() {
        return;
    }
    let Some(hot) = program("hot", OPTIONS) else {
        return;
    };
    let scratch = Scratch::new();
    for name in ["first", "second"] {
        std::fs::copy(&hot, scratch.join(name)).unwrap();
    }
    let path = scratch.join("t.db");
    let script =
        "i=0; while [ $i -lt 250 ]; do ./first 0.005 ./second 0.005 > /dev/null; i=$((i+1)); done";
    let mut run = run_in(&scratch, &path);
    finish(run.args(["--stacks", "--", "sh", "-c", script])).expect(0);
    let trace = Trace::open(&path);
    let rows = trace.rows(
        "SELECT p.exe GLOB '*/first', s.module GLOB '*/first', COUNT(*)
         FROM stack_samples AS s LEFT JOIN processes AS p USING (upid)
         WHERE s.module GLOB '*/first' OR s.module GLOB '*/second' GROUP BY 1, 2",
    );
    let right = |is_first: &str| {
        let mut own = rows
            .iter()
            .filter(|row| row[0] == is_first && row[1] == is_first);
        own.next().map_or(0, |row| row[2].parse().unwrap())
    };
    assert_eq!(rows.len(), 2, "{rows:?}");
    let (first, second): (i64, i64) = (right("1"), right("0"));
    assert!(first > 60 && second > 60, "{rows:?}");
}

#[test]
fn a_stripped_program_says_so() {
    if !need_fuse() || !need_stacks() {
        return;
    }
    let Some(hot) = program("hot", &["-O2", "-fomit-frame-pointer", "-s"]) else {
        return;
    };
    let scratch = Scratch::new();
    let path = scratch.join("t.db");
    let mut run = run_in(&scratch, &path);
    finish(run.args(["--stacks", "--"]).arg(&hot).arg("1")).expect(0);
    let trace = Trace::open(&path);
    let symbols: String = trace.one("SELECT symbols FROM stack_module WHERE path GLOB '*/hot*'");
    assert!(["none", "dynsym"].contains(&&*symbols), "{symbols}");
    let named: i64 = trace.one(
        "SELECT COUNT(DISTINCT function) FROM stack_samples WHERE function GLOB '*/hot*+0x*' OR function GLOB 'hot*+0x*'",
    );
    // The functions are still distinguished by the places where they begin.
    assert!((3..=6).contains(&named), "{named}");
    let summary = unwrapped(&prints(&scratch, &["summary", "t.db"]));
    assert!(summary.contains("stripped)"), "{summary}");
}

/// Lines come from a file beside the program: all debug information (`.gnu_debuglink`), or most of it (`.dwo`).
#[test]
fn debug_information_may_be_in_another_file() {
    if !need_fuse() || !need_stacks() || !need_program("cc") || !need_program("objcopy") {
        return;
    }
    let commands = [
        "cc -O2 -g HOT -o hot && objcopy --only-keep-debug hot hot.debug &&
         objcopy --strip-debug --add-gnu-debuglink=hot.debug hot",
        "cc -O2 -g -gsplit-dwarf HOT -o hot && ls *.dwo",
    ];
    for command in commands {
        let scratch = Scratch::new();
        let source = checkout("tests/programs/hot.c").display().to_string();
        let mut build = Command::new("sh");
        build.current_dir(&*scratch).env("HOT", source);
        finish(build.args(["-ec", &command.replace("HOT", "\"$HOT\"")])).expect(0);
        let path = scratch.join("t.db");
        let mut run = run_in(&scratch, &path);
        finish(run.args(["--stacks", "--", "./hot", "0.5"])).expect(0);
        let lines = Trace::open(&path).rows(
            "SELECT DISTINCT symbols, file LIKE '%/hot.c', line > 0 FROM frames
             WHERE function = 'work_most'",
        );
        assert_eq!(lines, [["dwarf", "1", "1"]], "{command}");
    }
}

#[test]
fn only_programs_of_the_name_are_sampled() {
    if !need_fuse() || !need_stacks() {
        return;
    }
    let Some(hot) = program("hot", OPTIONS) else {
        return;
    };
    let scratch = Scratch::new();
    for name in ["first", "second"] {
        std::fs::copy(&hot, scratch.join(name)).unwrap();
    }
    let path = scratch.join("t.db");
    let mut run = run_in(&scratch, &path);
    let command = ["--stacks=sec*", "--", "./first", "0.3", "./second", "0.3"];
    finish(run.args(command)).expect(0);
    let modules = modules(&path);
    assert!(
        modules.iter().any(|module| module.ends_with("/second")),
        "{modules:?}"
    );
    assert!(
        !modules.iter().any(|module| module.ends_with("/first")),
        "{modules:?}"
    );
}

fn modules(path: &Path) -> Vec<String> {
    let rows = Trace::open(path)
        .rows("SELECT DISTINCT module FROM stack_samples WHERE module IS NOT NULL");
    rows.into_iter().map(|row| row[0].clone()).collect()
}
