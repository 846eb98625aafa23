//! Labels of processes: the rule, with the pid to distinguish processes of one rule.

use std::collections::HashMap;

use flowtrace_render::units;
use flowtrace_schema::{ProcessRow, Result, Trace};

use super::fill_in;

/// The label of every process image of a trace, by upid: `srv.py (pid 7)`, or `srv.py (pid 7 on node1)`
/// if there are several hosts. The rule is the one that `summary` and `dag` show.
///
/// # Errors
/// When the trace cannot be read.
pub fn labels(trace: &Trace) -> Result<HashMap<i64, String>> {
    let is_one = trace.machines()?.len() < 2;
    let mut rows = trace.processes()?;
    fill_in(trace, &mut rows, None)?;
    Ok(of_rows(&rows, is_one))
}

fn of_rows(rows: &[ProcessRow], is_one_host: bool) -> HashMap<i64, String> {
    let label = |row: &ProcessRow| {
        let rule = units::plain(row.rule.as_deref().unwrap_or(super::UNKNOWN));
        let host = match &row.host {
            Some(host) if !is_one_host => format!(" on {}", units::plain(host)),
            _ => String::new(),
        };
        (row.upid, format!("{rule} (pid {}{host})", row.pid))
    };
    rows.iter().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_called_by_its_rule() {
        let row = |upid, rule: &str, host: &str| ProcessRow {
            upid,
            pid: upid + 100,
            host: Some(host.into()),
            rule: Some(rule.into()),
            ..ProcessRow::default()
        };
        let rows = [row(1, "srv.py", "a"), row(2, "serve", "b")];
        let one = of_rows(&rows, true);
        assert_eq!(
            (&*one[&1], &*one[&2]),
            ("srv.py (pid 101)", "serve (pid 102)")
        );
        assert_eq!(of_rows(&rows, false)[&2], "serve (pid 102 on b)");
    }
}
