//! Reads the rules that a build declares: the data base of make, the graph of ninja, the summary of
//! Snakemake, or a list of edges.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use crate::argv::path_from;

/// The format of a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Output of `make -pn`.
    Make,
    /// Output of `ninja -t graph`, and of `ninja -t deps` after it.
    Ninja,
    /// Output of `snakemake --detailed-summary`.
    Snakemake,
    /// A line for each dependency: the needed file, a tab or blanks, the file made from it.
    Edges,
}

/// Declared rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// Rules by the file that is made, relative to the directory of the run.
    pub rules: BTreeMap<String, Rule>,
    /// Targets that are no files, with what they depend on.
    pub phony: BTreeMap<String, Rule>,
    /// Files that the description names and makes by no rule.
    pub sources: BTreeSet<String>,
    /// Names that go through a symbolic link, each with the name of the file that it leads to.
    pub links: BTreeMap<String, String>,
    /// Targets whose names go through a symbolic link, by the file that it leads to.
    linked: HashMap<String, String>,
    /// Targets whose recipe in make may make directories, by its text. `None` if recipes are not known,
    /// or if the build makes the directories of its outputs by itself.
    pub make_directories: Option<BTreeSet<String>>,
}

/// The dependencies of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Files from which the file is made.
    pub needs: BTreeSet<String>,
    /// Files that only must exist before.
    pub after: BTreeSet<String>,
    /// Files that an earlier build found to be needed (ninja's `deps`). A change of one makes the
    /// target again, but in a build from the beginning it orders nothing.
    pub found: BTreeSet<String>,
}

/// The reason why a description could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable(pub String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Declared {
    /// Reads a description. Absolute paths below `root` become relative to it. Other paths are relative
    /// to `base`.
    ///
    /// # Errors
    /// When the text is not of that kind or declares nothing.
    pub fn read(kind: Kind, text: &str, root: &str, base: &str) -> Result<Declared, Unreadable> {
        let mut declared = Declared::default();
        let add = Adder { root, base };
        match kind {
            Kind::Make => make(&mut declared, text, &add)?,
            Kind::Ninja => ninja(&mut declared, text, &add)?,
            Kind::Snakemake => snakemake(&mut declared, text, &add)?,
            Kind::Edges => edges(&mut declared, text, &add)?,
        }
        for (name, rule) in &mut declared.phony {
            *rule = declared.rules.remove(name).unwrap_or_default();
        }
        let named = declared
            .rules
            .values()
            .flat_map(|rule| rule.needs.iter().chain(&rule.after).chain(&rule.found));
        let sources = named
            .filter(|name| !declared.rules.contains_key(*name))
            .cloned();
        declared.sources = sources.collect();
        match declared.rules.is_empty() {
            true => Err(Unreadable("it declares no file that is made".into())),
            false => Ok(declared),
        }
    }

    /// Follows symbolic links. `real` returns the path of the file that a path leads to, both absolute; `None`
    /// if there is no file.
    pub fn follow_links(&mut self, root: &str, real: impl Fn(&str) -> Option<String>) {
        let named = self.rules.keys().chain(&self.sources);
        let leads = named.filter_map(|name| {
            let path = path_from(root, name);
            let real = real(&path).filter(|real| *real != path)?;
            Some((name.clone(), crate::paths::relative_to(&real, root).into()))
        });
        self.links = leads.collect();
        let links = self.links.iter();
        let of_targets = links.filter(|(name, _)| self.rules.contains_key(*name));
        let linked = of_targets.map(|(name, real)| (real.clone(), name.clone()));
        self.linked = linked.collect();
    }

    /// The target that a file is, under its own name or that of a symbolic link to it.
    pub(super) fn target(&self, file: &str) -> Option<&str> {
        let own = self.rules.get_key_value(file).map(|(name, _)| name);
        own.or_else(|| self.linked.get(file)).map(String::as_str)
    }

    /// Adds to `found` all files that a file is declared to need, directly or not; with `with_found`,
    /// also those that an earlier build found.
    pub(super) fn reach<'a>(
        &'a self,
        target: &str,
        with_found: bool,
        found: &mut HashSet<&'a str>,
    ) {
        let mut left: Vec<&str> = vec![target];
        while let Some(name) = left.pop() {
            let rule = self.target(name).and_then(|name| self.rules.get(name));
            let Some(rule) = rule.or_else(|| self.phony.get(name)) else {
                continue;
            };
            let of_before = rule.found.iter().filter(|_| with_found);
            for next in rule.needs.iter().chain(&rule.after).chain(of_before) {
                let real = self.links.get(next);
                for name in std::iter::once(next).chain(real) {
                    if found.insert(name) {
                        left.push(name);
                    }
                }
            }
        }
    }

    /// Returns true if a name is that of a file: one made in the run, or one that no rule makes.
    pub(super) fn is_file(&self, name: &str, made: &HashSet<&str>) -> bool {
        made.contains(name) || self.sources.contains(name)
    }
}

