//! Answers about one interval that several analyses need, computed once.

use std::any::{Any, TypeId};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ahash::AHashMap;

/// Answers by their types, so that this module depends on no other one of the crate. Clones of a
/// [`crate::Run`] share them.
#[derive(Debug, Default)]
pub(super) struct Memo(Mutex<AHashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Memo {
    /// The answer of type `T`, computed on first use. `compute` may use other answers.
    pub(super) fn once<T: Clone + Send + Sync + 'static>(&self, compute: impl FnOnce() -> T) -> T {
        let answer = {
            let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = answers.entry(TypeId::of::<T>());
            Arc::clone(answer.or_insert_with(|| Arc::new(OnceLock::<T>::new())))
        };
        match answer.downcast::<OnceLock<T>>() {
            Ok(answer) => answer.get_or_init(compute).clone(),
            Err(_) => compute(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::messages;
    use crate::run::Mode;
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
        // Thesis mode has other messages.
        let thesis = run.with(|settings| settings.mode = Mode::Thesis);
        assert_eq!(messages(&thesis).unwrap().len(), 1);
    }
}
