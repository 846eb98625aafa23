//! What does looking at every thread cost, and at the machine?
//!
//!     cargo bench --bench sampling                 1000 idle processes, and 10 counters a second
//!     cargo bench --bench sampling -- 4000 20      as many processes, for so many seconds
//!
//! The figures are flowtrace's own: the counters `flowtrace.cpu` and `flowtrace.sampler_cpu` of the
//! trace, which are CPU time as the kernel counts it. They are taken between two samples of the
//! machine, after all processes were started. The bar: at most 2 % of a CPU.

use std::path::Path;
use std::process::{Command, ExitCode};

use rusqlite::Connection;

const FLOWTRACE: &str = env!("CARGO_BIN_EXE_flowtrace");
const BAR_PERCENT: f64 = 2.0;

fn main() -> ExitCode {
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse().ok());
    let processes: u32 = numbers.next().unwrap_or(1000);
    let seconds: u32 = numbers.next().unwrap_or(10);
    match bench(processes, seconds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("sampling: {message}");
            ExitCode::FAILURE
        }
    }
}

fn bench(processes: u32, seconds: u32) -> Result<(), String> {
    let scratch = tempfile::tempdir().map_err(|e| e.to_string())?;
    let script = format!(
        "i=0; while [ $i -lt {processes} ]; do sleep {} & i=$((i+1)); done; wait",
        seconds + 5
    );
    println!("{processes} idle processes, {seconds} s");
    for (what, options) in [
        ("no sampling", ["--sample", "0", "--host-sample", "1"]),
        ("50 Hz", ["--sample", "50", "--host-sample", "1"]),
        (
            "50 Hz, machine at 10 Hz",
            ["--sample", "50", "--host-sample", "10"],
        ),
    ] {
        let trace = scratch.path().join("trace.db");
        let mut command = Command::new(FLOWTRACE);
        command.args(["run", "--quiet", "--no-summary", "--force", "-o"]);
        command
            .arg(&trace)
            .args(options)
            .args(["--", "sh", "-c", &script]);
        let status = command.current_dir(scratch.path()).status();
        let status = status.map_err(|e| format!("cannot run flowtrace: {e}"))?;
        if !status.success() {
            return Err(format!("flowtrace ended with {status}"));
        }
        let figures = Figures::of(&trace).map_err(|e| format!("cannot read the trace: {e}"))?;
        figures.print(what);
    }
    Ok(())
}

/// CPU time per time, in percent of a CPU, and samples per thread and second.
struct Figures {
    all: f64,
    sampler: Option<f64>,
    rate: f64,
    rows: i64,
}

impl Figures {
    fn of(trace: &Path) -> rusqlite::Result<Figures> {
        let db = Connection::open(trace)?;
        // From a second after the last fork until the first exit: whatever else costs is over.
        let (from, until): (i64, i64) = db.query_row(
            "SELECT MAX(start_ns) + 1000000000, MIN(CASE WHEN exit_code = 0 THEN end_ns END)
             FROM processes WHERE exe LIKE '%/sleep'",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let percent = |counter: &str| {
            db.query_row(
                "SELECT 100.0 * (MAX(value) - MIN(value)) / (MAX(t_ns) - MIN(t_ns))
                 FROM host_samples WHERE counter = ?1 AND t_ns BETWEEN ?2 AND ?3",
                (counter, from, until),
                |row| row.get::<_, Option<f64>>(0),
            )
        };
        Ok(Figures {
            all: percent("flowtrace.cpu")?.unwrap_or(0.0),
            sampler: percent("flowtrace.sampler_cpu")?,
            rate: db.query_row(
                "SELECT COALESCE(SUM(samples) * 1e9 / SUM(duration_ns), 0) FROM samples
                 WHERE reason = 'sleep'",
                [],
                |row| row.get(0),
            )?,
            rows: db.query_row("SELECT COUNT(*) FROM host_samples", [], |row| row.get(0))?,
        })
    }

    fn print(&self, what: &str) {
        let sampler = self.sampler.map_or(String::new(), |percent| {
            let judged = if percent <= BAR_PERCENT { "met" } else { "missed" };
            format!(
                ", sampling {percent:.2} % of a CPU at {:.1} samples a second ({judged}: {BAR_PERCENT} %)",
                self.rate
            )
        });
        println!(
            "  {what:<24} flowtrace {:.2} %{sampler}, {} rows of the machine",
            self.all, self.rows
        );
    }
}