struct Adder<'a> {
    root: &'a str,
    base: &'a str,
}

impl Adder<'_> {
    /// The name of a file as in the trace: relative to the root, without `.` and `..`.
    fn name(&self, name: &str) -> String {
        let absolute = path_from(self.base, name);
        crate::paths::relative_to(&absolute, self.root).to_owned()
    }

    fn add(&self, declared: &mut Declared, target: &str, needs: &str, is_order: bool) {
        let rule = declared.rules.entry(self.name(target)).or_default();
        let names = if is_order {
            &mut rule.after
        } else {
            &mut rule.needs
        };
        names.insert(self.name(needs));
    }
}

/// Reads the section "Files" of make's data base. Make does not quote names, so that a name with a
/// blank is read as two.
fn make(declared: &mut Declared, text: &str, add: &Adder<'_>) -> Result<(), Unreadable> {
    let mut is_files = false;
    let mut was_found = false;
    let mut is_target = true;
    let mut last: Vec<String> = Vec::new();
    let mut make_directories = BTreeSet::new();
    for line in text.lines() {
        if line == "# Files" {
            is_files = true;
            was_found = true;
            continue;
        }
        if line.starts_with("# files hash-table stats")
            || line.starts_with("# Finished Make data base")
        {
            is_files = false;
        }
        if !is_files {
            continue;
        }
        if let Some(recipe) = line.strip_prefix('\t') {
            if may_make_directories(recipe) {
                make_directories.extend(last.iter().cloned());
            }
            continue;
        }
        if line.starts_with('#') {
            is_target &= line != "# Not a target:";
            continue;
        }
        if line.is_empty() {
            is_target = true;
            last.clear();
            continue;
        }
        let Some((names, rest)) = line.split_once(':') else {
            continue;
        };
        let rest = rest.trim_start_matches(':');
        // Assignment of a variable for one target.
        if !is_target
            || rest.contains('=')
                && rest
                    .split('=')
                    .next()
                    .is_some_and(|n| n.trim().split(' ').count() == 1)
                && line.contains(" = ")
        {
            continue;
        }
        let names = names.trim_end_matches('&').trim();
        if names == ".PHONY" {
            let names = rest.split_whitespace();
            let rules = names.map(|name| (add.name(name), Rule::default()));
            declared.phony.extend(rules);
            continue;
        }
        // Special targets and suffix rules begin with a point, as hidden files do, but have capitals or
        // no prerequisites.
        if names.starts_with('.')
            && !names.contains('/')
            && (rest.trim().is_empty()
                || names
                    .chars()
                    .skip(1)
                    .all(|c| c.is_ascii_uppercase() || c == '_'))
        {
            continue;
        }
        let (needs, order) = rest.split_once('|').unwrap_or((rest, ""));
        last = names
            .split_whitespace()
            .map(|name| add.name(name))
            .collect();
        for name in names.split_whitespace() {
            declared.rules.entry(add.name(name)).or_default();
            for need in needs.split_whitespace() {
                add.add(declared, name, need, false);
            }
            for need in order.split_whitespace() {
                add.add(declared, name, need, true);
            }
        }
    }
    declared.make_directories = Some(make_directories);
    match was_found {
        true => Ok(()),
        false => Err(Unreadable(
            "it has no line \"# Files\", as the output of make -pn has".into(),
        )),
    }
}

