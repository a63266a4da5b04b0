//! Values by a number that somebody else gives out: the kernel, a table of slots.
//!
//! They stand in blocks that never move, so growing copies nothing, and numbers far apart cost a
//! pointer a block and not a place each.

const BLOCK: usize = 256;

/// Values by number.
#[derive(Debug)]
pub struct Numbered<T> {
    blocks: Vec<Option<Box<[Option<T>]>>>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Numbered<T> {
        Numbered { blocks: Vec::new() }
    }
}

impl<T> Numbered<T> {
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

    proptest! {
        #[test]
        fn it_agrees_with_a_map(steps in prop::collection::vec((any::<bool>(), 0_usize..2000), 0..300)) {
            let (mut numbered, mut model) = (Numbered::default(), BTreeMap::new());
            for (step, (insert, number)) in steps.into_iter().enumerate() {
                if insert {
                    prop_assert_eq!(numbered.insert(number, step), model.insert(number, step));
                } else {
                    prop_assert_eq!(numbered.remove(number), model.remove(&number));
                }
                prop_assert_eq!(numbered.get_mut(number), model.get_mut(&number));
            }
            prop_assert!(numbered.values().eq(model.values()));
            prop_assert!(numbered.drain().eq(model.into_values()));
            prop_assert_eq!(numbered.values().next(), None);
        }
    }
}
