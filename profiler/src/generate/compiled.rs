//! What Python keeps of what it compiled. Each program that imports a module leaves its compiled form in `__pycache__`, or
//! takes it from there if the source is as old and as long as is noted in it. So it depends on nothing but the source: to read
//! it is to read that, and who was first to write it does not matter.

use std::collections::HashSet;

use flowtrace_schema::ActionRow;
use flowtrace_schema::open_flags::O_ACCMODE;

use super::source::Source;

/// Where the files are.
const DIRECTORY: &str = "__pycache__";
/// Modules whose programs compile as their work, not for themselves.
const COMPILERS: &[&str] = &["compileall", "py_compile"];

/// The actions of a run, with those on such files as if the source had been read. A directory of which others than Python
/// made any use keeps its own.
pub(super) fn as_sources(source: &Source, mut actions: Vec<ActionRow>) -> Vec<ActionRow> {
    let of_action = |action: &ActionRow| {
        let names = source.names.get(&action.file_id).into_iter().flatten();
        names.filter_map(|name| directory(&name.path))
    };
    let importing: HashSet<i64> = source
        .workflow
        .images
        .iter()
        .filter(|image| {
            let words = image.command.as_deref().unwrap_or_default();
            let mut words = words.split_whitespace();
            image.exe.as_deref().is_some_and(is_python)
                && !words.any(|word| COMPILERS.contains(&word))
        })
        .map(|image| image.upid)
        .collect();
    let of_others: HashSet<String> = actions
        .iter()
        .filter(|action| !importing.contains(&action.upid))
        .flat_map(of_action)
        .map(String::from)
        .collect();
    actions.retain_mut(|action| {
        let Some(name) = source
            .names_during(action.file_id, action.first_ns, action.last_ns)
            .find(|name| directory(&name.path).is_some())
        else {
            return true;
        };
        if of_action(action).any(|directory| of_others.contains(directory)) {
            return true;
        }
        let compiled = source_of(&name.path);
        let file = compiled.and_then(|path| source.file_at(&path, action.first_ns));
        if let Some(file) = file {
            action.file_id = file;
        }
        file.is_some() && reads(action)
    });
    actions
}

/// Whether an action takes a file as it is.
fn reads(action: &ActionRow) -> bool {
    let is_open = &*action.class == "open" && &*action.op != "create";
    let only_reads = action.flags.is_some_and(|flags| flags & O_ACCMODE == 0);
    !action.failed && (&*action.class == "read" || is_open && only_reads)
}

/// Whether an executable is Python.
fn is_python(exe: &str) -> bool {
    let name = exe.rsplit('/').next().unwrap_or(exe);
    name.starts_with("python") || name.starts_with("pypy")
}

/// The directory of compiled modules that this is, or that this lies in.
fn directory(path: &str) -> Option<&str> {
    let is_one = |path: &str| path.rsplit('/').next() == Some(DIRECTORY);
    let above = path.rsplit_once('/').map(|(above, _)| above);
    Some(path)
        .filter(|path| is_one(path))
        .or(above.filter(|above| is_one(above)))
}

/// The module of which a file is the compiled form: `d/__pycache__/m.cpython-311.pyc` is that of `d/m.py`.
fn source_of(path: &str) -> Option<String> {
    let (directory, name) = path.rsplit_once('/')?;
    let above = directory.strip_suffix(DIRECTORY)?;
    let (module, rest) = name.split_once('.')?;
    rest.contains("pyc").then(|| format!("{above}{module}.py"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiled_module_tells_of_its_source() {
        let path = "/w/d/__pycache__/m.cpython-311.opt-1.pyc";
        assert_eq!(source_of(path).as_deref(), Some("/w/d/m.py"));
        assert_eq!(directory(path), Some("/w/d/__pycache__"));
        assert_eq!(directory("/w/d/__pycache__"), Some("/w/d/__pycache__"));
        assert_eq!(directory("/w/d/m.py"), None);
        assert_eq!(source_of("/w/d/__pycache__/notes"), None);
        assert_eq!(source_of("/w/d/m.cpython-311.pyc"), None);
        assert!(is_python("/usr/bin/python3.11") && !is_python("/usr/bin/ipython"));
    }
}
