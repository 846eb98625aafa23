//! A CWL v1.2 workflow, as one JSON document.
//!
//! CWL gives each step a directory of its own, which holds only what the step declares. A step declares
//! every file that it was seen to use, in the state in which the steps before left it, and it returns
//! the files that it left behind. The order of the data is the only order needed. Steps that only
//! removed files or made directories are left out, for each step finds its directories in place.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value, json};

use super::words::{ROOT_VARIABLE, quote};
use super::{Plan, Step, said};

/// Directory of the last step's files, laid out as in the original directory.
const RESULTS: &str = "results";
/// Name of the last step. Names of other steps end with a number.
const GATHER: &str = "gather";

/// Shell functions that pass a link to a later step as a file with the link's target, since CWL has no
/// links. The file holds `r` and, for a target below the step's directory, the path from there; else
/// `a` and the target as it is.
const LINKS: &str = concat!(
    "take_link() { local t; t=$(cat -- \"$1\"; echo .); t=${t%.}; rm -f -- \"$1\"; ",
    "case $t in r*) t=$PWD${t#r} ;; *) t=${t#a} ;; esac; ",
    "case $2 in */*) mkdir -p -- \"${2%/*}\" ;; esac; ln -sfnT -- \"$t\" \"$2\"; }; ",
    "leave_link() { local t; t=$(readlink -n -- \"$2\" && echo .) || return; t=${t%.}; ",
    "case $t in \"$PWD\" | \"$PWD\"/*) t=r${t#\"$PWD\"} ;; *) t=a$t ;; esac; printf %s \"$t\" > \"$1\"; }; ",
);

/// Makes the scripts of steps that CWL cannot express errors, and adds a note for each directory of
/// which a step may find less than in the traced run.
pub fn refuse(plan: &mut Plan) {
    for (directory, reason) in &plan.unreadable {
        plan.notes.push(format!(
            "{directory} was listed and cannot be read now ({reason}): steps that list it do not get its files that no step used; \
             generate where the inputs of the run are"
        ));
    }
    for at in 0..plan.steps.len() {
        let step = &plan.steps[at];
        let mut links = step.links.iter();
        let is_unknown = |link: &&super::Link| {
            let from = link.from.map(|from| &plan.steps[from]);
            from.is_some_and(|from| link_of(from, &link.path).is_none())
        };
        let reason = match (step.moves_directory, links.find(is_unknown)) {
            (true, _) => "it moves or removes a directory, which CWL cannot express".to_owned(),
            (false, Some(link)) => format!("it uses the link {}, of unknown origin", link.path),
            (false, None) => continue,
        };
        if step.script.is_ok() {
            plan.steps[at].script = Err(reason);
        }
    }
}

