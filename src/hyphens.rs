//! The tip for values that begin with a hyphen: a file `-x` after an option that takes a name.

use std::ffi::OsString;

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Suggests `--option=-value` if a word that begins with a hyphen stands behind an option that takes a value.
pub(crate) fn with_tip(
    mut error: clap::Error,
    words: &[OsString],
    command: &Command,
) -> clap::Error {
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidArg)
        && let Some(tip) = tip(wrong, words, command)
    {
        let tip = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
        error.insert(ContextKind::Suggested, tip);
    }
    error
}

fn tip(wrong: &str, words: &[OsString], command: &Command) -> Option<String> {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let mut command = command;
    for pair in words.windows(2) {
        let [option, value] = pair else { continue };
        command = command.find_subcommand(option).unwrap_or(command);
        let takes_value = || {
            let name = option.strip_prefix("--")?;
            let mut known = command.get_arguments();
            let arg = known.find(|arg| arg.get_long() == Some(name))?;
            // Two values behind one option cannot be given in this form.
            let is_one = arg
                .get_num_args()
                .is_none_or(|count| count.max_values() == 1);
            Some(is_one && arg.get_action().takes_values())
        };
        if value.starts_with(wrong) && wrong.starts_with('-') && takes_value() == Some(true) {
            return Some(format!(
                "to give '{value}' to {option}, write '{option}={value}'"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn a_value_with_a_hyphen_is_given_behind_an_equals_sign() {
        let tip = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let mut command = crate::args::Args::command();
            let error = command.try_get_matches_from_mut(&words).unwrap_err();
            with_tip(error, &words, &command).to_string()
        };
        let said = tip("flowtrace dag t.db --ancestors-of -rf.txt");
        assert!(said.contains("'--ancestors-of=-rf.txt'"), "{said}");
        let said = tip("flowtrace dag t.db --reduce -rf.txt");
        assert!(!said.contains("--reduce="), "{said}");
    }
}
