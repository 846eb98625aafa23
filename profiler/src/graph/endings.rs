//! Endings of file names, which distinguish kinds of files within a directory.

use std::collections::HashSet;

use crate::model::Workflow;
use crate::paths::base;

/// The endings of the files of a workflow.
#[derive(Debug)]
pub(crate) struct Endings<'a> {
    /// Path up to the dot of files that were split into `x.aa`, `x.ab` …, and number of letters that follow.
    split: HashSet<(&'a str, usize)>,
}

impl<'a> Endings<'a> {
    pub(crate) fn of(workflow: &'a Workflow) -> Endings<'a> {
        let paths = workflow
            .files
            .iter()
            .filter_map(|file| file.path.as_deref());
        Endings::of_paths(paths)
    }

    fn of_paths(paths: impl Iterator<Item = &'a str>) -> Endings<'a> {
        let first = |path: &'a str| {
            let letters = letters(path).filter(|letters| letters.bytes().all(|b| b == b'a'))?;
            Some((&path[..path.len() - letters.len()], letters.len()))
        };
        Endings {
            split: paths.filter_map(first).collect(),
        }
    }

    /// The part after the last dot, if it may be an ending. Numbers (`part.0`, `part.1`), and the letters by
    /// which `split` counts (`part.aa`, `part.ab`), count files of one kind: their ending is the dot.
    pub(crate) fn get<'p>(&self, path: &'p str) -> &'p str {
        let name = base(path);
        let Some(at) = name.rfind('.').filter(|&at| at > 0) else {
            return "";
        };
        let is_number = name[at + 1..].bytes().all(|b| b.is_ascii_digit());
        let is_split = || {
            letters(path).is_some_and(|letters| {
                let before = &path[..path.len() - letters.len()];
                self.split.contains(&(before, letters.len()))
            })
        };
        match name.len() - at {
            _ if is_number || is_split() => &name[at..=at],
            ..=10 => &name[at..],
            _ => "",
        }
    }
}

/// The part after the last dot, if it is two to four small letters.
fn letters(path: &str) -> Option<&str> {
    let (_, letters) = path.rsplit_once('.')?;
    let is_count =
        (2..=4).contains(&letters.len()) && letters.bytes().all(|b| b.is_ascii_lowercase());
    is_count.then_some(letters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_is_no_ending() {
        let paths = [
            "/w/c.aa", "/w/c.ab", "/w/c.cc", "/w/d.cc", "/w/e.txt", "/w/p.7", "/.rc",
        ];
        let endings = Endings::of_paths(paths.into_iter());
        let found: Vec<&str> = paths.iter().map(|path| endings.get(path)).collect();
        assert_eq!(found, [".", ".", ".", ".cc", ".txt", ".", ""]);
        assert_eq!(endings.get("/v/c.ab"), ".ab", "nothing was split there");
        assert_eq!(endings.get("/w/x.long-ending"), "");
    }
}
