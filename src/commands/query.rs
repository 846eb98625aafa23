//! `flowtrace query`.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use flowtrace_profiler::export::rows::{AlignedTable, Csv, Json, JsonLines};
use flowtrace_schema::{Table, Trace, Value, doc};

use crate::failure::Failure;
use crate::{conclude, output};

/// Run one SQL query on a trace, or list the views
///
/// Without SQL, lists the views with their columns. Any other SQLite client can be used as well.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace query trace.db
  flowtrace query trace.db \"SELECT rule, COUNT(*), SUM(on_cpu_ns) / 1e9 AS cpu_s FROM processes GROUP BY rule\"
  flowtrace query trace.db - --format csv -o slow.csv < slow.sql")]
pub(crate) struct Args {
    /// Trace to read
    #[arg(default_value = flowtrace_schema::DEFAULT_TRACE)]
    trace: PathBuf,
    /// One SELECT statement; `-` reads it from standard input
    #[arg(allow_hyphen_values = true)]
    sql: Option<String>,
    /// Format of the result [default: by the ending of FILE, else table]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    output: output::Target,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Aligned columns; NULL is NULL, bytes are x'00ff'
    Table,
    /// RFC 4180; NULL is an empty field, an empty text is ""
    Csv,
    /// An array of objects; bytes are hexadecimal strings
    Json,
    /// One JSON object per line
    Jsonl,
}

pub(crate) fn run(args: &Args) -> crate::failure::Outcome {
    let format = args.output.format(args.format, Format::Table)?;
    let trace = Trace::open(&args.trace)?;
    conclude::say_unrecorded(&args.trace);
    let sql = match args.sql.as_deref() {
        Some("-") => {
            let mut sql = String::new();
            io::stdin().read_to_string(&mut sql).map_err(|error| {
                Failure::usage(format!(
                    "cannot read the query from standard input: {error}"
                ))
            })?;
            Some(sql)
        }
        sql => sql.map(str::to_owned),
    };
    output::write_to(&args.output, &args.trace, |out| {
        let rows = |table: &mut dyn Table| match &sql {
            Some(sql) => trace.query(sql, table).map_err(failure),
            None => Ok(list_views(table)?),
        };
        match format {
            Format::Table if sql.is_none() => out.write_all(catalogue(&trace)?.as_bytes())?,
            Format::Table => {
                let mut table = AlignedTable::new(out);
                rows(&mut table)?;
                table.finish()?;
            }
            Format::Csv => rows(&mut Csv::new(out))?,
            Format::Json => {
                let mut json = Json::new(out);
                rows(&mut json)?;
                json.finish()?;
            }
            Format::Jsonl => rows(&mut JsonLines::new(out))?,
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn failure(error: flowtrace_schema::Error) -> Failure {
    let is_query = matches!(error, flowtrace_schema::Error::Query(_));
    let failure = Failure::from(error);
    if is_query {
        return failure
            .hint("flowtrace query TRACE, without SQL, lists the views and their columns");
    }
    failure
}

/// The list of views for programs: a row per column.
fn list_views(table: &mut dyn Table) -> io::Result<()> {
    table.columns(&["view", "column", "meaning"].map(String::from))?;
    for view in doc::views() {
        for (column, meaning) in view.columns {
            table.row([view.name.clone(), column, meaning].map(Value::Text).into())?;
        }
    }
    Ok(())
}

/// The list of views for people. Those without a row are named last, in one line.
fn catalogue(trace: &Trace) -> Result<String, Failure> {
    let mut page = String::from(
        "Times are nanoseconds since the start of the recording, sizes bytes; NULL is unknown.\n",
    );
    let mut empty = Vec::new();
    for view in doc::views() {
        if trace.is_empty(&view)? {
            empty.push(view.name);
            continue;
        }
        page += &format!("\n{}: {}\n", view.name, view.comment);
        let width = view
            .columns
            .iter()
            .map(|(name, _)| name.len())
            .max()
            .unwrap_or(0);
        for (column, meaning) in &view.columns {
            page += &format!("  {column:<width$}  {meaning}\n");
        }
    }
    if !empty.is_empty() {
        page += &format!("\nWithout a row in this trace: {}\n", empty.join(", "));
    }
    Ok(page)
}
