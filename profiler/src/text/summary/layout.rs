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
        let line = self.coloured("1", &units::plain(&format!("flowtrace: {line}")));
        self.text += &line;
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
        for (i, item) in items.iter().enumerate() {
            let item = units::plain(item);
            let length = item.chars().count();
            if i > 0 {
                if column + 3 + length > self.style.width {
                    self.text += &format!("\n{:1$}", "", LABEL + 2);
                    column = LABEL + 2;
                } else {
                    self.text += " · ";
                    column += 3;
                }
            }
            self.text += &item;
            column += length;
        }
        self.text.push('\n');
    }

    fn coloured(&self, code: &str, text: &str) -> String {
        if self.style.is_coloured {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.into()
        }
    }
}
