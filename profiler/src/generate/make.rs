//! A Makefile for GNU make 4.3 or newer.
//!
//! A step becomes a rule with its files as (grouped) targets if these files last and no other step
//! makes them. Any other step marks its end by an empty file in `$(STEPS)`: it removed, renamed or
//! changed something, or made a name that make cannot write.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write;

use super::said::{self, comment};
use super::words::ROOT_VARIABLE;
use super::{Plan, Step};

/// A file made before all others. Files that existed before the run and are made anew depend on it, so
/// that make does not take them for made. No step has this name, since names of steps end with a
/// number.
const BEGUN: &str = "$(STEPS)/begun";

/// Returns true if a step makes a file anew that existed before the run.
fn replaces_older(step: &Step) -> bool {
    let older = step.takes.iter().filter(|take| take.from.is_none());
    let mut older = older.map(|take| &take.place);
    older.any(|place| step.outputs.iter().any(|output| output.place == *place))
}

/// Writes a Makefile.
pub fn text(plan: &Plan) -> String {
    // Written as prerequisites, where `%` is an ordinary character.
    let targets: Vec<Vec<String>> = plan.steps.iter().map(targets).collect();
    let used: HashSet<&str> = plan
        .steps
        .iter()
        .flat_map(|step| {
            let outputs = step.outputs.iter().map(|output| output.place.path());
            outputs.chain(step.inputs.iter().map(|input| input.place.path()))
        })
        .collect();
    let all = unused("all", &used);
    let clean = unused("forget", &used);
    let mut text = head(plan, &all);
    // Writing to a String cannot fail. All targets are listed, so that one that only other steps read
    // is made again if it is missing.
    let _ = write!(text, ".PHONY: {all} {clean}\n{all}:");
    for goal in targets.iter().flatten() {
        text += " \\\n  ";
        text += goal;
    }
    text += "\n\n# Forget which steps without files of their own were done.\n";
    let _ = writeln!(text, "{clean}:\n\trm -rf -- '$(STEPS)'\n");
    let places: HashSet<String> = targets.iter().flatten().cloned().collect();
    let anew = anew(plan);
    if plan.steps.iter().any(replaces_older) {
        let _ = writeln!(
            text,
            "# Newer than files that were there before and are made anew.\n{BEGUN}:\n\t@mkdir -p -- '$(STEPS)' && : > '$@'\n"
        );
    }
    forgetting(&mut text, plan, &targets);
    for ((step, names), anew) in plan.steps.iter().zip(&targets).zip(&anew) {
        rule(&mut text, step, names, &targets, &places, anew);
    }
    text
}

fn unused(wanted: &str, used: &HashSet<&str>) -> String {
    let mut name = wanted.to_owned();
    while used.contains(name.as_str()) {
        name += "-steps";
    }
    name
}

fn head(plan: &Plan, all: &str) -> String {
    let mut text = said::head(
        plan,
        "Run it in the directory with the inputs:  make -f this-file -j 8",
    );
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "
ifeq ($(filter grouped-target,$(.FEATURES)),)
$(error this Makefile needs GNU make 4.3 or newer)
endif
.DEFAULT_GOAL := {all}
SHELL := /bin/bash
MAKEFLAGS += -r
.DELETE_ON_ERROR:
.SUFFIXES:
EQ := =
# Where steps without files of their own are marked as done.
STEPS ?= .flowtrace
export {ROOT_VARIABLE} := $(CURDIR)

"
    );
    text
}

/// The targets of a step, written as prerequisites; of a marked step its mark.
fn targets(step: &Step) -> Vec<String> {
    let mark = vec![format!("$(STEPS)/{}", step.id)];
    if step.needs_mark || step.script.is_err() {
        return mark;
    }
    let names: Vec<String> = lasting(step).filter_map(name).collect();
    if names.is_empty() { mark } else { names }
}

