//! Passwords and keys in command lines, which do not belong in a trace.
//!
//! Masked, in any argument and within scripts that are one (`sh -c '…'`), is the value of
//!
//! - a name whose last word is one of [`WORDS`], as `--db-password=x`, `--token x`, `GITHUB_TOKEN=x`, `X-Api-Key: x`;
//! - `Authorization:` headers;
//! - the password of a URL, `https://user:x@host`.
//!
//! Names that only have such a word in them are left alone (`--password-file`, `--tokenizer`, `--max-tokens`).

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::bytes::{Captures, Regex};

/// Last words of names whose value is a secret, in any case.
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

/// A name that ends with one of [`WORDS`], which may be written in one or by `_` or `.`, too.
fn name() -> String {
    let words = WORDS.map(|word| word.replace('-', "[-_.]?")).join("|");
    format!(r"(?:[a-z0-9]+[-_.])*?(?:{words})")
}

/// A name with its value, or a URL with its password; the two groups are the text that stays.
static VALUES: LazyLock<Regex> = LazyLock::new(|| {
    let (name, value) = (name(), r#"(?:"[^"]*"|'[^']*'|[^\s'"&;|]+)"#);
    let assigned = format!(r"(?:^|[^a-z0-9])(?:{name}=|--?{name}\s+|{name}:\s*)");
    let header = r"authorization:\s*(?:[a-z]+\s+)?";
    let url = r"[a-z][a-z0-9+.-]*://[^/\s:@]*:";
    // In an option and its value as two words, the second word is no option.
    pattern(&format!(
        r"(?i-u)({assigned}|{header}){value}|({url})[^/\s@]+@"
    ))
});

/// An option alone, so that its value is the next argument.
static OPTION: LazyLock<Regex> = LazyLock::new(|| pattern(&format!(r"(?i-u)^--?{}$", name())));

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the patterns are those of this file")
}

/// A text with its secrets masked, and their number.
pub fn masked(text: &[u8]) -> (Cow<'_, [u8]>, u64) {
    let mut count = 0;
    let masked = VALUES.replace_all(text, |found: &Captures<'_>| {
        count += 1;
        match (found.get(1), found.get(2)) {
            (Some(before), _) => [before.as_bytes(), MASK.as_bytes()].concat(),
            (_, Some(url)) => [url.as_bytes(), MASK.as_bytes(), b"@"].concat(),
            _ => MASK.into(),
        }
    });
    (masked, count)
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
        is_value = OPTION.is_match(argument);
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
        ] {
            assert_eq!(of(text), text);
        }
    }

    #[test]
    fn a_value_may_be_the_next_argument() {
        let mut argv = b"mysql\0--password\0hunter2\0--token\0-v\0db\0".to_vec();
        assert_eq!(mask_arguments(&mut argv), 1);
        assert_eq!(argv, b"mysql\0--password\0***\0--token\0-v\0db\0");
        let mut plain = b"cc\0-c\0a.c\0".to_vec();
        assert_eq!(mask_arguments(&mut plain), 0);
        assert_eq!(plain, b"cc\0-c\0a.c\0");
    }
}
