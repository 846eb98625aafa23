//! Speed of the filesystem. Run in release mode, alone:
//! `cargo test --release -p flowtrace-tracer --test fs speed -- --ignored --nocapture`

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use crate::child;
use crate::mounted::{Mounted, Options, Way};

#[test]
#[ignore = "a measurement, not a check"]
fn measure() {
    let native = tempfile::tempdir_in("/tmp").unwrap();
    prepare(native.path());
    eprint!("native: ");
    show(native.path());
    for way in Way::ALL {
        for log in [false, true] {
            let Some(mounted) = Mounted::new(Options {
                log,
                ..way.options()
            }) else {
                return;
            };
            prepare(&mounted.source);
            eprint!("{:?}, log {log}: ", mounted.layer());
            show(&mounted.seen);
        }
    }
}

fn prepare(directory: &Path) {
    fs::write(directory.join("data"), vec![1; 16 << 20]).unwrap();
}

fn show(directory: &Path) {
    let output = child::run("reads", &[directory]);
    let text = String::from_utf8(output.stdout).unwrap();
    let figures: Vec<_> = text
        .lines()
        .filter(|line| line.contains(" per s"))
        .collect();
    eprintln!("{}", figures.join("; "));
}

/// Entered through `child`.
pub(crate) fn reads(directory: &Path) {
    let file = File::open(directory.join("data")).unwrap();
    println!();
    for (size, count) in [(4096, 60_000u64), (1 << 20, 1500)] {
        let mut buffer = vec![0; size];
        let mut seed = 1u64;
        let start = Instant::now();
        for _ in 0..count {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            let block = (seed >> 33) % ((16 << 20) / size as u64);
            file.read_exact_at(&mut buffer, block * size as u64)
                .unwrap();
        }
        per_second(&format!("reads of {size}"), count, start);
    }
    let start = Instant::now();
    for _ in 0..5000 {
        fs::metadata(directory.join("data")).unwrap();
    }
    per_second("stat", 5000, start);
    let start = Instant::now();
    for number in 0..2000 {
        let path = directory.join(format!("new{number}"));
        fs::write(&path, "content").unwrap();
        fs::remove_file(path).unwrap();
    }
    per_second("create+write+remove", 2000, start);
}

fn per_second(what: &str, count: u64, start: Instant) {
    println!(
        "{what} {:.0} per s",
        count as f64 / start.elapsed().as_secs_f64()
    );
}
