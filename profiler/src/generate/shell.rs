//! A script for bash that starts each step as soon as what it needs is there, several at once.

use std::fmt::Write;

use super::words::ROOT_VARIABLE;
use super::{Plan, said};

/// Writes a script.
pub fn text(plan: &Plan) -> String {
    let mut text = String::from("#!/bin/bash\n");
    text += &said::head(
        plan,
        "Run it in the directory with the inputs. JOBS: how many steps at once.",
    );
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "
set -u
export {ROOT_VARIABLE}=$PWD
jobs_at_once=${{JOBS:-$(nproc)}}
[[ $jobs_at_once =~ ^[1-9][0-9]*$ ]] || {{ echo \"JOBS must be a number from 1 on\" >&2; exit 2; }}
declare -A pid
failed=

# Waits for the steps that a step needs; gives up when one failed.
need() {{
  local step
  for step; do
    wait \"${{pid[$step]}}\" || {{ echo \"step $step failed\" >&2; failed=1; break; }}
  done
  [ -z \"$failed\" ] || {{ wait; exit 1; }}
  while [ \"$(jobs -rp | wc -l)\" -ge \"$jobs_at_once\" ]; do wait -n; done
}}
"
    );
    // By depth, so that steps that can begin stand before steps that wait and would delay those after
    // them.
    let mut depth = vec![0usize; plan.steps.len()];
    for (at, step) in plan.steps.iter().enumerate() {
        depth[at] = step
            .after
            .iter()
            .map(|after| depth[after.step] + 1)
            .max()
            .unwrap_or(0);
    }
    let mut order: Vec<usize> = (0..plan.steps.len()).collect();
    order.sort_by_key(|&at| (depth[at], at));
    for at in order {
        let step = &plan.steps[at];
        let needs: Vec<&str> = step
            .after
            .iter()
            .map(|after| plan.steps[after.step].id.as_str())
            .collect();
        let needs = needs.iter().map(|id| format!(" {id}")).collect::<String>();
        let line = said::script(step);
        let _ = write!(text, "\nneed{needs}\n( {line} ) &\npid[{}]=$!\n", step.id);
    }
    text += "\nfor step in \"${!pid[@]}\"; do\n  wait \"${pid[$step]}\" || { echo \"step $step failed\" >&2; failed=1; }\ndone\n[ -z \"$failed\" ]\n";
    text
}
