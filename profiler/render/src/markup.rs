//! XML, SVG and HTML: the only writer through which texts become markup. Names of elements and attributes are
//! constants of this program, all other text is escaped, and elements nest by construction.

use std::fmt::Display;
use std::io::{self, Write};

use crate::units::is_noncharacter;

/// Attributes of an element.
pub type Attributes<'a> = &'a [(&'static str, &'a dyn Display)];

/// Writes elements.
#[derive(Debug)]
pub struct Markup<W> {
    out: W,
    /// Names of the open elements, the innermost last.
    open: Vec<&'static str>,
}

impl<W: Write> Markup<W> {
    /// Writes elements to `out`.
    pub fn new(out: W) -> Self {
        Markup {
            out,
            open: Vec::new(),
        }
    }

    /// Writes elements to `out`, after the declaration of XML.
    ///
    /// # Errors
    /// When `out` fails, here and below.
    pub fn xml(mut out: W) -> io::Result<Self> {
        writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
        Ok(Markup::new(out))
    }

    /// Begins an element on a line of its own.
    pub fn open(&mut self, name: &'static str, attributes: Attributes<'_>) -> io::Result<()> {
        self.begin(name, attributes)?;
        writeln!(self.out, ">")?;
        self.open.push(name);
        Ok(())
    }

    /// Ends the innermost element; a caller that has opened none is wrong.
    pub fn close(&mut self) -> io::Result<()> {
        let name = self.open.pop();
        let name = name.ok_or_else(|| io::Error::other("no element is open"))?;
        self.indent()?;
        writeln!(self.out, "</{name}>")
    }

    /// An element with nothing in it.
    pub fn empty(&mut self, name: &'static str, attributes: Attributes<'_>) -> io::Result<()> {
        self.begin(name, attributes)?;
        writeln!(self.out, "/>")
    }

    /// An element that contains only a text.
    pub fn leaf(
        &mut self,
        name: &'static str,
        attributes: Attributes<'_>,
        text: impl Display,
    ) -> io::Result<()> {
        self.begin(name, attributes)?;
        writeln!(self.out, ">{}</{name}>", escaped(&text.to_string()))
    }

    /// A comment.
    pub fn comment(&mut self, text: &str) -> io::Result<()> {
        self.indent()?;
        // Two hyphens would end the comment.
        let text = escaped(text).replace("--", "-\u{2010}");
        writeln!(self.out, "<!-- {text} -->")
    }

    /// Writes markup of this program's own as it is.
    pub fn raw(&mut self, markup: &'static str) -> io::Result<()> {
        self.out.write_all(markup.as_bytes())
    }

    fn begin(&mut self, name: &'static str, attributes: Attributes<'_>) -> io::Result<()> {
        self.indent()?;
        write!(self.out, "<{name}")?;
        for (name, value) in attributes {
            write!(self.out, " {name}=\"{}\"", escaped(&value.to_string()))?;
        }
        Ok(())
    }

    fn indent(&mut self) -> io::Result<()> {
        write!(self.out, "{:1$}", "", 2 * self.open.len())
    }
}

/// A text, escaped for use between tags and in quotes. XML has no way to write most control characters, not
/// even as a reference; white space is written so that a parser keeps it and does not make one blank of it.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' => escaped.push_str("&#9;"),
            '\n' => escaped.push_str("&#10;"),
            '\r' => escaped.push_str("&#13;"),
            c if c.is_control() || is_noncharacter(c) => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::HOSTILE;

    #[test]
    fn what_goes_in_comes_out_and_nothing_is_markup() {
        for name in HOSTILE {
            let mut bytes = Vec::new();
            let mut xml = Markup::xml(&mut bytes).unwrap();
            xml.open("a", &[("of", &name)]).unwrap();
            xml.comment(name).unwrap();
            xml.leaf("b", &[], name).unwrap();
            xml.empty("c", &[("n", &1.5)]).unwrap();
            xml.close().unwrap();
            let text = String::from_utf8(bytes).unwrap();
            let parsed =
                roxmltree::Document::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
            let is_lost = |c: char| {
                (c.is_control() && !matches!(c, '\t' | '\n' | '\r')) || is_noncharacter(c)
            };
            let kept: String = name
                .chars()
                .map(|c| if is_lost(c) { '\u{fffd}' } else { c })
                .collect();
            let root = parsed.root_element();
            assert_eq!(root.attribute("of"), Some(kept.as_str()));
            let b = root.children().find(|child| child.has_tag_name("b"));
            assert_eq!(b.unwrap().text().unwrap_or(""), kept);
        }
        assert!(Markup::new(Vec::new()).close().is_err());
    }
}
