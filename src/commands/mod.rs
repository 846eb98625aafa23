//! One file per subcommand: its arguments, with doc comments that are the help, and one function.

pub(crate) mod agent;
pub(crate) mod bottlenecks;
pub(crate) mod calibrate;
pub(crate) mod capture;
pub(crate) mod check;
pub(crate) mod collect;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod critical_path;
pub(crate) mod dag;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod generate;
pub(crate) mod ideal;
pub(crate) mod import;
pub(crate) mod live;
pub(crate) mod man;
pub(crate) mod merge;
pub(crate) mod mount;
pub(crate) mod network;
pub(crate) mod query;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod resources;
pub(crate) mod run;
pub(crate) mod stats;
pub(crate) mod summary;
pub(crate) mod tree;
pub(crate) mod unmount;
pub(crate) mod waits;

use clap::CommandFactory;

use crate::args::{Args, Command};
use crate::failure::Outcome;

/// The whole command line, for the manual pages and completions.
fn command_line() -> clap::Command {
    crate::json::add(Args::command())
}

pub(crate) fn dispatch(command: Command) -> Outcome {
    match command {
        Command::Run(args) => run::run(args),
        Command::Mount(args) => mount::run(&args),
        Command::Unmount(args) => unmount::run(&args),
        Command::Summary(args) => summary::run(&args),
        Command::Tree(args) => tree::run(&args),
        Command::Dag(args) => dag::run(&args),
        Command::Capture(args) => capture::run(args),
        Command::Export(args) => export::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Import(args) => import::run(args),
        Command::Bottlenecks(args) => bottlenecks::run(&args),
        Command::Waits(args) => waits::run(&args),
        Command::Resources(args) => resources::run(&args),
        Command::Ideal(args) => ideal::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Live(args) => live::run(&args),
        Command::CriticalPath(args) => critical_path::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Network(args) => network::run(*args),
        Command::Query(args) => query::run(&args),
        Command::Merge(args) => merge::run(args),
        Command::Agent(args) => agent::run(args),
        Command::Collect(args) => collect::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => completions::run(&args, command_line()),
        Command::Man(args) => man::run(&args, command_line()),
    }
}
