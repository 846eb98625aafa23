//! The dependencies keep the rules of deny.toml on licences, banned crates, sources and wildcards.
//!
//! `cargo deny check` reads the same file and checks more, but takes minutes to compile.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The strings in the brackets after `begin`.
fn listed<'a>(rules: &'a str, begin: &str) -> Vec<&'a str> {
    let (_, rest) = rules.split_once(begin).expect(begin);
    let (list, _) = rest.split_once(']').expect(begin);
    list.split('"').skip(1).step_by(2).collect()
}

/// True if the licences satisfy an SPDX expression. Stricter than needed for an `AND` inside an `OR`.
fn is_allowed(expression: &str, licences: &[&str]) -> bool {
    expression.split(" AND ").all(|part| {
        let part = part.replace(['(', ')'], "").replace('/', " OR ");
        let mut names = part.split(" OR ");
        names.any(|name| licences.contains(&name.trim()))
    })
}

#[test]
fn dependencies_keep_the_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rules = fs::read_to_string(root.join("deny.toml")).unwrap();
    let (licences, banned) = (listed(&rules, "\nallow = ["), listed(&rules, "\ndeny = ["));
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args("tree --locked --workspace --all-features --prefix=none".split(' '));
    cargo.args(["--format", "{p}|{l}|"]);
    for target in listed(&rules, "\ntargets = [") {
        cargo.args(["--target", target]);
    }
    let output = cargo.current_dir(root).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let tree = String::from_utf8(output.stdout).unwrap();
    let tree = tree.replace(" (proc-macro)", "");
    let packages: BTreeSet<_> = tree.lines().filter(|line| !line.is_empty()).collect();
    assert!(packages.len() > 100, "most dependencies are missing");
    for package in packages {
        let fields: Vec<_> = package.split('|').collect();
        let (package, licence) = (fields[0], fields[1]);
        assert!(is_allowed(licence, &licences), "{package} has {licence:?}");
        let name = package.split(' ').next().unwrap();
        assert!(!banned.contains(&name), "{package} is banned");
        // A package that is not of crates.io has its source in parentheses.
        if let Some((_, source)) = package.split_once(" (") {
            let source = Path::new(source.trim_end_matches(')'));
            assert!(source.starts_with(root), "{package} is not of crates.io");
            let manifest = fs::read_to_string(source.join("Cargo.toml")).unwrap();
            assert!(!manifest.contains("= \"*\""), "{package} has a wildcard");
        }
    }
}

#[test]
fn licences_are_read_as_spdx_writes_them() {
    let allowed = |expression| is_allowed(expression, &["MIT", "Zlib"]);
    assert!(["MIT", "X OR MIT", "X/MIT", "(MIT OR X) AND Zlib"].map(allowed) == [true; 4]);
    assert!(["", "X", "MIT AND X", "(MIT OR X) AND Y"].map(allowed) == [false; 4]);
}
