//! Names, comments and documentation use the terms of docs/glossary.md, and links of the documentation lead
//! somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const GLOSSARY: &str = "docs/glossary.md";
/// Documentation beside `docs`.
const TOP: [&str; 4] = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
];
/// The words themselves, and data.
const NOT_READ: [&str; 3] = [GLOSSARY, "docs/montage", "tests/words.rs"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The words in bold in the left column of the glossary's last table, each as its single words.
fn refused() -> Vec<Vec<String>> {
    let glossary = fs::read_to_string(root().join(GLOSSARY)).unwrap();
    let (_, table) = glossary
        .split_once("| not | but |")
        .expect("the table of words that are not used");
    let left = table.lines().filter_map(|line| line.split('|').nth(1));
    let bold = left.flat_map(|cell| cell.split("**").skip(1).step_by(2));
    bold.map(|words| words.split(' ').map(str::to_owned).collect())
        .collect()
}

/// Single words in lower case: of `TracedPids` and `traced_pids` these are `traced` and `pids`.
fn words(line: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut before = ' ';
    for letter in line.chars() {
        if !letter.is_alphabetic() || (before.is_lowercase() && letter.is_uppercase()) {
            all.push(String::new());
        }
        if letter.is_alphabetic() {
            all.last_mut().unwrap().extend(letter.to_lowercase());
        }
        before = letter;
    }
    all.retain(|word| !word.is_empty());
    all
}

/// A line of a source without what is in quotes, which JSON keys and other formats are, and without the kernel's names.
fn without_strings(line: &str) -> String {
    let foreign = [
        "smp_processor_id",
        "trace_processor",
        "Get_processor_name",
        "MAX_PROCESSOR_NAME",
    ];
    let line = foreign
        .iter()
        .fold(line.to_owned(), |line, name| line.replace(name, ""));
    let comment = line
        .find("//")
        .filter(|&at| line[..at].matches('"').count() % 2 == 0);
    let (code, comment) = line.split_at(comment.unwrap_or(line.len()));
    let code: Vec<&str> = code.split('"').step_by(2).collect();
    format!("{} {comment}", code.join(" "))
}

/// Files below a directory with one of these endings.
fn files(directory: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, endings, found);
        } else if path
            .extension()
            .is_some_and(|ending| endings.iter().any(|it| ending == *it))
        {
            found.push(path);
        }
    }
}

#[test]
fn words_of_earlier_versions_are_not_used() {
    let refused = refused();
    assert!(refused.len() > 10, "{refused:?}");
    let mut all = Vec::new();
    for directory in [
        "src",
        "schema",
        "profiler",
        "tracer",
        "tests",
        "benches",
        "fuzz/fuzz_targets",
        "docs",
    ] {
        files(
            &root().join(directory),
            &["rs", "c", "h", "md", "sql"],
            &mut all,
        );
    }
    all.extend(TOP.map(|file| root().join(file)));
    let mut found = BTreeSet::new();
    for path in all {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap();
        if NOT_READ.iter().any(|skipped| name.starts_with(skipped)) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let is_source = !name.ends_with(".md");
        for (number, line) in (1..).zip(text.lines()) {
            // In documentation, words between backquotes are those of commands and formats.
            let line = match is_source {
                true => without_strings(line),
                false => line.split('`').step_by(2).collect::<Vec<_>>().join(" "),
            };
            let words = words(&line);
            for term in &refused {
                if words.windows(term.len()).any(|window| window == term) {
                    found.insert(format!("{name}:{number}: {}", term.join(" ")));
                }
            }
        }
    }
    assert!(
        found.is_empty(),
        "words that {GLOSSARY} refuses, with what to say instead:\n{}",
        found.into_iter().collect::<Vec<_>>().join("\n")
    );
}

/// The lines of a Markdown file outside of code blocks.
fn prose(text: &str) -> Vec<&str> {
    let mut in_code = false;
    let mut all = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            all.push(line);
        }
    }
    all
}

/// The anchors that forges make of the headings of a Markdown file.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).into_iter().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            heading
                .chars()
                .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter))
                .map(|letter| if letter == ' ' { '-' } else { letter })
                .collect()
        })
        .collect()
}

/// The targets of the links of a Markdown file, without those in code.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text).join("\n");
    let without_code: String = prose.split('`').step_by(2).collect();
    let targets = without_code.split("](").skip(1);
    targets
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.to_owned())
        .collect()
}

#[test]
fn relative_links_lead_somewhere() {
    let mut all = Vec::new();
    files(&root().join("docs"), &["md"], &mut all);
    files(&root().join("examples"), &["md"], &mut all);
    all.extend(TOP.map(|file| root().join(file)));
    let mut broken = BTreeSet::new();
    for path in all {
        let text = fs::read_to_string(&path).unwrap();
        for link in links(&text) {
            if link.contains(':') {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => path.clone(),
                _ => path.parent().unwrap().join(file),
            };
            let is_found = match anchor {
                "" => target.exists(),
                _ => fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor)),
            };
            if !is_found {
                broken.insert(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}

#[test]
fn links_are_found() {
    let text = "# One `two`: three-four\nsee [a](b.md#c), `[x](y)`\n```\n[d](e)\n```\n[f\ng](h)\n";
    assert_eq!(links(text), ["b.md#c", "h"]);
    assert_eq!(anchors(text), ["one-two-three-four".to_owned()].into());
}

#[test]
fn names_are_taken_apart() {
    assert_eq!(
        words("fn traced_pids(TracedPids)"),
        ["fn", "traced", "pids", "traced", "pids"]
    );
    assert!(without_strings(r#"let a = "told"; // told"#).contains("told"));
    assert!(!without_strings(r#"let a = "told";"#).contains("told"));
}
