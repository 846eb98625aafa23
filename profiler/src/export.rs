//! Results in formats for other programs. An exporter writes to `impl Write` and never prints.

pub mod chart;
pub mod chrome;
pub mod cytoscape;
pub mod dot;
pub mod drawing;
pub mod gml;
pub mod graphml;
pub mod parquet;
pub mod pcapng;
pub mod perfetto;
mod protobuf;
pub mod rows;
pub mod sheet;
pub mod stacks;
pub mod timeline;
pub mod wfformat;
