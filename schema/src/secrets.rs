//! Passwords and keys in command lines, which do not belong in a trace.
//!
//! Masked, in any argument and within scripts that are one (`sh -c '…'`), is the value of
//!
//! - a name that ends with one of [`WORDS`], as `--db-password=x`, `--token x`, `PGPASSWORD=x`, `clientSecret=x`,
//!   `X-Api-Key: x`, `"password": "x"`;
//! - `Authorization:` headers;
//! - the password of a URL, `https://user:x@host`.
//!
//! Names that only have such a word in them are left alone (`--password-file`, `--tokenizer`, `--max-tokens`), as
//! are the word after an option that takes none (`--no-token x`) and paths (`-v /etc/passwd:/etc/passwd`).

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::bytes::Regex;

/// Ends of names whose value is a secret, in any case. None is the end of a common word, so what precedes does not
/// matter; `pass`, `key` and `auth` are (`bypass`, `monkey`), and are not here.
pub const WORDS: [&str; 9] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "token",
    "api-key",
    "access-key",
    "secret-key",
];

/// The text that replaces a secret.
pub const MASK: &str = "***";

/// The ends of names: their parts may be written in one or with `_` or `.`, too.
fn ends() -> String {
    WORDS.map(|word| word.replace('-', "[-_.]?")).join("|")
}

