//! `flowtrace network`.

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use flowtrace_schema::Trace;

use crate::failure::Failure;
use crate::output;

mod answer;
mod options;
mod watch;
mod write;

pub(crate) use options::Args;
use options::{Common, Format, Question};

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
