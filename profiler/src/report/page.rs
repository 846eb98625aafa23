//! The page around the data.

use std::io::{self, Write};

use serde::Serialize;

use super::Report;
use crate::export::markup::escaped;
use crate::text::units::plain;

/// The page; what stands in double braces is replaced.
const HTML: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
/// In the order in which they need each other.
const SCRIPTS: [&str; 13] = [
    include_str!("page/base.js"),
    include_str!("page/data.js"),
    include_str!("page/filter.js"),
    include_str!("page/head.js"),
    include_str!("page/timeline.js"),
    include_str!("page/strips.js"),
    include_str!("page/layers.js"),
    include_str!("page/graph.js"),
    include_str!("page/tables.js"),
    include_str!("page/tree.js"),
    include_str!("page/charts.js"),
    include_str!("page/network.js"),
    include_str!("page/main.js"),
];

pub(super) fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let mut rest = HTML;
    while let Some((before, after)) = rest.split_once("{{") {
        out.write_all(before.as_bytes())?;
        let Some((name, after)) = after.split_once("}}") else {
            break;
        };
        match name {
            "title" => out.write_all(escaped(&plain(&report.head.title())).as_bytes())?,
            "style" => out.write_all(STYLE.as_bytes())?,
            "data" => write_data(report, out)?,
            "script" => {
                for script in SCRIPTS {
                    out.write_all(script.as_bytes())?;
                }
            }
            _ => {}
        }
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

fn write_data(report: &Report, out: &mut impl Write) -> io::Result<()> {
    block(out, "head", &report.head)?;
    block(out, "rules", &report.rules)?;
    block(out, "path", &report.path)?;
    block(out, "bottlenecks", &report.bottlenecks)?;
    block(out, "processes", &report.processes)?;
    block(out, "machine", &report.machine)?;
    block(out, "graph", &report.graph)?;
    block(out, "members", &report.members)?;
    block(out, "files", &report.files)?;
    block(out, "calls", &report.calls)?;
    block(out, "channels", &report.channels)?;
    block(out, "flows", &report.flows)?;
    block(out, "network", &report.network)?;
    block(out, "waits", &report.waits)
}

/// A part of the data, inert until the page asks for it.
fn block(out: &mut impl Write, name: &str, data: &impl Serialize) -> io::Result<()> {
    write!(out, "<script type=\"application/json\" id=\"data-{name}\">")?;
    serde_json::to_writer(Escaped(&mut *out), data)?;
    out.write_all(b"</script>\n")
}

/// JSON that no HTML parser mistakes for markup: `<` stands in strings only, where it can be
/// written as an escape; without it there is neither `</script` nor `<!--`.
struct Escaped<W>(W);

impl<W: Write> Write for Escaped<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut parts = bytes.split(|&b| b == b'<');
        if let Some(first) = parts.next() {
            self.0.write_all(first)?;
        }
        for part in parts {
            self.0.write_all(b"\\u003c")?;
            self.0.write_all(part)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_the_block_it_is_in() {
        let hostile = "</script><script>alert(1)</script><!-- \u{2028} \\ \" ' &lt;";
        let mut out = Vec::new();
        block(&mut out, "x", &hostile).unwrap();
        let page = String::from_utf8(out).unwrap();
        let inside = page
            .strip_prefix("<script type=\"application/json\" id=\"data-x\">")
            .unwrap();
        let inside = inside.strip_suffix("</script>\n").unwrap();
        assert!(!inside.contains('<'));
        assert_eq!(serde_json::from_str::<String>(inside).unwrap(), hostile);
    }
}