fn rule(
    text: &mut String,
    step: &Step,
    names: &[String],
    targets: &[Vec<String>],
    made: &HashSet<String>,
    anew: &BTreeSet<&str>,
) {
    let is_marked = names[0].starts_with("$(STEPS)/");
    let mut needs: BTreeSet<String> = BTreeSet::new();
    let mut only_order: BTreeSet<String> = BTreeSet::new();
    for after in &step.after {
        let goal = targets[after.step][0].clone();
        if after.is_data {
            needs.insert(goal);
        } else {
            only_order.insert(goal);
        }
    }
    for input in step.inputs.iter().filter(|input| input.lasts) {
        let Some(name) = name(input.place.path()) else {
            let _ = writeln!(text, "# also needs {}", comment(input.place.path()));
            continue;
        };
        match input.from {
            None => {
                needs.insert(name);
            }
            // The file's name, if it is a target.
            Some(from) => {
                if targets[from].contains(&name) && made.contains(&name) {
                    needs.remove(&targets[from][0]);
                    needs.insert(name);
                }
            }
        }
    }
    needs.extend(anew.iter().filter_map(|path| name(path)));
    if !is_marked && replaces_older(step) {
        needs.insert(BEGUN.into());
    }
    only_order.retain(|name| !needs.contains(name));
    let separator = if names.len() > 1 { " &:" } else { ":" };
    let _ = write!(text, "# {}\n{}{separator}", step.id, as_targets(names));
    for name in &needs {
        let _ = write!(text, " {name}");
    }
    if !only_order.is_empty() {
        text.push_str(" |");
        for name in &only_order {
            let _ = write!(text, " {name}");
        }
    }
    text.push('\n');
    if let Some(names) = stale(step) {
        let _ = writeln!(text, "\t@rm -f -- {names}");
    }
    let directories = directories(step);
    if !step.makes_directories_only && !directories.is_empty() {
        // The deepest directories first. Directories with files of others stay.
        let _ = writeln!(
            text,
            "\t@rmdir -- {} 2> /dev/null || :",
            Vec::from_iter(directories.iter().rev().cloned()).join(" ")
        );
    }
    let at = if step.script.is_ok() { "" } else { "@" };
    let script = said::script(step).replace('$', "$$");
    let _ = match step.makes_directories_only && !directories.is_empty() {
        true => {
            // The directories may exist, and the files that others put in them must stay.
            let is_there = directories.iter().map(|name| format!("[ -d {name} ]"));
            let are_there = Vec::from_iter(is_there).join(" && ");
            writeln!(
                text,
                "\t{are_there} || {{ {script}; }} || {{ {are_there}; }}"
            )
        }
        false => writeln!(text, "\t{at}{script}"),
    };
    if is_marked && step.script.is_ok() {
        let _ = writeln!(text, "\t@mkdir -p -- '$(STEPS)' && : > '$@'");
    }
    text.push('\n');
}

/// Makes make forget, before anything else, steps whose results are gone. A step does not count as done
/// if a file that it left is gone; nor does a step that made a file which such a step needs and which
/// the run did not leave. The rule's target is an included makefile that is never made.
fn forgetting(text: &mut String, plan: &Plan, targets: &[Vec<String>]) {
    let is_marked = |step: usize| targets[step][0].starts_with("$(STEPS)/");
    let mut later: Vec<Vec<usize>> = vec![Vec::new(); plan.steps.len()];
    for (at, step) in plan.steps.iter().enumerate() {
        for after in &step.after {
            later[after.step].push(at);
        }
    }
    let mut lines = String::new();
    for (at, step) in plan.steps.iter().enumerate() {
        let again = again(plan, at, &later, &is_marked);
        let needs_more = again.as_ref().is_none_or(|again| again.len() > 1);
        let left = step
            .outputs
            .iter()
            .filter(|output| output.place.is_below() && (output.stays || output.lasts))
            // Make itself sees that a target of the step is missing.
            .filter(|output| is_marked(at) || needs_more || !output.lasts)
            .map(|output| output.place.path());
        let made = step.leaves.iter().map(|leaf| leaf.path.as_str());
        let left: BTreeSet<&str> = left.chain(made).collect();
        if step.script.is_err() || left.is_empty() {
            continue;
        }
        let all = again.is_none().then(|| "'$(STEPS)'".to_owned());
        let again = again.unwrap_or_else(|| BTreeSet::from([at]));
        let gone = again.iter().flat_map(|&step| match is_marked(step) {
            true => vec![format!("'$(STEPS)'/{}", plan.steps[step].id)],
            false => lasting(&plan.steps[step]).map(in_recipe).collect(),
        });
        let gone: BTreeSet<String> = gone.chain(all).collect();
        let left: Vec<String> = left.into_iter().map(in_recipe).collect();
        let _ = writeln!(
            lines,
            "\t@for f in {}; do [ -e \"$$f\" ] || [ -L \"$$f\" ] || {{ rm -rf -- {}; break; }}; done",
            left.join(" "),
            Vec::from_iter(gone).join(" ")
        );
    }
    if !lines.is_empty() {
        let _ = writeln!(
            text,
            "# A step of which something is gone was not done.\n-include $(STEPS)/gone\n.PHONY: $(STEPS)/always\n$(STEPS)/gone: $(STEPS)/always\n{lines}"
        );
    }
}

