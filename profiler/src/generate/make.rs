//! A Makefile for GNU make 4.3 or newer.
//!
//! A step whose files last and are its alone is a rule with these files as its (grouped) targets. Any
//! other step (it removed, renamed or changed something, or made a name that make cannot write)
//! marks that it was done by an empty file in `$(STEPS)`.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write;

use super::said::{self, comment};
use super::words::ROOT_VARIABLE;
use super::{Plan, Step};

/// Made first of all, for what would look as if it was made already. Names of steps end with a number.
const BEGUN: &str = "$(STEPS)/begun";

/// Whether a step makes a file anew that was there before the run.
fn replaces_older(step: &Step) -> bool {
    let older = step.takes.iter().filter(|take| take.from.is_none());
    let mut older = older.map(|take| &take.place);
    older.any(|place| step.outputs.iter().any(|output| output.place == *place))
}

/// Writes a Makefile.
pub fn text(plan: &Plan) -> String {
    // As make wants them where they are needed, where `%` is plain.
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
    // Writing to a String cannot fail. All of them: a file that others read is missed as well.
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

/// The targets of a step, written as prerequisites; of a marked one the mark.
fn targets(step: &Step) -> Vec<String> {
    let mark = vec![format!("$(STEPS)/{}", step.id)];
    if step.needs_mark || step.script.is_err() {
        return mark;
    }
    let lasting = step
        .outputs
        .iter()
        .filter(|output| output.lasts && output.place.is_below());
    let names: Vec<String> = lasting
        .filter_map(|output| name(output.place.path()))
        .collect();
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
            // By its name, where that is a target.
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
        let _ = writeln!(text, "\t@rm -f -- {}", names.replace('$', "$$"));
    }
    let at = if step.script.is_ok() { "" } else { "@" };
    let _ = writeln!(text, "\t{at}{}", said::script(step).replace('$', "$$"));
    if is_marked && step.script.is_ok() {
        let _ = writeln!(text, "\t@mkdir -p -- '$(STEPS)' && : > '$@'");
    }
    text.push('\n');
}

/// What a step left in an earlier run of make, and did not find in the traced one: some programs
/// refuse to replace it, others would add to it.
fn stale(step: &Step) -> Option<String> {
    let new = step
        .outputs
        .iter()
        .filter(|output| output.place.is_below() && !step.finds(&output.place));
    let mut names: Vec<String> = new
        .map(|output| super::words::quote(output.place.path()))
        .collect();
    names.dedup();
    // A name with a line break would end the recipe's line.
    (step.script.is_ok() && !names.is_empty()).then(|| names.join(" "))
}

/// For each step the files from before the run whose change makes it run again although it does
/// not read them: where later steps change its files in place, all have to begin with it anew.
fn anew(plan: &Plan) -> Vec<BTreeSet<&str>> {
    // What each step depends on, as files from before the run.
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
    // From the last change of a file back to the step that made it.
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

/// Prerequisites as targets: there `%` would make a pattern.
fn as_targets(names: &[String]) -> String {
    names.join(" ").replace('%', "\\%")
}

/// A path as a prerequisite; `None`: make has no way to write it.
fn name(path: &str) -> Option<String> {
    let is_bad = |c: char| c.is_control() || matches!(c, ';' | '|' | '\u{fffd}');
    let has_bad_backslash = path.ends_with('\\')
        || path.contains("\\ ")
        || path.contains("\\:")
        || path.contains("\\#")
        || path.contains("\\%");
    // A member of an archive is written so.
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