/// Returns true if a line of a recipe may make a directory. Variables are not expanded, but a name such
/// as `MKDIR_P` shows it; a called function may contain anything.
fn may_make_directories(recipe: &str) -> bool {
    let recipe = recipe.to_ascii_lowercase();
    ["dir", "install", "$(call", "${call"]
        .iter()
        .any(|word| recipe.contains(word))
}

/// Reads a graph: nodes `"id" [label="name"]`, arrows `"id" -> "id" [label=" rule"]`. A rule with
/// several files is an ellipse.
fn ninja(declared: &mut Declared, text: &str, add: &Adder<'_>) -> Result<(), Unreadable> {
    if !text.lines().any(|line| line.starts_with("digraph ninja")) {
        return Err(Unreadable(
            "it has no \"digraph ninja\", as the output of ninja -t graph has".into(),
        ));
    }
    let mut files: HashMap<&str, String> = HashMap::new();
    let (mut rules, mut phony): (HashSet<&str>, HashSet<&str>) = Default::default();
    let mut arrows: Vec<(&str, &str, bool)> = Vec::new();
    let mut output: Option<String> = None;
    for line in text.lines() {
        if let Some((name, _)) = line.split_once(": #deps ") {
            output = Some(add.name(name));
            continue;
        }
        if let (Some(name), Some(need)) = (&output, line.strip_prefix("    ")) {
            let rule = declared.rules.entry(name.clone()).or_default();
            rule.found.insert(add.name(need));
            continue;
        }
        output = None;
        let Some((from, rest)) = quoted(line) else {
            continue;
        };
        if let Some(rest) = rest.trim_start().strip_prefix("->") {
            let Some((to, rest)) = quoted(rest.trim_start()) else {
                continue;
            };
            arrows.push((from, to, rest.contains("style=dotted")));
        } else if let Some(at) = rest.find("label=\"") {
            let label = &rest[at + "label=".len()..];
            if rest.contains("shape=ellipse") {
                rules.insert(from);
                if label.starts_with("phony\"") {
                    phony.insert(from);
                }
            } else if let Some((label, _)) = quoted(label) {
                files.insert(from, label.replace("\\\\", "\\"));
            }
        }
    }
    let mut of_rule: HashMap<&str, Vec<&str>> = HashMap::new();
    for &(from, to, _) in &arrows {
        if rules.contains(from) {
            of_rule.entry(from).or_default().push(to);
            // A file made by `phony` from no other file is a source that may be missing.
            if let Some(file) = files.get(to).filter(|_| !phony.contains(from)) {
                declared.rules.entry(add.name(file)).or_default();
            }
        }
    }
    for (from, to, is_order) in arrows {
        let Some(need) = files.get(from) else {
            continue;
        };
        let targets = of_rule.get(to).cloned().unwrap_or_else(|| vec![to]);
        for target in targets.into_iter().filter_map(|id| files.get(id)) {
            add.add(declared, target, need, is_order);
        }
    }
    // Of phony rules the graph only has the names.
    Ok(())
}

/// The text between the first two quotes, and the rest after them.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix('"')?;
    let end = rest.find('"')?;
    Some((&rest[..end], &rest[end + 1..]))
}

/// Reads a table with the columns `output_file` and `input-file(s)`, the latter separated by commas.
fn snakemake(declared: &mut Declared, text: &str, add: &Adder<'_>) -> Result<(), Unreadable> {
    let mut lines = text
        .lines()
        .skip_while(|line| !line.starts_with("output_file\t"));
    let header: Vec<&str> = lines.next().unwrap_or_default().split('\t').collect();
    let column = |name: &str| header.iter().position(|column| *column == name);
    let (Some(output), Some(input)) = (column("output_file"), column("input-file(s)")) else {
        return Err(Unreadable(
            "it has no columns output_file and input-file(s), as the output of snakemake --detailed-summary has".into(),
        ));
    };
    for line in lines {
        let fields: Vec<&str> = line.split('\t').collect();
        let (Some(output), Some(inputs)) = (fields.get(output), fields.get(input)) else {
            continue;
        };
        declared.rules.entry(add.name(output)).or_default();
        for need in inputs
            .split(',')
            .filter(|need| !need.is_empty() && *need != "-")
        {
            add.add(declared, output, need, false);
        }
    }
    Ok(())
}

