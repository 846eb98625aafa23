//! The files of one view.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowtrace_schema::Kind;
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use super::column::{Column, Values};
use super::layout::{Error, NO_HOST};

/// The Parquet schema of a view and the properties of its files.
fn schema(view: &str, columns: &[Column]) -> ParquetResult<(TypePtr, WriterPropertiesPtr)> {
    let mut fields = Vec::new();
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        // Statistics of row groups only; those of pages would cost as much as writing the values.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_created_by(concat!("flowtrace ", env!("CARGO_PKG_VERSION")).into())
        .set_max_row_group_row_count(None);
    for column in columns {
        let physical = match column.kind {
            Kind::Integer => Physical::INT64,
            Kind::Real => Physical::DOUBLE,
            Kind::Text | Kind::Blob => Physical::BYTE_ARRAY,
        };
        let field = Type::primitive_type_builder(&column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type((column.kind == Kind::Text).then_some(LogicalType::String))
            .build()?;
        fields.push(Arc::new(field));
        let path = ColumnPath::from(&*column.name);
        if column.kind != Kind::Integer {
            // No query asks for a range of names.
            properties = properties.set_column_statistics_enabled(path, EnabledStatistics::None);
        } else {
            properties = properties
                .set_column_encoding(path.clone(), encoding(&column.name))
                // Times do not repeat, so that a dictionary would not help.
                .set_column_dictionary_enabled(path, !is_instant(&column.name));
        }
    }
    let group = Type::group_type_builder(view).with_fields(fields).build()?;
    Ok((Arc::new(group), Arc::new(properties.build())))
}

/// The encoding of a column. Differences of instants are small. Those of lengths of time and of
/// positions are as large as the values and have a sign, and the values themselves compress better.
fn encoding(name: &str) -> Encoding {
    match name {
        "duration_ns" | "offset" => Encoding::PLAIN,
        _ => Encoding::DELTA_BINARY_PACKED,
    }
}

fn is_instant(name: &str) -> bool {
    name.ends_with("_ns") || name == "call_id" || name == "offset"
}

/// The files of a view, one for each machine. They get their names when all of them are complete.
pub(super) struct Parts<'a> {
    dataset: &'a Path,
    name: String,
    schema: ParquetResult<(TypePtr, WriterPropertiesPtr)>,
    open: HashMap<PathBuf, SerializedFileWriter<File>>,
    /// Complete files that have no name yet.
    closed: Vec<PathBuf>,
}

impl<'a> Parts<'a> {
    /// The parts of a view in `dataset`, with the file name `name`.
    pub(super) fn new(dataset: &'a Path, name: String, view: &str, columns: &[Column]) -> Self {
        Parts {
            dataset,
            name,
            schema: schema(view, columns),
            open: HashMap::new(),
            closed: Vec::new(),
        }
    }

    /// Writes a row group.
    pub(super) fn write(&mut self, host: Option<&str>, columns: &[Column]) -> Result<(), Error> {
        let host = host.map_or_else(|| NO_HOST.to_owned(), escaped);
        let path = self.dataset.join(format!("host={host}")).join(&self.name);
        let failed = |error: ParquetError| Error::Output {
            path: path.clone(),
            reason: error.to_string(),
        };
        if !self.open.contains_key(&path) {
            let (schema, properties) = match &self.schema {
                Ok((schema, properties)) => (Arc::clone(schema), Arc::clone(properties)),
                Err(error) => return Err(failed(ParquetError::General(error.to_string()))),
            };
            let file = create(&path).map_err(|error| failed(error.into()))?;
            let writer = SerializedFileWriter::new(file, schema, properties).map_err(failed)?;
            self.open.insert(path.clone(), writer);
        }
        let writer = self.open.get_mut(&path).expect("there or put there");
        write_group(writer, columns).map_err(failed)
    }

    /// Completes all files.
    pub(super) fn close(&mut self) -> Result<(), Error> {
        let open: Vec<PathBuf> = self.open.keys().cloned().collect();
        for path in open {
            if let Some(writer) = self.open.get_mut(&path) {
                writer.finish().map_err(|error| Error::Output {
                    path: path.clone(),
                    reason: error.to_string(),
                })?;
            }
            self.open.remove(&path);
            self.closed.push(path);
        }
        Ok(())
    }

    /// Gives all complete files their names.
    pub(super) fn publish(mut self) -> Result<Vec<PathBuf>, Error> {
        let mut published = Vec::new();
        while let Some(path) = self.closed.pop() {
            if let Err(error) = fs::rename(unfinished(&path), &path) {
                let reason = error.to_string();
                self.closed.push(path.clone());
                return Err(Error::Output { path, reason });
            }
            published.push(path);
        }
        Ok(published)
    }
}

impl Drop for Parts<'_> {
    fn drop(&mut self) {
        // Unfinished files are not part of the dataset.
        for path in self.open.keys().chain(&self.closed) {
            let _ = fs::remove_file(unfinished(path));
        }
    }
}

/// Removes the parts of an earlier export of the same run that this export has not replaced.
///
/// # Errors
/// When a file cannot be removed: the dataset would have its rows twice.
pub(super) fn remove_others(dataset: &Path, written: &HashSet<PathBuf>) -> Result<(), Error> {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    for machine in entries(dataset) {
        for file in entries(&machine.path()) {
            let path = file.path();
            let name = file.file_name();
            let name = name.to_string_lossy();
            let is_part = name.starts_with("part") && name.ends_with(".parquet");
            if is_part && !written.contains(&path) {
                fs::remove_file(&path).map_err(|error| Error::Output {
                    reason: format!("it is of an earlier export and cannot be removed: {error}"),
                    path,
                })?;
            }
        }
        // Fails if the directory is not empty, and that is right.
        let _ = fs::remove_dir(machine.path());
    }
    Ok(())
}

fn create(path: &Path) -> std::io::Result<File> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let unfinished = unfinished(path);
    let _ = fs::remove_file(&unfinished);
    flowtrace_schema::private::create_new(&unfinished)
}

/// The name of a file while it is written. Engines ignore names that begin with a dot.
fn unfinished(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}"))
}

fn write_group(writer: &mut SerializedFileWriter<File>, columns: &[Column]) -> ParquetResult<()> {
    let mut group = writer.next_row_group()?;
    let mut columns = columns.iter();
    while let Some(mut target) = group.next_column()? {
        let Some(column) = columns.next() else { break };
        let levels = Some(&*column.levels);
        match (target.untyped(), &column.values) {
            (ColumnWriter::Int64ColumnWriter(to), Values::Integers(values)) => {
                to.write_batch(values, levels, None)?;
            }
            (ColumnWriter::DoubleColumnWriter(to), Values::Reals(values)) => {
                to.write_batch(values, levels, None)?;
            }
            (ColumnWriter::ByteArrayColumnWriter(to), Values::Bytes(values)) => {
                to.write_batch(values, levels, None)?;
            }
            _ => return Err(ParquetError::General("a column of another type".into())),
        }
        target.close()?;
    }
    group.close()?;
    Ok(())
}

/// A value of a partition as Hive escapes it.
fn escaped(value: &str) -> String {
    let mut text = String::new();
    for byte in value.bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'_' | b'.' => text.push(byte as char),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_machines_stay_one_directory() {
        assert_eq!(escaped("node-1.lab"), "node-1.lab");
        assert_eq!(escaped("a/b=c d"), "a%2Fb%3Dc%20d");
    }
}
