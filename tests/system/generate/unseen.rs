//! Steps of which the trace records little or nothing, and whose order must stay the same all the same.

use std::path::Path;

use super::{traced, traced_into};
use crate::support::Scratch;

/// Script that makes a tool, makes it executable, executes it, renames it, executes it again and removes it.
fn tool_at(directory: &Path) -> String {
    let script = "cp in $O/tool.in\nprintf '#!/bin/sh\\nwc -l < in > made.$1\\n' > tool.sh\n\
                  cp tool.sh $O/tool\nchmod +x $O/tool\n$O/tool 1\nmv $O/tool $O/other\n\
                  $O/other 2\nrm $O/other\nsort -r $O/tool.in > reversed\n";
    script.replace("$O", directory.to_str().unwrap())
}

/// The line of a Makefile with the prerequisites of a step.
fn line<'a>(makefile: &'a str, target: &str) -> &'a str {
    let mut lines = makefile.lines();
    let found = lines.find(|line| line.starts_with(&format!("{target}:")));
    found.unwrap_or_else(|| panic!("no {target}\n{makefile}"))
}

/// Of files elsewhere only opens are recorded, but no change of mode, rename or removal.
#[test]
fn what_is_done_to_the_names_of_files_elsewhere_keeps_its_order() {
    let elsewhere = Scratch::new();
    let script = tool_at(&elsewhere.dir("o"));
    let Some(traced) = traced(&script, &["--layer", "fuse"], &["bash", "script"]) else {
        return;
    };
    let (code, errors) = traced.generate("make", &[]);
    assert_eq!(code, 1, "{errors}");
    for step in [
        "cp_2 cannot be generated: it wrote ",
        "mv_1 cannot be generated: it renamed or removed ",
    ] {
        assert!(errors.contains(step), "{step}\n{errors}");
    }
    let text = traced.text("make");
    for (target, before) in [
        ("$(STEPS)/chmod_1", "$(STEPS)/cp_2"),
        ("made.1", "$(STEPS)/chmod_1"),
        ("$(STEPS)/mv_1", "made.1"),
        ("made.2", "$(STEPS)/mv_1"),
        ("$(STEPS)/rm_1", "made.2"),
    ] {
        assert!(
            line(&text, target).contains(before),
            "{target} after {before}\n{text}"
        );
    }
    // A step that only reads another file there waits for the writer of that file alone.
    let free = line(&text, "reversed");
    assert!(!free.contains("rm_1") && !free.contains("mv_1"), "{free}");
}

/// A step that removes a temporary file must be the one that used it, not one that ran at the same time.
#[test]
fn temporary_files_elsewhere_give_no_order_to_what_ran_at_once() {
    let elsewhere = Scratch::new();
    let tool = "t=$O/$1.tmp; sort in > $t; sleep 0.2; sort -r $t > $1; rm $t; sleep 0.2\n";
    let tool = tool.replace("$O", elsewhere.dir("o").to_str().unwrap());
    let script = format!(
        "echo '{tool}' > tool.sh; sh tool.sh a & sleep 0.1; sh tool.sh b & wait\ncat a b > both\n"
    );
    let Some(traced) = traced(&script, &[], &["bash", "script"]) else {
        return;
    };
    let (code, errors) = traced.generate("make", &[]);
    assert_eq!(code, 0, "{errors}");
    let text = traced.text("make");
    let (a, b) = (line(&text, "a"), line(&text, "b"));
    assert!(!a.contains(" b") && !b.contains(" a"), "{a}\n{b}\n{text}");
    assert!(line(&text, "both").contains(" a b"), "{text}");
}

/// A file that the script wrote itself has its old mode. Inputs that make cannot know or make again are
/// reported.
#[test]
fn files_of_the_script_keep_their_mode_and_notes_name_unchanged_inputs() {
    let script = "umask 077; echo secret > pw\nn=$(wc -l < in)\ncat <<X > conf\nn=$n\nX\n\
                  sort in > t; uniq t > o; rm t\n";
    let Some(traced) = traced(script, &[], &["bash", "script"]) else {
        return;
    };
    let (code, errors) = traced.generate("make", &[]);
    assert_eq!(code, 0, "{errors}");
    let text = traced.text("make");
    assert!(
        text.contains("umask 0066 && printf %s $$'secret\\n' > pw"),
        "{text}"
    );
    for note in [
        "cat_1 has a here-document or here-string",
        "t was removed or renamed on the way",
    ] {
        assert!(errors.contains(note), "{note}\n{errors}");
    }
}

/// The output of the whole run goes to a file elsewhere. Text that the script itself writes there belongs to
/// no step.
#[test]
fn output_of_the_script_itself_needs_no_step() {
    let elsewhere = Scratch::new();
    let log = elsewhere.join("log");
    let script = "id -un; echo x; sort $0 > sorted; echo y\n";
    let Some(traced) = traced_into(Some(&log), script, &[], &["bash", "script"]) else {
        return;
    };
    assert!(std::fs::read_to_string(&log).unwrap().ends_with("x\ny\n"));
    let (code, errors) = traced.generate("make", &[]);
    assert_eq!(code, 0, "{errors}");
    let text = traced.text("make");
    assert!(
        text.contains("id -un") && text.contains("sorted:"),
        "{text}"
    );
}

/// Without stops at opens the actions on files elsewhere are unknown, so that only the order of the run is
/// known to be right.
#[test]
fn steps_keep_the_order_of_a_run_that_did_not_see_files_elsewhere() {
    let elsewhere = Scratch::new();
    let script = tool_at(&elsewhere.dir("o"));
    let Some(traced) = traced(&script, &["--no-topology"], &["bash", "script"]) else {
        return;
    };
    let (code, errors) = traced.generate("make", &[]);
    assert_eq!(code, 0, "{errors}");
    assert!(
        errors.contains("steps keep the order in which they ran"),
        "{errors}"
    );
    let text = traced.text("make");
    for (target, before) in [
        ("$(STEPS)/mv_1", "made.1"),
        ("made.2", "$(STEPS)/mv_1"),
        ("reversed", "$(STEPS)/rm_1"),
    ] {
        assert!(
            line(&text, target).contains(before),
            "{target} after {before}\n{text}"
        );
    }
}

/// If both ptrace and stops were turned off, the message names the option that has to go.
#[test]
fn the_hint_names_the_option_that_took_redirections_away() {
    let options = ["--no-ptrace", "--no-topology"];
    let Some(traced) = traced("sort in > out\n", &options, &["bash", "script"]) else {
        return;
    };
    let (code, errors) = traced.generate("make", &[]);
    assert_eq!(code, 2, "{errors}");
    let by_kernel = traced.summary().contains("(tracepoints)");
    let option = match by_kernel {
        true => "without --no-topology",
        false => "without --no-ptrace",
    };
    assert!(errors.contains(option), "{errors}");
    assert!(
        traced
            .summary()
            .contains("pipes, sockets and files elsewhere are not seen")
    );
}
