//! The arguments of the benchmark.

use std::path::PathBuf;
use std::str::FromStr;

use crate::WAYS;
use crate::ways::Way;

/// What to measure, and how often.
pub(crate) struct Options {
    /// Only what takes seconds, once.
    pub(crate) quick: bool,
    pub(crate) rounds: usize,
    /// Files of the metadata storm.
    pub(crate) files: usize,
    /// Where the files for fio are made; None: memory where there is some.
    pub(crate) fio_dir: Option<PathBuf>,
    pub(crate) ways: Vec<Way>,
    /// Workloads or families of them; none: all.
    pub(crate) names: Vec<String>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Options, String> {
        let mut options = Options {
            quick: false,
            rounds: 7,
            files: 5_000,
            fio_dir: None,
            ways: WAYS.to_vec(),
            names: Vec::new(),
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || {
                let value = rest.next();
                value.ok_or_else(|| format!("{argument} needs a value"))
            };
            match argument.as_str() {
                "--bench" => {} // from cargo
                "--quick" => (options.quick, options.rounds) = (true, 1),
                "--rounds" => options.rounds = positive(argument, value()?)?,
                "--files" => options.files = positive(argument, value()?)?,
                "--fio-dir" => options.fio_dir = Some(PathBuf::from(value()?)),
                "--ways" => {
                    let ways = value()?.split(',').map(Way::from_str);
                    options.ways = ways.collect::<Result<_, _>>()?;
                }
                name if !name.starts_with('-') => options.names.push(name.to_owned()),
                unknown => return Err(format!("unknown option {unknown}")),
            }
        }
        Ok(options)
    }

    /// Whether a workload of this name and family is asked for.
    pub(crate) fn wants(&self, name: &str, family: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|n| n == name || n == family)
    }
}

fn positive(option: &str, text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|&n| n > 0);
    number.ok_or_else(|| format!("{option} needs a number above 0"))
}
