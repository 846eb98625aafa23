//! Arguments out of a stored command line: the inverse of [`flowtrace_schema::quote_argv`].

use std::iter::Peekable;
use std::str::Chars;

use flowtrace_schema::quote_argv;

pub use crate::paths::base;

/// Splits a command line as a POSIX shell would, without expanding anything.
///
/// Reads what `quote_argv` writes: plain words, `'…'`, `\'` between quotes, and `$'…'` with
/// `\n`, `\t`, `\\`, `\'` and three octal digits. A quote left open ends at the end of the text,
/// so that a command that was cut off still gives its first arguments.
pub fn unquote(command: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut chars = command.chars().peekable();
    loop {
        while chars.next_if_eq(&' ').is_some() {}
        if chars.peek().is_none() {
            return arguments;
        }
        arguments.push(word(&mut chars));
    }
}

fn word(chars: &mut Peekable<Chars<'_>>) -> String {
    let mut word = String::new();
    while let Some(c) = chars.next_if(|&c| c != ' ') {
        match c {
            '\'' => word.extend(chars.by_ref().take_while(|&c| c != '\'')),
            '$' if chars.next_if_eq(&'\'').is_some() => escaped(chars, &mut word),
            '\\' => word.extend(chars.next()),
            c => word.push(c),
        }
    }
    word
}

/// The inside of `$'…'`, up to and with the closing quote.
fn escaped(chars: &mut Peekable<Chars<'_>>, word: &mut String) {
    while let Some(c) = chars.next() {
        match c {
            '\'' => return,
            '\\' => match chars.next() {
                Some('n') => word.push('\n'),
                Some('t') => word.push('\t'),
                Some(first) if first.is_digit(8) => {
                    let mut code = first.to_digit(8).unwrap_or(0);
                    for _ in 0..2 {
                        if let Some(digit) = chars.peek().and_then(|c| c.to_digit(8)) {
                            code = code * 8 + digit;
                            chars.next();
                        }
                    }
                    word.extend(char::from_u32(code));
                }
                Some(other) => word.push(other),
                None => return,
            },
            c => word.push(c),
        }
    }
}

/// A command line without the directory of its program.
pub(crate) fn without_directory(command: &str) -> String {
    let mut chars = command.chars().peekable();
    let program = word(&mut chars);
    let rest: String = chars.collect();
    format!("{}{rest}", quote_argv([base(&program)]).text())
}

/// The path that an argument of a program running in `directory` stands for, with `.` and `..` resolved by
/// the text alone.
pub(crate) fn path_from(directory: &str, path: &str) -> String {
    let whole = match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("{directory}/{path}"),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_command_that_was_cut_off_gives_what_there_is() {
        assert_eq!(unquote("gcc -c 'a b"), ["gcc", "-c", "a b"]);
        assert_eq!(unquote(r"x $'a\n"), ["x", "a\n"]);
        assert_eq!(unquote("  "), Vec::<String>::new());
    }

    #[test]
    fn a_program_is_named_without_its_directory() {
        for (command, short) in [
            ("/usr/bin/gcc -c a.c", "gcc -c a.c"),
            ("make", "make"),
            ("'./sp dir/my prog' 0.1", "'my prog' 0.1"),
            (r"$'./new\nline' /a/b", r"$'new\nline' /a/b"),
            ("'/opt/my dir/x' 'a b'", "x 'a b'"),
        ] {
            assert_eq!(without_directory(command), short);
        }
    }

    proptest! {
        #[test]
        fn unquote_inverts_quote_argv(
            argv in prop::collection::vec(prop::collection::vec(1u8..=255, 0..12), 1..6)
        ) {
            let lossy: Vec<_> =
                argv.iter().map(|a| String::from_utf8_lossy(a).into_owned()).collect();
            prop_assert_eq!(unquote(&quote_argv(&argv).text()), lossy);
        }
    }
}
