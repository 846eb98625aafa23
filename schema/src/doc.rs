//! `docs/schema.md`, made from the comments of the SQL files.
//!
//! The comments are the only place where a table, view or column is described; a test compares
//! what this module reads with what SQLite says exists, so none can be left out.

use std::fmt::Write;

use crate::{HostCounter, contract};

/// A documented table or view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// `TABLE` or `VIEW`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Description of one row.
    pub comment: String,
    /// Its columns in order, each with its description.
    pub columns: Vec<(String, String)>,
}

/// Reads the tables and views of a schema file. Relies on the form kept there: a comment above
/// `CREATE`, one column per line, its comment at the end of that line.
pub fn relations(sql: &str) -> Vec<Relation> {
    let mut found = Vec::new();
    let mut comment = String::new();
    let mut open: Option<Relation> = None;
    for line in sql.lines() {
        if let Some(relation) = &mut open {
            if line.starts_with(')') {
                found.extend(open.take());
            } else if let Some(column) = column(line) {
                relation.columns.push(column);
            } else if let Some((_, comment)) = line.split_once("--")
                && let Some((_, last)) = relation.columns.last_mut()
            {
                // The second line of a column that did not fit on one.
                *last = comment.trim().to_owned();
            }
            continue;
        }
        if let Some(text) = line.strip_prefix("--") {
            let separator = if comment.is_empty() { "" } else { " " };
            comment = comment + separator + text.trim();
            continue;
        }
        for kind in ["TABLE", "VIEW"] {
            if let Some(rest) = line.strip_prefix(&format!("CREATE {kind} ")) {
                open = Some(Relation {
                    kind: if kind == "TABLE" { "TABLE" } else { "VIEW" },
                    name: rest.trim_end_matches(['(', ' ']).to_owned(),
                    comment: std::mem::take(&mut comment),
                    columns: Vec::new(),
                });
            }
        }
        comment.clear();
    }
    found
}

/// The public views, in the order of their definition.
pub fn views() -> Vec<Relation> {
    relations(contract::VIEWS)
}

fn column(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let name = line
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .next()?;
    // Column names are lower case here; upper case starts a table constraint.
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_uppercase()) {
        return None;
    }
    let comment = line
        .split_once("--")
        .map_or("", |(_, comment)| comment.trim());
    Some((name.to_owned(), comment.to_owned()))
}

