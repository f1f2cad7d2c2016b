//! Where members are, by their names. Clients choose the names: the table's hash (the standard library's) has a random
//! key that they do not know, or they could choose thousands that all collide.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};

/// Up to so many members are searched one by one; more through a table.
const FEW: usize = 16;

/// Finds members that stand in a list elsewhere, no name twice.
#[derive(Default)]
pub(super) struct Places<'a>(Option<HashMap<Name<'a>, usize>>);

impl<'a> Places<'a> {
    /// The places of all of these.
    pub fn of<'m, T>(members: &'m [(Cow<'m, str>, T)]) -> Self
    where
        'm: 'a,
    {
        let places = || members.iter().zip(0..).map(|((name, _), at)| (Name(Cow::Borrowed(name.as_ref())), at));
        Self((members.len() > FEW).then(|| places().collect()))
    }

    /// Where the member of that name is.
    pub fn find<T>(&self, members: &[(Cow<'_, str>, T)], name: &str) -> Option<usize> {
        match &self.0 {
            Some(table) => table.get(&Name(Cow::Borrowed(name))).copied(),
            None => members.iter().position(|(other, _)| same(other, name)),
        }
    }

    /// A member of that name comes behind these: false when there is one already.
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

/// A name in a table.
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

/// Whether two names are the same: all comparisons of names come by here, where tests count them.
pub(super) fn same(left: &str, right: &str) -> bool {
    #[cfg(test)]
    counted::COMPARED.with(|compared| compared.set(compared.get() + 1));
    left == right
}

/// How often names are compared.
#[cfg(test)]
pub(super) mod counted {
    use std::cell::Cell;

    thread_local! {
        pub(super) static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    /// The comparisons that some work takes, and what comes of it.
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

    /// What FxHash begins with, makes of two words, and lays over the second one (rustc-hash 2).
    const FX_SEEDS: [u64; 2] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344];
    const FX_SECOND: u64 = 0xa409_3822_299f_31d0;

    fn fx_mix(x: u64, y: u64) -> u64 {
        let full = u128::from(x) * u128::from(y);
        full as u64 ^ (full >> 64) as u64
    }

    /// Names that are all the same to FxHash. It mixes 16 bytes at a time, every other state beginning with what came of
    /// the 16 before the last ones: a first piece is sought that leaves eight letters there. These letters, laid over
    /// themselves, are zero, and whatever eight letters they are multiplied with, nothing is left of them.
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
    fn names_that_collide_without_a_key_are_told_apart_at_once() {
        const NAMES: usize = 4_000;
        let names = colliding(NAMES);
        let text = object(&names);
        let (compared, read) = compared(|| parse(&text).map(|_| ()));
        assert_eq!(read, Ok(()));
        // One by one these would be eight million.
        assert!(compared < 4 * NAMES, "{compared} comparisons of {NAMES} names");
    }

    #[test]
    fn equal_objects_are_known_in_any_order() {
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
    fn a_member_is_found_among_few_and_among_many() {
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
