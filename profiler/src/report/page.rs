//! The page around the data.

use std::io::{self, Write};

use flowtrace_render::markup::escaped;
use flowtrace_render::units::{is_noncharacter, plain};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use super::Report;

/// The page; names in double braces are replaced.
const HTML: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
/// The page of a run that goes on, with its own style and script.
const LIVE_HTML: &str = include_str!("page/live.html");
const LIVE_STYLE: &str = include_str!("page/live.css");
const LIVE_SCRIPT: &str = include_str!("page/live.js");
/// Number of the first scripts of a report that the page of a run that goes on has, too.
const SHARED: usize = 6;
/// Scripts in the order in which they need each other.
const SCRIPTS: [&str; 15] = [
    include_str!("page/base.js"),
    include_str!("page/data.js"),
    include_str!("page/filter.js"),
    include_str!("page/layers.js"),
    include_str!("page/graph.js"),
    include_str!("page/nodes.js"),
    include_str!("page/head.js"),
    include_str!("page/timeline.js"),
    include_str!("page/strips.js"),
    include_str!("page/tables.js"),
    include_str!("page/tree.js"),
    include_str!("page/charts.js"),
    include_str!("page/network.js"),
    include_str!("page/flame.js"),
    include_str!("page/main.js"),
];

impl Report {
    /// Writes the page.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn write_html(&self, out: &mut impl Write) -> io::Result<()> {
        fill(HTML, out, |name, out| match name {
            "title" => out
                .write_all(escaped(&plain(&self.head.title(self.bottlenecks.action()))).as_bytes()),
            "style" => out.write_all(STYLE.as_bytes()),
            "data" => write_data(self, out),
            "script" => write_all(out, &SCRIPTS),
            _ => Ok(()),
        })
    }
}

/// The page of a run that goes on; it asks the server that it came from for the data. `nonce` allows its
/// script.
pub fn live_html(title: &str, nonce: &str) -> String {
    let mut page = Vec::new();
    // Writing into memory does not fail.
    let _ = fill(LIVE_HTML, &mut page, |name, out| match name {
        "title" => out.write_all(escaped(&plain(title)).as_bytes()),
        "nonce" => out.write_all(escaped(nonce).as_bytes()),
        "style" => write_all(out, &[STYLE, LIVE_STYLE]),
        "script" => {
            write_all(out, &SCRIPTS[..SHARED])?;
            out.write_all(LIVE_SCRIPT.as_bytes())
        }
        _ => Ok(()),
    });
    String::from_utf8_lossy(&page).into_owned()
}

fn write_all(out: &mut impl Write, parts: &[&str]) -> io::Result<()> {
    parts
        .iter()
        .try_for_each(|part| out.write_all(part.as_bytes()))
}

/// Writes a page, with `part` for the names in double braces.
fn fill<W: Write>(
    page: &str,
    out: &mut W,
    mut part: impl FnMut(&str, &mut W) -> io::Result<()>,
) -> io::Result<()> {
    let mut rest = page;
    while let Some((before, after)) = rest.split_once("{{") {
        out.write_all(before.as_bytes())?;
        let Some((name, after)) = after.split_once("}}") else {
            break;
        };
        part(name, out)?;
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
    block(out, "nodes", &report.nodes)?;
    block(out, "graph", &report.graph)?;
    block(out, "members", &report.members)?;
    block(out, "files", &report.files)?;
    block(out, "calls", &report.calls)?;
    block(out, "channels", &report.channels)?;
    block(out, "flows", &report.flows)?;
    block(out, "network", &report.network)?;
    block(out, "pictures", &report.pictures)?;
    block(out, "waits", &report.waits)?;
    block(out, "stacks", &report.stacks)
}

/// A part of the data, which the page does not parse until it is needed.
fn block(out: &mut impl Write, name: &str, data: &impl Serialize) -> io::Result<()> {
    write!(out, "<script type=\"application/json\" id=\"data-{name}\">")?;
    data.serialize(&mut Serializer::with_formatter(&mut *out, Inert))?;
    out.write_all(b"</script>\n")
}

/// JSON that no HTML parser mistakes for markup: `<` occurs in strings only, where it can be written as an
/// escape; without it there is neither `</script` nor `<!--`. Characters that Unicode excludes from text are
/// errors anywhere in HTML.
struct Inert;

impl Formatter for Inert {
    fn write_string_fragment<W>(&mut self, out: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + Write,
    {
        let mut rest = fragment;
        while let Some((at, c)) = rest
            .char_indices()
            .find(|&(_, c)| c == '<' || is_noncharacter(c))
        {
            out.write_all(&rest.as_bytes()[..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = &rest[at + c.len_utf8()..];
        }
        out.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_the_block_it_is_in() {
        let hostile =
            "</script><script>alert(1)</script><!-- \u{2028} \u{fffe}\u{1fffe} \\ \" ' &lt;";
        let mut out = Vec::new();
        block(&mut out, "x", &hostile).unwrap();
        let page = String::from_utf8(out).unwrap();
        let inside = page
            .strip_prefix("<script type=\"application/json\" id=\"data-x\">")
            .unwrap();
        let inside = inside.strip_suffix("</script>\n").unwrap();
        assert!(!inside.contains(|c| c == '<' || is_noncharacter(c)));
        assert_eq!(serde_json::from_str::<String>(inside).unwrap(), hostile);
    }
}
