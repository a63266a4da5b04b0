//! Values by number, where the kernel or a table of slots chooses the numbers.
//!
//! Values are in blocks that never move, so growing copies nothing. A block without values costs
//! one pointer.

const BLOCK: usize = 256;

/// Values by number.
#[derive(Debug)]
pub struct SparseVec<T> {
    blocks: Vec<Option<Box<[Option<T>]>>>,
}

impl<T> Default for SparseVec<T> {
    fn default() -> SparseVec<T> {
        SparseVec { blocks: Vec::new() }
    }
}

impl<T> SparseVec<T> {
    /// Puts a value under a number, and returns the one that was there.
    pub fn insert(&mut self, number: usize, value: T) -> Option<T> {
        if self.blocks.len() <= number / BLOCK {
            self.blocks.resize_with(number / BLOCK + 1, || None);
        }
        let block = self.blocks[number / BLOCK].get_or_insert_with(|| (0..BLOCK).map(|_| None).collect());
        block[number % BLOCK].replace(value)
    }

    /// The value under a number, to change it.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.blocks.get_mut(number / BLOCK)?.as_mut()?[number % BLOCK].as_mut()
    }

    /// Takes out the value under a number.
    pub fn remove(&mut self, number: usize) -> Option<T> {
        self.blocks.get_mut(number / BLOCK)?.as_mut()?[number % BLOCK].take()
    }

    /// Every value, by number.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.blocks.iter().flatten().flat_map(|block| block.iter().flatten())
    }

    /// Takes out every value.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::take(&mut self.blocks).into_iter().flatten().flat_map(|block| block.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_number_takes_the_room_up_to_it_and_no_more() {
        let mut values = SparseVec::default();
        for (number, blocks) in [(0, 1), (BLOCK - 1, 1), (BLOCK, 2), (10 * BLOCK, 11), (1, 11)] {
            values.insert(number, ());
            assert_eq!(values.blocks.len(), blocks, "{number}");
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_map(steps in prop::collection::vec((any::<bool>(), 0_usize..2000), 0..300)) {
            let (mut values, mut model) = (SparseVec::default(), BTreeMap::new());
            for (step, (insert, number)) in steps.into_iter().enumerate() {
                if insert {
                    prop_assert_eq!(values.insert(number, step), model.insert(number, step));
                } else {
                    prop_assert_eq!(values.remove(number), model.remove(&number));
                }
                prop_assert_eq!(values.get_mut(number), model.get_mut(&number));
            }
            prop_assert!(values.values().eq(model.values()));
            prop_assert!(values.drain().eq(model.into_values()));
            prop_assert_eq!(values.values().next(), None);
        }
    }
}
