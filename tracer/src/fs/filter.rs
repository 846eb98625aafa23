//! Which files are recorded. All pass through.

use std::ffi::OsStr;
use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Patterns for paths: `*` and `?` do not match a slash, `**` does; `[a-z]` and `{a,b}` work.
/// A pattern without a slash is about the last name of the path, any other about the whole path.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    include: Patterns,
    exclude: Patterns,
}

#[derive(Clone, Debug, Default)]
struct Patterns {
    paths: GlobSet,
    names: GlobSet,
}

impl Filter {
    /// Records what matches one of `include`, or anything if there is none, but not what matches
    /// one of `exclude`.
    ///
    /// # Errors
    /// The pattern that is not one, and why.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Filter, globset::Error> {
        Ok(Filter {
            include: Patterns::new(include)?,
            exclude: Patterns::new(exclude)?,
        })
    }

    /// Whether everything is recorded.
    pub fn is_empty(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Whether calls on `path` are recorded.
    pub(crate) fn admits(&self, path: &Path) -> bool {
        (self.include.is_empty() || self.include.matches(path)) && !self.exclude.matches(path)
    }
}

impl Patterns {
    fn new(patterns: &[String]) -> Result<Patterns, globset::Error> {
        let (paths, names): (Vec<_>, Vec<_>) =
            patterns.iter().partition(|pattern| pattern.contains('/'));
        let set = |patterns: Vec<&String>| {
            let mut set = GlobSetBuilder::new();
            for pattern in patterns {
                set.add(GlobBuilder::new(pattern).literal_separator(true).build()?);
            }
            set.build()
        };
        Ok(Patterns {
            paths: set(paths)?,
            names: set(names)?,
        })
    }

    fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.names.is_empty()
    }

    fn matches(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or(OsStr::new("/"));
        self.paths.is_match(path) || self.names.is_match(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> Filter {
        let owned = |patterns: &[&str]| patterns.iter().map(|&p| p.to_owned()).collect::<Vec<_>>();
        Filter::new(&owned(include), &owned(exclude)).unwrap()
    }

    #[test]
    fn names_match_anywhere_and_paths_as_a_whole() {
        let filter = filter(&["*.fits", "/data/raw/**"], &["tmp*"]);
        for (path, expected) in [
            ("/data/a.fits", true),
            ("/data/deep/er/a.fits", true),
            ("/data/raw/x/y", true),
            ("/data/raw.txt", false),
            ("/data/tmp1.fits", false),
        ] {
            assert_eq!(filter.admits(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn without_patterns_everything_is_recorded() {
        assert!(Filter::default().is_empty());
        assert!(Filter::default().admits(Path::new("/any/thing")));
        assert!(!filter(&[], &["/a/*"]).admits(Path::new("/a/b")));
        assert!(filter(&[], &["/a/*"]).admits(Path::new("/a/b/c")));
        assert!(Filter::new(&["[".to_owned()], &[]).is_err());
    }
}
