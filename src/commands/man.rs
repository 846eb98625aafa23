//! `flowtrace man`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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

pub(crate) fn run(args: &Args, command: clap::Command) -> crate::failure::Outcome {
    let mut command = command.disable_help_subcommand(true);
    let Some(directory) = &args.output else {
        command.build();
        std::io::stdout()
            .lock()
            .write_all(page(command)?.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    };
    let write = || {
        fs::create_dir_all(directory)?;
        command.build();
        write_all(command, directory)
    };
    write().map_err(|error| {
        Failure::new(
            1,
            format!("cannot write pages to {}: {error}", directory.display()),
        )
        .hint("name a directory in which you may write with -o")
    })?;
    message!("flowtrace: wrote the pages to {}", directory.display());
    Ok(ExitCode::SUCCESS)
}

/// The page of a command and those of the commands below it.
fn write_all(command: clap::Command, directory: &Path) -> std::io::Result<()> {
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        write_all(below.clone(), directory)?;
    }
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = directory.join(format!("{name}.1"));
    fs::write(path, page(command)?)
}

/// A page in the usual form: the values of options in the synopsis, and the examples under their name.
fn page(mut command: clap::Command) -> std::io::Result<String> {
    let usage = command.render_usage().to_string();
    let source = concat!("flowtrace ", env!("CARGO_PKG_VERSION"));
    let mut page = Vec::new();
    Man::new(command)
        .source(source)
        .manual("flowtrace")
        .render(&mut page)?;
    let page = String::from_utf8_lossy(&page).into_owned();
    let mut sections: Vec<String> = Vec::new();
    for (at, section) in page.split("\n.SH ").enumerate() {
        let text = match section.split_once('\n') {
            Some(("SYNOPSIS", _)) => format!("SYNOPSIS\n.nf\n{}\n.fi", escaped(&usage)),
            Some(("EXTRA", text)) => {
                let text = text.trim_start_matches("Examples:\n").trim_end();
                format!("EXAMPLES\n.nf\n{text}\n.fi\n")
            }
            _ => section.to_owned(),
        };
        sections.push(if at == 0 {
            text
        } else {
            format!("\n.SH {text}")
        });
    }
    Ok(sections.concat())
}

/// The lines of a usage, without its label, as roff has them.
fn escaped(usage: &str) -> String {
    let lines = usage.trim_start_matches("Usage:").lines();
    let lines = lines.map(|line| line.trim().replace('\\', "\\e").replace('-', "\\-"));
    lines.collect::<Vec<_>>().join("\n")
}
