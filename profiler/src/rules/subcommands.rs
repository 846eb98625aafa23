//! Subcommands: a first argument that says what the program is to do, as in `git add`.
//!
//! No list of programs could be complete, so a trace itself must show which programs have subcommands.
//! Programs with subcommands take options after them (`git commit -m x`), while others take options
//! before the names of their files. So a program has subcommands in a run if some call has a plain word
//! with an option after it, and if every call whose first argument is no option has such a word. Words
//! that are names of files do not count.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::argv::path_from;
use crate::managers::runner;

/// Most different words of one program. A program with more has arguments of another kind, such as
/// names of hosts or users.
const MOST_WORDS: usize = 20;
/// Longest word, in characters.
const LONGEST: usize = 24;

/// One call of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Call {
    /// Name of the program.
    pub(super) name: String,
    /// The program's own arguments. If a script or module gives the name, the arguments after it.
    pub(super) arguments: Vec<String>,
    /// Its working directory.
    pub(super) cwd: Option<Arc<str>>,
}

/// The files that exist, as far as the trace shows.
pub(crate) trait Files {
    /// Returns true if there is a file or directory at this path; `None` if files at such paths were
    /// not recorded.
    fn has(&mut self, path: &str) -> Option<bool>;
}

/// Facts about one program.
#[derive(Default)]
struct Program<'a> {
    words: BTreeSet<&'a str>,
    has_options_behind: bool,
    has_others: bool,
}

/// The subcommand of each call that has one.
pub(super) fn subcommands<'a>(calls: &'a [Call], files: &mut dyn Files) -> Vec<Option<&'a str>> {
    let mut programs: HashMap<&str, Program<'_>> = HashMap::new();
    for call in calls {
        let Some(first) = call.arguments.first().filter(|first| !is_option(first)) else {
            continue;
        };
        if runner(&call.name).is_some() {
            continue;
        }
        let program = programs.entry(&call.name).or_default();
        if program.has_others {
            continue;
        }
        match is_word(first).then(|| is_file(call, first, files)) {
            Some(Some(false)) => {
                program.words.insert(first);
                let next = call.arguments.get(1);
                program.has_options_behind |= next.is_some_and(|next| is_option(next));
            }
            Some(None) => {}
            Some(Some(true)) | None => program.has_others = true,
        }
    }
    programs.retain(|_, program| {
        program.has_options_behind && !program.has_others && program.words.len() <= MOST_WORDS
    });
    let word = |call: &'a Call| {
        let words = &programs.get(&*call.name)?.words;
        let mut is_behind_option = false;
        for argument in &call.arguments {
            // A word after an option may be the option's value, unless it is a subcommand of another
            // call.
            let is_new = || is_word(argument) && !is_behind_option;
            if words.contains(&**argument) || is_new() && !is_file(call, argument, files)? {
                return Some(argument.as_str());
            }
            is_behind_option = is_option(argument);
        }
        None
    };
    calls.iter().map(word).collect()
}

/// Returns true if an argument is the name of a file; `None` if files at such paths were not recorded.
fn is_file(call: &Call, argument: &str, files: &mut dyn Files) -> Option<bool> {
    files.has(&path_from(call.cwd.as_deref().unwrap_or(""), argument))
}

fn is_option(argument: &str) -> bool {
    argument.len() > 1 && argument.starts_with(['-', '+'])
}

fn is_word(argument: &str) -> bool {
    (2..=LONGEST).contains(&argument.len())
        && argument.starts_with(|c: char| c.is_ascii_alphabetic())
        && argument
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

/// No file is known, so that every word may be the name of one, and none is a subcommand.
pub(crate) struct Unseen;

impl Files for Unseen {
    fn has(&mut self, _: &str) -> Option<bool> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::argv::unquote;

    struct These(&'static [&'static str]);

    impl Files for These {
        fn has(&mut self, path: &str) -> Option<bool> {
            path.starts_with("/w/").then(|| self.0.contains(&path))
        }
    }

    fn of(lines: &[&str]) -> Vec<Option<String>> {
        let call = |line: &&str| {
            let mut words = unquote(line);
            Call {
                name: words.remove(0),
                arguments: words,
                cwd: Some("/w".into()),
            }
        };
        let calls: Vec<Call> = lines.iter().map(call).collect();
        let mut files = These(&["/w/in", "/w/src"]);
        let found = subcommands(&calls, &mut files).into_iter();
        found.map(|word| word.map(String::from)).collect()
    }

    #[test]
    fn what_has_options_behind_it_is_a_subcommand() {
        let lines = [
            "git init -q",
            "git add in",
            "git -C src add x",
            "git -c user.name=x commit -m y",
            "git --no-pager log",
            "git --version",
            "samtools sort -o out in",
            "samtools index out",
        ];
        let words = of(&lines);
        let words: Vec<_> = words.iter().map(Option::as_deref).collect();
        let expected = [
            Some("init"),
            Some("add"),
            Some("add"),
            Some("commit"),
            // The word may be the value of the option.
            None,
            None,
            Some("sort"),
            Some("index"),
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn words_that_are_patterns_files_or_values_are_none() {
        for lines in [
            &["grep foo in", "grep bar in"][..],
            // The options come after a file.
            &["sort in -r"],
            &["find src -name x", "find . -name x"],
            // Only some calls have a word.
            &["tool one -x", "tool 12"],
            &["tr a-z A-Z", "sleep 2", "uniq -c"],
            // Programs that run others.
            &["make all -j2", "xargs grep -l"],
        ] {
            let none = vec![None; lines.len()];
            assert_eq!(of(lines), none, "{lines:?}");
        }
        let hosts: Vec<String> = (0..30).map(|at| format!("rlogin node{at} -l x")).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        assert!(of(&hosts).iter().all(Option::is_none));
    }

    #[test]
    fn nothing_is_found_where_files_were_not_seen() {
        let call = Call {
            name: "git".into(),
            arguments: vec!["init".into(), "-q".into()],
            cwd: Some("/elsewhere".into()),
        };
        assert_eq!(
            subcommands(std::slice::from_ref(&call), &mut Unseen),
            [None]
        );
    }
}
