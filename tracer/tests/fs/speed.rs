use std::path::Path;
pub(crate) fn reads(_path: &Path) {}
