//! GraphML, for networkx, igraph, Gephi, yEd. Every key is declared, integers are `long`.

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::drawing::{Drawing, Value};

/// Writes the drawing.
///
/// # Errors
/// When `out` fails.
pub fn write(drawing: &Drawing, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(
        out,
        "<graphml xmlns=\"http://graphml.graphdrawing.org/xmlns\">"
    )?;
    let texts = |label: &str| vec![("label", Value::Text(label.into()))];
    let label = texts("");
    declare("graph", 'g', [&drawing.attributes, &texts("")], out)?;
    declare(
        "node",
        'n',
        drawing.nodes.iter().map(|n| &n.attributes).chain([&label]),
        out,
    )?;
    declare(
        "edge",
        'e',
        drawing.edges.iter().map(|e| &e.attributes).chain([&label]),
        out,
    )?;
    writeln!(out, "  <graph id=\"flowtrace\" edgedefault=\"directed\">")?;
    data('g', 4, &texts(&drawing.title), out)?;
    data('g', 4, &drawing.attributes, out)?;
    for node in &drawing.nodes {
        writeln!(out, "    <node id=\"{}\">", node.id)?;
        data('n', 6, &texts(&node.label.join("\n")), out)?;
        data('n', 6, &node.attributes, out)?;
        writeln!(out, "    </node>")?;
    }
    for (i, edge) in drawing.edges.iter().enumerate() {
        let (from, to) = (&drawing.nodes[edge.from].id, &drawing.nodes[edge.to].id);
        writeln!(
            out,
            "    <edge id=\"e{i}\" source=\"{from}\" target=\"{to}\">"
        )?;
        data('e', 6, &texts(&edge.label), out)?;
        data('e', 6, &edge.attributes, out)?;
        writeln!(out, "    </edge>")?;
    }
    writeln!(out, "  </graph>")?;
    writeln!(out, "</graphml>")
}

/// Declares the keys in use. Nodes, edges and the graph have keys of their own: the same name
/// may mean another thing there.
fn declare<'a>(
    domain: &str,
    prefix: char,
    used: impl IntoIterator<Item = &'a Vec<(&'static str, Value)>>,
    out: &mut impl Write,
) -> io::Result<()> {
    let keys: BTreeSet<(&str, &str)> = used
        .into_iter()
        .flatten()
        .map(|(name, value)| {
            let kind = match value {
                Value::Integer(_) => "long",
                Value::Text(_) => "string",
            };
            (*name, kind)
        })
        .collect();
    for (name, kind) in keys {
        writeln!(
            out,
            "  <key id=\"{prefix}_{name}\" for=\"{domain}\" attr.name=\"{name}\" attr.type=\"{kind}\"/>"
        )?;
    }
    Ok(())
}

fn data(
    prefix: char,
    indent: usize,
    attributes: &[(&'static str, Value)],
    out: &mut impl Write,
) -> io::Result<()> {
    for (name, value) in attributes {
        let value = match value {
            Value::Integer(n) => n.to_string(),
            Value::Text(text) => escaped(text),
        };
        writeln!(
            out,
            "{:indent$}<data key=\"{prefix}_{name}\">{value}</data>",
            ""
        )?;
    }
    Ok(())
}

/// XML 1.0 has no way to write most control characters, not even as a reference.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
