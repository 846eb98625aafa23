//! Short names that still distinguish things.

use std::collections::HashMap;

use flowtrace_render::units;

/// Number of characters by which a name grows until it is unlike the others.
const STEP: usize = 8;

/// Paths of files (id and path) in about `width` characters each. Those that would be equal are given with
/// more of the directories above them, and files of one path with their ids: one file was replaced by
/// another.
pub(super) fn of_files<'a>(
    files: impl Iterator<Item = (i64, &'a str)>,
    width: usize,
) -> HashMap<i64, String> {
    let paths: HashMap<i64, String> = files.map(|(id, path)| (id, units::plain(path))).collect();
    let mut same: HashMap<&str, usize> = HashMap::new();
    for path in paths.values() {
        *same.entry(path).or_default() += 1;
    }
    let longest = paths.values().map(|path| path.chars().count());
    let longest = longest.max().unwrap_or(0);
    let mut names: HashMap<i64, String> = HashMap::new();
    let mut open: Vec<i64> = paths.keys().copied().collect();
    let mut width = width;
    while !open.is_empty() {
        let short = |id: &i64| units::shorten_path(&paths[id], width);
        let mut paths_of: HashMap<String, Vec<&str>> = HashMap::new();
        for id in &open {
            paths_of.entry(short(id)).or_default().push(&paths[id]);
        }
        let is_clear = |id: &i64| {
            let alike = &paths_of[&short(id)];
            width >= longest || alike.iter().all(|path| **path == paths[id])
        };
        let (clear, rest): (Vec<i64>, Vec<i64>) = open.into_iter().partition(is_clear);
        for id in clear {
            let name = match same[paths[&id].as_str()] {
                1 => short(&id),
                _ => format!("{} (file {id})", short(&id)),
            };
            names.insert(id, name);
        }
        open = rest;
        width += STEP;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_distinguished() {
        let files = [
            (1, "in/list"),
            (2, "in/list"),
            (3, "/data/project/a/results/out.fits"),
            (4, "/data/project/b/results/out.fits"),
            (5, "/data/project/c/other/name.fits"),
        ];
        let names = of_files(files.into_iter(), 16);
        assert_eq!(
            [&*names[&1], &*names[&2]],
            ["in/list (file 1)", "in/list (file 2)"]
        );
        assert_ne!(names[&3], names[&4]);
        assert!(
            names[&3].contains("a/results") && names[&4].contains("b/results"),
            "{names:?}"
        );
        assert_eq!(names[&5], units::shorten_path(files[4].1, 16));
    }

    #[test]
    fn names_that_cannot_be_shown_are_distinguished_too() {
        let names = of_files([(1, "a\u{1}"), (2, "a\u{2}")].into_iter(), 10);
        assert_ne!(names[&1], names[&2]);
    }
}
