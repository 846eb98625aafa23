//! Files of capacities.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::capacity::{Capacities, host_name};
use crate::failure::Failure;

/// The format that every file of capacities names.
pub(super) const FORMAT: &str = "flowtrace capacities";
/// A file of capacities is smaller than this, bytes.
const MOST: u64 = 64 << 10;

/// The default file: one for each host, in the user's data directory.
pub(crate) fn default_path() -> Option<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let data = set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share")))?;
    let host = host_name()?;
    Some(
        data.join("flowtrace")
            .join(format!("capacities-{host}.json")),
    )
}

/// Reads a file of capacities. Reads no more than the longest such file, and never from a device.
pub(crate) fn read(path: &Path) -> Result<Capacities, Failure> {
    let cannot = |why: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "cannot read capacities from {}: {why}",
            path.display()
        ))
        .hint("flowtrace calibrate -o FILE measures them")
    };
    let metadata = fs::metadata(path).map_err(|error| cannot(&error))?;
    if !metadata.is_file() {
        return Err(cannot(&"it is no regular file"));
    }
    let file = File::open(path).map_err(|error| cannot(&error))?;
    let mut text = String::new();
    file.take(MOST)
        .read_to_string(&mut text)
        .map_err(|error| cannot(&error))?;
    let found: Capacities = serde_json::from_str(&text).map_err(|error| cannot(&error))?;
    if found.format != FORMAT {
        return Err(cannot(&"it contains something else"));
    }
    Ok(found)
}

/// Writes capacities: to a new file, or over a file of capacities. Any other file is refused.
pub(crate) fn write(path: &Path, capacities: &Capacities) -> Result<(), Failure> {
    let refuse = |why: &str| {
        Failure::usage(format!("will not write {}: {why}", path.display()))
            .hint("name a new file with -o")
    };
    let cannot = |error: io::Error| {
        Failure::new(1, format!("cannot write {}: {error}", path.display()))
            .hint("name another file with -o")
    };
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() => return Err(refuse("it is no regular file")),
        Ok(_) if read(path).is_err() => {
            return Err(refuse("it is there already and contains something else"));
        }
        _ => {}
    }
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        fs::create_dir_all(above).map_err(cannot)?;
    }
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(part);
    let text = serde_json::to_string_pretty(capacities)
        .map_err(io::Error::from)
        .map_err(cannot)?;
    let written = File::create_new(&part)
        .and_then(|mut file| writeln!(file, "{text}"))
        .and_then(|()| fs::rename(&part, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&part);
        cannot(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Capacities {
        Capacities {
            format: FORMAT.into(),
            host: "here".into(),
            ..Capacities::default()
        }
    }

    #[test]
    fn what_is_written_reads_back_and_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("below/capacities.json");
        write(&path, &some()).unwrap();
        write(&path, &some()).unwrap();
        assert_eq!(read(&path).unwrap().host, "here");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn devices_and_other_files_are_left_alone() {
        assert!(write(Path::new("/dev/full"), &some()).is_err());
        assert!(read(Path::new("/dev/zero")).is_err());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("thesis.txt");
        fs::write(&path, "all my work").unwrap();
        assert!(write(&path, &some()).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"all my work");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/dev/full", &link).unwrap();
        assert!(write(&link, &some()).is_err());
    }
}
