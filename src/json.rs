//! `--json`, short for `--format json`, on every command that has that format.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

/// Adds the option to every command whose `--format` knows JSON, for help, completions, manual.
pub(crate) fn add(mut command: Command) -> Command {
    let below: Vec<String> = command
        .get_subcommands()
        .map(|below| below.get_name().to_owned())
        .collect();
    for name in below {
        command = command.mut_subcommand(name, add);
    }
    let Some(format) = format_of(&command) else {
        return command;
    };
    let json = Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .global(format.is_global_set())
        .help("The same as --format json");
    command.arg(json)
}

/// Replaces `--json` by `--format=json` for a command that has JSON. Words after `--` belong to the traced
/// command.
pub(crate) fn expand(words: &mut [OsString], command: &Command) {
    let mut command = command;
    let mut is_known = false;
    for word in words.iter_mut().skip(1).take_while(|word| **word != "--") {
        if let Some(below) = command.find_subcommand(&*word) {
            // An option of the command above may apply to those below it.
            is_known &= format_of(command).is_some_and(Arg::is_global_set);
            command = below;
            is_known |= format_of(command).is_some();
        } else if is_known && *word == "--json" {
            *word = "--format=json".into();
        }
    }
}

/// The option that chooses the format, where JSON is one.
fn format_of(command: &Command) -> Option<&Arg> {
    command.get_arguments().find(|arg| {
        let values = arg.get_possible_values();
        arg.get_id() == "format" && values.iter().any(|value| value.matches("json", false))
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn expanded(line: &str) -> String {
        let mut words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        expand(&mut words, &crate::args::Args::command());
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        words.join(" ")
    }

    #[test]
    fn it_is_the_format_of_commands_that_have_one() {
        for (said, meant) in [
            (
                "flowtrace summary t.db --json",
                "flowtrace summary t.db --format=json",
            ),
            (
                "flowtrace compare --json a b",
                "flowtrace compare --format=json a b",
            ),
            (
                "flowtrace run -- prog --json",
                "flowtrace run -- prog --json",
            ),
            ("flowtrace run prog --json", "flowtrace run prog --json"),
            ("flowtrace man --json", "flowtrace man --json"),
        ] {
            assert_eq!(expanded(said), meant);
        }
    }

    #[test]
    fn the_commands_stay_whole() {
        add(crate::args::Args::command()).debug_assert();
    }
}
