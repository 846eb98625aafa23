//! The imports of the code are those that docs/architecture.md draws.

#[path = "architecture/imports.rs"]
mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use imports::{Imports, Sources};
use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;

const DRAWING: &str = "docs/architecture.md";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Crates of the workspace, the binary first, each with the file that is its root.
fn crates() -> Vec<(String, String)> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest
        .split_once("members = [")
        .and_then(|(_, rest)| rest.split_once(']'))
        .map(|(members, _)| members)
        .expect("Cargo.toml lists the members");
    let mut crates = vec![("flowtrace".to_owned(), "src/main.rs".to_owned())];
    for member in members.split('"').skip(1).step_by(2) {
        let manifest = fs::read_to_string(root().join(member).join("Cargo.toml")).unwrap();
        let name = manifest.split('"').nth(1).unwrap().replace('-', "_");
        crates.push((name, format!("{member}/src/lib.rs")));
    }
    crates
}

/// Imports of all crates.
static IMPORTS: LazyLock<Imports> = LazyLock::new(|| {
    let sources = Sources::read(root(), &crates());
    assert!(sources.files().len() > 300, "most files were not found");
    sources.imports()
});

/// Modules that still import each other: the kernel layer keeps descriptors of its own, which `proc` feeds.
const TO_BE_OPENED: (&str, &str) = ("tracer/proc", "tracer/kernel");

/// Groups of nodes that reach each other.
fn circles<'a>(edges: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Vec<&'a str>> {
    let mut graph: DiGraph<&str, ()> = DiGraph::new();
    let mut places = BTreeMap::new();
    for (from, to) in edges {
        let [from, to] =
            [from, to].map(|node| *places.entry(node).or_insert_with(|| graph.add_node(node)));
        graph.add_edge(from, to, ());
    }
    let groups = tarjan_scc(&graph).into_iter();
    let circles = groups.filter(|group| group.len() > 1);
    circles
        .map(|circle| circle.into_iter().map(|place| graph[place]).collect())
        .collect()
}

#[test]
fn no_two_files_import_each_other() {
    let edges = IMPORTS.keys().map(|(from, to)| (&**from, &**to));
    let mut report = String::new();
    for circle in circles(edges) {
        report += &format!("a circle of {} files:\n", circle.len());
        for ((from, to), names) in &*IMPORTS {
            if circle.contains(&&**from) && circle.contains(&&**to) {
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                report += &format!("  {from} imports {to}: {}\n", names.join(", "));
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

/// Crate and module of a file: `profiler` and `load` for `profiler/src/load/streams.rs`.
fn place<'a>(crates: &'a [(String, String)], file: &'a str) -> (&'a str, &'a str) {
    let inside = crates.iter().filter_map(|(_, first)| {
        let (src, _) = first.rsplit_once('/')?;
        let rest = file.strip_prefix(src)?.strip_prefix('/')?;
        Some((src, rest))
    });
    let (src, rest) = inside.max().expect("every file is of a crate");
    let name = src.strip_suffix("/src").unwrap_or(src);
    let module = rest.split('/').next().unwrap_or(rest);
    (name, module.trim_end_matches(".rs"))
}

/// Edges that docs/architecture.md draws. Each line of a block marked `modules` is `crate/module -> others`;
/// the others are modules of the same crate, or crates. Modules of the binary are not listed.
fn drawn() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join(DRAWING)).unwrap();
    let blocks = text.split("```modules\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("```").next().unwrap_or("").lines());
    let mut drawn = BTreeMap::new();
    for line in lines {
        let (from, to) = line.split_once("->").unwrap_or((line, ""));
        let to = to.split_whitespace().map(str::to_owned).collect();
        let again = drawn.insert(from.trim().to_owned(), to);
        assert!(again.is_none(), "{DRAWING} lists {from} twice");
    }
    drawn
}

#[test]
fn modules_use_each_other_as_drawn() {
    let crates = crates();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (from, to) in IMPORTS.keys() {
        let ((own, module), (other, target)) = (place(&crates, from), place(&crates, to));
        // A file next to lib.rs and the directory of the same name are one module.
        if own == "src" || own == other && module == target {
            continue;
        }
        let target = if own == other { target } else { other };
        let edges = found.entry(format!("{own}/{module}")).or_default();
        edges.insert(target.to_owned());
    }
    let drawn = drawn();
    let mut report = String::new();
    let all: BTreeSet<&String> = found.keys().chain(drawn.keys()).collect();
    let none = BTreeSet::new();
    for module in all {
        let (is, should) = (
            found.get(module).unwrap_or(&none),
            drawn.get(module).unwrap_or(&none),
        );
        if is != should {
            let is: Vec<&str> = is.iter().map(String::as_str).collect();
            report += &format!("{module} -> {}\n", is.join(" "));
        }
    }
    assert!(
        report.is_empty(),
        "{DRAWING} draws other edges; the code has:\n{report}"
    );
}

#[test]
fn modules_form_no_circle() {
    let drawn = drawn();
    let mut edges: Vec<(String, String)> = Vec::new();
    for (from, to) in &drawn {
        let (own, _) = from.rsplit_once('/').expect("crate/module");
        for to in to {
            let inside = format!("{own}/{to}");
            // A crate whose modules are not listed is a leaf.
            if drawn.contains_key(&inside) && (&**from, &*inside) != TO_BE_OPENED {
                edges.push((from.clone(), inside));
            }
        }
    }
    let circles = circles(edges.iter().map(|(from, to)| (&**from, &**to)));
    assert!(circles.is_empty(), "{DRAWING} draws circles: {circles:?}");
}
