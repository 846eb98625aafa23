//! Work that needs a process of its own: mappings whose page faults the test process would have to serve
//! itself, other users, limits.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::calls::{self, Mapping};
use crate::data;

/// Runs `function` of the list below in a new process with `arguments`.
pub(crate) fn run(function: &str, arguments: &[&Path]) -> Output {
    let output = command(function, arguments).output().unwrap();
    succeeded(function, &output);
    output
}

/// Asserts that a child process that ran `function` succeeded. Its output lines are marked, because otherwise
/// they would look like lines of this test binary and name a failed test.
pub(crate) fn succeeded(function: &str, output: &Output) {
    let said = [&output.stdout[..], &output.stderr].concat();
    let said = String::from_utf8_lossy(&said).replace('\n', "\n| ");
    assert!(output.status.success(), "{function}:\n| {said}");
}

pub(crate) fn command(function: &str, arguments: &[&Path]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child::entry", "--ignored", "--nocapture"])
        .env("FLOWTRACE_TEST_CHILD", function)
        .env("FLOWTRACE_TEST_COUNT", arguments.len().to_string());
    for (number, argument) in arguments.iter().enumerate() {
        command.env(format!("FLOWTRACE_TEST_{number}"), argument);
    }
    command
}

#[test]
#[ignore = "entered by other tests only"]
fn entry() {
    let Some(function) = std::env::var_os("FLOWTRACE_TEST_CHILD") else {
        return;
    };
    let variable = |name: String| std::env::var_os(name).unwrap();
    let count: usize = variable("FLOWTRACE_TEST_COUNT".into())
        .to_string_lossy()
        .parse()
        .unwrap();
    let arguments: Vec<PathBuf> = (0..count)
        .map(|number| variable(format!("FLOWTRACE_TEST_{number}")).into())
        .collect();
    call(&function, &arguments);
}

fn call(function: &OsString, arguments: &[PathBuf]) {
    match function.to_str().unwrap() {
        "shared_mapping" => shared_mapping(&arguments[0]),
        "send_whole" => data::send_whole(&arguments[0], &arguments[1]),
        "send_pieces" => data::send_pieces(&arguments[0], &arguments[1]),
        "sendfile_after_store" => sendfile_after_store(&arguments[0], &arguments[1]),
        "store_in_log" => store_in_log(&arguments[0]),
        "store" => store(&arguments[0]),
        "append" => append(&arguments[0], &arguments[1]),
        "as_user" => as_user(&arguments[0]),
        "unprivileged" => crate::users::unprivileged(&arguments[0]),
        "exhaust" => crate::limits::exhaust(),
        "open_many" => crate::limits::open_many(&arguments[0], &arguments[1]),
        "hold_open" => crate::limits::hold_open(),
        "use_open" => crate::limits::use_open(&arguments[0]),
        "relieve" => crate::limits::relieve(),
        "walk" => crate::limits::walk(&arguments[0]),
        "rename_many" => crate::limits::rename_many(),
        "read_rename_write" => crate::limits::read_rename_write(&arguments[0]),
        "fill_as_user" => crate::errors::fill_as_user(&arguments[0]),
        "make_exclusively" => crate::races::make_exclusively(&arguments[0]),
        "model" => {
            let [seen, source, plain, sequences] = [0, 1, 2, 3].map(|n| &arguments[n]);
            crate::model::run(seen, source, plain, sequences);
        }
        "storm" => crate::storm::storm(&arguments[0]),
        "storm_worker" => crate::storm::work(&arguments[0], &arguments[1], &arguments[2]),
        "reads" => crate::speed::reads(&arguments[0]),
        other => panic!("no function {other}"),
    }
}

