//! What people call a process: by its rule, told from others of the rule by its id.

use std::collections::HashMap;

use flowtrace_schema::{ProcessRow, Result, Trace};

use super::infer_rows;
use crate::text::units;

/// The name of every process image of a trace, by upid: `srv.py (pid 7)`, and `srv.py (pid 7 on node1)`
/// where there are several hosts. The rule is the one that `summary` and `dag` show.
///
/// # Errors
/// When the trace cannot be read.
pub fn labels(trace: &Trace) -> Result<HashMap<i64, String>> {
    let is_one = trace.hosts()?.len() < 2;
    let rows = trace.processes()?;
    let inferred = match rows.iter().any(|row| row.rule.is_none()) {
        true => infer_rows(trace, &rows)?,
        false => Vec::new(),
    };
    Ok(of_rows(&rows, &inferred, is_one))
}

fn of_rows(rows: &[ProcessRow], inferred: &[String], is_one_host: bool) -> HashMap<i64, String> {
    let label = |(at, row): (usize, &ProcessRow)| {
        let rule = row.rule.as_deref().or(inferred.get(at).map(String::as_str));
        let rule = units::plain(rule.unwrap_or(super::UNKNOWN));
        let host = match &row.host {
            Some(host) if !is_one_host => format!(" on {}", units::plain(host)),
            _ => String::new(),
        };
        (row.upid, format!("{rule} (pid {}{host})", row.pid))
    };
    rows.iter().enumerate().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_called_by_its_name() {
        let row = |upid, rule: Option<&str>, host: &str| ProcessRow {
            upid,
            pid: upid + 100,
            host: Some(host.into()),
            exe: Some("/usr/bin/python3.11".into()),
            command: Some("python3 /opt/srv.py --port 1".into()),
            rule: rule.map(String::from),
            origin: "seen".into(),
            ..ProcessRow::default()
        };
        let rows = [row(1, None, "a"), row(2, Some("serve"), "b")];
        let inferred = ["srv.py".into(), "srv.py".into()];
        let one = of_rows(&rows, &inferred, true);
        assert_eq!(
            (&*one[&1], &*one[&2]),
            ("srv.py (pid 101)", "serve (pid 102)")
        );
        assert_eq!(of_rows(&rows, &inferred, false)[&2], "serve (pid 102 on b)");
    }
}
