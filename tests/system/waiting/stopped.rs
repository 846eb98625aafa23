//! A command that was stopped and continued: every analysis names that time.

use super::Traced;
use crate::support::{need_fuse, need_program, prints, unwrapped};

#[test]
fn every_analysis_names_the_time_in_which_a_command_was_stopped() {
    if !need_fuse() || !need_program("perl") {
        return;
    }
    // By samples: the scheduler's events name the shell that continues it, and the sleep that the shell waits for.
    let script = r#"perl -e 'kill "STOP", $$' & stopped=$!
           sleep 3; kill -CONT $stopped; wait"#;
    let run = Traced::by("fuse", "bash", &["-c", script]);
    let asks = |arguments: &[&str]| {
        let arguments = [arguments, &["trace.db"]].concat();
        prints(&run.scratch, &arguments)
    };
    for (command, named) in [
        ("summary", "it was stopped (SIGSTOP or Ctrl-Z)"),
        ("bottlenecks", "it was stopped (SIGSTOP or Ctrl-Z)"),
        ("waits", "stopped"),
        ("resources", "perl -e was stopped (SIGSTOP or Ctrl-Z) for "),
        ("tree", " [stopped "),
        ("critical-path", " [stopped by a signal]"),
    ] {
        let text = unwrapped(&asks(&[command]));
        assert!(text.contains(named), "{command}: {text}");
    }
    let report: serde_json::Value =
        serde_json::from_str(&asks(&["report", "--format", "json"])).unwrap();
    let rules = &report["rules"]["name"];
    let waits = report["waits"]["waits"].as_array().unwrap();
    let stopped = waits.iter().find(|wait| wait["kind"] == "stopped");
    let stopped = stopped.unwrap_or_else(|| panic!("{waits:?}"));
    let rule = stopped["rule"].as_u64().unwrap() as usize;
    assert_eq!(rules[rule], "perl -e");
    assert!(stopped["ns"].as_i64().unwrap() > 2_000_000_000, "{stopped}");
}
