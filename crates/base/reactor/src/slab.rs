//! Slots for connections, reused, whose keys go stale when the slot is emptied.
//!
//! The kernel returns a number with each event. With a bare slot or descriptor number, an event
//! that was reported before a connection closed could reach the next connection in the same slot. A
//! [`Key`] has the slot's generation too, so a stale key finds nothing.
//!
//! Slots are in blocks that never move and are freed only with the slab: growing copies nothing,
//! and a slab holds at most one block more than its peak needed.

const BLOCK: usize = 256;

/// Names one value for as long as it is in the slab, and nothing ever after. As a number it fits an
/// event's user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(u64);

impl Key {
    /// Keys from here up are never given out by a slab: callers may use them for what is not a
    /// connection (a listener, a wake-up).
    pub const RESERVED: u64 = u64::MAX << 32;

    /// The key as event user data.
    pub fn to_raw(self) -> u64 {
        self.0
    }

    /// The key that [`Key::to_raw`] gave.
    pub fn from_raw(raw: u64) -> Key {
        Key(raw)
    }

    /// The number of the slot, below the slab's peak length.
    pub fn slot(self) -> usize {
        self.0 as u32 as usize
    }

    fn new(slot: u32, generation: u32) -> Key {
        Key(u64::from(generation) << 32 | u64::from(slot))
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[derive(Debug)]
enum Slot<T> {
    Free { next: u32, generation: u32 },
    Taken { generation: u32, value: T },
}

/// Values in slots that are reused.
#[derive(Debug)]
pub struct Slab<T> {
    blocks: Vec<Box<[Slot<T>]>>,
    free: u32,
    length: usize,
}

/// The end of the free list.
const NONE: u32 = u32::MAX;

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { blocks: Vec::new(), free: NONE, length: 0 }
    }
}

impl<T> Slab<T> {
    /// How many values there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Puts the value that `make` returns for its key into a free slot.
    pub fn insert_with(&mut self, make: impl FnOnce(Key) -> T) -> Key {
        if self.free == NONE {
            self.grow();
        }
        let slot = self.free;
        let place = &mut self.blocks[slot as usize / BLOCK][slot as usize % BLOCK];
        let Slot::Free { next, generation } = *place else { unreachable!("the free list holds free slots only") };
        let key = Key::new(slot, generation);
        *place = Slot::Taken { generation, value: make(key) };
        self.free = next;
        self.length += 1;
        key
    }

    /// Puts a value into a free slot.
    pub fn insert(&mut self, value: T) -> Key {
        self.insert_with(|_| value)
    }

    /// The value that `key` names, unless it was removed.
    pub fn get(&self, key: Key) -> Option<&T> {
        match self.blocks.get(key.slot() / BLOCK)?.get(key.slot() % BLOCK)? {
            Slot::Taken { generation, value } if *generation == key.generation() => Some(value),
            _ => None,
        }
    }

    /// The value that `key` names, unless it was removed, to change it.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.blocks.get_mut(key.slot() / BLOCK)?.get_mut(key.slot() % BLOCK)? {
            Slot::Taken { generation, value } if *generation == key.generation() => Some(value),
            _ => None,
        }
    }

    /// Takes out the value that `key` names; its slot is reused under another key.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.blocks.get_mut(key.slot() / BLOCK)?.get_mut(key.slot() % BLOCK)?;
        if !matches!(place, Slot::Taken { generation, .. } if *generation == key.generation()) {
            return None;
        }
        // Generations stop short of the reserved keys; after 4 billion reuses of one slot they
        // start over.
        let generation = (key.generation() + 1) % (Key::RESERVED >> 32) as u32;
        let taken = std::mem::replace(place, Slot::Free { next: self.free, generation });
        self.free = key.slot() as u32;
        self.length -= 1;
        match taken {
            Slot::Taken { value, .. } => Some(value),
            Slot::Free { .. } => unreachable!("checked above"),
        }
    }

    /// Every key, by slot.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.blocks.iter().flatten().zip(0..).filter_map(|(place, slot)| match place {
            Slot::Taken { generation, .. } => Some(Key::new(slot, *generation)),
            Slot::Free { .. } => None,
        })
    }

    fn grow(&mut self) {
        let start = (self.blocks.len() * BLOCK) as u32;
        let next = |slot: u32| if slot + 1 == start + BLOCK as u32 { NONE } else { slot + 1 };
        self.blocks
            .push((start..start + BLOCK as u32).map(|slot| Slot::Free { next: next(slot), generation: 0 }).collect());
        self.free = start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn a_stale_key_finds_nothing_in_its_reused_slot() {
        let mut slab = Slab::default();
        let old = slab.insert("old");
        assert_eq!(slab.remove(old), Some("old"));
        let new = slab.insert("new");
        assert_eq!(old.slot(), new.slot());
        assert_eq!(slab.get(old), None);
        assert_eq!(slab.get_mut(old), None);
        assert_eq!(slab.remove(old), None);
        assert_eq!(slab.get(new), Some(&"new"));
    }

    #[test]
    fn it_grows_when_every_slot_is_taken_and_not_before() {
        let mut slab = Slab::default();
        for number in 0..2 * BLOCK + 1 {
            assert_eq!(slab.insert(number).slot(), number);
            assert_eq!(slab.blocks.len(), number / BLOCK + 1);
        }
    }

    #[test]
    fn no_key_is_a_reserved_one() {
        let mut slab = Slab::default();
        let key = slab.insert(());
        assert_eq!(key.to_raw(), 0, "the first slot, for the first time");
        slab.remove(key);
        assert!(slab.is_empty());
        let Slot::Free { generation, .. } = &mut slab.blocks[0][0] else { panic!("it was removed") };
        *generation = (Key::RESERVED >> 32) as u32 - 1;
        let last = slab.insert(());
        assert!(last.to_raw() < Key::RESERVED);
        slab.remove(last);
        assert!(slab.insert(()).to_raw() < Key::RESERVED);
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_map(
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..2000),
        ) {
            let mut slab = Slab::default();
            let mut model = HashMap::new();
            let mut keys = Vec::new();
            for (step, (insert, pick)) in steps.into_iter().enumerate() {
                if insert || keys.is_empty() {
                    let key = slab.insert(step);
                    prop_assert!(model.insert(key, step).is_none());
                    keys.push(key);
                } else {
                    let key = keys[pick.index(keys.len())];
                    prop_assert_eq!(slab.remove(key), model.remove(&key));
                }
                prop_assert_eq!((slab.len(), slab.is_empty()), (model.len(), model.is_empty()));
            }
            for key in &keys {
                prop_assert_eq!(Key::from_raw(key.to_raw()), *key);
                prop_assert_eq!(slab.get(*key), model.get(key));
                prop_assert_eq!(slab.get_mut(*key), model.get_mut(key));
            }
            prop_assert_eq!(slab.keys().count(), model.len());
        }
    }
}