/// Writes a workflow.
pub fn text(plan: &Plan) -> String {
    let workflow = Workflow::of(plan);
    let lines = said::lines(
        plan,
        "Put it into the directory with the inputs and run it there: cwltool --no-container --relax-path-checks \
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
    // Serializing a JSON value cannot fail.
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
            let leaves_nothing = outputs(step).next().is_none() && step.made_links.is_empty();
            if leaves_nothing && step.script.is_ok() {
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
        let mut links = Vec::new();
        for (link, target) in &plan.last_links {
            let source = results.get(target.as_str()).cloned();
            let source = source.unwrap_or_else(|| workflow.input(target, "File"));
            links.push((link, source));
        }
        // The files that links lead to, under the links' names. An engine puts one file in one place
        // only.
        let mut copies = Vec::new();
        for (link, source) in links {
            let same = results.iter().find(|(_, other)| **other == source);
            match same.map(|(&path, _)| path) {
                Some(path) => copies.push((path, link.as_str())),
                None => drop(results.insert(link, source)),
            }
        }
        workflow.gather(&results, &copies, &plan.last_directories);
        workflow
    }

    fn step(&mut self, plan: &Plan, at: usize) {
        let step = &plan.steps[at];
        let mut wires = Map::new();
        let mut parameters = Map::new();
        let mut listing: Vec<Value> = Vec::new();
        // A directory is made before the files in it are put there, or with them.
        let places = step.takes.iter().map(|take| take.place.path());
        let places = places.chain(step.directories.iter().map(String::as_str));
        let filled: HashSet<&str> = places.flat_map(above).collect();
        for path in &step.directories {
            if !filled.contains(path.as_str()) {
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
                None => self.input(path, "File"),
            };
            wires.insert(name.clone(), source.into());
            parameters.insert(name.clone(), json!({ "type": "File" }));
            listing.push(json!({
                "entryname": parameter_text(path),
                "entry": format!("$(inputs.{name})"),
                // Asks for a copy. An engine would put a link otherwise, and tar, gzip or find would
                // see the link.
                "writable": true,
            }));
        }
        let mut before = String::new();
        for (number, link) in step.links.iter().enumerate() {
            let name = format!("l{number}");
            let mut class = "File";
            let (source, entry) = match (link.from, link.to_directory) {
                (Some(from), _) => {
                    let Some(source) = link_of(&plan.steps[from], &link.path) else {
                        continue;
                    };
                    let file = link_file(number);
                    before += &format!("take_link {file} {}; ", quote(&link.path));
                    (source, file)
                }
                (None, Some(is_directory)) => {
                    class = if is_directory { "Directory" } else { class };
                    (self.input(&link.path, class), parameter_text(&link.path))
                }
                // No step made the link, and it leads nowhere now.
                (None, None) => continue,
            };
            wires.insert(name.clone(), source.into());
            parameters.insert(name.clone(), json!({ "type": class }));
            listing.push(json!({ "entryname": entry, "entry": format!("$(inputs.{name})") }));
        }
        let mut results = Map::new();
        let mut after = String::new();
        for (number, link) in step.made_links.iter().enumerate() {
            let file = made_link_file(number);
            after += &format!(" && leave_link {file} {}", quote(link));
            let result = json!({ "type": "File", "outputBinding": { "glob": file } });
            results.insert(format!("m{number}"), result);
        }
        for (number, path) in outputs(step).enumerate() {
            results.insert(
                format!("o{number}"),
                json!({ "type": "File", "outputBinding": { "glob": glob(path) } }),
            );
        }
        let script = said::script(step);
        let script = match after.is_empty() {
            true => script,
            // The script may call exit, so it runs in a subshell.
            false => format!("({script}\n){after}"),
        };
        let own = match before.is_empty() && after.is_empty() {
            true => "",
            false => LINKS,
        };
        let script = format!("export {ROOT_VARIABLE}=$PWD; {own}{before}{script}");
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

    /// The workflow input for a file or a directory that existed before the run.
    fn input(&mut self, path: &str, class: &str) -> String {
        if let Some(name) = self.named.get(path) {
            return name.clone();
        }
        let name = format!("in_{}", self.named.len());
        let file = json!({ "class": class, "location": location(path) });
        self.inputs.insert(
            name.clone(),
            json!({ "type": class, "default": file, "doc": path }),
        );
        self.named.insert(path.into(), name.clone());
        name
    }

    /// Writes the last step: all files that last, under their own names.
    fn gather(
        &mut self,
        results: &BTreeMap<&str, String>,
        copies: &[(&str, &str)],
        directories: &[String],
    ) {
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
                // Asks for a copy, not a link into a directory that the engine removes.
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
        let mut script = String::from(":");
        for (from, to) in copies {
            let (from, to) = (format!("{RESULTS}/{from}"), format!("{RESULTS}/{to}"));
            let directory = to.rsplit_once('/').map_or("", |(directory, _)| directory);
            let (above, from, to) = (quote(directory), quote(&from), quote(&to));
            script += &format!(" && mkdir -p -- {above} && cp -- {from} {to}");
        }
        let filled: HashSet<&str> = results.keys().flat_map(|path| above(path)).collect();
        for path in directories
            .iter()
            .filter(|path| !filled.contains(path.as_str()))
        {
            script += &format!(" && mkdir -p -- {}", quote(&format!("{RESULTS}/{path}")));
        }
        let value = json!({
            "in": wires,
            "out": [RESULTS],
            "run": {
                "class": "CommandLineTool",
                "requirements": { "InitialWorkDirRequirement": { "listing": listing } },
                "baseCommand": ["bash", "-c", script],
                "inputs": parameters,
                "outputs": { RESULTS: { "type": "Directory", "outputBinding": { "glob": RESULTS } } },
            },
        });
        self.steps.insert(GATHER.into(), value);
    }
}

/// The directories in which a path lies.
fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

/// The files that a step leaves in the directory of the run, each once.
fn outputs(step: &Step) -> impl Iterator<Item = &str> {
    let mut seen = HashSet::new();
    let below = step.outputs.iter().filter(|output| output.place.is_below());
    below
        .map(|output| output.place.path())
        .filter(move |path| seen.insert(*path))
}

/// Name of an output for later steps.
fn output_of(step: &Step, path: &str) -> Option<String> {
    let number = outputs(step).position(|output| output == path)?;
    Some(format!("{}/o{number}", step.id))
}

/// File in which a step finds the target of a link.
fn link_file(number: usize) -> String {
    format!(".flowtrace-link-{number}")
}

/// File in which a step leaves the target of a link that it made. Its name differs from that of an
/// input, since an output with an input's name is taken for the input.
fn made_link_file(number: usize) -> String {
    format!(".flowtrace-made-link-{number}")
}

/// Name, for later steps, of the output with the target of a link that `step` made.
fn link_of(step: &Step, path: &str) -> Option<String> {
    let number = step.made_links.iter().position(|link| link == path)?;
    Some(format!("{}/m{number}", step.id))
}

/// `text` with its `$(` and `${` escaped, so that CWL does not evaluate it.
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

/// A glob pattern that fits only this path.
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

    /// A link made in the directory of one step is made again in the directory of another.
    #[test]
    fn links_are_passed_on() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let bash = |directory: &std::path::Path, script: &str| {
            let mut bash = std::process::Command::new("bash");
            bash.args(["-ec", &format!("{LINKS}{script}")]);
            assert!(
                bash.current_dir(directory).status().unwrap().success(),
                "{script}"
            );
        };
        let targets = [("a", "../x y"), ("d/b c", "/usr/$HOME"), ("-e", "r\n")];
        std::fs::create_dir(one.path().join("d")).unwrap();
        for (number, (link, target)) in targets.iter().enumerate() {
            std::os::unix::fs::symlink(target, one.path().join(link)).unwrap();
            bash(one.path(), &format!("leave_link {number} {}", quote(link)));
        }
        bash(one.path(), "ln -s \"$PWD/d/f\" own; leave_link 3 own");
        for number in 0..4 {
            let file = number.to_string();
            std::fs::copy(one.path().join(&file), other.path().join(&file)).unwrap();
            let link = targets.get(number).map_or("own", |target| target.0);
            bash(other.path(), &format!("take_link {file} {}", quote(link)));
            assert!(!other.path().join(&file).exists());
        }
        let read = |name: &str| std::fs::read_link(other.path().join(name)).unwrap();
        for (link, target) in targets {
            assert_eq!(read(link), std::path::Path::new(target));
        }
        assert_eq!(
            read("own"),
            other.path().canonicalize().unwrap().join("d/f")
        );
        bash(other.path(), "! leave_link 0 nothing");
    }

    #[test]
    fn names_are_no_expressions_and_no_patterns() {
        assert_eq!(parameter_text("a$(b)${c}$d"), "a\\$(b)\\${c}$d");
        assert_eq!(parameter_text("a\\$(b"), "a\\\\\\$(b");
        assert_eq!(glob("a*[x]?"), "a[*][[]x][?]");
        assert_eq!(location("d/a b#c%:é"), "d/a%20b%23c%25%3A%C3%A9");
    }
}
