//! The command line of flowtrace: parse arguments, call the libraries, print, exit.
//!
//! This is the one crate that talks to the user. One file per subcommand in `commands/`.

/// Prints a message on standard error.
macro_rules! message {
    ($($part:tt)*) => {
        crate::output::message(format_args!($($part)*))
    };
}

mod args;
mod calibration;
mod capturing;
mod commands;
mod conclude;
mod coverage;
mod default_trace;
mod drawing;
mod explained;
mod failure;
mod graphviz;
mod json;
mod launcher;
mod output;
mod progress;
mod seeing;
mod tips;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use flowtrace_render::units;
use flowtrace_tracer::session;

fn main() -> ExitCode {
    if let Some((limit, needed)) = session::small_stack() {
        let (limit, needed) = (limit / 1024, needed / 1024);
        let small = format!(
            "cannot begin: the limit of the stack (ulimit -s) is {limit} kB, and flowtrace needs {needed} kB"
        );
        let failure = failure::Failure::new(failure::OWN_FAILURE, small);
        return failure.hint("raise it: ulimit -s 8192").report();
    }
    let mut words: Vec<_> = std::env::args_os().collect();
    default_trace::insert(&mut words);
    commands::export::trace_first(&mut words);
    let mut command = json::add(args::Args::command());
    json::expand(&mut words, &command);
    if let Some(error) = commands::network::no_question(&words, &mut command) {
        return usage(&error);
    }
    let parsed = command
        .try_get_matches_from_mut(&words)
        .and_then(|matches| {
            args::Args::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
        });
    let args = match parsed {
        Ok(args) => args,
        Err(error) => return usage(&tips::with_tip(error, &words, &command)),
    };
    match commands::dispatch(args.command) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// Help and version are no errors. The exit status of a wrong use of `run` must not be one of the command,
/// which never ran.
fn usage(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    // The text has words of the command line, which others may have chosen.
    match error.use_stderr() && text != units::plain_lines(&text) {
        true => output::message(format_args!("{}", text.trim_end())),
        false => drop(error.print()),
    }
    let is_run = std::env::args_os().nth(1).is_some_and(|name| name == "run");
    match error.use_stderr() {
        false => ExitCode::SUCCESS,
        true if is_run => ExitCode::from(failure::OWN_FAILURE),
        true => ExitCode::from(failure::USAGE),
    }
}
