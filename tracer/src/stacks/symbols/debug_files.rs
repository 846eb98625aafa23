//! Files that have the debug information of others: by build id or by name (GDB, "Debugging Information in
//! Separate Files").

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::Object;
use object::read::ReadRef;

use super::super::elf::{self, Elf};
use super::super::files::in_our_namespace;

/// Where distributions put such files.
const DIRECTORY: &str = "/usr/lib/debug";
/// Most bytes of which a checksum is made.
const MOST_CHECKED: u64 = 1 << 30;

/// The file with the debug information of the one at `path`.
pub(super) fn debug_file<'data, R: ReadRef<'data>>(
    elf: &Elf<'data, R>,
    path: &Path,
) -> Option<File> {
    let id = elf.build_id().ok().flatten();
    if let Some(file) = id.and_then(by_build_id) {
        return Some(file);
    }
    let (name, checksum) = elf.gnu_debuglink().ok().flatten()?;
    let name = plain_name(name)?;
    let directory = path.parent()?;
    let inside = directory.strip_prefix("/").ok()?;
    let places = [
        directory.join(name),
        directory.join(".debug").join(name),
        Path::new(DIRECTORY).join(inside).join(name),
    ];
    let is_it = |file: &File| match id {
        Some(id) => elf::build_id(file).is_some_and(|own| own == id),
        None => self::checksum(file).is_some_and(|own| own == checksum),
    };
    let files = places.iter().filter(|place| *place != path);
    files
        .filter_map(|place| in_our_namespace(place))
        .find(is_it)
}

/// The file that has what the debug information of several files has in common (dwz(1)).
pub(super) fn common_file<'data, R: ReadRef<'data>>(
    elf: &Elf<'data, R>,
    path: &Path,
) -> Option<File> {
    let (name, id) = elf.gnu_debugaltlink().ok().flatten()?;
    let is_it = |file: &File| elf::build_id(file).is_some_and(|own| own == id);
    let place: PathBuf = path.parent()?.join(OsStr::from_bytes(name));
    let at_place = in_our_namespace(&place).filter(is_it);
    at_place.or_else(|| by_build_id(id))
}

fn by_build_id(id: &[u8]) -> Option<File> {
    let (first, rest) = id.split_first()?;
    if rest.is_empty() || rest.len() > 64 {
        return None;
    }
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = format!("{DIRECTORY}/.build-id/{first:02x}/{rest}.debug");
    in_our_namespace(Path::new(&path))
        .filter(|file| elf::build_id(file).is_some_and(|own| own == id))
}

fn plain_name(name: &[u8]) -> Option<&Path> {
    let is_plain = !name.is_empty() && !name.contains(&b'/') && name != b"..";
    is_plain.then(|| Path::new(OsStr::from_bytes(name)))
}

fn checksum(mut file: &File) -> Option<u32> {
    file.rewind().ok()?;
    let mut crc = flate2::Crc::new();
    let mut buffer = vec![0; 1 << 16];
    let mut all = file.take(MOST_CHECKED);
    loop {
        match all.read(&mut buffer).ok()? {
            0 => return Some(crc.sum()),
            count => crc.update(&buffer[..count]),
        }
    }
}