/// The whole page.
pub fn page() -> String {
    let mut page = String::from(
        "# The database\n\n\
         <!-- Made from schema/sql/*.sql by `FLOWTRACE_BLESS=1 cargo test -p flowtrace-schema`. -->\n\n\
         A trace is one SQLite file (SQLite 3.37 or newer, STRICT tables). Any client can read it:\n\
         `sqlite3 trace.db \"SELECT rule, COUNT(*) FROM processes GROUP BY rule\"`. The views are the\n\
         public interface: columns are added over time, never removed and never given a new meaning.\n\
         The tables behind them may change with the schema version (`PRAGMA user_version`).\n\n\
         Times are integer nanoseconds since the start of the recording on the monotonic clock (texts for\n\
         people count from the start of the command, a little later); sizes are bytes; an open end or an unknown value is NULL. A path or argument that is not valid UTF-8 is\n\
         stored as text with U+FFFD, and its exact bytes in the `*_raw` column beside it.\n\n\
         While a run goes on, rows are committed at most every 250 ms or 20 000 rows: after a crash or\n\
         a `kill -9` the file opens and holds all but that (keep the `-wal` file beside it).\n\
         An older trace is kept as `NAME.old`, in place of an earlier one (with `--force` it is removed). Until\n\
         the command runs its name is `NAME.older-PID`, and it comes back if the command cannot run; one that is\n\
         left there is whole.\n\n\
         Calls are kept in the order of time. Those of an instant are found at once, and so are those of a\n\
         file between its `first_ns` and `last_ns`, or of a process while it was alive (the release of a\n\
         file may come later). Any other query reads all calls, about 0.1 s for a million; whoever has\n\
         many of one kind for a large trace can make an index. Packets are kept in the order of time, too.\n\n\
         ```sql\n\
         SELECT c.* FROM processes AS p JOIN calls AS c\n\
         \x20\x20ON c.upid = p.upid AND c.start_ns BETWEEN p.start_ns AND p.end_ns\n\
         WHERE p.rule = 'sort';\n\
         CREATE INDEX call_file ON call (file_id);\n\
         ```\n",
    );
    section(&mut page, "Views", &relations(contract::VIEWS));
    page.push_str("\n## Operations\n\n| op | class | system calls |\n|---|---|---|\n");
    for line in contract::OPERATIONS.lines() {
        let cells: Vec<_> = line.split('\'').collect();
        if let [_, name, _, class, _, meaning, _] = cells[..] {
            let _ = writeln!(page, "| {name} | {class} | {meaning} |");
        }
    }
    page.push_str("\n## Activities\n\n| state | reason | when |\n|---|---|---|\n");
    for line in contract::ACTIVITIES.lines() {
        let cells: Vec<_> = line.split('\'').collect();
        match cells[..] {
            [_, state, _, reason, _, meaning, _] => {
                let _ = writeln!(page, "| {state} | {reason} | {meaning} |");
            }
            [_, state, _, meaning, _] => {
                let _ = writeln!(page, "| {state} | | {meaning} |");
            }
            _ => {}
        }
    }
    page.push_str(
        "\n## Counters\n\nThose of the view `host_samples`; `*` stands for a device. A total counts from the boot of the\n\
         machine, a present value is that of the sample. A counter is stored when it differs from the\n\
         sample before, and one that is 0 from the beginning not at all.\n\n\
         | counter | unit | meaning |\n|---|---|---|\n",
    );
    for counter in HostCounter::ALL {
        let (name, unit, meaning) = counter.describe();
        let _ = writeln!(page, "| {name} | {unit} | {meaning} |");
    }
    section(&mut page, "Tables", &relations(contract::TABLES));
    page
}

fn section(page: &mut String, title: &str, relations: &[Relation]) {
    let _ = write!(page, "\n## {title}\n");
    for relation in relations {
        let _ = write!(
            page,
            "\n### {}\n\n{}\n\n| column | meaning |\n|---|---|\n",
            relation.name, relation.comment
        );
        for (name, comment) in &relation.columns {
            let _ = writeln!(page, "| {name} | {comment} |");
        }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn every_table_view_and_column_is_documented() {
        let db = Connection::open_in_memory().unwrap();
        for sql in [contract::TABLES, contract::OPERATIONS, contract::VIEWS] {
            db.execute_batch(sql).unwrap();
        }
        let mut documented = relations(contract::TABLES);
        documented.extend(relations(contract::VIEWS));
        let mut statement = db
            .prepare("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') ORDER BY name")
            .unwrap();
        let names = statement.query_map([], |r| r.get::<_, String>(0)).unwrap();
        let names: Vec<_> = names.map(Result::unwrap).collect();
        assert_eq!(names.len(), documented.len());
        for name in names {
            let relation = documented
                .iter()
                .find(|r| r.name == name)
                .expect("is documented");
            assert!(!relation.comment.is_empty(), "{name} has no comment");
            let mut columns = db
                .prepare("SELECT name FROM pragma_table_info(?1) ORDER BY cid")
                .unwrap();
            let columns: Vec<String> = columns
                .query_map([&name], |r| r.get(0))
                .unwrap()
                .map(Result::unwrap)
                .collect();
            let ours: Vec<_> = relation
                .columns
                .iter()
                .map(|(name, _)| name.clone())
                .collect();
            assert_eq!(ours, columns, "columns of {name}");
            for (column, comment) in &relation.columns {
                assert!(!comment.is_empty(), "{name}.{column} has no comment");
            }
        }
    }

    #[test]
    fn the_page_in_docs_is_the_one_made_from_the_sql() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/schema.md");
        if std::env::var_os("FLOWTRACE_BLESS").is_some() {
            std::fs::write(path, page()).unwrap();
        }
        assert!(
            std::fs::read_to_string(path).unwrap_or_default() == page(),
            "docs/schema.md is out of date: FLOWTRACE_BLESS=1 cargo test -p flowtrace-schema"
        );
    }
}
