//! The file format of speedscope (<https://www.speedscope.app/file-format-schema.json>): a profile of each rule.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::Group;
use crate::stacks::Samples;

/// Writes a profile of each group.
///
/// # Errors
/// When `out` fails.
pub fn write(
    samples: &Samples,
    groups: &[Group<'_>],
    title: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    let frames: Vec<Value> = samples
        .functions
        .iter()
        .map(|function| match &function.file {
            Some(file) => json!({"name": &*function.name, "file": &**file}),
            None => json!({"name": &*function.name, "file": function.module.as_deref()}),
        })
        .collect();
    write!(
        out,
        "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":\"flowtrace {}\",\"name\":{},\"activeProfileIndex\":0,\"shared\":{{\"frames\":{}}},\"profiles\":[",
        env!("CARGO_PKG_VERSION"),
        json!(title),
        Value::Array(frames)
    )?;
    for (place, group) in groups.iter().enumerate() {
        let end = group.time_ns();
        let separator = if place > 0 { ",\n" } else { "\n" };
        write!(
            out,
            "{separator}{{\"type\":\"sampled\",\"name\":{},\"unit\":\"nanoseconds\",\"startValue\":0,\"endValue\":{end},\"samples\":[",
            json!(&*group.name),
        )?;
        for (place, sample) in group.samples.iter().enumerate() {
            let located = samples.frames(sample.stack).into_iter();
            let stack: Vec<u32> = located.map(|located| located.function).collect();
            write!(out, "{}{}", if place > 0 { "," } else { "" }, json!(stack))?;
        }
        let weights: Vec<i64> = group.samples.iter().map(|sample| sample.time_ns).collect();
        write!(out, "],\"weights\":{}}}", json!(weights))?;
    }
    writeln!(out, "\n]}}")
}
