//! Answers, and the reasons why there are none.

use std::fmt;

use super::coverage::Coverage;

/// The reason why a call has no answer: an interval that is empty or too short, or a missing capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The reason, for people.
    pub reason: String,
}

impl Unknown {
    /// No answer, for this reason.
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

/// An answer and its interval.
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

/// Result of a call. An unknown answer is never 0.
pub type Answer<T> = Result<Known<T>, Unknown>;
