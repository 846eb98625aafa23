//! What is found of the places of a module.

use flowtrace_schema::Symbols;

/// A function at a place in code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Located {
    pub(super) name: String,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
}

impl Located {
    pub(super) fn named(name: String) -> Located {
        Located {
            name,
            file: None,
            line: None,
        }
    }
}

/// The functions at some places of a module, in the order of the places; the innermost is the first of each.
pub(super) struct Found {
    pub(super) symbols: Symbols,
    pub(super) functions: Vec<Vec<Located>>,
    /// True if there is more debug information, which was not read.
    pub(super) is_partial: bool,
}

/// The last part of a path.
pub(super) fn base_name(path: &[u8]) -> String {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    String::from_utf8_lossy(name).into_owned()
}
