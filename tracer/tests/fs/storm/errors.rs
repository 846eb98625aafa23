//! The errors that a plain directory gives while others change it.

use libc::{EEXIST, EINVAL, EISDIR, ELOOP, ENOENT, ENOTDIR, ENOTEMPTY, EPERM};

use super::Answers;

/// Possible errors of an operation, besides those of any path lookup: [`ON_THE_WAY`]. `None`: the operation
/// uses files that are already open, and never fails.
fn own(operation: &str) -> Option<&'static [i32]> {
    Some(match operation {
        "create" | "append" | "truncate" => &[EISDIR],
        "exclusive" => &[EEXIST],
        "open" | "stat" | "list" | "follow" | "chmod" => &[],
        "readlink" => &[EINVAL],
        "mkdir" | "symlink" => &[EEXIST],
        "link" => &[EEXIST, EPERM],
        "unlink" => &[EISDIR],
        "rmdir" => &[ENOTEMPTY],
        // A name that was a file when it was read may be a directory when it is removed.
        "sweep" => &[ENOTEMPTY, EISDIR],
        "rename" => &[EISDIR, ENOTEMPTY, EINVAL],
        "noreplace" => &[EEXIST, EINVAL, ENOTEMPTY],
        "exchange" => &[EINVAL, ENOTEMPTY],
        // For symbolic links.
        "xattr" => &[EPERM],
        _ => return None,
    })
}

const ON_THE_WAY: [i32; 3] = [ENOENT, ENOTDIR, ELOOP];

/// Checks that only possible errors occurred, and that every operation succeeded at least once.
pub(super) fn check(answers: &Answers, of: &str) {
    let strange: Vec<_> = answers
        .keys()
        .filter(|(operation, errno)| {
            let listed =
                own(operation).is_some_and(|own| own.contains(errno) || ON_THE_WAY.contains(errno));
            *errno != 0 && !listed
        })
        .map(|key| (key, std::io::Error::from_raw_os_error(key.1), answers[key]))
        .collect();
    assert!(strange.is_empty(), "{of}: {strange:#?}");
    for (operation, _) in answers.keys() {
        let well = answers.contains_key(&(operation.clone(), 0));
        assert!(well, "{of}: {operation} never worked: {answers:?}");
    }
}