/// The steps to be done again with this one. These are the steps that made a file which one of them
/// needs and which the run did not leave, and those of the steps after a marked one that only have a
/// mark, since they may remove such files. `None` means that they are too many, and that all steps
/// should be done again.
fn again(
    plan: &Plan,
    step: usize,
    later: &[Vec<usize>],
    is_marked: &impl Fn(usize) -> bool,
) -> Option<BTreeSet<usize>> {
    const MOST: usize = 32;
    const MOST_REACHED: usize = 1 << 10;
    let mut again = BTreeSet::from([step]);
    let mut open = vec![step];
    // The steps that come after a marked step that is done again.
    let mut reached: HashSet<usize> = HashSet::new();
    while let Some(at) = open.pop() {
        if again.len() > MOST || reached.len() > MOST_REACHED {
            return None;
        }
        let needed = plan.steps[at].inputs.iter().filter(|input| !input.lasts);
        let needed = needed.map(|input| (&input.place, input.from));
        let taken = plan.steps[at].takes.iter();
        let needed = needed.chain(taken.map(|take| (&take.place, take.from)));
        let mut more: Vec<usize> = needed
            .filter_map(|(place, from)| Some((place, from?)))
            .filter(|(place, from)| {
                let mut outputs = plan.steps[*from].outputs.iter();
                !outputs.any(|output| output.place == **place && output.stays)
            })
            .map(|(_, from)| from)
            .collect();
        if is_marked(at) && reached.insert(at) {
            let mut after = vec![at];
            while let Some(before) = after.pop() {
                for &later in &later[before] {
                    if reached.insert(later) {
                        after.push(later);
                        more.extend(Some(later).filter(|&later| is_marked(later)));
                    }
                }
                if reached.len() > MOST_REACHED {
                    return None;
                }
            }
        }
        open.extend(more.into_iter().filter(|&step| again.insert(step)));
    }
    Some(again)
}

/// The files of a step below the root that last.
fn lasting(step: &Step) -> impl Iterator<Item = &str> {
    let lasting = step.outputs.iter();
    let lasting = lasting.filter(|output| output.lasts && output.place.is_below());
    lasting.map(|output| output.place.path())
}

/// A name as a word of a recipe.
fn in_recipe(path: &str) -> String {
    super::words::quote(path).replace('$', "$$")
}

/// The directories that a step made anew, each after those in which it lies.
fn directories(step: &Step) -> Vec<String> {
    let made = step.leaves.iter().filter(|_| step.script.is_ok());
    let made = made.filter(|leaf| leaf.is_new && leaf.is_directory);
    made.map(|leaf| in_recipe(&leaf.path)).collect()
}

