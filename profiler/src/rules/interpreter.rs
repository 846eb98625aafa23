//! Programs that run scripts, and the arguments that name the script.

use super::program::base;

/// The arguments by which a program that runs scripts gets its script.
pub(super) struct Interpreter {
    /// Options whose next argument is the program text.
    code: &'static [&'static str],
    /// Options whose next argument is not the script.
    with_value: &'static [&'static str],
    /// Options whose next argument is the script.
    script: &'static [&'static str],
    /// The option that runs a module by its name.
    module: Option<&'static str>,
    /// One-letter options that may stand in one argument, as in `bash -ec`. The last letter is that of
    /// the option for program text.
    letters: &'static str,
}

impl Interpreter {
    pub(super) fn named(name: &str) -> Option<&'static Interpreter> {
        const SHELL: &Interpreter = &Interpreter {
            code: &["-c"],
            with_value: &["-o", "+o", "-O", "+O", "--rcfile", "--init-file"],
            script: &[],
            module: None,
            letters: "abefhiklmnprtuvxBCEHPsc",
        };
        const PYTHON: &Interpreter = &Interpreter {
            code: &["-c"],
            with_value: &["-W", "-X", "--check-hash-based-pycs"],
            script: &[],
            module: Some("-m"),
            letters: "bBdEiIOPqRsSuvxc",
        };
        const PERL: &Interpreter = &Interpreter {
            code: &["-e", "-E"],
            with_value: &["-I", "-M", "-r"],
            script: &[],
            module: None,
            letters: "acilnpstTuUwWe",
        };
        const R: &Interpreter = &Interpreter {
            code: &["-e"],
            with_value: &[],
            script: &["-f"],
            module: None,
            letters: "",
        };
        const NODE: &Interpreter = &Interpreter {
            code: &["-e", "--eval", "-p", "--print"],
            with_value: &["-r", "--require", "--import", "-C", "--conditions"],
            script: &[],
            module: None,
            letters: "",
        };
        const JAVA: &Interpreter = &Interpreter {
            code: &[],
            with_value: &["-cp", "-classpath", "--class-path", "-p", "--module-path"],
            script: &["-jar", "-m"],
            module: None,
            letters: "",
        };
        const TCL: &Interpreter = &Interpreter {
            code: &[],
            with_value: &[],
            script: &[],
            module: None,
            letters: "",
        };
        // python3.11, perl5.36, ruby3.1, lua5.4
        let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        match plain {
            "sh" | "bash" | "dash" | "ash" | "zsh" | "ksh" | "mksh" => Some(SHELL),
            "python" | "pypy" => Some(PYTHON),
            "perl" | "ruby" | "lua" => Some(PERL),
            "Rscript" | "R" => Some(R),
            "node" | "nodejs" => Some(NODE),
            "java" => Some(JAVA),
            "tclsh" | "wish" | "expect" => Some(TCL),
            _ => None,
        }
    }

    /// The usual name of what runs, and its arguments.
    pub(super) fn rule<'a>(&self, name: &str, arguments: &'a [&'a str]) -> (String, &'a [&'a str]) {
        let (rule, used) = self.named_by(name, arguments);
        (rule, arguments.get(used..).unwrap_or_default())
    }

    /// The name, and the number of arguments before those of the script; all arguments if there is no
    /// script.
    fn named_by(&self, name: &str, arguments: &[&str]) -> (String, usize) {
        let all = arguments.len();
        let script = |at: usize, of: fn(&str) -> &str| match arguments.get(at) {
            Some(path) if is_descriptor(path) => (name.to_owned(), at + 1),
            Some(path) => (of(path).to_owned(), at + 1),
            None => (name.to_owned(), all),
        };
        let mut at = 0;
        while let Some(&argument) = arguments.get(at) {
            at += 1;
            if argument == "--" || self.script.contains(&argument) {
                return script(at, base);
            }
            if self.code.contains(&argument) {
                let of_pool = arguments.get(at).and_then(|code| pool_module(code));
                let own = || format!("{name} {argument}");
                return (of_pool.map_or_else(own, str::to_owned), all);
            }
            if let Some(letter) = self.code_letter(argument) {
                return (format!("{name} -{letter}"), all);
            }
            if Some(argument) == self.module {
                return match arguments.get(at) {
                    Some(module) => (format!("{name} -m {module}"), at + 1),
                    None => (name.into(), all),
                };
            }
            if let Some(script) = argument.strip_prefix("--file=") {
                return (base(script).into(), at);
            }
            if self.with_value.contains(&argument) {
                at += 1;
            } else if argument == "-" {
                // The program text comes through standard input.
                return (name.into(), all);
            } else if !argument.starts_with(['-', '+']) && !argument.is_empty() {
                return script(at - 1, script_name);
            }
        }
        (name.into(), all)
    }

    /// The letter of the option for program text, at the end of a bundle of options.
    fn code_letter(&self, argument: &str) -> Option<char> {
        let bundle = argument.strip_prefix('-')?;
        let letter = self.letters.chars().last()?;
        (bundle.contains(letter) && bundle.chars().all(|c| self.letters.contains(c)))
            .then_some(letter)
    }
}

/// The module of Python's `multiprocessing` that program text starts: a worker
/// (`multiprocessing.spawn`), or a helper that sleeps all the time.
fn pool_module(code: &str) -> Option<&str> {
    let (module, _) = code.strip_prefix("from ")?.split_once(" import ")?;
    module.starts_with("multiprocessing.").then_some(module)
}

/// Returns true if a program text comes through a descriptor, as in `bash <(make-script)`. The number
/// is then no name.
fn is_descriptor(path: &str) -> bool {
    let number = ["/dev/fd/", "/proc/self/fd/"]
        .iter()
        .find_map(|directory| path.strip_prefix(directory));
    path == "/dev/stdin" || number.is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
}

/// The name of a script. Snakemake runs copies of scripts, whose names differ in each run.
fn script_name(path: &str) -> &str {
    let name = base(path);
    if !path.contains("/.snakemake/scripts/") && !path.starts_with(".snakemake/scripts/") {
        return name;
    }
    let is_random = |word: &str| word.len() == 11 && word.starts_with("tmp");
    match name.split_once('.') {
        Some((word, rest)) if is_random(word) => rest,
        _ => name,
    }
}
