//! `flowtrace completions`.

use std::io::Write;
use std::process::ExitCode;

use clap_complete::Shell;

/// Print the completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace completions bash > ~/.local/share/bash-completion/completions/flowtrace
  flowtrace completions zsh > \"${fpath[1]}/_flowtrace\"
  flowtrace completions fish > ~/.config/fish/completions/flowtrace.fish")]
pub(crate) struct Args {
    /// Shell to complete for
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args, mut command: clap::Command) -> crate::failure::Outcome {
    // The generator panics on a failed write, so it does not write to a pipe that may be closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "flowtrace", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
