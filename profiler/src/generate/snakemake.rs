//! A Snakefile: one rule for each step, without wildcards.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::words::ROOT_VARIABLE;
use super::{Plan, Step, said};

/// Writes a Snakefile.
pub fn text(plan: &Plan) -> String {
    let mut text = said::head(
        plan,
        "Run it in the directory with the inputs:  snakemake -s this-file -j 8",
    );
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "import os\nos.environ[\"{ROOT_VARIABLE}\"] = os.getcwd()\n"
    );
    let targets: Vec<Vec<String>> = plan.steps.iter().map(targets).collect();
    text += "rule all:\n    input:\n";
    let orders = plan.steps.iter().flat_map(|step| &step.after);
    let awaited: BTreeSet<usize> = orders.map(|after| after.step).collect();
    for (at, names) in targets.iter().enumerate() {
        if !awaited.contains(&at) {
            let _ = writeln!(text, "        {},", literal(&names[0]));
        }
    }
    for (step, names) in plan.steps.iter().zip(&targets) {
        let mut inputs: BTreeSet<String> = BTreeSet::new();
        for after in &step.after {
            let name = literal(&targets[after.step][0]);
            // If only the order matters, the age of the file does not.
            inputs.insert(if after.is_data {
                name
            } else {
                format!("ancient({name})")
            });
        }
        for input in step
            .inputs
            .iter()
            .filter(|input| input.lasts && is_plain(input.place.path()))
        {
            let path = input.place.path();
            if input
                .from
                .is_none_or(|from| targets[from].iter().any(|name| name == path))
            {
                inputs.insert(literal(path));
            }
        }
        let _ = write!(text, "\nrule {}:\n", step.id);
        if !inputs.is_empty() {
            text += "    input:\n";
            for input in inputs {
                let _ = writeln!(text, "        {input},");
            }
        }
        text += "    output:\n";
        for name in names {
            let name_text = literal(name);
            let _ = match *name == mark(step) {
                true => writeln!(text, "        touch({name_text}),"),
                false => writeln!(text, "        {name_text},"),
            };
        }
        // Snakemake prepends `set -euo pipefail`, under which the traced command did not run.
        let script = format!("set +euo pipefail; {}", said::script(step));
        let script = script.replace('{', "{{").replace('}', "}}");
        let _ = writeln!(text, "    shell:\n        {}", literal(&script));
    }
    text
}

fn mark(step: &Step) -> String {
    format!(".flowtrace/{}", step.id)
}

/// The files of a step, or its mark if it has none.
fn targets(step: &Step) -> Vec<String> {
    if step.needs_mark || step.script.is_err() {
        return vec![mark(step)];
    }
    let lasting = step
        .outputs
        .iter()
        .filter(|output| output.lasts && output.place.is_below());
    // Snakemake removes the outputs before it runs a rule. A step that replaces a file needs the old
    // one.
    if lasting.clone().any(|output| step.finds(&output.place)) {
        return vec![mark(step)];
    }
    // Snakemake also makes the directories of outputs. A step that makes them itself must not find
    // them.
    let lies_in_new = |path: &str| match path.rsplit_once('/') {
        Some((above, _)) => !step.directories.iter().any(|old| old == above),
        None => false,
    };
    if lasting
        .clone()
        .any(|output| lies_in_new(output.place.path()))
    {
        return vec![mark(step)];
    }
    let names = lasting
        .map(|output| output.place.path())
        .filter(|path| is_plain(path));
    let names: Vec<String> = names.map(String::from).collect();
    if names.is_empty() {
        vec![mark(step)]
    } else {
        names
    }
}

/// Returns true if Snakemake takes a name literally; a name with braces cannot be written.
fn is_plain(path: &str) -> bool {
    !path.is_empty() && !path.contains(['{', '}', '\u{fffd}'])
}

/// A string of Python.
fn literal(text: &str) -> String {
    let mut literal = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                literal.push('\\');
                literal.push(c);
            }
            '\n' => literal += "\\n",
            c if c.is_control() => {
                let _ = write!(literal, "\\u{:04x}", c as u32);
            }
            c => literal.push(c),
        }
    }
    literal.push('"');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_pythons() {
        assert_eq!(literal("a\"b\\c\nd\u{1}"), r#""a\"b\\c\nd\u0001""#);
        assert!(!is_plain("a{b}"));
    }
}
