//! Bytes from the kernel (paths, arguments) on their way into TEXT columns.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::{Deserialize, Serialize};

/// A text whose bytes need not be UTF-8. It is stored as TEXT with U+FFFD in place of bytes that are not
/// UTF-8, and then also as a BLOB with the exact bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Text(Vec<u8>);

impl Text {
    /// The value of the TEXT column.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// The value of the `*_raw` column: the exact bytes if [`Text::text`] is not exact.
    pub fn raw(&self) -> Option<&[u8]> {
        std::str::from_utf8(&self.0)
            .is_err()
            .then_some(self.0.as_slice())
    }

    /// The exact bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text as a name or path of the operating system.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Self {
        Text(bytes)
    }
}

impl From<&[u8]> for Text {
    fn from(bytes: &[u8]) -> Self {
        Text(bytes.to_vec())
    }
}

impl From<OsString> for Text {
    fn from(name: OsString) -> Self {
        Text(name.into_vec())
    }
}

impl From<&OsStr> for Text {
    fn from(name: &OsStr) -> Self {
        Text(name.as_bytes().to_vec())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text(text.as_bytes().to_vec())
    }
}

impl From<&std::path::Path> for Text {
    fn from(path: &std::path::Path) -> Self {
        Text(path.as_os_str().as_bytes().to_vec())
    }
}

/// Joins arguments into one line that a POSIX shell splits back into the same arguments. Control
/// characters use the `$'…'` form, so that the line has none and can be printed safely.
pub fn quote_argv<A: AsRef<[u8]>>(argv: impl IntoIterator<Item = A>) -> Text {
    let mut line = Vec::new();
    for argument in argv {
        if !line.is_empty() {
            line.push(b' ');
        }
        quote(argument.as_ref(), &mut line);
    }
    Text(line)
}

fn quote(argument: &[u8], line: &mut Vec<u8>) {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"_-+=./,:@%^".contains(b) || !b.is_ascii();
    if !argument.is_empty() && argument.iter().all(plain) {
        line.extend_from_slice(argument);
    } else if argument.iter().any(u8::is_ascii_control) {
        line.extend_from_slice(b"$'");
        for &b in argument {
            match b {
                b'\'' | b'\\' => line.extend_from_slice(&[b'\\', b]),
                b'\n' => line.extend_from_slice(b"\\n"),
                b'\t' => line.extend_from_slice(b"\\t"),
                b if b.is_ascii_control() => {
                    line.extend_from_slice(format!("\\{b:03o}").as_bytes());
                }
                b => line.push(b),
            }
        }
        line.push(b'\'');
    } else {
        line.push(b'\'');
        for &b in argument {
            match b {
                b'\'' => line.extend_from_slice(b"'\\''"),
                b => line.push(b),
            }
        }
        line.push(b'\'');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn raw_only_where_the_text_is_not_exact() {
        assert_eq!(Text::from("plain ü").raw(), None);
        let odd = Text::from(&b"a\xffb"[..]);
        assert_eq!(odd.text(), "a\u{fffd}b");
        assert_eq!(odd.raw(), Some(&b"a\xffb"[..]));
    }

    #[test]
    fn quoting_is_for_people_first() {
        let line = quote_argv(["gcc", "-O2", "a b.c", "", "it's", "two\nlines"]);
        assert_eq!(line.text(), r"gcc -O2 'a b.c' '' 'it'\''s' $'two\nlines'");
    }

    proptest! {
        /// The reader of a trace can paste a command: bash splits the line into the same arguments.
        #[test]
        fn bash_reads_back_what_was_quoted(
            argv in prop::collection::vec(prop::collection::vec(1u8..=255, 0..12), 1..5)
        ) {
            let mut script = b"printf '%s\\0' ".to_vec();
            script.extend_from_slice(quote_argv(&argv).as_bytes());
            let output = std::process::Command::new("bash")
                .env("LC_ALL", "C")
                .arg("-c")
                .arg(OsStr::from_bytes(&script))
                .output()
                .unwrap();
            let mut expected = Vec::new();
            for argument in &argv {
                expected.extend_from_slice(argument);
                expected.push(0);
            }
            prop_assert_eq!(output.stdout, expected);
        }
    }
}