/// A secret behind a text that stays. Every alternative begins with a literal, by which the search is fast.
static VALUES: LazyLock<Regex> = LazyLock::new(|| {
    let (ends, value) = (ends(), r#"(?:"[^"]*"|'[^']*'|[^\s'"&;|]+)"#);
    let named = format!(r#"(?:{ends})(?:=|(?<colon>["']?:\s*)|(?<space>\s+))"#);
    let header = r"authorization:\s*(?:[a-z]+\s+)?";
    let url = r"://[^/\s:@]*:(?<login>[^/\s@]+)@";
    pattern(&format!(
        r"(?i-u)(?:{named}|{header})(?<value>{value})|{url}"
    ))
});

/// An option alone, so that its value is the next argument.
static OPTION: LazyLock<Regex> =
    LazyLock::new(|| pattern(&format!(r"(?i-u)^-[a-z0-9_.-]*(?:{})$", ends())));

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the patterns are those of this file")
}

/// A text with its secrets masked, and their number.
pub fn masked(text: &[u8]) -> (Cow<'_, [u8]>, u64) {
    // Most arguments have no value at all.
    if !text
        .iter()
        .any(|&byte| matches!(byte, b'=' | b':' | ..=b' '))
    {
        return (Cow::Borrowed(text), 0);
    }
    let (mut count, mut kept, mut at) = (0, 0, 0);
    let mut masked = Vec::new();
    while let Some(found) = VALUES.captures_at(text, at) {
        let Some(secret) = found.name("value").or_else(|| found.name("login")) else {
            break;
        };
        let begin = found.get(0).map_or(0, |all| all.start());
        let is_value = match (found.name("colon"), found.name("space")) {
            (Some(colon), _) => {
                // `Token::Word` is a path of a programming language.
                let is_path = colon.as_bytes() == b":" && secret.as_bytes().starts_with(b":");
                !is_path && text[..start_of_name(text, begin)].last() != Some(&b'/')
            }
            // In an option and its value as two words, the second word is no option.
            (_, Some(space)) => {
                let option = &text[start_of_name(text, begin)..space.start()];
                takes_value(option) && !secret.as_bytes().starts_with(b"-")
            }
            _ => true,
        };
        if is_value {
            masked.extend_from_slice(&text[kept..secret.start()]);
            masked.extend_from_slice(MASK.as_bytes());
            (kept, at) = (secret.end(), secret.end());
            count += 1;
        } else {
            at = secret.start();
        }
    }
    if count == 0 {
        return (Cow::Borrowed(text), 0);
    }
    masked.extend_from_slice(&text[kept..]);
    (Cow::Owned(masked), count)
}

/// The place at which the name begins that goes on at `at`.
fn start_of_name(text: &[u8], at: usize) -> usize {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let before = text[..at].iter().rposition(|byte| !is_name(byte));
    before.map_or(0, |place| place + 1)
}

/// True if a name is that of an option with a value: `--no-token` has none.
fn takes_value(name: &[u8]) -> bool {
    let option = name.strip_prefix(b"-");
    option.is_some_and(|rest| !rest.strip_prefix(b"-").unwrap_or(rest).starts_with(b"no-"))
}

/// Masks arguments that are each ended by a NUL; returns the number of secrets.
pub(crate) fn mask_arguments(argv: &mut Vec<u8>) -> u64 {
    let mut count = 0;
    let mut is_value = false;
    let mut parts: Vec<Cow<'_, [u8]>> = Vec::new();
    for argument in argv.split(|&b| b == 0) {
        let (part, found) = match is_value && !argument.is_empty() && !argument.starts_with(b"-") {
            true => (Cow::Borrowed(MASK.as_bytes()), 1),
            false => masked(argument),
        };
        count += found;
        parts.push(part);
        is_value = takes_value(argument) && OPTION.is_match(argument);
    }
    if count > 0 {
        *argv = parts.join(&0);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        String::from_utf8(masked(text.as_bytes()).0.into_owned()).unwrap()
    }

    #[test]
    fn values_of_secret_names_are_masked() {
        for (text, expected) in [
            ("--password=hunter2", "--password=***"),
            ("--db.password='a b' next", "--db.password=*** next"),
            ("GITHUB_TOKEN=abc make", "GITHUB_TOKEN=*** make"),
            ("curl --api-key k1 url", "curl --api-key *** url"),
            ("--apikey=k", "--apikey=***"),
            ("-Dmy.secret=x", "-Dmy.secret=***"),
            ("X-Api-Key: k", "X-Api-Key: ***"),
            ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
            (
                "git clone https://ada:pw@host/x.git",
                "git clone https://ada:***@host/x.git",
            ),
            ("PGPASSWORD=hunter2 psql", "PGPASSWORD=*** psql"),
            (
                "export PGPASSWORD='a b'; psql",
                "export PGPASSWORD=***; psql",
            ),
            ("psql --pgpassword x db", "psql --pgpassword *** db"),
            ("clientSecret=x", "clientSecret=***"),
            ("MYAPIKEY=x", "MYAPIKEY=***"),
            (
                r#"{"dbPassword": "x", "a": 1}"#,
                r#"{"dbPassword": ***, "a": 1}"#,
            ),
            ("--no-token --password x", "--no-token --password ***"),
            ("the password token=x", "the password token=***"),
            (
                "https://ada:pw@a https://bob:pw@b",
                "https://ada:***@a https://bob:***@b",
            ),
            (
                "/bin/true --password=a; echo",
                "/bin/true --password=***; echo",
            ),
        ] {
            assert_eq!(of(text), expected);
        }
    }

    #[test]
    fn what_only_resembles_one_is_not() {
        for text in [
            "--password-file=/etc/pw",
            "--max-tokens=5",
            "--tokenizer bert",
            "tokens=3",
            "https://host:8080/a@b",
            "s3://bucket/key",
            "--password",
            "PWD=/home",
            "secretary=x",
            "tokenizer=x",
            "bypass=x monkey=y",
            "tool --no-token x",
            "tool --token -v",
            "cat the-password file",
            "docker run -v /etc/passwd:/etc/passwd:ro",
            "MyToken::Word",
        ] {
            assert_eq!(of(text), text);
        }
    }

    #[test]
    fn a_value_may_be_the_next_argument() {
        let mut argv = b"mysql\0--password\0hunter2\0--token\0-v\0db\0".to_vec();
        assert_eq!(mask_arguments(&mut argv), 1);
        assert_eq!(argv, b"mysql\0--password\0***\0--token\0-v\0db\0");
        let mut joined = b"tool\0--clientSecret\0x\0--pgpassword\0y\0--no-token\0z\0".to_vec();
        assert_eq!(mask_arguments(&mut joined), 2);
        assert_eq!(
            joined,
            b"tool\0--clientSecret\0***\0--pgpassword\0***\0--no-token\0z\0"
        );
        let mut plain = b"cc\0-c\0a.c\0".to_vec();
        assert_eq!(mask_arguments(&mut plain), 0);
        assert_eq!(plain, b"cc\0-c\0a.c\0");
    }
}
