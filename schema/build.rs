//! Makes the empty trace with which every recording begins.

use std::error::Error;
use std::path::PathBuf;

use rusqlite::Connection;

#[path = "src/contract.rs"]
#[expect(unreachable_pub, reason = "public in the crate that this builds")]
mod contract;

use contract::{ACTIVITIES, APPLICATION_ID, OPERATIONS, SCHEMA_VERSION, TABLES, VIEWS};

fn main() -> Result<(), Box<dyn Error>> {
    for source in ["build.rs", "src/contract.rs", "sql"] {
        println!("cargo::rerun-if-changed={source}");
    }
    let directory = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    let directory = PathBuf::from(directory);
    let path = directory.join("blank.db");
    if path.exists() {
        std::fs::remove_file(&path)?;
    }
    let db = Connection::open(&path)?;
    db.execute_batch("BEGIN")?;
    for statements in [TABLES, OPERATIONS, ACTIVITIES, VIEWS] {
        db.execute_batch(statements)?;
    }
    db.execute_batch(&format!(
        "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    ))?;
    let mut statement = db.prepare(
        "SELECT type, name, sql FROM sqlite_schema
         WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'",
    )?;
    let rows = statement.query_map([], |row| <(String, String, String)>::try_from(row))?;
    let statements = rows.collect::<Result<Vec<_>, _>>()?;
    std::fs::write(directory.join("statements.rs"), format!("&{statements:?}"))?;
    drop(statement);
    db.close().map_err(|(_, error)| error)?;
    Ok(())
}
