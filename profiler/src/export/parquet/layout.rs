//! Gathers rows into groups of columns, by host.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use flowtrace_schema::{Trace, Value};

use crate::export::parquet::Column;
/// Rows of a row group, the unit in which engines read.
pub(super) const GROUP: usize = 1 << 17;

/// Most rows that may wait in memory, in all partitions of a view together.
pub(super) const MOST_WAITING: usize = 1 << 19;

/// Name of Hive's partition for NULL.
pub(super) const NO_HOST: &str = "__HIVE_DEFAULT_PARTITION__";

/// The reason why a dataset could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] flowtrace_schema::Error),
    /// A file cannot be written.
    #[error("cannot write {path}: {reason}")]
    Output {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A value is of another type than its column.
    #[error("column {column} of {view} holds {value:?}, which its type does not allow")]
    Type {
        /// Name of the view.
        view: String,
        /// Name of the column.
        column: String,
        /// The value.
        value: Value,
    },
}

/// The columns of a view, and the column by which the machine of a row is found.
pub(super) struct Layout {
    pub(super) view: String,
    pub(super) columns: Vec<Column>,
    pub(super) host_at: Option<usize>,
    pub(super) upid_at: Option<usize>,
    pub(super) host_id_at: Option<usize>,
}

impl Layout {
    pub(super) fn of(trace: &Trace, view: String) -> Result<Layout, Error> {
        let kinds = trace.column_kinds(&view)?;
        let at = |name: &str| kinds.iter().position(|(column, _)| column == name);
        let (host_at, upid_at, host_id_at) = (at("host"), at("upid"), at("host_id"));
        let kept = kinds.into_iter().filter(|(name, _)| name != "host");
        Ok(Layout {
            view,
            columns: kept.map(|(name, kind)| Column::new(name, kind)).collect(),
            host_at,
            upid_at,
            host_id_at,
        })
    }

    /// The columns without values.
    pub(super) fn emptied(&self) -> Vec<Column> {
        self.columns.iter().map(Column::emptied).collect()
    }
}

/// Names of machines, by the ids that refer to them.
pub(super) struct Hosts {
    pub(super) of_process: HashMap<i64, Arc<str>>,
    pub(super) by_id: HashMap<i64, Arc<str>>,
}

impl Hosts {
    pub(super) fn of(trace: &Trace) -> Result<Hosts, Error> {
        let processes = trace.processes()?.into_iter();
        let hosts = trace.hosts()?.into_iter();
        Ok(Hosts {
            of_process: processes
                .filter_map(|row| Some((row.upid, row.host?)))
                .collect(),
            by_id: hosts.map(|row| (row.host_id, row.host.into())).collect(),
        })
    }
}

/// A message to the encoder.
pub(super) enum Batch<'a> {
    /// A row group of one machine.
    Group(Option<&'a str>, Vec<Column>),
    /// The end of the rows. Without this message the files are not completed.
    Complete,
}

/// Rows that wait to be written, by machine.
pub(super) struct Rows<'a, W> {
    pub(super) layout: &'a Layout,
    pub(super) waiting: Vec<(Option<&'a str>, Vec<Column>)>,
    pub(super) places: HashMap<Option<&'a str>, usize>,
    pub(super) most_waiting: usize,
    pub(super) waiting_rows: usize,
    pub(super) count: u64,
    /// Takes a row group, and may move or clear the columns. Returns false if no more are taken.
    pub(super) writes: W,
}

impl<'a, W: FnMut(Option<&'a str>, &mut Vec<Column>) -> bool> Rows<'a, W> {
    pub(super) fn new(layout: &'a Layout, most_waiting: usize, writes: W) -> Self {
        Rows {
            layout,
            waiting: Vec::new(),
            places: HashMap::new(),
            most_waiting,
            waiting_rows: 0,
            count: 0,
            writes,
        }
    }

    /// The place of a machine's rows.
    pub(super) fn place(&mut self, host: Option<&'a str>) -> usize {
        let Rows {
            waiting, layout, ..
        } = self;
        *self.places.entry(host).or_insert_with(|| {
            waiting.push((host, layout.emptied()));
            waiting.len() - 1
        })
    }

    /// The columns at a place. One value is to be added to each.
    pub(super) fn at(&mut self, place: usize) -> &mut [Column] {
        &mut self.waiting[place].1
    }

    /// Counts the row that was added at a place. Returns false if no more rows are taken.
    pub(super) fn added(&mut self, place: usize) -> bool {
        self.count += 1;
        self.waiting_rows += 1;
        if length(&self.waiting[place].1) >= GROUP {
            return self.send(place);
        }
        if self.waiting_rows < self.most_waiting {
            return true;
        }
        let places = 0..self.waiting.len();
        match places.max_by_key(|&place| length(&self.waiting[place].1)) {
            Some(largest) => self.send(largest),
            None => true,
        }
    }

    pub(super) fn send(&mut self, place: usize) -> bool {
        let (host, columns) = &mut self.waiting[place];
        self.waiting_rows -= length(columns);
        let goes_on = (self.writes)(*host, columns);
        if columns.is_empty() {
            *columns = self.layout.emptied();
        }
        // With many machines the memory is released.
        if self.waiting.len() > 4 {
            self.waiting[place].1 = self.layout.emptied();
        }
        goes_on
    }

    /// Writes the remaining rows, and an empty part for a view without rows. Returns the number of all
    /// rows.
    pub(super) fn finish(mut self, is_only_part: bool) -> u64 {
        if self.count == 0 && is_only_part {
            // A view without rows has a file all the same.
            self.place(None);
        }
        for place in 0..self.waiting.len() {
            let is_due = self.count == 0 || length(&self.waiting[place].1) > 0;
            if is_due && !self.send(place) {
                break;
            }
        }
        self.count
    }
}

pub(super) fn length(columns: &[Column]) -> usize {
    columns.first().map_or(0, Column::len)
}
