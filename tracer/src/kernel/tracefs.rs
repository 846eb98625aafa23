//! Description of a tracepoint in tracefs: its number, and the offsets of its fields.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

/// Usual mount points.
const USUAL: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// An open tracefs.
#[derive(Debug)]
pub(super) struct TraceFs(OwnedFd);

/// A field of a tracepoint's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) offset: usize,
    pub(super) size: usize,
}

/// A tracepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// Its number, which is also in each of its records.
    pub(super) id: u64,
    fields: Vec<(String, Field)>,
}

impl TraceFs {
    /// Opens the mounted tracefs, or a private mount of it.
    ///
    /// # Errors
    /// When the kernel has none, or it may not be opened.
    pub(super) fn open() -> io::Result<TraceFs> {
        for place in USUAL {
            if Path::new(place).join("events").is_dir() {
                return Ok(TraceFs(File::open(place)?.into()));
            }
        }
        Ok(TraceFs(mount_privately()?))
    }

    /// Reads the format of tracepoint `name`, as in `raw_syscalls/sys_enter`.
    pub(super) fn format(&self, name: &str) -> io::Result<Format> {
        // Relative to the descriptor: a private mount has no path.
        let path = format!("/proc/self/fd/{}/events/{name}/format", self.0.as_raw_fd());
        let mut text = String::new();
        File::open(path)?.read_to_string(&mut text)?;
        Format::parse(&text)
            .ok_or_else(|| io::Error::other(format!("the format of tracepoint {name} is unknown")))
    }
}

impl Format {
    /// The text of a `format` file.
    pub(super) fn parse(text: &str) -> Option<Format> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?;
        let fields = text.lines().filter_map(|line| {
            let declaration = line.trim_start().strip_prefix("field:")?;
            let mut parts = declaration.split(';').map(str::trim);
            let name = parts.next()?.split_ascii_whitespace().next_back()?;
            // `unsigned long args[6]` is the field `args`.
            let name = name.split('[').next()?.to_owned();
            let mut number =
                |key: &str| -> Option<usize> { parts.next()?.strip_prefix(key)?.parse().ok() };
            let offset = number("offset:")?;
            let size = number("size:")?;
            Some((name, Field { offset, size }))
        });
        Some(Format {
            id: id.trim().parse().ok()?,
            fields: fields.collect(),
        })
    }

    /// Field `name` if it has `size` bytes.
    pub(super) fn field(&self, name: &str, size: usize) -> io::Result<Field> {
        let found = self.fields.iter().find(|(known, _)| known == name);
        let found = found.map(|(_, field)| *field);
        found.filter(|field| field.size == size).ok_or_else(|| {
            io::Error::other(format!(
                "tracepoint {} has no field {name} of {size} bytes",
                self.id
            ))
        })
    }
}

/// Mounts tracefs in no directory (fsopen(2)): other processes do not see the mount, and it ends with the
/// descriptor.
fn mount_privately() -> io::Result<OwnedFd> {
    const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
    const CLOEXEC: libc::c_uint = 1;
    let descriptor = |result: libc::c_long| -> io::Result<OwnedFd> {
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor, and nothing else uses it.
        #[expect(unsafe_code)]
        Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
    };
    // SAFETY: the name is a string that outlives the call.
    #[expect(unsafe_code)]
    let context = unsafe { libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), CLOEXEC) };
    let context = descriptor(context)?;
    let nothing = std::ptr::null::<libc::c_char>();
    // SAFETY: this command takes no key and no value.
    #[expect(unsafe_code)]
    let made = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            nothing,
            nothing,
            0,
        )
    };
    if made != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: numbers only.
    #[expect(unsafe_code)]
    let mount = unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), CLOEXEC, 0) };
    descriptor(mount)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTER: &str = "name: sys_enter\nID: 443\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;\n\n\
        print fmt: \"NR %ld\", REC->id\n";

    #[test]
    fn fields_are_found_by_name_and_size() {
        let format = Format::parse(ENTER).unwrap();
        assert_eq!(format.id, 443);
        let field = |offset, size| Field { offset, size };
        assert_eq!(format.field("id", 8).unwrap(), field(8, 8));
        assert_eq!(format.field("args", 48).unwrap(), field(16, 48));
        assert!(format.field("args", 8).is_err() && format.field("ret", 8).is_err());
        assert_eq!(Format::parse("name: x\n"), None);
    }
}
