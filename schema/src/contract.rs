//! The contents of a trace: the statements that make its tables and views, and the numbers that identify it.
//!
//! An empty trace is made from them once, when this crate is built (`build.rs`): SQLite takes some 10 ms for
//! the statements, and every traced command would wait for that.

/// `PRAGMA application_id` of a trace: ASCII `FLTR`.
pub const APPLICATION_ID: u32 = 0x464c_5452;
/// `PRAGMA user_version` of the traces that this version writes.
pub const SCHEMA_VERSION: i64 = 5;

pub(crate) const TABLES: &str = include_str!("../sql/tables.sql");
pub(crate) const OPERATIONS: &str = include_str!("../sql/operations.sql");
pub(crate) const ACTIVITIES: &str = include_str!("../sql/activities.sql");
pub(crate) const VIEWS: &str = include_str!("../sql/views.sql");
