//! The command line as a whole. The arguments of each subcommand are in its own file.

use clap::{Parser, Subcommand};

use crate::commands::{
    agent, bottlenecks, calibrate, capture, check, collect, compare, completions, critical_path,
    dag, doctor, export, generate, ideal, import, live, man, merge, mount, network, query, replay,
    report, resources, run, stats, summary, tree, unmount, waits,
};

/// The version, and what `build.rs` knows of this build.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("FLOWTRACE_BUILD"),
    ")"
);

/// Trace any workflow, unmodified: what ran, what data flowed, where the time went.
#[derive(Debug, Parser)]
#[command(version = VERSION, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::Args),
    Mount(mount::Args),
    Unmount(unmount::Args),
    Capture(capture::Args),
    Export(export::Args),
    Import(import::Args),
    Summary(summary::Args),
    Tree(tree::Args),
    Dag(dag::Args),
    Generate(generate::Args),
    Check(check::Args),
    Compare(compare::Args),
    Replay(replay::Args),
    Bottlenecks(bottlenecks::Args),
    Waits(waits::Args),
    Resources(resources::Args),
    Ideal(ideal::Args),
    Calibrate(calibrate::Args),
    Report(report::Args),
    Live(live::Args),
    CriticalPath(critical_path::Args),
    Stats(stats::Args),
    Network(Box<network::Args>),
    Query(query::Args),
    Merge(merge::Args),
    Agent(agent::Args),
    Collect(collect::Args),
    Doctor(doctor::Args),
    Completions(completions::Args),
    Man(man::Args),
}
