//! Places at which the C library opens files of its own: locales, its list of libraries, the libraries. Every
//! program does so by the dozen, and a stop for each would cost more than all others together.
//!
//! Such an open is recognised by the address of its instruction. Libraries are mapped anywhere, but always at
//! the begin of a page, so the offset in the page is the same in every process that uses the same file. It is
//! taken from the library that this program itself runs on, as most do; programs with another one are only
//! stopped more often.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// Bits of an address that are the offset in a page.
pub(crate) const IN_PAGE: u32 = 0xfff;

/// `mov $__NR_openat, %eax`, soon followed by `syscall`.
const LOAD_NUMBER: &[u8] = &[0xb8, 0x01, 0x01, 0x00, 0x00];
const SYSCALL: &[u8] = &[0x0f, 0x05];
/// Arguments may be set in between.
const BETWEEN: usize = 16;
/// A bound on the length of the function.
const FUNCTION: usize = 256;

/// Offsets in a page of the instruction pointer after such opens.
pub(crate) fn own_opens() -> Vec<u32> {
    if !cfg!(target_arch = "x86_64") {
        return Vec::new();
    }
    let (Ok(memory), Ok(maps)) = (
        File::open("/proc/self/mem"),
        fs::read_to_string("/proc/self/maps"),
    ) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut read = |start: u64, length: usize| {
        let mut code = vec![0; length];
        if memory.read_exact_at(&mut code, start).is_ok() {
            found
                .extend(opens_in(&code).map(|at| (start as u32).wrapping_add(at as u32) & IN_PAGE));
        }
    };
    for (start, end) in maps.lines().filter_map(loader_code) {
        read(start, (end - start) as usize);
    }
    // The library's own opens use this function, which no program calls.
    if let Some(function) = address_of(c"__open64_nocancel") {
        read(function, FUNCTION);
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The range of a line of `/proc/PID/maps` that holds code of the dynamic loader.
fn loader_code(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_code = fields.next()? == "r-xp";
    let name = fields.nth(3)?.rsplit('/').next()?;
    let range = (
        u64::from_str_radix(start, 16).ok()?,
        u64::from_str_radix(end, 16).ok()?,
    );
    (is_code && name.starts_with("ld-linux") && range.0 < range.1).then_some(range)
}

/// Offsets after the system calls in code that opens files.
pub(crate) fn opens_in(code: &[u8]) -> impl Iterator<Item = usize> {
    let loads = code
        .windows(LOAD_NUMBER.len())
        .enumerate()
        .filter(|(_, part)| *part == LOAD_NUMBER);
    loads.filter_map(|(at, _)| {
        let from = at + LOAD_NUMBER.len();
        let rest = code.get(from..)?;
        let rest = &rest[..rest.len().min(BETWEEN + SYSCALL.len())];
        let call = rest.windows(SYSCALL.len()).position(|p| p == SYSCALL)?;
        Some(from + call + SYSCALL.len())
    })
}

#[expect(unsafe_code)]
fn address_of(symbol: &std::ffi::CStr) -> Option<u64> {
    // SAFETY: the name is NUL-terminated; the address is not called, only its code is read.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) };
    (!address.is_null()).then_some(address as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_are_found_in_code() {
        let code = [
            0x90, 0xb8, 0x01, 0x01, 0x00, 0x00, 0x48, 0x89, 0xfe, 0x0f, 0x05, 0xb8, 0x01, 0x01,
            0x00, 0x00,
        ];
        assert_eq!(opens_in(&code).collect::<Vec<_>>(), [11]);
        let line = "7f1000-7f3000 r-xp 00001000 fe:00 77   /usr/lib/ld-linux-x86-64.so.2";
        assert_eq!(loader_code(line), Some((0x7f_1000, 0x7f_3000)));
        assert_eq!(
            loader_code("7f1000-7f3000 r-xp 0 fe:00 77 /usr/lib/libc.so.6"),
            None
        );
        assert_eq!(loader_code("7f1000-7f3000 r-xp 0 0:0 0"), None);
    }

    #[test]
    #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
    fn the_library_of_this_machine_is_known() {
        assert!(own_opens().len() >= 2, "{:x?}", own_opens());
    }
}
