//! What several questions about one interval begin with, worked out once.

use std::sync::{Arc, OnceLock};

use super::{Mode, Run, Unknown};
use crate::component::Losses;
use crate::evidence::Evidence;
use crate::matrix::{Matrix, Traffic};
use crate::messages::Message;
use crate::plain;
use crate::repeat::Iterations;

/// Answers by the default rules, which no other setting changes. Shared by the clones of a [`Run`].
#[derive(Debug, Default)]
pub(crate) struct Memo {
    pub(crate) traffic: OnceLock<Arc<Matrix<Traffic>>>,
    pub(crate) messages: OnceLock<Arc<Vec<Message>>>,
    pub(crate) plain: OnceLock<Arc<plain::Pairs>>,
    pub(crate) iterations: OnceLock<Option<Arc<Iterations>>>,
    pub(crate) evidence: OnceLock<Result<Evidence, Unknown>>,
    pub(crate) losses: OnceLock<Result<Arc<Losses>, Unknown>>,
}

impl Run {
    /// What is kept of this interval; `None`: the thesis' rules are asked for.
    pub(crate) fn memo(&self) -> Option<&Memo> {
        (self.settings.mode == Mode::Default).then_some(&*self.memo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::messages;
    use crate::testing::{data, run_of};

    #[test]
    fn an_interval_is_cut_into_messages_once_and_another_one_anew() {
        let packets: Vec<_> = (0..20).map(|i| data(i * 1000, 0, 1, 100)).collect();
        let run = run_of(2, &packets).last(Some(15e-6));
        let (first, again) = (messages(&run).unwrap(), messages(&run.clone()).unwrap());
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(first.len(), 16);
        assert!(Arc::ptr_eq(&first, &messages(&run.last(None)).unwrap()));
        assert_eq!(messages(&run.last(Some(5e-6))).unwrap().len(), 6);
        // The other rule has other messages.
        let thesis = run.with(|settings| settings.mode = Mode::Thesis);
        assert_eq!(messages(&thesis).unwrap().len(), 1);
    }
}
