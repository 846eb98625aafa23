//! `flowtrace network`.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use flowtrace_schema::Trace;

use crate::failure::Failure;
use crate::output;

mod answer;
mod options;
mod watch;
mod write;

pub(crate) use options::Args;
use options::{Common, Format, Question};

/// The error of `network QUESTION …` with a question that there is not. A word is meant as a question if another
/// argument follows, or it has no form of a file's name; clap takes it for the trace and blames the next word.
pub(crate) fn no_question(words: &[OsString], command: &mut Command) -> Option<clap::Error> {
    let [_, name, word, rest @ ..] = words else {
        return None;
    };
    let word = word.to_str().filter(|word| !word.starts_with('-'))?;
    let is_followed = rest
        .first()
        .is_some_and(|next| !next.as_encoded_bytes().starts_with(b"-"));
    let is_named = word == "help" || (!is_followed && word.contains(['.', '/']));
    if name != "network" || is_named || Path::new(word).exists() {
        return None;
    }
    let network = command.find_subcommand_mut("network")?;
    if network.find_subcommand(word).is_some() {
        return None;
    }
    let questions: Vec<&str> = network.get_subcommands().map(Command::get_name).collect();
    let is_near = |name: &&str| word.get(..3).is_some_and(|begin| name.starts_with(begin));
    let near = questions.iter().copied().filter(is_near);
    let near = ContextValue::Strings(near.map(str::to_owned).collect());
    let all = format!("the questions are {}", questions.join(", "));
    let mut error = clap::Error::new(ErrorKind::InvalidSubcommand).with_cmd(network);
    let wrong = ContextValue::String(word.to_owned());
    error.insert(ContextKind::InvalidSubcommand, wrong);
    error.insert(ContextKind::SuggestedSubcommand, near);
    let all = ContextValue::StyledStrs(vec![StyledStr::from(all)]);
    error.insert(ContextKind::Suggested, all);
    Some(error)
}

pub(crate) fn run(args: Args) -> crate::failure::Outcome {
    let question = args.question.unwrap_or(Question::Overview(Common {
        trace: args.common.trace,
        options: args.common.options,
    }));
    let common = question.common();
    let options = &common.options;
    let format = options.output.format(options.format, Format::Table)?;
    check_format(&question, format)?;
    let is_drawn = crate::graphviz::picture(&format).is_some();
    let mut growing = answer::growing(options);
    let mut pace = options.watch.map(watch::Pace::new);
    loop {
        let begun = Instant::now();
        let trace = Trace::open(&common.trace)?;
        let is_growing = trace.is_being_recorded();
        let page = answer::ask(
            &question,
            &trace,
            options,
            growing.as_mut(),
            is_growing,
            is_drawn,
        )?;
        if pace.is_some() && options.output.path().is_none() {
            write::separator(format)?;
        }
        output::write_to(&options.output, &common.trace, |out| {
            write::page(&page, format, options.full, out)
        })?;
        let Some(pace) = pace.as_mut().filter(|_| is_growing) else {
            return Ok(ExitCode::SUCCESS);
        };
        std::io::stdout().flush()?;
        pace.wait(begun, &trace);
    }
}

fn check_format(question: &Question, format: Format) -> Result<(), Failure> {
    let is_graph = matches!(question, Question::Topology(_) | Question::Matrix(_));
    let has_plot = matches!(question, Question::Series { .. } | Question::Cdf(_));
    let is_fit = match format {
        Format::Table | Format::Json | Format::Csv => true,
        Format::Dot | Format::Graphml => is_graph,
        Format::Svg | Format::Png | Format::Jpeg | Format::Pdf | Format::Ps => is_graph || has_plot,
    };
    match is_fit {
        true => Ok(()),
        false => Err(Failure::usage(
            "only topology and matrix are graphs, and only topology, matrix, series and cdf can be pictures",
        )
        .hint("use --format table, json or csv here: .txt, .json, .csv")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn an_unknown_question_is_named() {
        let said = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let error = no_question(&words, &mut crate::args::Args::command());
            error.map(|error| error.to_string())
        };
        for line in ["f network iterationz trace.db", "f network iterationz"] {
            let error = said(line).unwrap();
            for part in ["'iterationz'", "'iterations'", "overview, flows, peers"] {
                assert!(error.contains(part), "{error}");
            }
        }
        for line in [
            "f network",
            "f network trace.db",
            "f network there/is/none",
            "f network iterations trace.db",
            "f network rir_rate trace.db",
            "f network help iterations",
            "f network --last 5 trace.db",
            "f summary iterationz trace.db",
        ] {
            assert_eq!(said(line), None, "{line}");
        }
    }
}
