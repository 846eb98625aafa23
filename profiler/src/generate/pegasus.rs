//! An abstract workflow for Pegasus 5 (YAML), and for its predecessors (DAX 3.6).
//!
//! Every step is a job that runs bash with its line; the jobs share one directory, as on a site with
//! a shared filesystem (`pegasus.data.configuration = sharedfs`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use flowtrace_render::markup::Markup;
use serde_json::json;

use super::words::{ROOT_VARIABLE, quote};
use super::{Plan, Step, said};

const HOW_TO_RUN: &str =
    "Plan it on a site whose jobs share a directory, in the directory with the inputs.";

/// Writes a workflow in YAML. JSON is YAML, and quotes any name safely.
pub fn yaml(plan: &Plan) -> String {
    let jobs: Vec<_> = plan.steps.iter().map(job).collect();
    let mut children: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for step in &plan.steps {
        for after in &step.after {
            children.entry(after.step).or_default().push(&step.id);
        }
    }
    let dependencies: Vec<_> = children
        .iter()
        .map(|(&at, children)| json!({ "id": plan.steps[at].id, "children": children }))
        .collect();
    let replicas: Vec<_> = inputs(plan)
        .iter()
        .map(|path| json!({ "lfn": path, "pfns": [{ "site": "local", "pfn": format!("{}/{path}", plan.root) }] }))
        .collect();
    let mut document = json!({
        "pegasus": "5.0.4",
        "name": "flowtrace",
        "transformationCatalog": { "transformations": [{
            "name": "bash",
            "sites": [{ "name": "local", "pfn": "/bin/bash", "type": "installed" }],
        }] },
        "jobs": jobs,
        "jobDependencies": dependencies,
    });
    if !replicas.is_empty() {
        document["replicaCatalog"] = json!({ "replicas": replicas });
    }
    // Serializing a JSON value cannot fail.
    let body = serde_json::to_string_pretty(&document).unwrap_or_default();
    format!("{}{body}\n", said::head(plan, HOW_TO_RUN))
}

fn job(step: &Step) -> serde_json::Value {
    let uses: Vec<_> = uses(step)
        .into_iter()
        .map(|(path, link)| {
            let mut used = json!({ "lfn": path, "type": link });
            if link != "input" {
                used["stageOut"] = json!(
                    step.outputs
                        .iter()
                        .any(|o| o.stays && o.place.path() == path)
                );
                used["registerReplica"] = json!(false);
            }
            used
        })
        .collect();
    json!({
        "type": "job",
        "name": "bash",
        "id": step.id,
        "nodeLabel": step.rule.as_ref(),
        "arguments": ["-c", quote(&script(step))],
        "uses": uses,
    })
}

fn script(step: &Step) -> String {
    format!("export {ROOT_VARIABLE}=$PWD; {}", said::script(step))
}

/// The files of a step and their link type, each file once.
fn uses(step: &Step) -> BTreeMap<&str, &'static str> {
    let mut uses = BTreeMap::new();
    for take in step.takes.iter().filter(|take| take.place.is_below()) {
        uses.insert(take.place.path(), "input");
    }
    for output in step.outputs.iter().filter(|output| output.place.is_below()) {
        let link = uses.entry(output.place.path()).or_insert("output");
        if *link == "input" {
            *link = "inout";
        }
    }
    uses
}

/// The files that existed before the run.
fn inputs(plan: &Plan) -> BTreeSet<&str> {
    let takes = plan.steps.iter().flat_map(|step| &step.takes);
    let before = takes.filter(|take| take.from.is_none() && take.place.is_below());
    before.map(|take| take.place.path()).collect()
}

