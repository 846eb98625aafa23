//! Which kernel runs.

/// Its release as `uname -r` says it, and the first two numbers of that.
pub(crate) fn release() -> (String, (u32, u32)) {
    let names = nix::sys::utsname::uname().ok();
    let text = names.map_or_else(String::new, |names| {
        names.release().to_string_lossy().into_owned()
    });
    let version = version(&text);
    (text, version)
}

/// 0 stands for numbers that are not there, which is older than everything.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases() {
        assert_eq!(version("6.18.5-amd64"), (6, 18));
        assert_eq!(version("7.0-rc1"), (7, 0));
        assert_eq!(version("x"), (0, 0));
        assert!(release().1 > (2, 6));
    }
}
