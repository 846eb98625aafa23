//! Compiled Python modules as reads of their sources.
//!
//! Each program that imports a module leaves the module's compiled form in `__pycache__`, or takes it
//! from there if the source has the age and length noted in it. The compiled form depends on the source
//! alone. Reading it therefore counts as reading the source, and the program that wrote it first does
//! not matter.

use std::collections::HashSet;

use flowtrace_schema::ActionRow;
use flowtrace_schema::open_flags::O_ACCMODE;

use super::source::Source;

/// Name of the directories of compiled modules.
const DIRECTORY: &str = "__pycache__";
/// Python modules whose work is to compile other modules.
const COMPILERS: &[&str] = &["compileall", "py_compile"];

/// The actions of a run, where those on compiled modules become reads of the source. A directory that
/// any program but Python used keeps its actions.
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

/// Returns true if an action reads a file and changes nothing.
fn reads(action: &ActionRow) -> bool {
    let is_open = &*action.class == "open" && &*action.op != "create";
    let only_reads = action.flags.is_some_and(|flags| flags & O_ACCMODE == 0);
    !action.failed && (&*action.class == "read" || is_open && only_reads)
}

/// Returns true if an executable is Python.
fn is_python(exe: &str) -> bool {
    let name = exe.rsplit('/').next().unwrap_or(exe);
    name.starts_with("python") || name.starts_with("pypy")
}

/// The directory of compiled modules that `path` names or lies in.
fn directory(path: &str) -> Option<&str> {
    let is_one = |path: &str| path.rsplit('/').next() == Some(DIRECTORY);
    let above = path.rsplit_once('/').map(|(above, _)| above);
    Some(path)
        .filter(|path| is_one(path))
        .or(above.filter(|above| is_one(above)))
}

/// The source of a compiled module: `d/m.py` for `d/__pycache__/m.cpython-311.pyc`.
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
    fn a_compiled_module_names_its_source() {
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
