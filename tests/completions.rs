//! Completions and manual pages name every command.

use std::process::{Command, Output};

fn flowtrace(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowtrace"))
        .args(arguments)
        .output()
        .unwrap()
}

/// The commands that `--help` lists.
fn commands() -> Vec<String> {
    let help = String::from_utf8(flowtrace(&["--help"]).stdout).unwrap();
    let list = help.split("Commands:\n").nth(1).unwrap();
    let names = list.lines().take_while(|line| !line.trim().is_empty());
    let names = names.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<String> = names
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect();
    assert!(names.len() > 8, "{names:?}");
    names
}

#[test]
fn every_shell_has_completions_for_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = flowtrace(&["completions", shell]);
        assert!(output.status.success(), "{shell}");
        let script = String::from_utf8(output.stdout).unwrap();
        for name in commands() {
            assert!(script.contains(&name), "{shell} does not know {name}");
        }
    }
    assert_eq!(flowtrace(&["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
fn bash_accepts_its_completions() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flowtrace");
    std::fs::write(&path, flowtrace(&["completions", "bash"]).stdout).unwrap();
    let ask = "source flowtrace; COMP_WORDS=(flowtrace cr); COMP_CWORD=1; \
               _flowtrace flowtrace cr flowtrace; echo \"${COMPREPLY[*]}\"";
    let output = Command::new("bash")
        .args(["--norc", "-c", ask])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let answer = String::from_utf8(output.stdout).unwrap();
    assert!(answer.contains("critical-path"), "{answer}");
}

#[test]
fn every_command_has_a_page() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man1");
    assert!(
        flowtrace(&["man", "-o", pages.to_str().unwrap()])
            .status
            .success()
    );
    let whole = std::fs::read_to_string(pages.join("flowtrace.1")).unwrap();
    assert!(whole.contains(".TH flowtrace 1"), "{whole}");
    for name in commands() {
        let page = std::fs::read_to_string(pages.join(format!("flowtrace-{name}.1"))).unwrap();
        assert!(
            page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"),
            "{name}"
        );
    }
    let compare = std::fs::read_to_string(pages.join("flowtrace-compare.1")).unwrap();
    for part in [
        "\n.SH SYNOPSIS\n.nf\nflowtrace compare [OPTIONS] <A> <B>\n.fi\n",
        "\n.SH EXAMPLES\n.nf\n  flowtrace compare before.db after.db\n",
        concat!(" \"flowtrace ", env!("CARGO_PKG_VERSION")),
    ] {
        assert!(compare.contains(part), "{part}\n{compare}");
    }
    let printed = String::from_utf8(flowtrace(&["man"]).stdout).unwrap();
    assert!(printed.contains(".TH flowtrace 1"));
}
