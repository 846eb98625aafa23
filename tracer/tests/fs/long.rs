//! Durations of the tests that have a long form, which `tests/long` runs.

/// A number from the environment, or `otherwise`.
pub(crate) fn number(variable: &str, otherwise: u64) -> u64 {
    let text = std::env::var(variable).ok();
    let number = text.map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text}")));
    number.unwrap_or(otherwise)
}
