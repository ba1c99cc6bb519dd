//! A set optimised for one member: the VMs that share a value that should be unique.

use std::collections::{BTreeSet, btree_set};

/// A sorted set; one member needs no allocation.
#[derive(Debug)]
pub(crate) enum SmallSet<T> {
    /// Exactly this one.
    One(T),
    /// Any other number.
    Many(BTreeSet<T>),
}

impl<T> Default for SmallSet<T> {
    fn default() -> Self {
        Self::Many(BTreeSet::new())
    }
}

impl<T: Ord> SmallSet<T> {
    pub(crate) fn insert(&mut self, value: T) {
        match std::mem::take(self) {
            Self::Many(mut all) if !all.is_empty() => {
                all.insert(value);
                *self = Self::Many(all);
            }
            Self::Many(_) => *self = Self::One(value),
            Self::One(one) if one == value => *self = Self::One(one),
            Self::One(one) => *self = Self::Many(BTreeSet::from([one, value])),
        }
    }

    pub(crate) fn remove(&mut self, value: &T) {
        match self {
            Self::One(one) if one == value => *self = Self::default(),
            Self::One(_) => {}
            Self::Many(all) => {
                all.remove(value);
                if all.len() == 1
                    && let Some(last) = all.pop_first()
                {
                    *self = Self::One(last);
                }
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(all) => all.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn iter(&self) -> Iter<'_, T> {
        match self {
            Self::One(one) => Iter(Some(one), None),
            Self::Many(all) => Iter(None, Some(all.iter())),
        }
    }
}

/// Members, sorted.
pub(crate) struct Iter<'a, T>(Option<&'a T>, Option<btree_set::Iter<'a, T>>);

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;
    fn next(&mut self) -> Option<&'a T> {
        self.0.take().or_else(|| self.1.as_mut()?.next())
    }
}

impl<'a, T: Ord> IntoIterator for &'a SmallSet<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0_u8..4), 0..40)) {
            let (mut few, mut set) = (SmallSet::default(), BTreeSet::new());
            for (insert, value) in steps {
                if insert {
                    few.insert(value);
                    set.insert(value);
                } else {
                    few.remove(&value);
                    set.remove(&value);
                }
                prop_assert!(few.iter().eq(&set));
                prop_assert_eq!((few.len(), few.is_empty()), (set.len(), set.is_empty()));
                prop_assert_eq!(matches!(few, SmallSet::One(_)), set.len() == 1);
            }
        }
    }
}
