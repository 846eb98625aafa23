//! A CWL v1.2 workflow, as one JSON document.
//!
//! CWL gives each step a directory of its own, in which only what it declares is there: a step gets
//! every file that it was seen to look at, in the state in which the steps before left it, and gives
//! back what it left behind. So no order but that of the data is needed, and steps that only
//! removed, or made directories, are not in it.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value, json};

use super::words::ROOT_VARIABLE;
use super::{Plan, Step, said};

/// Where the last step puts the files, as they lay in the original directory.
const RESULTS: &str = "results";
/// That step. The others have names that end with a number.
const GATHER: &str = "gather";

/// Writes a workflow.
pub fn text(plan: &Plan) -> String {
    let workflow = Workflow::of(plan);
    let lines = said::lines(
        plan,
        "Run it in the directory with the inputs: cwltool --no-container --relax-path-checks \
         --preserve-entire-environment this-file; results/ then holds what the run left",
    );
    let document = json!({
        "cwlVersion": "v1.2",
        "class": "Workflow",
        "doc": lines.join("\n"),
        "requirements": { "InlineJavascriptRequirement": {} },
        "inputs": workflow.inputs,
        "outputs": { RESULTS: { "type": "Directory", "outputSource": format!("{GATHER}/{RESULTS}") } },
        "steps": workflow.steps,
    });
    // Values of JSON are always written.
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

#[derive(Default)]
struct Workflow {
    inputs: Map<String, Value>,
    steps: Map<String, Value>,
    /// Workflow inputs by path.
    named: BTreeMap<String, String>,
}

impl Workflow {
    fn of(plan: &Plan) -> Workflow {
        let mut workflow = Workflow::default();
        let mut results: BTreeMap<&str, String> = BTreeMap::new();
        for (at, step) in plan.steps.iter().enumerate() {
            if outputs(step).next().is_none() && step.script.is_ok() {
                continue;
            }
            workflow.step(plan, at);
            for (number, path) in outputs(step).enumerate() {
                if step
                    .outputs
                    .iter()
                    .any(|o| o.stays && o.place.path() == path)
                {
                    results.insert(path, format!("{}/o{number}", step.id));
                }
            }
        }
        workflow.gather(&results);
        workflow
    }

    fn step(&mut self, plan: &Plan, at: usize) {
        let step = &plan.steps[at];
        let mut wires = Map::new();
        let mut parameters = Map::new();
        let mut listing: Vec<Value> = Vec::new();
        // A directory is made before what lies in it is put there.
        for path in &step.directories {
            let is_filled =
                |take: &&super::Take| take.place.path().starts_with(&format!("{path}/"));
            if !step.takes.iter().any(|take| is_filled(&take)) {
                listing.push(json!({
                    "entryname": parameter_text(path),
                    "entry": "$({class: 'Directory', listing: []})",
                    "writable": true,
                }));
            }
        }
        for (number, take) in step.takes.iter().filter(|t| t.place.is_below()).enumerate() {
            let name = format!("i{number}");
            let path = take.place.path();
            let source = match take
                .from
                .and_then(|from| output_of(&plan.steps[from], path))
            {
                Some(source) => source,
                None => self.input(path),
            };
            wires.insert(name.clone(), source.into());
            parameters.insert(name.clone(), json!({ "type": "File" }));
            listing.push(json!({
                "entryname": parameter_text(path),
                "entry": format!("$(inputs.{name})"),
                "writable": take.changes,
            }));
        }
        let mut results = Map::new();
        for (number, path) in outputs(step).enumerate() {
            results.insert(
                format!("o{number}"),
                json!({ "type": "File", "outputBinding": { "glob": glob(path) } }),
            );
        }
        let script = match step.moves_directory {
            true => "echo 'it moves or removes a directory, for which CWL has no word' >&2; exit 1"
                .into(),
            false => format!("export {ROOT_VARIABLE}=$PWD; {}", said::script(step)),
        };
        let out: Vec<&String> = results.keys().collect();
        let value = json!({
            "in": wires,
            "out": out,
            "run": {
                "class": "CommandLineTool",
                "label": step.rule.as_ref(),
                "requirements": { "InitialWorkDirRequirement": { "listing": listing } },
                "baseCommand": ["bash", "-c", script],
                "inputs": parameters,
                "outputs": results,
            },
        });
        self.steps.insert(step.id.clone(), value);
    }

    /// The workflow input that is a file which was there before the run.
    fn input(&mut self, path: &str) -> String {
        if let Some(name) = self.named.get(path) {
            return name.clone();
        }
        let name = format!("in_{}", self.named.len());
        let file = json!({ "class": "File", "location": location(path) });
        self.inputs.insert(
            name.clone(),
            json!({ "type": "File", "default": file, "doc": path }),
        );
        self.named.insert(path.into(), name.clone());
        name
    }

    /// The last step: all that lasts, under its own name.
    fn gather(&mut self, results: &BTreeMap<&str, String>) {
        let mut wires = Map::new();
        let mut parameters = Map::new();
        let mut listing = Vec::new();
        for (number, (path, source)) in results.iter().enumerate() {
            let name = format!("i{number}");
            wires.insert(name.clone(), source.clone().into());
            parameters.insert(name.clone(), json!({ "type": "File" }));
            listing.push(json!({
                "entryname": parameter_text(&format!("{RESULTS}/{path}")),
                "entry": format!("$(inputs.{name})"),
                // A copy, not a link into a directory that the engine removes.
                "writable": true,
            }));
        }
        if results.is_empty() {
            listing.push(json!({
                "entryname": RESULTS,
                "entry": "$({class: 'Directory', listing: []})",
                "writable": true,
            }));
        }
        let value = json!({
            "in": wires,
            "out": [RESULTS],
            "run": {
                "class": "CommandLineTool",
                "requirements": { "InitialWorkDirRequirement": { "listing": listing } },
                "baseCommand": ["true"],
                "inputs": parameters,
                "outputs": { RESULTS: { "type": "Directory", "outputBinding": { "glob": RESULTS } } },
            },
        });
        self.steps.insert(GATHER.into(), value);
    }
}

/// The files that a step leaves in the directory of the run, each once.
fn outputs(step: &Step) -> impl Iterator<Item = &str> {
    let mut told = HashSet::new();
    let below = step.outputs.iter().filter(|output| output.place.is_below());
    below
        .map(|output| output.place.path())
        .filter(move |path| told.insert(*path))
}

/// How a later step names an output.
fn output_of(step: &Step, path: &str) -> Option<String> {
    let number = outputs(step).position(|output| output == path)?;
    Some(format!("{}/o{number}", step.id))
}

/// Text that is no expression.
fn parameter_text(text: &str) -> String {
    let mut escaped = String::new();
    let mut slashes = 0;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '\\' {
            slashes += 1;
        } else {
            if c == '$' && matches!(rest.peek(), Some('(' | '{')) {
                escaped.extend(std::iter::repeat_n('\\', slashes + 1));
            }
            slashes = 0;
        }
        escaped.push(c);
    }
    escaped
}

/// A pattern that fits this path alone.
fn glob(path: &str) -> String {
    let mut pattern = String::new();
    for c in path.chars() {
        match c {
            '*' | '?' | '[' => pattern.extend(['[', c, ']']),
            c => pattern.push(c),
        }
    }
    parameter_text(&pattern)
}

/// A path as a relative URI.
fn location(path: &str) -> String {
    let mut uri = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' | b'~' => {
                uri.push(char::from(byte));
            }
            byte => uri += &format!("%{byte:02X}"),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_expressions_and_no_patterns() {
        assert_eq!(parameter_text("a$(b)${c}$d"), "a\\$(b)\\${c}$d");
        assert_eq!(parameter_text("a\\$(b"), "a\\\\\\$(b");
        assert_eq!(glob("a*[x]?"), "a[*][[]x][?]");
        assert_eq!(location("d/a b#c%:é"), "d/a%20b%23c%25%3A%C3%A9");
    }
}
