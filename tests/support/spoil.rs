//! Damage to traces and captures, as by another program, a bad disk or an attacker.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::Value;

/// Chooses a number below another one, which is not 0.
pub(crate) type Choose<'a> = dyn FnMut(usize) -> usize + 'a;

/// Pseudo-random choices, the same for the same seed (xorshift64*).
#[allow(dead_code, reason = "the fuzz targets choose by their input")]
pub(crate) fn seeded(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let bits = state.wrapping_mul(0x2545_f491_4f6c_dd1d);
        (bits >> 33) as usize % below
    }
}

/// Changes some bytes, or cuts the end off.
pub(crate) fn bytes(content: &mut Vec<u8>, choose: &mut Choose<'_>) {
    if content.is_empty() {
        return;
    }
    for _ in 0..[1, 1, 3, 10, 100][choose(5)] {
        let at = choose(content.len());
        content[at] = match choose(4) {
            0 => 0,
            1 => 0xff,
            _ => choose(256) as u8,
        };
    }
    if choose(8) == 0 {
        content.truncate(choose(content.len()));
    }
}

/// Damages the trace at `path`: its bytes, or by SQL its values, their types, its tables and its views.
pub(crate) fn trace(path: &Path, choose: &mut Choose<'_>) {
    if choose(4) == 0 {
        let mut content = fs::read(path).unwrap();
        bytes(&mut content, choose);
        fs::write(path, content).unwrap();
        return;
    }
    let mut db = open(path);
    if choose(2) == 0 {
        // Columns that accept any type.
        let _ = db.execute_batch(
            "PRAGMA writable_schema = ON;
             UPDATE sqlite_schema SET sql = replace(replace(sql, ', STRICT', ''), 'STRICT', '') WHERE type = 'table';
             UPDATE sqlite_schema SET sql = replace(sql, ' NOT NULL', '')
               WHERE type = 'table' AND sql NOT LIKE '%WITHOUT ROWID%';
             PRAGMA writable_schema = OFF;",
        );
        drop(db);
        db = open(path);
    }
    let tables = names(&db, "table");
    let views = names(&db, "view");
    let is_full = |table: &&String| {
        let any = format!("SELECT EXISTS (SELECT 1 FROM {table})");
        db.query_row(&any, [], |row| row.get(0)).unwrap_or(false)
    };
    let full: Vec<String> = tables.iter().filter(is_full).cloned().collect();
    if full.is_empty() || views.is_empty() {
        return;
    }
    for _ in 0..[1, 1, 2, 5, 20][choose(5)] {
        let table = &full[choose(full.len())];
        let view = &views[choose(views.len())];
        let columns = columns(&db, table);
        if columns.is_empty() {
            continue;
        }
        let column = &columns[choose(columns.len())];
        let which = ["", "", " WHERE rowid % 2", " WHERE rowid % 10 = 0"][choose(4)];
        // A statement that SQLite refuses does no damage.
        let _ = match choose(40) {
            0 => db.execute(&format!("DELETE FROM {table}{which}"), []),
            1 => db.execute(&format!("DROP TABLE {}", tables[choose(tables.len())]), []),
            2 => db.execute(&format!("DROP VIEW {view}"), []),
            3 => db.execute(&format!("ALTER TABLE {table} DROP COLUMN {column}"), []),
            4 => {
                let endless = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x FROM r";
                let name = if choose(4) == 0 { table } else { view };
                db.execute_batch(&format!("DROP VIEW IF EXISTS {name}; DROP TABLE IF EXISTS {name}; CREATE VIEW {name} AS {endless}"))
                    .map(|()| 0)
            }
            5..10 => {
                // Numbers of any size, the same for the same choices.
                let (from, step) = (choose(1 << 16), choose(1 << 16) << choose(32));
                let number = format!("(rowid + {from}) * {step} * IIF(rowid % 3, 1, -1)");
                let set = format!("UPDATE OR IGNORE {table} SET {column} = {number}{which}");
                db.execute(&set, [])
            }
            10..13 => {
                let other = &columns[choose(columns.len())];
                db.execute(
                    &format!("UPDATE OR IGNORE {table} SET {column} = {other}{which}"),
                    [],
                )
            }
            _ => db.execute(
                &format!("UPDATE OR IGNORE {table} SET {column} = ?1{which}"),
                [value(choose)],
            ),
        };
    }
}

fn open(path: &Path) -> Connection {
    let db = Connection::open(path).unwrap();
    db.execute_batch(
        "PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF;
         PRAGMA journal_mode = MEMORY;",
    )
    .unwrap();
    db
}

fn names(db: &Connection, kind: &str) -> Vec<String> {
    let sql =
        "SELECT name FROM sqlite_schema WHERE type = ?1 AND name NOT LIKE 'sqlite_%' ORDER BY name";
    list(db, sql, kind)
}

#[allow(dead_code, reason = "each user has its own part")]
pub(crate) fn columns(db: &Connection, table: &str) -> Vec<String> {
    list(db, "SELECT name FROM pragma_table_info(?1)", table)
}

fn list(db: &Connection, sql: &str, of: &str) -> Vec<String> {
    let mut statement = db.prepare(sql).unwrap();
    let rows = statement.query_map([of], |row| row.get(0)).unwrap();
    rows.filter_map(Result::ok).collect()
}

fn value(choose: &mut Choose<'_>) -> Value {
    const NUMBERS: [i64; 14] = [
        -1,
        0,
        1,
        i64::MAX,
        i64::MIN,
        i64::MAX - 1,
        1 << 31,
        1 << 32,
        1 << 53,
        1 << 60,
        (1 << 60) + 1,
        -(1 << 60),
        1_000_000_000_000_000_000,
        -1_000_000_000,
    ];
    const REALS: [f64; 6] = [1.5, -0.0, 1e300, f64::INFINITY, f64::NEG_INFINITY, 1e-300];
    let texts = || {
        [
            String::new(),
            "x".repeat(100_000),
            "a\0b".into(),
            "\u{1b}[31m\u{202e}\n".into(),
            "/".into(),
            "..".into(),
            "9".repeat(400),
            "-1".into(),
        ]
    };
    match choose(5) {
        0 => Value::Null,
        1 | 2 => Value::Integer(NUMBERS[choose(NUMBERS.len())]),
        3 => Value::Text(texts()[choose(8)].clone()),
        _ => match choose(2) {
            0 => Value::Real(REALS[choose(REALS.len())]),
            _ => Value::Blob(vec![0xff; [0, 2, 100_000][choose(3)]]),
        },
    }
}
