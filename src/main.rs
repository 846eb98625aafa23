//! The command line of flowtrace: parse arguments, call the libraries, print, exit.
//!
//! This is the one crate that talks to the user. One file per subcommand in `commands/`.

mod args;
mod commands;
mod conclude;
mod failure;
mod output;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = args::Args::parse();
    match commands::dispatch(args.command) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
