//! A page in the format asked for.

use std::io::Write;

use flowtrace_network::page::{Cell, Page};
use flowtrace_profiler::export::graphml;
use flowtrace_profiler::export::rows::Csv;
use flowtrace_render::dot::shown;
use flowtrace_render::markup::Attributes;
use flowtrace_schema::{Table, Value};

use super::options::Format;
use crate::failure::Failure;
use crate::graphviz::{self, Layout};

/// Writes the separator between two answers of `--watch`: a form feed for people, nothing for programs.
pub(super) fn separator(format: Format) -> Result<(), Failure> {
    if format == Format::Table {
        writeln!(std::io::stdout(), "---")?;
    }
    Ok(())
}

pub(super) fn page(
    page: &Page,
    format: Format,
    full: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match format {
        Format::Table => crate::output::text(out, &page.text(full))?,
        Format::Json => {
            crate::output::json(out, &json(page))?;
        }
        Format::Csv => {
            let mut csv = Csv::new(out);
            let names: Vec<String> = page.columns.iter().map(ToString::to_string).collect();
            csv.columns(&names)?;
            for row in &page.rows {
                csv.row(row.iter().map(Cell::value).collect())?;
            }
        }
        Format::Graphml => graphml(page, out)?,
        Format::Dot | Format::Svg | Format::Png | Format::Jpeg | Format::Pdf | Format::Ps => {
            let picture = graphviz::picture(&format);
            let bytes = match (&page.picture, picture) {
                (Some(plot), Some(picture)) => graphviz::plot(plot, picture)?,
                (None, Some(picture)) => graphviz::render(&dot(page)?, Layout::Dot, picture)?,
                (_, None) => dot(page)?,
            };
            out.write_all(&bytes)?;
        }
    }
    Ok(())
}

fn json(page: &Page) -> serde_json::Value {
    let scalar = |value: Value| match value {
        Value::Integer(n) => serde_json::json!(n),
        Value::Real(x) => serde_json::json!(x),
        Value::Text(text) => serde_json::json!(text),
        Value::Null | Value::Blob(_) => serde_json::Value::Null,
    };
    let rows: Vec<serde_json::Value> = page
        .rows
        .iter()
        .map(|row| {
            let cells = page.columns.iter().zip(row);
            cells
                .map(|(name, cell)| ((*name).to_owned(), scalar(cell.value())))
                .collect::<serde_json::Map<_, _>>()
                .into()
        })
        .collect();
    serde_json::json!({
        "unknown": page.unknown,
        "mode": if page.mode == flowtrace_network::Mode::Thesis { "thesis" } else { "default" },
        "t0_ns": page.span_ns.0,
        "t1_ns": page.span_ns.1,
        "answer": page.lines,
        "rows": rows,
        "notes": page.notes,
        "coverage": {
            "packets": page.coverage.packets,
            "dropped": page.coverage.dropped,
            "without_capture": page.coverage.without_capture,
            "clock_error_ns": page.coverage.clock_error_ns,
            "left_out": page.coverage.left_out,
            "other_flows": page.coverage.other_flows.iter().map(|flows| serde_json::json!({
                "kind": flows.kind,
                "flows": flows.flows,
                "packets": flows.traffic.map(|(packets, _)| packets),
                "payload_bytes": flows.traffic.map(|(_, bytes)| bytes),
            })).collect::<Vec<_>>(),
            "packets_without_header": page.coverage.without_header,
        },
    })
}

/// Sender, receiver and bytes of the rows of a graph.
fn edges(page: &Page) -> Vec<(String, String, f64)> {
    let bytes = |cell: &Cell| match cell {
        Cell::Bytes(bytes) => *bytes,
        _ => 0.0,
    };
    let text = |cell: &Cell| match cell {
        Cell::Text(text) => flowtrace_render::units::plain(text),
        other => other.shown(),
    };
    let rows = page.rows.iter().filter(|row| row.len() >= 3);
    rows.map(|row| (text(&row[0]), text(&row[1]), bytes(&row[2])))
        .collect()
}

/// Graphviz, edges as wide as their share of the heaviest.
fn dot(page: &Page) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::new();
    let edges = edges(page);
    let heaviest = edges.iter().map(|edge| edge.2).fold(1.0, f64::max);
    writeln!(out, "digraph network {{")?;
    writeln!(
        out,
        "  graph [layout=circo, labelloc=t, label={}];",
        shown(page.lines.first().map_or("", String::as_str))
    )?;
    writeln!(out, "  node [shape=ellipse, fontname=\"Helvetica\"];")?;
    writeln!(out, "  edge [fontname=\"Helvetica\", fontsize=9];")?;
    for (src, dst, bytes) in &edges {
        let width = 0.5 + 4.5 * bytes / heaviest;
        writeln!(
            out,
            "  {} -> {} [penwidth={width:.2}, label={}, bytes={bytes:.0}];",
            shown(src),
            shown(dst),
            shown(&Cell::Bytes(*bytes).shown())
        )?;
    }
    writeln!(out, "}}")?;
    Ok(out)
}

fn graphml(page: &Page, out: &mut dyn Write) -> Result<(), Failure> {
    let edges = edges(page);
    let nodes: std::collections::BTreeSet<&String> =
        edges.iter().flat_map(|(src, dst, _)| [src, dst]).collect();
    let mut xml = graphml::begin(out)?;
    let long: Attributes<'_> = &[
        ("id", &"bytes"),
        ("for", &"edge"),
        ("attr.name", &"bytes"),
        ("attr.type", &"long"),
    ];
    xml.empty("key", long)?;
    xml.open("graph", &[("edgedefault", &"directed")])?;
    for node in nodes {
        xml.empty("node", &[("id", node)])?;
    }
    for (src, dst, bytes) in &edges {
        xml.open("edge", &[("source", src), ("target", dst)])?;
        xml.leaf("data", &[("key", &"bytes")], format_args!("{bytes:.0}"))?;
        xml.close()?;
    }
    xml.close()?;
    Ok(xml.close()?)
}