/// Checks that stores through a mapping and reads through descriptors agree, both ways.
fn shared_mapping(path: &Path) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let other = File::open(path).unwrap();
    let length = file.metadata().unwrap().len() as usize;
    let mut mapping = Mapping::shared(&file, length);
    let mut seed = 1u64;
    for round in 0..500u64 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(round);
        let at = (seed >> 33) as usize % (length - 8);
        let value = seed.to_ne_bytes();
        let mut read = [0; 8];
        if round % 2 == 0 {
            mapping.store(at, &value);
            other.read_exact_at(&mut read, at as u64).unwrap();
        } else {
            file.write_all_at(&value, at as u64).unwrap();
            read.copy_from_slice(&mapping.load(at, 8));
        }
        assert_eq!(read, value, "round {round}");
    }
}

/// Prints the data that sendfile, splice and `copy_file_range` deliver after a store through a mapping.
fn sendfile_after_store(path: &Path, target: &Path) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let length = file.metadata().unwrap().len() as usize;
    let mut mapping = Mapping::shared(&file, length);
    let mut out = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(target)
        .unwrap();
    let mut seed = 1u64;
    let (mut stale, mut longest) = (0, Duration::ZERO);
    for round in 0..2000u64 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(round);
        let at = (seed >> 33) as usize % (length - 8);
        mapping.store(at, &seed.to_ne_bytes());
        let stored = Instant::now();
        let mut is_fresh = || {
            out.seek(SeekFrom::Start(0)).unwrap();
            match round % 8 {
                7 => calls::copy_range(&file, at as i64, &out, 8),
                _ => calls::sendfile(&out, &file, at as i64, 8),
            }
            let mut copied = [0; 8];
            out.read_exact_at(&mut copied, 0).unwrap();
            copied == seed.to_ne_bytes()
        };
        if is_fresh() {
            continue;
        }
        stale += 1;
        while !is_fresh() && stored.elapsed() < Duration::from_secs(1) {}
        longest = longest.max(stored.elapsed());
    }
    println!("\nstale {stale} {}", longest.as_micros());
}

/// Stores through a mapping; no process reads the data before it is written back.
fn store(path: &Path) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let length = file.metadata().unwrap().len() as usize;
    let mut mapping = Mapping::shared(&file, length);
    for page in 0..length / 4096 {
        mapping.store(page * 4096, b"mapped");
    }
    mapping.sync();
}

/// Stores through a mapping of a file that is open for appending, and appends.
fn store_in_log(path: &Path) {
    let mut file = File::options().read(true).append(true).open(path).unwrap();
    let mut mapping = Mapping::shared(&file, 10_000);
    mapping.store(5000, b"stored");
    mapping.sync();
    file.write_all(b"appended").unwrap();
}

fn append(path: &Path, line: &Path) {
    let mut file = File::options().append(true).open(path).unwrap();
    for _ in 0..1000 {
        file.write_all(line.as_os_str().as_encoded_bytes()).unwrap();
    }
}

/// Makes files as an ordinary user, and tries operations that are not permitted.
fn as_user(directory: &Path) {
    calls::become_user(12345, 12345);
    let make = |name: &str| directory.join(name);
    fs::write(make("file"), "x").unwrap();
    fs::create_dir(make("directory")).unwrap();
    std::os::unix::fs::symlink("file", make("link")).unwrap();
    calls::make_fifo(&make("fifo"));
    fs::write(make("setgid/file"), "x").unwrap();
    fs::create_dir(make("setgid/directory")).unwrap();
    let denied = fs::read(make("secret")).unwrap_err();
    assert_eq!(denied.raw_os_error(), Some(libc::EACCES));
    let denied = fs::write(make("closed/new"), "x").unwrap_err();
    assert_eq!(denied.raw_os_error(), Some(libc::EACCES));
    // Each of these clears set-user-id and set-group-id.
    fs::OpenOptions::new()
        .append(true)
        .open(make("suid_write"))
        .unwrap()
        .write_all(b"x")
        .unwrap();
    File::options()
        .write(true)
        .truncate(true)
        .open(make("suid_open"))
        .unwrap();
    calls::truncate(&make("suid_truncate"), 0);
    std::os::unix::fs::chown(make("suid_chown"), None, Some(12345)).unwrap();
}
