//! Calls that move no data, in the current directory: the worst case of a filesystem in user
//! space. This program is its own workload, started again with [`argv`].

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

const ARGUMENT: &str = "--metadata-storm";
const DIRECTORIES: usize = 10;

/// What the storm does to each file, in this order.
pub(crate) const PARTS: [&str; 5] = ["create", "stat", "absent", "readdir", "unlink"];

/// The command line of a storm over `files` files.
pub(crate) fn argv(own: &str, files: usize) -> Vec<String> {
    vec![own.to_owned(), ARGUMENT.to_owned(), files.to_string()]
}

/// How many files, when the arguments are those of [`argv`].
pub(crate) fn asked_for(arguments: &[String]) -> Option<usize> {
    match arguments {
        [argument, files] if argument == ARGUMENT => files.parse().ok(),
        _ => None,
    }
}

/// Seconds of each part, from what [`run`] printed.
pub(crate) fn parts(said: &[u8]) -> Result<Vec<f64>, String> {
    let said = String::from_utf8_lossy(said);
    let seconds: Result<Vec<f64>, _> = said.split_ascii_whitespace().map(str::parse).collect();
    match seconds {
        Ok(seconds) if seconds.len() == PARTS.len() => Ok(seconds),
        _ => Err(format!("the storm said {said:?}")),
    }
}

/// The storm itself; prints the seconds of each part.
pub(crate) fn run(files: usize) {
    let name = |i: usize| PathBuf::from(format!("d{}/f{i}", i % DIRECTORIES));
    for d in 0..DIRECTORIES {
        fs::create_dir(format!("d{d}")).expect("mkdir");
    }
    let mut seconds = Vec::new();
    let mut part = |work: &dyn Fn()| {
        let start = Instant::now();
        work();
        seconds.push(start.elapsed().as_secs_f64());
    };
    part(&|| {
        for i in 0..files {
            fs::File::create(name(i)).expect("create");
        }
    });
    part(&|| {
        for i in 0..files {
            assert_eq!(fs::metadata(name(i)).expect("stat").len(), 0);
        }
    });
    part(&|| {
        for i in 0..files {
            assert!(fs::metadata(format!("absent{i}")).is_err());
        }
    });
    part(&|| {
        let list = |d| fs::read_dir(format!("d{d}")).expect("readdir").count();
        assert_eq!((0..DIRECTORIES).map(list).sum::<usize>(), files);
    });
    part(&|| {
        for i in 0..files {
            fs::remove_file(name(i)).expect("unlink");
        }
    });
    for d in 0..DIRECTORIES {
        fs::remove_dir(format!("d{d}")).expect("rmdir");
    }
    for seconds in seconds {
        println!("{seconds}");
    }
}
