//! The contents of a Parquet dataset are those of the views.

use std::fs::File;
use std::path::{Path, PathBuf};

use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::Field;
use flowtrace_profiler::export::parquet;
use flowtrace_schema::{Table, Trace, Value, doc};

#[path = "support/montage.rs"]
mod montage;

/// Rows as text, without the column `host`.
#[derive(Default)]
struct Rows {
    host_at: Option<usize>,
    rows: Vec<Vec<String>>,
}

impl Table for Rows {
    fn columns(&mut self, names: &[String]) -> std::io::Result<()> {
        self.host_at = names.iter().position(|name| name == "host");
        Ok(())
    }

    fn row(&mut self, mut values: Vec<Value>) -> std::io::Result<()> {
        if let Some(at) = self.host_at {
            values.remove(at);
        }
        let text = |value: Value| match value {
            Value::Null => "NULL".into(),
            Value::Integer(n) => n.to_string(),
            Value::Real(x) => format!("{x:?}"),
            Value::Text(text) => format!("'{text}'"),
            Value::Blob(bytes) => format!("x{bytes:?}"),
        };
        self.rows.push(values.into_iter().map(text).collect());
        Ok(())
    }
}

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

fn read(directory: &Path) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    files(directory, &mut found);
    let mut rows = Vec::new();
    for path in found {
        assert_eq!(path.file_name().unwrap(), "part.parquet");
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let text = |field: &Field| match field {
                Field::Null => "NULL".into(),
                Field::Long(n) => n.to_string(),
                Field::Double(x) => format!("{x:?}"),
                Field::Str(text) => format!("'{text}'"),
                Field::Bytes(bytes) => format!("x{:?}", bytes.data()),
                other => panic!("{other:?}"),
            };
            rows.push(
                row.get_column_iter()
                    .map(|(_, field)| text(field))
                    .collect(),
            );
        }
    }
    rows
}

#[test]
fn a_dataset_holds_what_the_views_hold() {
    let (directory, path) = montage::montage_file(4, false);
    let trace = Trace::open(&path).unwrap();
    let dataset = directory.path().join("dataset");
    let written = parquet::write(&trace, &dataset).unwrap();
    // Writing again gives the same files.
    assert_eq!(parquet::write(&trace, &dataset).unwrap(), written);
    let mut all = 0;
    for view in doc::views() {
        let mut expected = Rows::default();
        let sql = format!("SELECT * FROM {}", view.name);
        trace.query(&sql, &mut expected).unwrap();
        let mut found = read(&dataset.join(&view.name));
        all += found.len() as u64;
        found.sort();
        expected.rows.sort();
        assert_eq!(found, expected.rows, "{}", view.name);
    }
    assert_eq!(all, written.rows);
    assert!(all > 1000, "{all} rows");
    // Rows of a process are in the partition of its machine.
    let mut of_processes = Vec::new();
    files(&dataset.join("processes"), &mut of_processes);
    let named = |path: &PathBuf| path.to_string_lossy().contains("/host=");
    assert!(of_processes.iter().all(named));
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let (directory, path) = montage::montage_file(2, false);
    let trace = Trace::open(&path).unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = parquet::write(&trace, &file).unwrap_err().to_string();
    assert!(
        error.contains("cannot write") && error.contains("file"),
        "{error}"
    );
}