fn edges(declared: &mut Declared, text: &str, add: &Adder<'_>) -> Result<(), Unreadable> {
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let pair = line
            .split_once('\t')
            .or_else(|| line.split_once(char::is_whitespace));
        let Some((need, target)) = pair else {
            return Err(Unreadable(format!(
                "line {} is not two names, what is needed and what is made of it",
                at + 1
            )));
        };
        add.add(declared, target.trim_start(), need, false);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(declared: &Declared, target: &str) -> Vec<String> {
        declared.rules[target].needs.iter().cloned().collect()
    }

    #[test]
    fn the_data_base_of_make() {
        let text = "cc -c x.c\n# Variables\nA = b: c\n# Files\n# Not a target:\nx.c:\n#  Implicit rule\n\n\
                    ./x.o: x.c sub/../x.h | out\n#  recipe to execute (from 'Makefile', line 3):\n\tcc -c x.c\n\n\
                    a b&: x.o\n\n.PHONY: all\n\nall: a\n\n.SUFFIXES:\n\n.hidden: x.c\n\n# files hash-table stats:\nz: y\n";
        let declared = Declared::read(Kind::Make, text, "/w", "/w").unwrap();
        assert_eq!(
            declared.rules.keys().collect::<Vec<_>>(),
            [".hidden", "a", "b", "x.o"]
        );
        assert_eq!(needs(&declared, "x.o"), ["x.c", "x.h"]);
        assert!(declared.rules["x.o"].after.contains("out"));
        let mut found = HashSet::new();
        declared.reach("a", true, &mut found);
        assert!(found.contains("x.h") && found.contains("out"));
        assert!(Declared::read(Kind::Make, "make: *** No rule", "/w", "/w").is_err());
        assert!(Declared::read(Kind::Make, "# Files\n", "/w", "/w").is_err());
    }

    #[test]
    fn the_graph_of_ninja() {
        let text = "digraph ninja {\nrankdir=\"LR\"\n\"0x1\" [label=\"out.o\"]\n\"0x2\" -> \"0x1\" [label=\" cc\"]\n\
                    \"0x2\" [label=\"/w/in.c\"]\n\"0x3\" [label=\"link\", shape=ellipse]\n\"0x3\" -> \"0x4\"\n\"0x4\" [label=\"prog\"]\n\
                    \"0x1\" -> \"0x3\" [arrowhead=none]\n\"0x5\" -> \"0x3\" [arrowhead=none style=dotted]\n\"0x5\" [label=\"gen.h\"]\n}\n\
                    out.o: #deps 1, deps mtime 5 (VALID)\n    in.h\n";
        let declared = Declared::read(Kind::Ninja, text, "/w", "/w").unwrap();
        assert_eq!(needs(&declared, "out.o"), ["in.c"]);
        assert!(declared.rules["out.o"].found.contains("in.h"));
        let below = Declared::read(Kind::Ninja, text, "/w", "/w/build").unwrap();
        assert!(below.rules["build/out.o"].needs.contains("in.c"));
        assert_eq!(needs(&declared, "prog"), ["out.o"]);
        assert!(declared.rules["prog"].after.contains("gen.h"));
    }

    #[test]
    fn the_summary_of_snakemake_and_a_list() {
        let text = "Building DAG\noutput_file\tdate\trule\tlog-file(s)\tinput-file(s)\tshellcmd\tstatus\tplan\n\
                    o\t-\tr\t-\ta,b c\tx\tok\tno update\n";
        let declared = Declared::read(Kind::Snakemake, text, "/w", "/w").unwrap();
        assert_eq!(needs(&declared, "o"), ["a", "b c"]);
        let declared = Declared::read(Kind::Edges, "# x\na b\tc\nd  e\n", "/w", "/w").unwrap();
        assert_eq!(needs(&declared, "c"), ["a b"]);
        assert_eq!(needs(&declared, "e"), ["d"]);
        assert!(Declared::read(Kind::Edges, "alone\n", "/w", "/w").is_err());
    }
}
