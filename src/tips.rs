//! Tips for wrong command lines: a value that begins with a hyphen (a file `-x` after an option that takes a
//! name), and several values behind an option that takes one each time.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command};

/// Suggests `--option=-value` if a word that begins with a hyphen stands behind an option that takes a value,
/// and `--option value --option value` if a word too many stands behind a value.
pub(crate) fn with_tip(
    mut error: clap::Error,
    words: &[OsString],
    command: &Command,
) -> clap::Error {
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidArg)
        && let Some(tip) = hyphen(wrong, words, command).or_else(|| repeated(wrong, words, command))
    {
        let tip = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
        error.insert(ContextKind::Suggested, tip);
    }
    error
}

fn hyphen(wrong: &str, words: &[OsString], command: &Command) -> Option<String> {
    if !wrong.starts_with('-') {
        return None;
    }
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let mut command = command;
    for pair in words.windows(2) {
        let [option, value] = pair else { continue };
        command = command.find_subcommand(option).unwrap_or(command);
        let takes_value = || {
            let arg = option_of(option, command)?;
            Some(takes_one(arg) && arg.get_action().takes_values())
        };
        if value.starts_with(wrong) && takes_value() == Some(true) {
            return Some(format!(
                "to give '{value}' to {option}, write '{option}={value}'"
            ));
        }
    }
    None
}

fn repeated(wrong: &str, words: &[OsString], command: &Command) -> Option<String> {
    let at = words.iter().position(|word| word == wrong)?;
    let before: Vec<&str> = words[..at]
        .iter()
        .filter_map(|word| word.to_str())
        .collect();
    let command = before.iter().fold(command, |command, word| {
        command.find_subcommand(word).unwrap_or(command)
    });
    let place = before.iter().rposition(|word| word.starts_with('-'))?;
    let (option, first) = (before[place], before.get(place + 1)?);
    let arg = option_of(option, command)?;
    let is_repeated = matches!(arg.get_action(), ArgAction::Append) && takes_one(arg);
    is_repeated
        .then(|| format!("give {option} before each value: '{option} {first} {option} {wrong}'"))
}

fn option_of<'a>(word: &str, command: &'a Command) -> Option<&'a Arg> {
    let name = word.strip_prefix("--")?;
    let mut known = command.get_arguments();
    known.find(|arg| arg.get_long() == Some(name))
}

/// True if an option takes one value each time that it is given.
fn takes_one(arg: &Arg) -> bool {
    arg.get_num_args()
        .is_none_or(|count| count.max_values() == 1)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn tip(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let mut command = crate::args::Args::command();
        let error = command.try_get_matches_from_mut(&words).unwrap_err();
        with_tip(error, &words, &command).to_string()
    }

    #[test]
    fn an_option_is_given_before_each_of_its_values() {
        let said = tip("flowtrace compare a.db b.db --with a2.db a3.db --against b2.db b3.db");
        assert!(said.contains("'--with a2.db --with a3.db'"), "{said}");
        for line in [
            "flowtrace compare a.db b.db c.db",
            "flowtrace compare a.db b.db -o o.txt c.db",
        ] {
            let said = tip(line);
            assert!(!said.contains("before each"), "{said}");
        }
    }

    #[test]
    fn a_value_with_a_hyphen_is_given_behind_an_equals_sign() {
        let said = tip("flowtrace dag t.db --ancestors-of -rf.txt");
        assert!(said.contains("'--ancestors-of=-rf.txt'"), "{said}");
        let said = tip("flowtrace dag t.db --reduce -rf.txt");
        assert!(!said.contains("--reduce="), "{said}");
    }
}
