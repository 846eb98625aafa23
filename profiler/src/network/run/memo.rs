//! What several questions about one interval begin with, worked out once.

use std::sync::{Arc, OnceLock};

use super::{Mode, Run, Unknown};
use crate::network::component::Losses;
use crate::network::evidence::Evidence;
use crate::network::matrix::{Matrix, Traffic};
use crate::network::messages::Message;
use crate::network::plain;
use crate::network::repeat::Iterations;

/// Answers by the default rules, which no other setting changes. Shared by the clones of a [`Run`].
#[derive(Debug, Default)]
pub(in crate::network) struct Memo {
    pub(in crate::network) traffic: OnceLock<Arc<Matrix<Traffic>>>,
    pub(in crate::network) messages: OnceLock<Arc<Vec<Message>>>,
    pub(in crate::network) plain: OnceLock<Arc<plain::Pairs>>,
    pub(in crate::network) iterations: OnceLock<Option<Arc<Iterations>>>,
    pub(in crate::network) evidence: OnceLock<Result<Evidence, Unknown>>,
    pub(in crate::network) losses: OnceLock<Result<Arc<Losses>, Unknown>>,
}

impl Run {
    /// What is kept of this interval; `None`: the thesis' rules are asked for.
    pub(in crate::network) fn memo(&self) -> Option<&Memo> {
        (self.settings.mode == Mode::Default).then_some(&*self.memo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::messages::messages;
    use crate::network::testing::{data, run_of};

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
