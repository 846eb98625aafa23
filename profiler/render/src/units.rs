//! Numbers as people read them: `12.4 s`, `3 min 05 s`, `212 MB`, `36 204`. Decimal units; a thin
//! space (U+2009) between thousands.

/// Unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Text, to the left.
    Text,
    /// A path, shortened in the middle.
    Path,
    /// Whole number.
    Count,
    /// Nanoseconds.
    Ns,
    /// A time, in nanoseconds of the recording; times shown to people count from the given one.
    At(i64),
    /// Bytes.
    Bytes,
    /// Bytes per second.
    Rate,
    /// A share of one, shown in percent.
    Share,
}

/// A duration in nanoseconds.
pub fn duration(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    let text = match ns {
        0 => "0 s".into(),
        1..1_000 => format!("{ns} ns"),
        1_000..999_500 => scaled(ns as f64 / 1e3, "µs"),
        999_500..999_500_000 => scaled(ns as f64 / 1e6, "ms"),
        999_500_000..59_950_000_000 => scaled(ns as f64 / 1e9, "s"),
        _ => {
            let seconds = (ns + 500_000_000) / 1_000_000_000;
            let (minutes, seconds) = (seconds / 60, seconds % 60);
            match minutes {
                0..60 => format!("{minutes} min {seconds:02} s"),
                60..1440 => format!("{} h {:02} min", minutes / 60, minutes % 60),
                _ => format!("{} d {:02} h", minutes / 1440, minutes % 1440 / 60),
            }
        }
    };
    format!("{sign}{text}")
}

/// A time for people: the duration since `begins_ns`, from which they count, or until it.
pub fn since_begin(at_ns: i64, begins_ns: i64) -> String {
    duration(at_ns.saturating_sub(begins_ns))
}

/// An amount of bytes.
pub fn bytes(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    let mut value = bytes.unsigned_abs() as f64;
    if value < 1000.0 {
        return format!("{sign}{value} B");
    }
    let mut unit = "B";
    for larger in ["kB", "MB", "GB", "TB", "PB", "EB"] {
        // 999.5 would be rounded to 1000 of the smaller unit.
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        unit = larger;
    }
    format!("{sign}{}", scaled(value, unit))
}

/// A count with separated thousands.
pub fn count(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut text = String::from(if n < 0 { "-" } else { "" });
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push('\u{2009}');
        }
        text.push(digit);
    }
    text
}

/// A count in few characters: `36 k`.
pub fn short_count(n: i64) -> String {
    match n.unsigned_abs() {
        0..10_000 => count(n),
        10_000..999_500 => format!("{:.0} k", n as f64 / 1e3),
        _ => scaled(n as f64 / 1e6, "M"),
    }
}

/// `1 file`, `2 files`.
pub fn counted(n: i64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

/// A share of one in percent, with as many digits as it needs.
pub fn share(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".into(),
        p if p > 0.0 && p < 0.1 => "<0.1 %".into(),
        p if p.abs() < 9.95 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

fn scaled(value: f64, unit: &str) -> String {
    if value < 9.95 || (value < 99.95 && unit == "s") {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

/// Makes a name that others chose safe to print and to write into any text format: control characters,
/// and those that change the direction of writing, become U+FFFD. The result is one line.
pub fn plain(text: &str) -> String {
    let shown = |c| if is_hidden(c) { '\u{fffd}' } else { c };
    text.chars().map(shown).collect()
}

/// A whole text made safe likewise; it keeps its lines and tabs.
pub fn plain_lines(text: &str) -> String {
    let shown = |c| match c {
        '\n' | '\t' => c,
        c if is_hidden(c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// True if a terminal acts upon a character instead of showing it, or shows others elsewhere because of it.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || is_noncharacter(c)
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text in a cell of at least `width` characters, on the left.
pub fn left(text: &str, width: usize) -> String {
    // A width in a format string is at most 65 535.
    text.to_owned() + &blanks(text, width)
}

/// A text in a cell of at least `width` characters, on the right.
pub fn right(text: &str, width: usize) -> String {
    blanks(text, width) + text
}

fn blanks(text: &str, width: usize) -> String {
    " ".repeat(width.saturating_sub(text.chars().count()))
}

/// True if Unicode excludes a code point from text for ever.
pub fn is_noncharacter(c: char) -> bool {
    let code = u32::from(c);
    code & 0xfffe == 0xfffe || (0xfdd0..=0xfdef).contains(&code)
}

/// A name for use between arrows: in brackets where it contains an arrow, as `(w.sh → sleep)`.
pub fn between_arrows(name: &str) -> String {
    match name.contains(" → ") {
        true => format!("({name})"),
        false => name.into(),
    }
}

/// Columns that a terminal needs for a text: two for each wide character of East Asia and for pictures,
/// none for marks that combine with the one before.
pub fn columns(text: &str) -> usize {
    let of = |c: char| match u32::from(c) {
        0x0300..=0x036f | 0x200b..=0x200f | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0x303e
        | 0x3041..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1f64f
        | 0x1f900..=0x1f9ff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    };
    text.chars().map(of).sum()
}

/// At most `width` characters, the last of them `…` if something was cut off.
pub fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.into();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// At most `width` characters; the middle of a path, which people miss least, is cut out.
pub fn shorten_path(path: &str, width: usize) -> String {
    let length = path.chars().count();
    if length <= width || width < 8 {
        return shorten(path, width);
    }
    let begin = (width - 1) / 3;
    let end = width - 1 - begin;
    let head: String = path.chars().take(begin).collect();
    let tail: String = path.chars().skip(length - end).collect();
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_two_columns() {
        let widths = ["", "abc", "文件", "a文", "e\u{301}"].map(columns);
        assert_eq!(widths, [0, 3, 4, 3, 1]);
    }

    #[test]
    fn durations_have_two_or_three_digits() {
        for (ns, text) in [
            (0, "0 s"),
            (999, "999 ns"),
            (1_500, "1.5 µs"),
            (999_499, "999 µs"),
            (999_500, "1.0 ms"),
            (45_600_000, "46 ms"),
            (999_600_000, "1.0 s"),
            (12_440_000_000, "12.4 s"),
            (59_949_000_000, "59.9 s"),
            (59_960_000_000, "1 min 00 s"),
            (185_000_000_000, "3 min 05 s"),
            (3_599_600_000_000, "1 h 00 min"),
            (90_061_000_000_000, "1 d 01 h"),
            (-1_500_000, "-1.5 ms"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }

    #[test]
    fn bytes_are_decimal() {
        for (n, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (999_499, "999 kB"),
            (999_500, "1.0 MB"),
            (212_400_000, "212 MB"),
            (i64::MAX, "9.2 EB"),
        ] {
            assert_eq!(bytes(n), text);
        }
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!(count(-1_234_567), "-1\u{2009}234\u{2009}567");
        assert_eq!(short_count(36_204), "36 k");
        assert_eq!(short_count(9_999), "9\u{2009}999");
        assert_eq!(counted(1, "file", "files"), "1 file");
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(shorten("äöü", 3), "äöü");
        assert_eq!(shorten("äöüx", 3), "äö…");
        assert_eq!(
            shorten_path("/very/long/path/to/file.txt", 16),
            "/very…o/file.txt"
        );
        assert_eq!(
            plain("a\x1b[31m\u{202e}b\n"),
            "a\u{fffd}[31m\u{fffd}b\u{fffd}"
        );
        assert_eq!(plain_lines("a\tb\r\n\u{9b}c"), "a\tb\u{fffd}\n\u{fffd}c");
    }
}
