//! GraphML, for networkx, igraph, Gephi and yEd. Every key is declared; integers are `long`.

use std::collections::BTreeSet;
use std::io::{self, Write};

use flowtrace_render::markup::{Attributes, Markup};

use super::drawing::{Drawing, Value};

/// Writes the drawing.
///
/// # Errors
/// When `out` fails.
pub fn write(drawing: &Drawing, out: &mut impl Write) -> io::Result<()> {
    let mut xml = begin(out)?;
    let texts = |label: &str| vec![("label", Value::Text(label.into()))];
    let label = texts("");
    declare("graph", 'g', [&drawing.attributes, &label], &mut xml)?;
    let nodes = drawing.nodes.iter().map(|n| &n.attributes);
    declare("node", 'n', nodes.chain([&label]), &mut xml)?;
    let edges = drawing.edges.iter().map(|e| &e.attributes);
    declare("edge", 'e', edges.chain([&label]), &mut xml)?;
    xml.open(
        "graph",
        &[("id", &"flowtrace"), ("edgedefault", &"directed")],
    )?;
    data('g', &texts(&drawing.title), &mut xml)?;
    data('g', &drawing.attributes, &mut xml)?;
    for node in &drawing.nodes {
        xml.open("node", &[("id", &node.id)])?;
        data('n', &texts(&node.label.join("\n")), &mut xml)?;
        data('n', &node.attributes, &mut xml)?;
        xml.close()?;
    }
    for (i, edge) in drawing.edges.iter().enumerate() {
        let (from, to) = (&drawing.nodes[edge.from].id, &drawing.nodes[edge.to].id);
        let id = format!("e{i}");
        let attributes: Attributes<'_> = &[("id", &id), ("source", from), ("target", to)];
        xml.open("edge", attributes)?;
        data('e', &texts(&edge.label.join("\n")), &mut xml)?;
        data('e', &edge.attributes, &mut xml)?;
        xml.close()?;
    }
    xml.close()?;
    xml.close()
}

/// Opens a document of GraphML.
///
/// # Errors
/// When `out` fails.
pub fn begin<W: Write>(out: W) -> io::Result<Markup<W>> {
    let mut xml = Markup::xml(out)?;
    xml.open(
        "graphml",
        &[("xmlns", &"http://graphml.graphdrawing.org/xmlns")],
    )?;
    Ok(xml)
}

/// Declares the keys in use. Nodes, edges and the graph have keys of their own, since one name may have
/// another meaning there.
fn declare<'a>(
    domain: &str,
    prefix: char,
    used: impl IntoIterator<Item = &'a Vec<(&'static str, Value)>>,
    xml: &mut Markup<impl Write>,
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
        let id = format!("{prefix}_{name}");
        let attributes: Attributes<'_> = &[
            ("id", &id),
            ("for", &domain),
            ("attr.name", &name),
            ("attr.type", &kind),
        ];
        xml.empty("key", attributes)?;
    }
    Ok(())
}

fn data(
    prefix: char,
    attributes: &[(&'static str, Value)],
    xml: &mut Markup<impl Write>,
) -> io::Result<()> {
    for (name, value) in attributes {
        let key = format!("{prefix}_{name}");
        match value {
            Value::Integer(n) => xml.leaf("data", &[("key", &key)], n)?,
            Value::Text(text) => xml.leaf("data", &[("key", &key)], text)?,
        }
    }
    Ok(())
}
