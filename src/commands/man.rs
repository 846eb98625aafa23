//! `flowtrace man`.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::failure::Failure;

/// Print the manual page, or write those of all commands into a directory
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace man | man -l -
  flowtrace man -o ~/.local/share/man/man1 && man flowtrace-report")]
pub(crate) struct Args {
    /// Directory for flowtrace.1, flowtrace-run.1 and so on; made if it is not there
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> super::Outcome {
    let mut command = crate::args::Args::command().disable_help_subcommand(true);
    let Some(directory) = &args.output else {
        let mut page = Vec::new();
        command.build();
        Man::new(command).render(&mut page)?;
        std::io::stdout().lock().write_all(&page)?;
        return Ok(ExitCode::SUCCESS);
    };
    let write = || {
        fs::create_dir_all(directory)?;
        clap_mangen::generate_to(command, directory)
    };
    write().map_err(|error| {
        Failure::new(
            1,
            format!("cannot write pages to {}: {error}", directory.display()),
        )
        .hint("name a directory in which you may write with -o")
    })?;
    eprintln!("flowtrace: wrote the pages to {}", directory.display());
    Ok(ExitCode::SUCCESS)
}
