//! Waits for storage, split by the fate of the requests that the waiting steps made.

use flowtrace_render::table::{Align, Table, more};
use flowtrace_render::units;
use flowtrace_schema::StorageRow;

/// Shorter waits are left out, ns.
const SHORT_NS: i64 = 1_000_000;

/// A table of at most `shown` steps, ended by an empty line; an empty string where nothing was recorded.
pub(super) fn table(rows: &[StorageRow], shown: usize) -> String {
    let mut table = Table::new(&[
        ("storage", Align::Left),
        ("blocked", Align::Right),
        ("in a queue", Align::Right),
        ("at the device", Align::Right),
        ("neither", Align::Right),
    ]);
    let rows = rows.iter().filter(|row| row.storage_ns >= SHORT_NS);
    let rows: Vec<_> = rows.collect();
    for row in rows.iter().take(shown) {
        let rest = row.storage_ns - row.queue_ns - row.device_ns;
        table.row(vec![
            units::shorten(&units::plain(&row.step), 32),
            units::duration(row.storage_ns),
            units::duration(row.queue_ns),
            units::duration(row.device_ns),
            units::duration(rest.max(0)),
        ]);
    }
    if table.is_empty() {
        return String::new();
    }
    format!("{}{}\n", table.finish("  "), more(rows.len(), shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_device_and_rest_sum_to_the_wait() {
        let row = |step: &str, storage_ns, queue_ns, device_ns| StorageRow {
            step: step.into(),
            storage_ns,
            queue_ns,
            device_ns,
        };
        let rows = [
            row("sort", 10_000_000, 2_000_000, 7_000_000),
            row("cat", 5_000_000, 0, 5_000_000),
            row("true", 10, 0, 0),
        ];
        let all = table(&rows, 5);
        let sort = all.lines().find(|line| line.contains("sort")).unwrap();
        let cells: Vec<&str> = sort.split_whitespace().collect();
        let expected = [10, 2, 7, 1].map(|ms| units::duration(ms * 1_000_000));
        assert_eq!(cells[1..].join(" "), expected.join(" "));
        assert!(!all.contains("true"), "{all}");
        assert!(table(&rows, 1).contains("+1 more"));
        assert_eq!(table(&[], 5), "");
    }
}
