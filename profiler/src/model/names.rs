//! Names that files had over time, beyond the last one of each, and the changes of files outside the traced
//! directories that they show: there, calls that remove, rename or change a file are not recorded, only
//! opens.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use flowtrace_schema::NameRow;

use super::{File, FileIndex, Image};
use crate::argv::{base, path_from, unquote};

/// The names of files.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// All names of each file that had several.
    several: HashMap<FileIndex, Vec<Arc<str>>>,
    /// Names of files outside the traced directories, without those of the machine, by their last part.
    outside: HashMap<Box<str>, HashSet<Arc<str>>>,
    /// Times at which such a file lost a name or got another one, ns, in order.
    changes: Vec<(i64, Arc<str>)>,
}

impl Names {
    /// Takes the names from rows in the order of files, each file's in the order of time.
    pub(crate) fn of(files: &[File], rows: &[NameRow]) -> Names {
        let mut names = Names::default();
        for rows in rows.chunk_by(|a, b| a.file_id == b.file_id) {
            let found = files.binary_search_by_key(&rows[0].file_id, |file| file.file_id);
            let Ok(at) = found else { continue };
            let (file, index) = (&files[at], FileIndex(at as u32));
            let is_outside = file.only_opens && !file.is_system;
            if rows.len() < 2 && !is_outside {
                continue;
            }
            for (place, row) in rows.iter().enumerate() {
                let path: Arc<str> = row.path.as_str().into();
                if is_outside {
                    let got = (place > 0).then_some(row.from_ns);
                    let times = got.into_iter().chain(row.to_ns);
                    names.changes.extend(times.map(|ns| (ns, path.clone())));
                    let of_base = names.outside.entry(base(&path).into());
                    of_base.or_default().insert(path.clone());
                }
                if rows.len() > 1 {
                    names.several.entry(index).or_default().push(path);
                }
            }
        }
        names.changes.sort_unstable();
        names
    }

    /// All names of a file.
    pub(crate) fn of_file<'a>(
        &'a self,
        index: FileIndex,
        file: &'a File,
    ) -> impl Iterator<Item = &'a str> {
        let several = self.several.get(&index);
        let only = file.path.as_ref().filter(|_| several.is_none());
        let names = several.into_iter().flatten().chain(only);
        names.map(|path| &**path)
    }

    /// Names of files outside the traced directories that a program has among its arguments, also behind an `=`.
    pub(crate) fn given(&self, image: &Image) -> Vec<&Arc<str>> {
        let command = image
            .command
            .as_deref()
            .filter(|_| !self.outside.is_empty());
        let arguments = command.map(unquote).unwrap_or_default();
        let cwd = image.cwd.as_deref().unwrap_or("");
        // A word that ends in `.` or `..` is the name of a directory.
        let known = |word: &str| {
            let of_base = self.outside.get(base(word.trim_end_matches('/')))?;
            of_base.get(path_from(cwd, word).as_str())
        };
        let of_argument = |argument: &String| {
            let value = argument.split_once('=').map(|(_, value)| value);
            known(argument).or_else(|| known(value?))
        };
        arguments.iter().skip(1).filter_map(of_argument).collect()
    }

    /// Names of files outside that came or went while each of several steps ran; a step is given by its begin
    /// and end, ns. First names, which come with an open, are not among them.
    ///
    /// `has_used` is true if a step opened a name or had it as an argument. If it is true for one of the
    /// steps that ran then, the others have not changed it: two compilers at once remove each its own
    /// temporary files.
    pub(crate) fn changed_by(
        &self,
        spans: &[(i64, i64)],
        has_used: impl Fn(usize, &str) -> bool,
    ) -> Vec<Vec<(i64, &str)>> {
        let within = |&(from_ns, to_ns): &(i64, i64)| {
            let from = self.changes.partition_point(|(ns, _)| *ns < from_ns);
            let to = self.changes.partition_point(|(ns, _)| *ns <= to_ns);
            from..to.max(from)
        };
        let mut known = vec![false; self.changes.len()];
        for (step, span) in spans.iter().enumerate() {
            for at in within(span) {
                known[at] |= has_used(step, &self.changes[at].1);
            }
        }
        let changed = spans.iter().enumerate().map(|(step, span)| {
            let own = within(span).filter(|&at| !known[at] || has_used(step, &self.changes[at].1));
            own.map(|at| (self.changes[at].0, &*self.changes[at].1))
                .collect()
        });
        changed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(file_id: i64, path: &str, from_ns: i64, to_ns: Option<i64>) -> NameRow {
        NameRow {
            file_id,
            path: path.into(),
            from_ns,
            to_ns,
        }
    }

    fn file(file_id: i64, path: &str, only_opens: bool) -> File {
        File {
            file_id,
            path: Some(path.into()),
            only_opens,
            ..File::default()
        }
    }

    #[test]
    fn names_of_files_outside_show_who_was_given_them_and_when_they_changed() {
        let files = [file(1, "/w/b", false), file(2, "/o/b", true)];
        let rows = [
            row(1, "/w/a", 1, Some(5)),
            row(1, "/w/b", 5, None),
            row(2, "/o/a", 2, Some(7)),
            row(2, "/o/b", 7, Some(9)),
        ];
        let names = Names::of(&files, &rows);
        let of =
            |at: u32| -> Vec<&str> { names.of_file(FileIndex(at), &files[at as usize]).collect() };
        assert_eq!(of(0), ["/w/a", "/w/b"]);
        let changed = |spans: &[(i64, i64)], users: &[(usize, &str)]| -> Vec<Vec<&str>> {
            let changed = names.changed_by(spans, |step, path| users.contains(&(step, path)));
            let paths = changed.into_iter();
            paths
                .map(|of_step| of_step.into_iter().map(|(_, path)| path).collect())
                .collect()
        };
        assert_eq!(changed(&[(0, 6)], &[]), [[""; 0]]);
        assert_eq!(changed(&[(7, 8)], &[]), [["/o/a", "/o/b"]]);
        assert_eq!(changed(&[(8, 9)], &[(0, "/o/a")]), [["/o/b"]]);
        // Of two steps at once, the one that had used the file changed it; a file that neither had used may
        // be of either.
        let both = changed(&[(6, 8), (7, 9)], &[(0, "/o/a")]);
        assert_eq!(both, [vec!["/o/a", "/o/b"], vec!["/o/b", "/o/b"]]);
        // A step that had used it but had ended cannot have removed it.
        assert_eq!(
            changed(&[(0, 3), (6, 7)], &[(0, "/o/a")])[1],
            ["/o/a", "/o/b"]
        );
        let given = |command: &str, cwd: &str| -> Vec<String> {
            let image = Image {
                command: Some(command.into()),
                cwd: Some(cwd.into()),
                ..Image::default()
            };
            let given = names.given(&image).into_iter();
            given.map(ToString::to_string).collect()
        };
        assert_eq!(given("mv /o/a ../o/./b", "/w"), ["/o/a", "/o/b"]);
        assert_eq!(given("chmod --reference=/o/a b", "/o"), ["/o/a", "/o/b"]);
        assert_eq!(given("/o/a /w/b b", "/w"), [""; 0]);
    }
}
