//! `flowtrace mount`.

/// Placeholder.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args) -> super::Outcome {
    Ok(std::process::ExitCode::SUCCESS)
}
