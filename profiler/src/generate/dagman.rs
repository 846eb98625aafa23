//! A DAG for HTCondor's DAGMan (9 or newer), with its submit description inside: all jobs run in
//! the directory from which it is submitted.

use std::fmt::Write;

use super::words::ROOT_VARIABLE;
use super::{Plan, said};

/// Writes a DAG.
pub fn text(plan: &Plan) -> String {
    let mut text = said::head(
        plan,
        "Submit it in the directory with the inputs, on a filesystem that all machines share.",
    );
    for step in &plan.steps {
        let script = format!("export {ROOT_VARIABLE}=$PWD; {}", said::script(step));
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\nJOB {} {{\n    universe = vanilla\n    executable = /bin/bash\n    transfer_executable = false\n    \
             should_transfer_files = NO\n    getenv = true\n    arguments = {}\n    log = flowtrace.dag.log\n",
            step.id,
            arguments(&["-c", &script])
        );
        if let Some(memory) = step.max_rss_bytes {
            let _ = writeln!(text, "    request_memory = {} MB", (memory >> 20) + 1);
        }
        text += "}\n";
    }
    text.push('\n');
    for step in &plan.steps {
        for after in &step.after {
            let _ = writeln!(
                text,
                "PARENT {} CHILD {}",
                plan.steps[after.step].id, step.id
            );
        }
    }
    text
}

/// Arguments in the new syntax of submit descriptions: the whole in double quotes, each with blanks
/// or quotes in single ones, quotes doubled; `$` would be a macro.
fn arguments(words: &[&str]) -> String {
    let words = words.iter().map(|word| {
        let word = word.replace('"', "\"\"").replace('$', "$(DOLLAR)");
        format!("'{}'", word.replace('\'', "''"))
    });
    format!("\"{}\"", words.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_doubled() {
        assert_eq!(
            arguments(&["-c", "echo \"it's\" $x"]),
            "\"'-c' 'echo \"\"it''s\"\" $(DOLLAR)x'\""
        );
    }
}
