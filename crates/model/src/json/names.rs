//! Lookup of members by name. Clients choose the names, so the table hashes with a random key (the standard library's),
//! which makes collisions unpredictable.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};

/// Most members that are searched linearly; more are searched by a table.
const FEW: usize = 16;

/// Finds members of an external list that has no duplicate names.
#[derive(Default)]
pub(super) struct Places<'a>(Option<HashMap<Name<'a>, usize>>);

impl<'a> Places<'a> {
    /// Indexes these members.
    pub fn of<'m, T>(members: &'m [(Cow<'m, str>, T)]) -> Self
    where
        'm: 'a,
    {
        let places = || members.iter().zip(0..).map(|((name, _), at)| (Name(Cow::Borrowed(name.as_ref())), at));
        Self((members.len() > FEW).then(|| places().collect()))
    }

    /// Returns the position of the member of that name.
    pub fn find<T>(&self, members: &[(Cow<'_, str>, T)], name: &str) -> Option<usize> {
        match &self.0 {
            Some(table) => table.get(&Name(Cow::Borrowed(name))).copied(),
            None => members.iter().position(|(other, _)| same(other, name)),
        }
    }

    /// Adds a member behind these; returns false if the name is a duplicate.
    #[expect(clippy::ptr_arg, reason = "kept where it is, so that a borrowed one stays borrowed")]
    pub fn add<T>(&mut self, members: &[(Cow<'a, str>, T)], name: &Cow<'a, str>) -> bool {
        if self.0.is_none() {
            if members.len() < FEW {
                return members.iter().all(|(other, _)| !same(other, name));
            }
            self.0 = Some(members.iter().zip(0..).map(|((name, _), at)| (Name(name.clone()), at)).collect());
        }
        let Some(table) = &mut self.0 else { return true };
        match table.entry(Name(name.clone())) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(members.len());
                true
            }
        }
    }
}

/// A name as a key of the table.
#[derive(Clone, Eq)]
struct Name<'a>(Cow<'a, str>);

impl PartialEq for Name<'_> {
    fn eq(&self, other: &Self) -> bool {
        same(&self.0, &other.0)
    }
}

impl Hash for Name<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// Compares two names; all comparisons go through here, so that tests can count them.
pub(super) fn same(left: &str, right: &str) -> bool {
    #[cfg(test)]
    counted::COMPARED.with(|compared| compared.set(compared.get() + 1));
    left == right
}

/// A counter of comparisons.
#[cfg(test)]
pub(super) mod counted {
    use std::cell::Cell;

    thread_local! {
        pub(super) static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    /// Runs work; returns its number of comparisons and its result.
    pub fn compared<T>(work: impl FnOnce() -> T) -> (usize, T) {
        let before = COMPARED.get();
        let done = work();
        (COMPARED.get() - before, done)
    }
}

#[cfg(test)]
mod tests {
    use super::counted::compared;
    use super::*;
    use crate::json::{Json, equal, parse};

    /// Constants of FxHash (rustc-hash 2): its seeds, and the mask of the second word.
    const FX_SEEDS: [u64; 2] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344];
    const FX_SECOND: u64 = 0xa409_3822_299f_31d0;

    fn fx_mix(x: u64, y: u64) -> u64 {
        let full = u128::from(x) * u128::from(y);
        full as u64 ^ (full >> 64) as u64
    }

    /// Makes names that collide under FxHash. It mixes 16 bytes at a time, every other state beginning with the result
    /// of the 16 before the last: a first piece is searched that leaves eight letters there. XORed with themselves
    /// these letters are zero, and any product with them is too.
    fn colliding(count: usize) -> Vec<String> {
        let is_plain = |word: u64| word.to_le_bytes().iter().all(|byte| (b'0'..=b'~').contains(byte) && *byte != b'\\');
        let word = |text: &str| u64::from_le_bytes(text.as_bytes().try_into().unwrap());
        let state = |first: &str| fx_mix(FX_SEEDS[0] ^ word(&first[..8]), FX_SECOND ^ word(&first[8..]));
        let first = (0..10_000_000).map(|n| format!("{n:016}")).find(|first| is_plain(state(first))).unwrap();
        let letters = String::from_utf8(state(&first).to_le_bytes().to_vec()).unwrap();
        (0..count).map(|n| format!("{first}................{letters}{n:08}................")).collect()
    }

    fn object(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
        let members: Vec<_> = names.into_iter().map(|name| format!("\"{}\":1", name.as_ref())).collect();
        format!("{{{}}}", members.join(","))
    }

    #[test]
    fn colliding_names_take_linear_time() {
        const NAMES: usize = 4_000;
        let names = colliding(NAMES);
        let text = object(&names);
        let (compared, read) = compared(|| parse(&text).map(|_| ()));
        assert_eq!(read, Ok(()));
        // Compared pairwise these would be eight million.
        assert!(compared < 4 * NAMES, "{compared} comparisons of {NAMES} names");
    }

    #[test]
    fn equal_objects_in_any_order_take_linear_time() {
        const NAMES: usize = 20_000;
        let text = |names: &mut dyn Iterator<Item = usize>| object(names.map(|n| format!("k{n}")));
        let (there, back, other) = (text(&mut (0..NAMES)), text(&mut (0..NAMES).rev()), text(&mut (1..=NAMES).rev()));
        let [there, back, other] = [&there, &back, &other].map(|text| parse(text).unwrap());
        for (left, right, are_equal) in [(&there, &back, true), (&there, &there, true), (&there, &other, false)] {
            let (compared, found) = compared(|| equal(left, right));
            assert_eq!(found, are_equal);
            assert!(compared < 4 * NAMES, "{compared} comparisons of {NAMES} names");
        }
    }

    #[test]
    fn member_is_found_among_few_and_among_many() {
        for count in [0, 1, FEW - 1, FEW, FEW + 1, 200] {
            let (mut members, mut places) = (Vec::new(), Places::default());
            for n in 0..count {
                let name = Cow::Owned(format!("k{n}"));
                assert!(places.add(&members, &name));
                members.push((name, Json::Null));
                assert!(!places.add(&members, &Cow::Borrowed("k0")));
            }
            for places in [&places, &Places::of(&members)] {
                assert_eq!(places.find(&members, "k"), None);
                for n in 0..count {
                    assert_eq!(places.find(&members, &format!("k{n}")), Some(n), "of {count}");
                }
            }
        }
    }
}
