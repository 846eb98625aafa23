//! Paths as text: their parts, patterns of them, one name for many.

use flowtrace_render::units;

/// The directory of a path, without the slash at its end; `/` for the root.
pub(crate) fn directory(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) => "/",
        Some(at) => &path[..at],
        None => "",
    }
}

/// The last component of a path.
pub fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A path as seen from a directory; itself where it lies elsewhere.
pub(crate) fn relative<'a>(path: &'a str, directory: &str) -> &'a str {
    match path
        .strip_prefix(directory.trim_end_matches('/'))
        .and_then(|p| p.strip_prefix('/'))
    {
        Some(inside) if !inside.is_empty() => inside,
        _ => path,
    }
}

/// The common form of several names: what they begin and end with, `*` for the rest.
pub(crate) fn common<'a>(mut names: impl Iterator<Item = &'a str>) -> String {
    let Some(first) = names.next() else {
        return "*".into();
    };
    let (mut begin, mut end) = (first.len(), first.len());
    let mut is_one = true;
    for name in names {
        if name == first {
            continue;
        }
        is_one = false;
        let alike = first
            .bytes()
            .zip(name.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        begin = begin.min(alike);
        let alike = first
            .bytes()
            .rev()
            .zip(name.bytes().rev())
            .take_while(|(a, b)| a == b)
            .count();
        end = end.min(alike);
    }
    if is_one {
        return first.into();
    }
    while !first.is_char_boundary(begin) {
        begin -= 1;
    }
    // Digits at the edges belong to the part that varies: t0* would hide that t10 is included too.
    let begin = first[..begin].trim_end_matches(|c: char| c.is_ascii_digit());
    end = end.min(first.len() - begin.len());
    while !first.is_char_boundary(first.len() - end) {
        end -= 1;
    }
    let end = first[first.len() - end..].trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{begin}*{end}")
}

/// The common form of several paths: `out/*/proj/t*.fits` for paths of one depth, else
/// `out/**/t*.fits`. Where the names have nothing in common some of them: `out/{a,b.txt,…}`.
pub(crate) fn of_paths(paths: &[&str]) -> String {
    /// Names shown where a `*` would say nothing, and the longest of them.
    const NAMED: usize = 2;
    const LONG: usize = 24;
    let form = form_of_paths(paths);
    let Some(above) = form
        .strip_suffix('*')
        .filter(|f| f.is_empty() || f.ends_with('/'))
    else {
        return form;
    };
    let mut names: Vec<&str> = paths.iter().map(|path| base(path)).collect();
    names.sort_unstable();
    names.dedup();
    let is_short = |name: &&&str| name.chars().count() <= LONG;
    let mut shown: Vec<&str> = names.iter().filter(is_short).take(NAMED).copied().collect();
    if shown.len() < NAMED {
        return form;
    }
    if names.len() > shown.len() {
        shown.push("…");
    }
    format!("{above}{{{}}}", shown.join(","))
}

/// Files by their common form and how many they are: `out/t*.fits ×18`; where their names have nothing in common
/// `18 files in out`.
pub(crate) fn counted(form: &str, files: usize) -> String {
    let many = units::count(files as i64);
    match form.strip_suffix('*') {
        _ if files == 1 => form.into(),
        Some("") => format!("{many} files in ."),
        Some("/") => format!("{many} files in /"),
        Some(above) if above.ends_with('/') => {
            format!("{many} files in {}", above.trim_end_matches('/'))
        }
        _ => format!("{form} ×{many}"),
    }
}

fn form_of_paths(paths: &[&str]) -> String {
    let depth = |path: &str| path.split('/').count();
    let Some(first) = paths.first() else {
        return "*".into();
    };
    if paths.iter().all(|path| depth(path) == depth(first)) {
        let mut columns: Vec<_> = paths.iter().map(|path| path.split('/')).collect();
        let parts: Vec<String> = (0..depth(first))
            .map(|_| {
                common(
                    columns
                        .iter_mut()
                        .filter_map(Iterator::next)
                        .collect::<Vec<_>>()
                        .into_iter(),
                )
            })
            .collect();
        return parts.join("/");
    }
    let above = ancestor(paths.iter().map(|path| directory(path)));
    let name = common(paths.iter().map(|path| base(path)));
    format!("{}/**/{name}", above.trim_end_matches('/'))
}

/// The directory that holds all of several directories.
pub(crate) fn ancestor<'a>(mut directories: impl Iterator<Item = &'a str>) -> &'a str {
    let Some(mut common) = directories.next() else {
        return "";
    };
    for other in directories {
        while !(other == common
            || common == "/" && other.starts_with('/')
            || other
                .strip_prefix(common)
                .is_some_and(|rest| rest.starts_with('/')))
        {
            if common.is_empty() || common == "/" {
                return "";
            }
            common = directory(common);
        }
    }
    common
}

