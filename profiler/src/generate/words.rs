//! Paths relative to the place of the workflow, and words of bash.

use flowtrace_schema::quote_argv;

use crate::paths::below;

/// Variable with the directory in which a specification runs, for arguments that named the original
/// directory by its full path.
pub(super) const ROOT_VARIABLE: &str = "FLOWTRACE_ROOT";

/// The place of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Below the root, relative to it; the root itself is empty.
    Below(String),
    /// Elsewhere: an absolute path.
    Elsewhere(String),
}

impl Place {
    pub(super) fn of(path: &str, root: &str) -> Place {
        match below(path, root) {
            Some(rest) => Place::Below(rest.into()),
            None => Place::Elsewhere(path.into()),
        }
    }

    /// The path relative to the root; absolute if the file is elsewhere.
    pub fn path(&self) -> &str {
        match self {
            Place::Below(path) | Place::Elsewhere(path) => path,
        }
    }

    /// True if the file is below the root.
    pub fn is_below(&self) -> bool {
        matches!(self, Place::Below(_))
    }
}

/// The absolute path `path` relative to the absolute directory `from` if both are below `root`; else
/// `path` itself.
pub(super) fn relative(path: &str, from: &str, root: &str) -> String {
    let (Some(to), Some(from)) = (below(path, root), below(from, root)) else {
        return path.into();
    };
    let mut to: Vec<&str> = to.split('/').filter(|part| !part.is_empty()).collect();
    let mut from: Vec<&str> = from.split('/').filter(|part| !part.is_empty()).collect();
    let same = to.iter().zip(&from).take_while(|(a, b)| a == b).count();
    // A file is not its own directory.
    let same = same.min(to.len().saturating_sub(1));
    to.drain(..same);
    from.drain(..same);
    let mut parts: Vec<&str> = from.iter().map(|_| "..").collect();
    parts.extend(to);
    if parts.is_empty() {
        return ".".into();
    }
    let path = parts.join("/");
    // A dash at the beginning would be taken for an option, a tilde for a home directory.
    if path.starts_with(['-', '~']) {
        format!("./{path}")
    } else {
        path
    }
}

/// `word` quoted as one word of bash.
pub(super) fn quote(word: &str) -> String {
    quote_argv([word.as_bytes()]).text().into_owned()
}

/// Quotes an argument that may name the original directory, and puts the variable in the place of that
/// name. Also returns true if it did.
pub(super) fn quote_rooted(word: &str, root: &str) -> (String, bool) {
    // A root of one component is too short to be recognised in text.
    if root.matches('/').count() < 2 {
        return (quote(word), false);
    }
    let mut text = String::new();
    let mut rest = word;
    let mut found = false;
    let mut from = 0;
    while let Some(at) = rest[from..].find(root).map(|at| at + from) {
        let end = at + root.len();
        let follows = rest[end..].chars().next();
        let precedes = rest[..at].chars().next_back();
        let is_whole = follows.is_none_or(|c| !is_of_name(c))
            && (precedes.is_none_or(|c| !is_of_name(c) && c != '/') || is_option(&rest[..at]));
        if !is_whole {
            from = end;
            continue;
        }
        if at > 0 {
            text += &quote(&rest[..at]);
        }
        text += &format!("\"${ROOT_VARIABLE}\"");
        rest = &rest[end..];
        from = 0;
        found = true;
    }
    if !rest.is_empty() || text.is_empty() {
        text += &quote(rest);
    }
    (text, found)
}

/// Returns true if the text before a path is an option of letters alone, as in `-I/path`.
fn is_option(before: &str) -> bool {
    let word = before.rsplit(char::is_whitespace).next().unwrap_or(before);
    word.strip_prefix('-')
        .is_some_and(|letters| letters.chars().all(|c| c.is_ascii_alphabetic()))
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '~')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_seen_from_where_a_command_ran() {
        for (path, from, expected) in [
            ("/w/x/a", "/w/x", "a"),
            ("/w/x/a", "/w/x/d/e", "../../a"),
            ("/w/x/d/a", "/w/x/d", "a"),
            ("/w/x/d/a", "/w/x/e", "../d/a"),
            ("/w/x/-a", "/w/x", "./-a"),
            ("/w/x", "/w/x", "."),
            ("/w/xy/a", "/w/x", "/w/xy/a"),
            ("/data/a", "/w/x/d", "/data/a"),
            ("/w/x/d", "/w/x/d", "../d"),
        ] {
            assert_eq!(relative(path, from, "/w/x"), expected, "{path} from {from}");
        }
        assert_eq!(Place::of("/w/x/a", "/w/x"), Place::Below("a".into()));
        assert_eq!(Place::of("/w/xa", "/w/x"), Place::Elsewhere("/w/xa".into()));
    }

    #[test]
    fn the_original_directory_is_replaced_as_a_whole_only() {
        let of = |word: &str| quote_rooted(word, "/w/x").0;
        assert_eq!(of("-I/w/x/inc"), "-I\"$FLOWTRACE_ROOT\"/inc");
        assert_eq!(of("/w/x"), "\"$FLOWTRACE_ROOT\"");
        assert_eq!(
            of("a=/w/x:/w/x/b c"),
            "a=\"$FLOWTRACE_ROOT\":\"$FLOWTRACE_ROOT\"'/b c'"
        );
        assert_eq!(of("/w/x2/a"), "/w/x2/a");
        assert_eq!(of("/u/w/x/a"), "/u/w/x/a");
        assert_eq!(of("../w/x/a"), "../w/x/a");
        assert_eq!(of(""), "''");
    }
}
