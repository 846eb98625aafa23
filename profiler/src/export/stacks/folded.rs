//! Folded stacks, as flamegraph.pl, inferno and others read: a line for each stack, outermost function first,
//! with its time in µs. Most programs show any number.

use std::io::{self, Write};

use super::Group;
use crate::stacks::{Flame, Samples};

/// Writes the stacks of each group below its name.
///
/// # Errors
/// When `out` fails.
pub fn write(samples: &Samples, groups: &[Group<'_>], out: &mut impl Write) -> io::Result<()> {
    for group in groups {
        let flame = Flame::of(samples, group.samples.iter().copied());
        let mut lines: Vec<String> = Vec::new();
        for (place, node) in flame.nodes.iter().enumerate() {
            if node.own_ns == 0 {
                continue;
            }
            let mut line = one_word(&group.name);
            for id in flame.functions(place) {
                line.push(';');
                line.push_str(&one_word(&samples.function(id).name));
            }
            lines.push(format!("{line} {}", node.own_ns / 1000));
        }
        lines.sort_unstable();
        for line in lines {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// A name without the characters that separate names and lines.
fn one_word(name: &str) -> String {
    name.replace(';', ":")
        .replace(|c: char| c.is_control(), " ")
}
