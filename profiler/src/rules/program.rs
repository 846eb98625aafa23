//! Name of a program.

/// Longest name kept, in characters: a rule is a label.
pub(super) const LONGEST: usize = 64;

/// The last component of a path, without the leading `-` of a login shell.
pub(super) fn base(path: &str) -> &str {
    let name = path
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or(path);
    name.strip_prefix('-').unwrap_or(name)
}

/// Returns true if argv[0] is a name, and not a title that the program gave itself
/// (`sshd: user@pts/0`).
pub(super) fn sensible(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= LONGEST
        && !name.contains(|c: char| c.is_whitespace() || c.is_control() || c == ':')
}
