pub(crate) fn exhaust() {}
pub(crate) fn relieve() {}
