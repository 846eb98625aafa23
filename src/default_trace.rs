//! The trace that is meant where none is named.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use flowtrace_schema::DEFAULT_TRACE;

use crate::commands::{export, stats};

/// Adds the default trace to a command line whose first argument is what follows the trace otherwise: a
/// table of `stats`, a format of `export`, a statement of `query`.
pub(crate) fn insert(words: &mut Vec<OsString>) {
    let [_, command, first, rest @ ..] = words.as_slice() else {
        return;
    };
    let is_alone = rest
        .first()
        .is_none_or(|next| next.as_encoded_bytes().starts_with(b"-") && next != "-");
    let is_second = match command.to_str() {
        Some("stats") => stats::is_table(first),
        Some("export") => export::is_format(first),
        Some("query") => is_statement(first),
        _ => false,
    };
    if is_alone && is_second && !Path::new(first).exists() {
        words.insert(2, DEFAULT_TRACE.into());
    }
}

fn is_statement(word: &OsStr) -> bool {
    let text = word.to_string_lossy();
    text == "-" || text.trim().contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_put_before_an_argument_that_is_no_trace() {
        let inserted = |line: &str| {
            let mut words: Vec<OsString> = line.split('|').map(OsString::from).collect();
            insert(&mut words);
            words.join(OsStr::new("|")).into_string().unwrap()
        };
        assert_eq!(inserted("f|stats|rules"), "f|stats|trace.db|rules");
        assert_eq!(
            inserted("f|stats|rules|--full"),
            "f|stats|trace.db|rules|--full"
        );
        assert_eq!(
            inserted("f|export|csv|-o|tables"),
            "f|export|trace.db|csv|-o|tables"
        );
        assert_eq!(inserted("f|query|SELECT 1"), "f|query|trace.db|SELECT 1");
        assert_eq!(inserted("f|query|-"), "f|query|trace.db|-");
        for line in [
            "f|stats",
            "f|stats|--full",
            "f|stats|other.db",
            "f|stats|rules|calls",
            "f|query|other.db|SELECT 1",
            "f|query|a b.db|-",
            "f|query|other.db",
            "f|dag|rules",
        ] {
            assert_eq!(inserted(line), line);
        }
    }
}