/// A command that removes the files that a step left in an earlier run of make and did not find in the
/// traced run. Some programs refuse to replace such a file, others would add to it.
fn stale(step: &Step) -> Option<String> {
    let new = step
        .outputs
        .iter()
        .filter(|output| output.place.is_below() && !step.finds(&output.place));
    let new = new.map(|output| output.place.path());
    let others = step.leaves.iter();
    let others = others.filter(|leaf| leaf.is_new && !leaf.is_directory);
    let others = others.map(|leaf| leaf.path.as_str());
    let mut names: Vec<String> = new.chain(others).map(in_recipe).collect();
    names.dedup();
    // A name with a line break would end the recipe's line.
    (step.script.is_ok() && !names.is_empty()).then(|| names.join(" "))
}

/// For each step the files from before the run that it does not read, but whose change makes it run
/// again: later steps change its files in place, and all of them have to begin with these files anew.
fn anew(plan: &Plan) -> Vec<BTreeSet<&str>> {
    // The files from before the run on which each step depends.
    let mut roots: Vec<BTreeSet<&str>> = Vec::with_capacity(plan.steps.len());
    for step in &plan.steps {
        let own = step
            .inputs
            .iter()
            .filter(|input| input.from.is_none() && input.lasts);
        let mut of_step: BTreeSet<&str> = own.map(|input| input.place.path()).collect();
        for after in step.after.iter().filter(|after| after.is_data) {
            of_step.extend(&roots[after.step]);
        }
        roots.push(of_step);
    }
    // From the last change of a file back to the step that made the file.
    let mut anew = vec![BTreeSet::new(); plan.steps.len()];
    for (at, step) in plan.steps.iter().enumerate().rev() {
        let changed = step.takes.iter().filter(|take| take.changes);
        let makers: BTreeSet<usize> = changed.filter_map(|take| take.from).collect();
        let mut needed: BTreeSet<&str> = roots[at].clone();
        needed.extend(&anew[at]);
        for maker in makers {
            let more: Vec<&str> = needed.difference(&roots[maker]).copied().collect();
            anew[maker].extend(more);
        }
    }
    anew
}

/// Prerequisites written as targets, where `%` would make a pattern.
fn as_targets(names: &[String]) -> String {
    names.join(" ").replace('%', "\\%")
}

/// A path as a prerequisite; `None` if make cannot write it.
fn name(path: &str) -> Option<String> {
    let is_bad = |c: char| c.is_control() || matches!(c, ';' | '|' | '\u{fffd}');
    let has_bad_backslash = path.ends_with('\\')
        || path.contains("\\ ")
        || path.contains("\\:")
        || path.contains("\\#")
        || path.contains("\\%");
    // Make takes such a name for a member of an archive.
    let is_member = path.ends_with(')') && path.contains('(');
    if path.is_empty()
        || path.contains(is_bad)
        || has_bad_backslash
        || is_member
        || path.ends_with('&')
    {
        return None;
    }
    let mut text = String::new();
    if path.starts_with(['~', '-', '.']) && !path.starts_with("../") {
        text.push_str("./");
    }
    for c in path.chars() {
        match c {
            ' ' | ':' | '#' | '*' | '?' | '[' => {
                text.push('\\');
                text.push(c);
            }
            '$' => text.push_str("$$"),
            '=' => text.push_str("$(EQ)"),
            c => text.push(c),
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_as_make_reads_them() {
        for (path, expected) in [
            ("a b", Some("a\\ b")),
            ("100%", Some("100%")),
            ("a:b#c", Some("a\\:b\\#c")),
            ("$x", Some("$$x")),
            ("k=v", Some("k$(EQ)v")),
            ("~a", Some("./~a")),
            (".hidden", Some("./.hidden")),
            ("../a", Some("../a")),
            ("it's", Some("it's")),
            ("a\nb", None),
            ("a;b", None),
            ("a (1)", None),
            ("a\\", None),
        ] {
            assert_eq!(name(path).as_deref(), expected, "{path:?}");
        }
        assert_eq!(as_targets(&["100%".into(), "b".into()]), "100\\% b");
    }
}
