//! Cytoscape JSON, for cytoscape.js, Cytoscape and networkx.

use std::io::{self, Write};

use serde_json::{Map, Value as Json, json};

use super::drawing::{Drawing, Value};

/// From here on JavaScript rounds integers, so larger ones are written as texts.
const EXACT: i64 = 1 << 53;

/// Writes the drawing.
///
/// # Errors
/// When `out` fails.
pub fn write(drawing: &Drawing, out: &mut impl Write) -> io::Result<()> {
    let nodes: Vec<Json> = drawing
        .nodes
        .iter()
        .map(|node| {
            let mut data = facts(&node.attributes);
            // networkx takes `value` for the node and calls the attribute `name`.
            data.insert("id".into(), json!(node.id));
            data.insert("value".into(), json!(node.id));
            data.insert("name".into(), json!(node.id));
            data.insert("label".into(), json!(node.label.join("\n")));
            json!({ "data": data })
        })
        .collect();
    let edges: Vec<Json> = drawing
        .edges
        .iter()
        .enumerate()
        .map(|(i, edge)| {
            let mut data = facts(&edge.attributes);
            data.insert("id".into(), json!(format!("e{i}")));
            data.insert("key".into(), json!(i));
            data.insert("source".into(), json!(drawing.nodes[edge.from].id));
            data.insert("target".into(), json!(drawing.nodes[edge.to].id));
            data.insert("label".into(), json!(edge.label.join("\n")));
            json!({ "data": data })
        })
        .collect();
    let mut data = facts(&drawing.attributes);
    data.insert("name".into(), json!(drawing.title));
    let graph = json!({
        // networkx reads pairs here, cytoscape.js an object; both accept a list.
        "data": data.into_iter().collect::<Vec<(String, Json)>>(),
        "directed": true,
        "multigraph": true,
        "elements": { "nodes": nodes, "edges": edges },
    });
    serde_json::to_writer_pretty(&mut *out, &graph)?;
    writeln!(out)
}

fn facts(attributes: &[(&'static str, Value)]) -> Map<String, Json> {
    attributes
        .iter()
        .map(|(name, value)| {
            let value = match value {
                Value::Integer(n) if n.abs() > EXACT => json!(n.to_string()),
                Value::Integer(n) => json!(n),
                Value::Text(text) => json!(text),
            };
            ((*name).to_owned(), value)
        })
        .collect()
}
