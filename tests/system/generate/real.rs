//! Real workflows that ran one step after the other are reproduced from their traces with the same bytes: by
//! make with two jobs at once, and by Snakemake and cwltool where they are installed. This takes minutes:
//! `tests/long generate`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::engines::has_engine;
use super::listed;
use crate::support::process::finish;
use crate::support::{FLOWTRACE, Scratch, checkout, need_fuse, need_program, run_in, shared};

struct Workload {
    /// Its directory in the reference workloads.
    name: &'static str,
    /// Programs that it needs.
    programs: &'static [&'static str],
    /// The script here, or the reference workload's own.
    script: Option<&'static str>,
}

const MONTAGE: Workload = Workload {
    name: "montage",
    programs: &["mProject", "mDiffFit"],
    script: Some("montage.sh"),
};
const VARIANTS: Workload = Workload {
    name: "variant-calling",
    programs: &["bwa", "samtools", "bcftools", "freebayes"],
    script: Some("variants.sh"),
};
const MAP_REDUCE: Workload = Workload {
    name: "mapreduce",
    programs: &["python3", "awk"],
    script: None,
};

/// Makes the inputs, runs the workload under trace, and lets make, Snakemake and cwltool reproduce it.
fn comes_back(workload: &Workload) {
    let Some(folder) = shared(&format!("workloads/{}", workload.name)) else {
        return;
    };
    if !need_fuse()
        || !workload
            .programs
            .iter()
            .all(|program| need_program(program))
    {
        return;
    }
    let scratch = Scratch::new();
    let original = scratch.dir("original");
    let data = Command::new(folder.join("data.sh")).arg(&original).output();
    assert!(data.is_ok_and(|data| data.status.success()));
    let script = match workload.script {
        Some(name) => checkout("tests/system/generate").join(name),
        None => folder.join("run.sh"),
    };
    let command = |directory: &Path| {
        let mut command = Command::new("bash");
        command.arg(&script).current_dir(directory);
        if workload.script.is_none() {
            // One job at a time.
            command.args([".", "1"]);
        }
        command
    };
    // An untraced run in a copy, to compare times.
    let plain = copy(&scratch, &original, "plain");
    let sequential = finish(&mut command(&plain)).expect(0).duration;
    let mut run = run_in(&original, &scratch.join("trace.db"));
    run.arg("--").arg("bash").arg(&script);
    if workload.script.is_none() {
        run.args([".", "1"]);
    }
    finish(&mut run).expect(0);
    let again = |format: &str, program: &[&str]| -> (PathBuf, Duration) {
        let text = scratch.join(format);
        let mut generate = Command::new(FLOWTRACE);
        generate
            .args(["generate", "--format", format, "-o"])
            .arg(&text);
        finish(generate.arg(scratch.join("trace.db"))).expect(0);
        let directory = copy(&scratch, &original, &format!("by-{format}"));
        // Paths in the document are relative to it.
        fs::copy(&text, directory.join("specification")).unwrap();
        let mut engine = Command::new(program[0]);
        engine.args(&program[1..]).arg("specification");
        engine
            .env("HOME", scratch.dir("home"))
            .current_dir(&directory);
        let duration = finish(&mut engine).expect(0).duration;
        (directory, duration)
    };
    let expected = listed(&original.join("out"));
    assert_eq!(
        expected,
        listed(&plain.join("out")),
        "it is not the same twice by itself"
    );
    let (made, duration) = again("make", &["make", "-s", "-j2", "-f"]);
    assert!(
        expected == listed(&made.join("out")),
        "by make: {}",
        made.display()
    );
    eprintln!(
        "{}: by itself {sequential:.1?}, its Makefile with make -j2 {duration:.1?}",
        workload.name
    );
    if has_engine("snakemake") {
        let (made, duration) = again("snakemake", &["snakemake", "--quiet", "--cores", "2", "-s"]);
        assert!(
            expected == listed(&made.join("out")),
            "by snakemake: {}",
            made.display()
        );
        eprintln!("{}: snakemake {duration:.1?}", workload.name);
    }
    if has_engine("cwltool") {
        let options = [
            "cwltool",
            "--quiet",
            "--no-container",
            "--relax-path-checks",
            "--preserve-entire-environment",
        ];
        let (made, duration) = again("cwl", &options);
        let contents = |directory: &Path| -> Vec<(PathBuf, Vec<u8>)> {
            let files = listed(directory).into_iter();
            let files = files.filter(|(name, ..)| directory.join(name).is_file());
            files.map(|(name, _, _, data)| (name, data)).collect()
        };
        // Copies, so without modes, links and empty directories.
        let made = made.join("results/out");
        assert!(
            contents(&original.join("out")) == contents(&made),
            "by cwltool: {}",
            made.display()
        );
        eprintln!("{}: cwltool {duration:.1?}", workload.name);
    }
}

/// A fresh copy of the inputs.
fn copy(scratch: &Scratch, original: &Path, name: &str) -> PathBuf {
    let directory = scratch.dir(name);
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(original.join("in")).arg(&directory);
    finish(&mut copy).expect(0);
    directory
}

#[test]
#[ignore = "takes minutes"]
fn montage_from_a_plain_script() {
    comes_back(&MONTAGE);
}

#[test]
#[ignore = "takes minutes"]
fn map_and_reduce() {
    comes_back(&MAP_REDUCE);
}

#[test]
#[ignore = "takes minutes"]
fn variant_calling() {
    comes_back(&VARIANTS);
}
