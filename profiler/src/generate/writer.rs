//! State of writing one step as a line of bash.

use super::Options;
use crate::generate::source::Source;

/// Writes commands as bash.
pub(super) struct Writer<'a> {
    pub(super) source: &'a Source,
    pub(super) options: Options,
}
