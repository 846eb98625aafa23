//! `flowtrace calibrate`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use flowtrace_render::units;

use crate::calibration::{self, Capacities, Measured, Plan, compare};
use crate::failure::{Failure, Outcome};
use crate::output;

/// Measure the capacities of this machine: disk, memory, CPUs, network
///
/// Takes less than a minute and writes a file of 256 MB or less, past the page cache, that is gone
/// afterwards; a tenth of the disk stays free, 1 to 4 GB. `flowtrace ideal` and `resources` use the result.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  flowtrace calibrate --dir /scratch
  flowtrace calibrate --serve 0.0.0.0:4711          on the other machine
  flowtrace calibrate --to other:4711               on this one
  flowtrace calibrate --shuffle a:4711,b:4711,c:4711    what a node moves while all send to all
  flowtrace calibrate --compare capacities-*.json       how much machines differ")]
pub(crate) struct Args {
    /// Directory on the disk to measure
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Number of measurements; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    rounds: u8,
    /// Most MB that are written to the disk in a round
    #[arg(long, value_name = "MB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(32..=100_000))]
    size: u32,
    /// Measure the network to a machine that runs `flowtrace calibrate --serve`, too
    #[arg(long, value_name = "HOST:PORT")]
    to: Option<String>,
    /// Measure the network while each of these machines sends to all others at once, as a shuffle does; each runs
    /// `flowtrace calibrate --serve`, and reaches the others by these names
    #[arg(
        long,
        value_name = "HOST:PORT,…",
        value_delimiter = ',',
        conflicts_with = "to"
    )]
    shuffle: Vec<String>,
    /// Measure nothing, but answer the measurements of other machines
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["to", "shuffle", "output"])]
    serve: Option<String>,
    /// Measure nothing, but report how much the capacities of several machines differ, of each a file
    #[arg(long, value_name = "FILE", num_args = 2.., conflicts_with_all = ["to", "shuffle", "serve", "output"])]
    compare: Vec<PathBuf>,
    /// Keep the result in FILE [default: one for each host in the user's data directory]; `-`: write it to
    /// standard output alone
    #[arg(short, long, value_name = "FILE", value_parser = output::ending::only("json"))]
    output: Option<PathBuf>,
    /// Text, or JSON as it is stored
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A line for each capacity
    Text,
    /// One object; bytes per second
    Json,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut report = |line: &str| message!("flowtrace: {line}");
    if let Some(address) = &args.serve {
        return match calibration::serve(address, &mut report) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) => Err(
                Failure::new(1, format!("cannot listen at {address}: {error}"))
                    .hint("an address is like 0.0.0.0:4711"),
            ),
        };
    }
    if !args.compare.is_empty() {
        let machines = args.compare.iter().map(|path| calibration::read(path));
        let found = compare::variations(&machines.collect::<Result<Vec<_>, _>>()?);
        let mut out = std::io::stdout().lock();
        match args.format {
            Format::Text => output::text(&mut out, &compare::text(&found))?,
            Format::Json => crate::output::json(&mut out, &found)?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.shuffle.len() == 1 {
        return Err(Failure::usage("--shuffle: it takes two machines at least")
            .hint("--shuffle a:4711,b:4711, or --to a:4711 for one"));
    }
    let to_stdout = args.output.as_deref().is_some_and(output::is_stdout);
    let output = args.output.clone().or_else(calibration::default_path);
    let output = output.filter(|_| !to_stdout);
    // Checked first: a file that cannot be written is better reported before the measurement.
    if let Some(path) = output
        .as_deref()
        .filter(|_| args.output.is_some())
        .filter(|path| path.symlink_metadata().is_ok())
        && (!path.is_file() || calibration::read(path).is_err())
    {
        return Err(Failure::usage(format!(
            "will not write {}: it is there already and contains no capacities",
            path.display()
        ))
        .hint("name a new file with -o"));
    }
    let plan = Plan {
        directory: &args.dir,
        rounds: usize::from(args.rounds),
        most_bytes: u64::from(args.size) << 20,
        peer: args.to.as_deref(),
        shuffle: &args.shuffle,
    };
    let found = calibration::measure(&plan, &mut |what| message!("flowtrace: measuring {what}"))?;
    let mut out = std::io::stdout().lock();
    match args.format {
        Format::Text if !to_stdout => output::text(&mut out, &text(&found))?,
        Format::Text | Format::Json => output::json(&mut out, &found)?,
    }
    if let Some(path) = output {
        calibration::write(&path, &found)?;
        message!("flowtrace: kept in {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn text(found: &Capacities) -> String {
    let mut out = format!("{}: {} cores\n", units::plain(&found.host), found.cores);
    let mut line = |name: &str, measured: Option<Measured>, unit: fn(f64) -> String| {
        let Some(measured) = measured else { return };
        let spread = match measured.spread {
            Some(spread) => format!("± {:.1} %", spread * 100.0),
            None => "spread unknown".into(),
        };
        out += &format!("  {name:<26} {:>12}  {spread}\n", unit(measured.value));
    };
    let bytes = |value: f64| format!("{}/s", units::bytes(value as i64));
    let steps = |value: f64| format!("{}/s", units::short_count(value as i64));
    line("disk, reading in sequence", found.disk_read, bytes);
    line("disk, writing in sequence", found.disk_write, bytes);
    line("disk, reading at random", found.disk_random_read, bytes);
    line("disk, writing at random", found.disk_random_write, bytes);
    line("memory, copied by a core", found.memory_copy, bytes);
    line("one core, steps", found.cpu_one, steps);
    line("all cores, steps", found.cpu_all, steps);
    line("network within the machine", found.loopback, bytes);
    match found.shuffle.len() {
        0 => line("network to the other one", found.network, bytes),
        nodes => {
            let name = format!("network, {nodes} all to all");
            line(&name, found.network, bytes);
            for node in &found.shuffle {
                let peer = units::shorten(&units::plain(&node.peer), 19);
                line(&format!("  {peer} sent"), Some(node.sent), bytes);
                line(&format!("  {peer} received"), Some(node.received), bytes);
            }
        }
    }
    if !found.is_direct {
        out +=
            "  this filesystem has no way past the page cache: the disk may be slower than that\n";
    }
    out
}
