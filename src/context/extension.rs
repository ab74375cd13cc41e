//! State of tools that belongs to one tree and ends with it.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::root::Root;

/// One value a type. Taken alone, for a look or a move; values are made and dropped while it is free.
#[derive(Default)]
pub(super) struct Extensions(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    ended: bool,
    values: Vec<(TypeId, Arc<dyn Any + Send + Sync>)>,
}

impl Extensions {
    fn lock(&self) -> std::sync::MutexGuard<'_, Slots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get_or_init<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        let find = |slots: &Slots| {
            let mut values = slots.values.iter();
            values.find_map(|(kind, value)| (*kind == TypeId::of::<T>()).then(|| Arc::clone(value)))
        };
        let found = find(&self.lock());
        if let Some(found) = found.and_then(|found| found.downcast().ok()) {
            return found;
        }
        let made = Arc::new(T::default());
        let mut slots = self.lock();
        // Another call may have been quicker; after the end nothing is kept.
        if let Some(found) = find(&slots).and_then(|found| found.downcast().ok()) {
            return found;
        }
        if !slots.ended {
            slots.values.push((TypeId::of::<T>(), Arc::<T>::clone(&made)));
        }
        made
    }

    fn end(&self) {
        let mut slots = self.lock();
        slots.ended = true;
        let values = std::mem::take(&mut slots.values);
        drop(slots);
        drop(values);
    }
}

impl Root {
    /// The `T` of this tree: made when it is first asked for, dropped when the root run ends. So what a tool keeps of one tree
    /// is never seen in another, however many trees its toolset is used for.
    pub(crate) fn extension<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        self.extensions().get_or_init()
    }

    /// The root run has ended.
    pub(crate) fn end_extensions(&self) {
        self.ask_table().end();
        self.extensions().end();
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extensions").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Notes(Mutex<Vec<u32>>);

    #[test]
    fn each_tree_has_its_own_and_drops_it_at_its_end() {
        let (one, other) = (Root::new(), Root::new());
        one.extension::<Notes>().0.lock().unwrap().push(1);
        one.extension::<Notes>().0.lock().unwrap().push(2);
        assert_eq!(*one.extension::<Notes>().0.lock().unwrap(), [1, 2]);
        assert!(other.extension::<Notes>().0.lock().unwrap().is_empty());
        let kept = Arc::downgrade(&one.extension::<Notes>());
        one.end_extensions();
        assert!(kept.upgrade().is_none());
        one.extension::<Notes>().0.lock().unwrap().push(3);
        assert!(one.extension::<Notes>().0.lock().unwrap().is_empty());
    }
}
