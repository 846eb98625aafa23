//! The head of every specification: the origin of the workflow, the command to run it, and what is
//! missing in it.

use super::words::quote;
use super::{Plan, Step};

/// Longest comment line that repeats text from the trace, in characters.
const LONGEST: usize = 300;

/// The lines of the head, without comment marks.
pub(super) fn lines(plan: &Plan, how_to_run: &str) -> Vec<String> {
    let mut lines = vec![
        format!(
            "Made by flowtrace from a trace of: {}",
            comment(&plan.command)
        ),
        how_to_run.to_owned(),
    ];
    for (step, reason) in plan.refused() {
        lines.push(format!(
            "INCOMPLETE: {}",
            comment(&incomplete(step, reason))
        ));
    }
    lines.extend(
        plan.notes
            .iter()
            .map(|note| format!("Note: {}", comment(note))),
    );
    lines
}

/// The head as comments that begin with `#`.
pub(super) fn head(plan: &Plan, how_to_run: &str) -> String {
    let lines = lines(plan, how_to_run);
    lines.iter().map(|line| format!("# {line}\n")).collect()
}

/// The line of bash of a step. A step that cannot be written down has a line that says so and fails.
pub(super) fn script(step: &Step) -> String {
    match &step.script {
        Ok(script) => script.clone(),
        Err(reason) => format!(
            "printf '%s\\n' {} >&2; exit 1",
            quote(&incomplete(step, reason))
        ),
    }
}

fn incomplete(step: &Step, reason: &str) -> String {
    format!("{} cannot be generated: {reason}", step.id)
}

/// Text from the trace as one line of a comment.
pub(super) fn comment(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    let mut text = flowtrace_render::units::shorten(&text, LONGEST);
    // A backslash at the end would make the next line a part of the comment.
    while text.ends_with('\\') {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_stays_on_its_line() {
        assert_eq!(comment("a\nb\\\\"), "a\u{fffd}b");
        assert!(comment(&"b".repeat(400)).ends_with("b…"));
        let plan = Plan {
            command: "x\ny".into(),
            notes: vec!["n".into()],
            ..Plan::default()
        };
        assert_eq!(
            head(&plan, "Run it."),
            "# Made by flowtrace from a trace of: x\u{fffd}y\n# Run it.\n# Note: n\n"
        );
    }
}