/// `path` relative to `root`, if it is below it.
pub(crate) fn below<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    if root == "/" {
        return path.strip_prefix('/');
    }
    let rest = path.strip_prefix(root)?;
    match rest.strip_prefix('/') {
        Some(rest) => Some(rest),
        None if rest.is_empty() => Some(rest),
        None => None,
    }
}

/// A path as it is seen from the root, if it is below it.
pub(crate) fn relative_to<'a>(path: &'a str, root: &str) -> &'a str {
    below(path, root).unwrap_or(path)
}

/// Returns true if a text fits a pattern: `*` is any characters, `?` one.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Place of the last star, and end of the text that it matches.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == '?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match &mut star {
                Some((at, eaten)) => {
                    *eaten += 1;
                    (p, t) = (*at + 1, *eaten);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_common_form() {
        let of = |names: &[&str]| common(names.iter().copied());
        assert_eq!(of(&["t00.fits", "t01.fits", "t10.fits"]), "t*.fits");
        assert_eq!(of(&["t00.fits", "t01.fits"]), "t*.fits");
        assert_eq!(of(&["a.o", "b.o"]), "*.o");
        assert_eq!(of(&["same", "same"]), "same");
        assert_eq!(of(&["x", "xx"]), "x*");
        assert_eq!(of(&["ä1", "å2"]), "*");
        assert_eq!(of(&[]), "*");
    }

    #[test]
    fn paths_have_a_common_form() {
        assert_eq!(of_paths(&["/o/a/p/t1.f", "/o/b/p/t2.f"]), "/o/*/p/t*.f");
        assert_eq!(of_paths(&["/o/a/t1.f", "/o/t2.f"]), "/o/**/t*.f");
        assert_eq!(of_paths(&["/x"]), "/x");
        // A star alone says nothing.
        assert_eq!(of_paths(&["/o/b.txt", "/o/a"]), "/o/{a,b.txt}");
        assert_eq!(of_paths(&["/o/a", "/o/b", "/o/q"]), "/o/{a,b,…}");
        assert_eq!(of_paths(&["/o/a", "/o/d/b"]), "/o/**/{a,b}");
    }

    #[test]
    fn files_are_counted_in_words_where_their_names_say_nothing() {
        assert_eq!(counted("out/t*.f", 2), "out/t*.f ×2");
        assert_eq!(counted("out/*", 1), "out/*");
        assert_eq!(counted("out/*", 2), "2 files in out");
        assert_eq!(counted("a/*/*", 2), "2 files in a/*");
        assert_eq!(counted("*", 2), "2 files in .");
        assert_eq!(counted("/*", 2), "2 files in /");
    }

    #[test]
    fn directories_have_a_common_ancestor() {
        let of = |names: &[&'static str]| ancestor(names.iter().copied());
        assert_eq!(of(&["/a/b", "/a/c/d"]), "/a");
        assert_eq!(of(&["/ab", "/a"]), "/");
        assert_eq!(of(&["/a/b", "/a"]), "/a");
        assert_eq!(of(&["x", "/a"]), "");
    }

    #[test]
    fn paths_come_apart() {
        assert_eq!((directory("/a/b.c"), base("/a/b.c")), ("/a", "b.c"));
        assert_eq!(directory("/a"), "/");
    }
}
