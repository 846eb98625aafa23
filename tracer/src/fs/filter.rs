//! Selection of the files that are recorded. All files pass through.

use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Patterns for paths: `*` and `?` do not match a slash, `**` does; `[a-z]` and `{a,b}` work.
///
/// As in a `.gitignore`, a pattern without a slash matches names anywhere below a traced directory, and one
/// with a slash matches paths relative to that directory; one that begins with a slash matches whole paths. A
/// pattern that matches a directory covers all files below it.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    include: Patterns,
    exclude: Patterns,
}

/// An invalid pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{pattern}' is not a valid pattern: {reason}")]
pub struct PatternError {
    /// Pattern as it was given.
    pub pattern: String,
    /// Description of the mistake.
    pub reason: String,
}

#[derive(Clone, Debug, Default)]
struct Patterns {
    /// Patterns for whole paths.
    absolute: GlobSet,
    /// Patterns for paths below the traced directory.
    relative: GlobSet,
    /// Patterns for the names in such a path.
    names: GlobSet,
}

impl Filter {
    /// Records the files that match one of `include`, or all files if there is none, without those that match
    /// one of `exclude`.
    ///
    /// # Errors
    /// The first invalid pattern, with the reason.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Filter, PatternError> {
        Ok(Filter {
            include: Patterns::new(include)?,
            exclude: Patterns::new(exclude)?,
        })
    }

    /// True if all files are recorded.
    pub fn is_empty(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// True if calls on the file at `below` in the traced directory `root` are recorded.
    pub(crate) fn admits(&self, root: &Path, below: &Path) -> bool {
        (self.include.is_empty() || self.include.cover(root, below))
            && !self.exclude.cover(root, below)
    }
}

impl Patterns {
    fn new(patterns: &[String]) -> Result<Patterns, PatternError> {
        let [mut absolute, mut relative, mut names] = [const { Vec::new() }; 3];
        for pattern in patterns {
            let wrong = |reason: &str| PatternError {
                pattern: pattern.clone(),
                reason: reason.to_owned(),
            };
            let (kind, normal) = normalise(pattern).map_err(wrong)?;
            let glob = GlobBuilder::new(&normal).literal_separator(true).build();
            let glob = glob.map_err(|error| wrong(&error.kind().to_string()))?;
            match kind {
                Kind::Absolute => absolute.push(glob),
                Kind::Relative => relative.push(glob),
                Kind::Name => names.push(glob),
            }
        }
        let set = |globs: Vec<globset::Glob>| {
            let mut set = GlobSetBuilder::new();
            for glob in globs {
                set.add(glob);
            }
            set.build().map_err(|error| PatternError {
                pattern: patterns.join(" "),
                reason: error.kind().to_string(),
            })
        };
        Ok(Patterns {
            absolute: set(absolute)?,
            relative: set(relative)?,
            names: set(names)?,
        })
    }

    fn is_empty(&self) -> bool {
        self.absolute.is_empty() && self.relative.is_empty() && self.names.is_empty()
    }

    /// True if a pattern matches the path or a directory above it. The directories on the way to `root` are
    /// matched by whole paths only.
    fn cover(&self, root: &Path, below: &Path) -> bool {
        let is_covered = |path: &Path| {
            self.relative.is_match(path)
                || path
                    .file_name()
                    .is_some_and(|name| self.names.is_match(name))
        };
        below.ancestors().any(is_covered)
            || (!self.absolute.is_empty()
                && root
                    .join(below)
                    .ancestors()
                    .any(|path| self.absolute.is_match(path)))
    }
}

/// Scope of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Absolute,
    Relative,
    Name,
}

/// Removes parts that do not change the meaning of a path: empty parts and `.`.
fn normalise(pattern: &str) -> Result<(Kind, String), &'static str> {
    if pattern.is_empty() {
        return Err("it is empty");
    }
    if pattern.split('/').any(|part| part == "..") {
        return Err("it contains '..', which no path in a trace has");
    }
    let parts: Vec<_> = pattern
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    let path = parts.join("/");
    // A slash at the end means a directory; it says nothing about its place.
    Ok(if pattern.starts_with('/') {
        (Kind::Absolute, format!("/{path}"))
    } else if path.is_empty() {
        (Kind::Relative, "**".to_owned())
    } else if pattern.trim_end_matches('/').contains('/') {
        (Kind::Relative, path)
    } else {
        (Kind::Name, path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> Filter {
        let owned = |patterns: &[&str]| patterns.iter().map(|&p| p.to_owned()).collect::<Vec<_>>();
        Filter::new(&owned(include), &owned(exclude)).unwrap()
    }

    /// True if `pattern` alone, as an include, covers a path in the traced directory `/data`.
    fn covers(pattern: &str, below: &str) -> bool {
        filter(&[pattern], &[]).admits(Path::new("/data"), Path::new(below))
    }

    #[test]
    fn names_match_anywhere_and_paths_from_the_traced_directory_or_the_root() {
        for (pattern, below, expected) in [
            ("*.fits", "a.fits", true),
            ("*.fits", "deep/er/a.fits", true),
            ("*.fits", "a.log", false),
            ("/data/raw/**", "raw/x/y", true),
            ("/data/raw/**", "raw.txt", false),
            ("sub/**", "sub/a/b", true),
            ("sub/**", "other/sub/a", false),
            ("**/sub/*.c", "other/sub/a.c", true),
            ("./sub/*", "sub/a", true),
            ("./a", "a", true),
            ("./a", "sub/a", false),
            ("sub//./a", "sub/a", true),
            (".", "sub/a", true),
            ("/sub/a", "sub/a", false),
            ("{raw,tmp}/*.c", "tmp/a.c", true),
        ] {
            assert_eq!(covers(pattern, below), expected, "{pattern} and {below}");
        }
    }

    #[test]
    fn a_directory_covers_what_is_below_it() {
        for (pattern, below, expected) in [
            ("sub", "sub/deep/er", true),
            ("sub/", "other/sub/a", true),
            ("a/sub", "a/sub/x/y", true),
            ("a/sub/", "b/a/sub/x", false),
            ("*", "any/thing", true),
            ("/data/raw", "raw/x", true),
            ("/data", "raw/x", true),
            ("/", "raw/x", true),
            // The name of the traced directory itself is not a name below it.
            ("data", "raw/x", false),
            ("data", "", false),
        ] {
            assert_eq!(covers(pattern, below), expected, "{pattern} and {below}");
        }
        let excluding = filter(&[], &["target", "a/b"]);
        let admits = |below| excluding.admits(Path::new("/target/x"), Path::new(below));
        assert!(admits("src/target.rs") && admits("") && admits("a"));
        assert!(!admits("sub/target/debug/x") && !admits("a/b/c"));
    }

    #[test]
    fn without_patterns_everything_is_recorded() {
        assert!(Filter::default().is_empty());
        assert!(Filter::default().admits(Path::new("/any"), Path::new("thing")));
    }

    #[test]
    fn what_is_no_pattern_is_named_with_the_reason() {
        for (pattern, reason) in [("", "empty"), ("[", "class"), ("../x", "'..'")] {
            let error = Filter::new(&[pattern.to_owned()], &[]).unwrap_err();
            let text = error.to_string();
            assert!(
                text.starts_with(&format!("'{pattern}'")) && text.contains(reason),
                "{text}"
            );
        }
    }
}
