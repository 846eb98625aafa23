//! Answers, and reasons why there is none.

use std::fmt;

use super::coverage::Coverage;

/// Why a call has no answer: an interval that is empty or too short, a capture that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The reason, for people.
    pub reason: String,
}

impl Unknown {
    /// No answer, because of `reason`.
    pub fn new(reason: impl Into<String>) -> Self {
        Unknown {
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown: {}", self.reason)
    }
}

/// An answer with the interval that it is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Known<T> {
    /// The answer.
    pub value: T,
    /// Begin of the interval, ns.
    pub t0_ns: i64,
    /// End of the interval, ns.
    pub t1_ns: i64,
    /// Packets that were seen and missed.
    pub coverage: Coverage,
}

/// Result of a call: an unknown answer is never 0.
pub type Answer<T> = Result<Known<T>, Unknown>;
