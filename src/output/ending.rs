//! Endings of file names: the one list of the formats that they stand for, for every command with `-o`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap::builder::{PathBufValueParser, TypedValueParser};

use crate::failure::Failure;

/// The format of a recording, which no command has as a value of `--format`.
pub(crate) const TRACE: &str = "trace";

/// An ending in lower case, and the names of its format as values of `--format`.
const ENDINGS: [(&str, &[&str]); 40] = [
    ("txt", &["text", "table"]),
    ("json", &["json"]),
    ("jsonl", &["jsonl"]),
    ("ndjson", &["jsonl"]),
    ("csv", &["csv"]),
    ("html", &["html"]),
    ("htm", &["html"]),
    ("svg", &["svg"]),
    ("png", &["png"]),
    ("jpg", &["jpeg"]),
    ("jpeg", &["jpeg"]),
    ("pdf", &["pdf"]),
    ("ps", &["ps"]),
    ("dot", &["dot"]),
    ("gv", &["dot"]),
    ("graphml", &["graphml"]),
    ("gml", &["gml"]),
    ("cyjs", &["cytoscape"]),
    ("pftrace", &["perfetto"]),
    ("perfetto-trace", &["perfetto"]),
    ("pcapng", &["pcapng"]),
    ("speedscope", &["speedscope"]),
    ("folded", &["folded"]),
    ("pprof", &["pprof"]),
    ("mk", &["make"]),
    ("makefile", &["make"]),
    ("gnumakefile", &["make"]),
    ("sh", &["shell"]),
    ("bash", &["shell"]),
    ("smk", &["snakemake"]),
    ("snakefile", &["snakemake"]),
    ("cwl", &["cwl"]),
    ("dag", &["dagman"]),
    ("yml", &["pegasus"]),
    ("yaml", &["pegasus"]),
    ("dax", &["dax"]),
    ("xml", &["dax"]),
    ("db", &[TRACE]),
    ("sqlite", &[TRACE]),
    ("sqlite3", &[TRACE]),
];

/// Endings that do not name a format.
const NEUTRAL: [&str; 9] = [
    "out", "log", "tmp", "temp", "new", "old", "bak", "orig", "part",
];

/// The ending of a file name in lower case: the part after the last dot, if that could name a format (a
/// version or the random letters of `mktemp` could not); or a name without a dot that is in the list, as
/// Makefile.
fn ending(path: &Path) -> Option<String> {
    let known = |ending: &&str| ENDINGS.iter().any(|(known, _)| known == ending);
    let Some(extension) = path.extension().and_then(OsStr::to_str) else {
        let name = path.file_name()?.to_str()?;
        // A file called "json" has just that name; a Makefile is a format.
        let name = name.ends_with("file").then(|| name.to_lowercase());
        return name.filter(|name| known(&name.as_str()));
    };
    let lower = extension.to_lowercase();
    if known(&lower.as_str()) {
        return Some(lower);
    }
    let is_of_one_case = extension == lower || extension == extension.to_uppercase();
    let is_word = lower.starts_with(|c: char| c.is_ascii_lowercase())
        && lower.chars().all(|c| c.is_ascii_alphanumeric())
        && lower.len() <= 8;
    (is_word && is_of_one_case && !NEUTRAL.contains(&lower.as_str())).then_some(lower)
}

/// The format that the ending of FILE in `-o FILE` names; `None`: the name does not name one.
///
/// # Errors
/// A name of a format that this command cannot write.
pub(super) fn format<F: ValueEnum>(path: &Path) -> Result<Option<F>, Failure> {
    let Some(ending) = ending(path) else {
        return Ok(None);
    };
    let of = |names: &[&str]| {
        let is_so = |variant: &&F| {
            let value = variant.to_possible_value();
            value.is_some_and(|value| names.iter().any(|name| value.matches(name, false)))
        };
        F::value_variants().iter().find(is_so)
    };
    let mut named = ENDINGS.iter().filter(|(known, _)| *known == ending);
    if let Some(format) = named.next().and_then(|(_, names)| of(names)) {
        return Ok(Some(format.clone()));
    }
    let makes = |(_, names): &&(&str, &[&str])| of(names).is_some();
    let made: Vec<String> = ENDINGS
        .iter()
        .filter(makes)
        .map(|(ending, _)| shown(ending))
        .collect();
    Err(Failure::usage(format!(
        "cannot write {}: this command makes no {}; it makes {}",
        path.display(),
        shown(&ending),
        made.join(", ")
    ))
    .hint("end the name of the file as one of these, or say the format: it then has any name"))
}

fn shown(ending: &str) -> String {
    match ending.ends_with("file") {
        true => ending.into(),
        false => format!(".{ending}"),
    }
}

/// Accepts a file name for `format` alone: any ending but those of other formats.
pub(crate) fn only(format: &'static str) -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(move |path| {
        let ending = ending(&path).unwrap_or_default();
        let of = |known: &str| ENDINGS.iter().find(|(ending, _)| *ending == known);
        match of(&ending).is_some_and(|(_, names)| !names.contains(&format)) {
            true => {
                let own = ENDINGS.iter().filter(|(_, names)| names.contains(&format));
                let own: Vec<String> = own.map(|(ending, _)| shown(ending)).collect();
                Err(format!(
                    "this command makes no {}; it makes {}",
                    shown(&ending),
                    own.join(", ")
                ))
            }
            false => Ok(path),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
    enum Some {
        Table,
        Csv,
        #[value(alias = "jpg")]
        Jpeg,
        Make,
    }

    #[test]
    fn an_ending_is_a_format_or_refused_or_says_nothing() {
        for (name, format_of) in [
            ("a.csv", Some::Csv),
            ("A.CSV", Some::Csv),
            ("a.b/c.txt", Some::Table),
            ("a.jpg", Some::Jpeg),
            ("a.JPEG", Some::Jpeg),
            ("Makefile", Some::Make),
            ("x.Makefile", Some::Make),
        ] {
            assert_eq!(
                format::<Some>(Path::new(name)).unwrap(),
                Option::Some(format_of)
            );
        }
        for name in [
            "csv",
            "a",
            "/dev/stdout",
            "/dev/fd/63",
            "a.csv/b",
            "run-1.2",
            "a.2026-01-01",
        ] {
            assert_eq!(format::<Some>(Path::new(name)).unwrap(), None, "{name}");
        }
        for name in ["/tmp/tmp.aB3dEf9xYz", "a.out", "a.tmp", ".hidden", "x."] {
            assert_eq!(format::<Some>(Path::new(name)).unwrap(), None, "{name}");
        }
        for name in ["a.svg", "a.gif", "a.csv.gz", "a.db", "Snakefile", "a.xyz"] {
            let refused = format::<Some>(Path::new(name)).unwrap_err();
            assert_eq!(refused.code(), crate::failure::USAGE);
            let said = refused.to_string();
            assert!(
                said.contains("it makes .txt, .csv, .jpg, .jpeg, .mk, makefile"),
                "{said}"
            );
        }
    }

    #[test]
    fn every_ending_is_there_once() {
        for (place, (ending, names)) in ENDINGS.iter().enumerate() {
            assert!(ENDINGS[..place].iter().all(|(other, _)| other != ending));
            assert!(!names.is_empty() && !NEUTRAL.contains(ending));
        }
    }
}
