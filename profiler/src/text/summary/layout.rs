//! Labelled lines whose items wrap under each other.

use flowtrace_render::units;

use super::style::Style;

const LABEL: usize = 13;

pub(super) struct Layout {
    style: Style,
    text: String,
}

impl Layout {
    pub(super) fn new(style: Style) -> Self {
        Layout {
            style,
            text: String::new(),
        }
    }

    pub(super) fn headline(&mut self, line: &str) {
        let line = units::plain(&format!("flowtrace: {line}"));
        let mut column = 0;
        let line = self.wrapped(&line, &mut column);
        self.text += &self.coloured("1", &line);
        self.text.push('\n');
    }

    /// A label and its items; without items, nothing.
    pub(super) fn line(&mut self, label: &str, items: &[String]) {
        self.labelled(label, "2", items);
    }

    /// A line like [`Layout::line`] for a warning.
    pub(super) fn warning(&mut self, label: &str, items: &[String]) {
        self.labelled(label, "33", items);
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    fn labelled(&mut self, label: &str, colour: &str, items: &[String]) {
        if items.is_empty() {
            return;
        }
        let label = units::plain(label);
        let label = match label.chars().count() {
            0..LABEL => format!("{label:<LABEL$}"),
            _ => format!("{label} "),
        };
        let mut column = label.chars().count() + 2;
        let label = self.coloured(colour, &label);
        self.text += &format!("  {label}");
        let mut is_broken = false;
        for (i, item) in items.iter().enumerate() {
            let item = units::plain(item);
            if i > 0 {
                if is_broken || column + 3 + item.chars().count() > self.style.width {
                    self.text += &format!("\n{:1$}", "", LABEL + 2);
                    column = LABEL + 2;
                } else {
                    self.text += " · ";
                    column += 3;
                }
            }
            let item = self.wrapped(&item, &mut column);
            is_broken = item.contains('\n');
            self.text += &item;
        }
        self.text.push('\n');
    }

    /// A text that begins at a column, broken between its words where it would be longer than the width. The
    /// column is that of the end afterwards.
    fn wrapped(&self, text: &str, column: &mut usize) -> String {
        let mut wrapped = String::new();
        for (at, word) in words(text).enumerate() {
            let length = word.chars().count();
            if at > 0 && *column + 1 + length > self.style.width && *column > LABEL + 2 {
                wrapped += &format!("\n{:1$}", "", LABEL + 2);
                *column = LABEL + 2;
            } else if at > 0 {
                wrapped.push(' ');
                *column += 1;
            }
            wrapped += word;
            *column += length;
        }
        wrapped
    }

    fn coloured(&self, code: &str, text: &str) -> String {
        if self.style.is_coloured {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.into()
        }
    }
}

/// The words of a text; a number and the unit behind it are one.
fn words(text: &str) -> impl Iterator<Item = &str> {
    const UNITS: [&str; 12] = [
        "%", "s", "ms", "µs", "min", "h", "d", "B", "kB", "MB", "GB", "TB",
    ];
    let is_number = |word: &str| word.ends_with(|c: char| c.is_ascii_digit());
    let is_unit = |rest: &str| {
        let word = rest.split(' ').next().unwrap_or_default();
        UNITS.contains(&word.trim_end_matches([')', ',', ';', ':']))
    };
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut spaces = text.match_indices(' ').map(|(at, _)| at);
        let end = spaces.find(|&at| !(is_number(&text[..at]) && is_unit(&text[at + 1..])));
        rest = end.map(|at| &text[at + 1..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stays_with_its_unit() {
        let found: Vec<&str> = words("up to 9.8 %: 2  files, 3 min 05 s").collect();
        assert_eq!(
            found,
            ["up", "to", "9.8 %:", "2", "", "files,", "3 min", "05 s"]
        );
    }

    #[test]
    fn long_items_are_broken_between_words() {
        let mut layout = Layout::new(Style {
            width: 40,
            is_coloured: false,
        });
        layout.headline("run the 6 xz of serial.sh side by side: 26.6 s → 14.6 s");
        let items = [
            "short".into(),
            "a statement of more words than a line has".into(),
        ];
        layout.line("why", &items);
        layout.line(
            "trace",
            &["/a/name/without/any/place/to/break/it.db".into()],
        );
        assert_eq!(
            layout.finish(),
            "\
flowtrace: run the 6 xz of serial.sh
               side by side: 26.6 s →
               14.6 s
  why          short
               a statement of more words
               than a line has
  trace        /a/name/without/any/place/to/break/it.db
"
        );
    }
}