/// Writes a DAX.
pub fn dax(plan: &Plan) -> String {
    let mut bytes = Vec::new();
    // Neither writing to a vector nor the order of elements used here can fail.
    let _ = write_dax(plan, &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn write_dax(plan: &Plan, out: &mut Vec<u8>) -> io::Result<()> {
    let mut xml = Markup::xml(out)?;
    for line in said::lines(plan, HOW_TO_RUN) {
        xml.comment(&line)?;
    }
    xml.open(
        "adag",
        &[
            ("xmlns", &"http://pegasus.isi.edu/schema/DAX"),
            ("xmlns:xsi", &"http://www.w3.org/2001/XMLSchema-instance"),
            (
                "xsi:schemaLocation",
                &"http://pegasus.isi.edu/schema/DAX http://pegasus.isi.edu/schema/dax-3.6.xsd",
            ),
            ("version", &"3.6"),
            ("name", &"flowtrace"),
        ],
    )?;
    for path in inputs(plan) {
        let url = format!("file://{}/{path}", plan.root);
        xml.open("file", &[("name", &path)])?;
        xml.empty("pfn", &[("url", &url), ("site", &"local")])?;
        xml.close()?;
    }
    xml.open(
        "executable",
        &[
            ("name", &"bash"),
            ("arch", &"x86_64"),
            ("os", &"linux"),
            ("installed", &"true"),
        ],
    )?;
    xml.empty("pfn", &[("url", &"file:///bin/bash"), ("site", &"local")])?;
    xml.close()?;
    for step in &plan.steps {
        xml.open(
            "job",
            &[
                ("id", &step.id),
                ("name", &"bash"),
                ("node-label", &step.rule),
            ],
        )?;
        xml.leaf("argument", &[], format_args!("-c {}", quote(&script(step))))?;
        for (path, link) in uses(step) {
            xml.empty("uses", &[("name", &path), ("link", &link)])?;
        }
        xml.close()?;
    }
    for step in plan.steps.iter().filter(|step| !step.after.is_empty()) {
        xml.open("child", &[("ref", &step.id)])?;
        for after in &step.after {
            xml.empty("parent", &[("ref", &plan.steps[after.step].id)])?;
        }
        xml.close()?;
    }
    xml.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{After, Output, Place, Take};

    fn plan() -> Plan {
        let below = |path: &str| Place::Below(path.into());
        let step = |id: &str, script: &str| Step {
            id: id.into(),
            rule: "r&r".into(),
            script: Ok(script.into()),
            inputs: Vec::new(),
            outputs: Vec::new(),
            takes: Vec::new(),
            directories: Vec::new(),
            links: Vec::new(),
            made_links: Vec::new(),
            leaves: Vec::new(),
            makes_directories_only: false,
            moves_directory: false,
            needs_mark: false,
            after: Vec::new(),
            duration_ns: 1,
            cpu_ns: 1,
            max_rss_bytes: None,
        };
        let mut first = step("a_1", "sort in > 'x y'");
        let take = |path: &str, from, changes| Take {
            place: below(path),
            from,
            changes,
        };
        let output = |path: &str| Output {
            place: below(path),
            lasts: true,
            stays: true,
        };
        first.takes.push(take("in", None, false));
        first.outputs.push(output("x y"));
        let mut second = step("b_1", "echo \"<\" >> 'x y'");
        second.takes.push(take("x y", Some(0), true));
        second.outputs.push(output("x y"));
        second.after.push(After {
            step: 0,
            is_data: true,
        });
        Plan {
            root: "/w".into(),
            command: "sh -- s".into(),
            steps: vec![first, second],
            ..Plan::default()
        }
    }

    #[test]
    fn files_and_order_are_declared() {
        let yaml = yaml(&plan());
        let body: String = yaml.lines().filter(|line| !line.starts_with('#')).collect();
        let value: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            value["jobs"][0]["uses"][0],
            json!({ "lfn": "in", "type": "input" })
        );
        assert_eq!(value["jobs"][1]["uses"][0]["type"], "inout");
        assert_eq!(
            value["jobDependencies"],
            json!([{ "id": "a_1", "children": ["b_1"] }])
        );
        assert_eq!(
            value["replicaCatalog"]["replicas"][0]["pfns"][0]["pfn"],
            "/w/in"
        );
    }

    #[test]
    fn a_dax_is_xml() {
        let dax = dax(&plan());
        assert!(
            dax.contains("<!-- Made by flowtrace from a trace of: sh -\u{2010} s -->"),
            "{dax}"
        );
        let parsed = roxmltree::Document::parse(&dax).unwrap();
        let all = |name: &'static str| {
            parsed
                .descendants()
                .filter(move |node| node.tag_name().name() == name)
        };
        let child = all("child").next().unwrap();
        let parent = child.first_element_child().unwrap();
        let of =
            |node: roxmltree::Node<'_, '_>, name: &str| node.attribute(name).map(str::to_owned);
        assert_eq!(
            (of(child, "ref"), of(parent, "ref")),
            (Some("b_1".into()), Some("a_1".into()))
        );
        assert!(
            all("uses").any(|uses| of(uses, "name") == Some("x y".into())
                && of(uses, "link") == Some("inout".into()))
        );
        assert!(all("job").all(|job| of(job, "node-label") == Some("r&r".into())));
    }
}
