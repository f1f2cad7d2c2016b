//! Decides whether a register is linearizable: the search of Wing and Gong in the form of Lowe, which linearizes a call
//! at the latest when it has ended.

use std::collections::{BTreeSet, HashMap};

/// Value of a register that nobody has set.
pub const UNSET: u64 = 0;

/// Call to a register whose values are all different. A put without an end may take effect at any time later, or never.
#[derive(Clone, Copy, Debug)]
pub struct RegisterCall {
    pub begin: u64,
    pub end: Option<u64>,
    pub is_put: bool,
    pub value: u64,
}

/// Possible state: its value, and the open calls that have taken effect already.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Possible {
    value: u64,
    done: BTreeSet<usize>,
}

/// Returns the first call, in the order of their ends, after which no order of all calls explains what was read.
pub fn first_contradiction(calls: &[RegisterCall]) -> Option<RegisterCall> {
    // A call that begins in the moment in which another ends may be earlier, so the begin comes first.
    let begins = calls.iter().enumerate().map(|(index, call)| (call.begin, false, index));
    let ends = calls.iter().enumerate().filter_map(|(index, call)| Some((call.end?, true, index)));
    let mut moments: Vec<_> = begins.chain(ends).collect();
    moments.sort_unstable();
    let (mut open, mut unknown) = (BTreeSet::new(), HashMap::new());
    let mut possible = BTreeSet::from([Possible { value: UNSET, done: BTreeSet::new() }]);
    for (_, ends, index) in moments {
        let call = calls[index];
        if !ends {
            match call.end {
                Some(_) => drop(open.insert(index)),
                None => drop(unknown.insert(call.value, index)),
            }
            continue;
        }
        possible = after_end(calls, &candidates(calls, &open, &unknown), &possible, index);
        if possible.is_empty() {
            return Some(call);
        }
        open.remove(&index);
    }
    None
}

/// Returns the calls that may take effect now, and matter: a put without an end matters only to an open read of its value.
fn candidates(calls: &[RegisterCall], open: &BTreeSet<usize>, unknown: &HashMap<u64, usize>) -> Vec<usize> {
    let reads = open.iter().filter(|index| !calls[**index].is_put);
    let read: BTreeSet<usize> = reads.filter_map(|index| unknown.get(&calls[*index].value).copied()).collect();
    open.iter().copied().chain(read).collect()
}

/// Returns the states that are possible when a call has taken effect, with any others that may before it.
fn after_end(
    calls: &[RegisterCall],
    candidates: &[usize],
    possible: &BTreeSet<Possible>,
    ended: usize,
) -> BTreeSet<Possible> {
    let mut after = BTreeSet::new();
    let (mut seen, mut left) = (possible.clone(), Vec::from_iter(possible.iter().cloned()));
    while let Some(state) = left.pop() {
        if state.done.contains(&ended) {
            let mut done = state.done;
            done.remove(&ended);
            after.insert(Possible { value: state.value, done });
            continue;
        }
        for &next in candidates.iter().filter(|next| !state.done.contains(next)) {
            let call = calls[next];
            if !call.is_put && call.value != state.value {
                continue;
            }
            let mut done = state.done.clone();
            done.insert(next);
            let reached = Possible { value: call.value, done };
            if seen.insert(reached.clone()) {
                left.push(reached);
            }
        }
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(begin: u64, end: u64, value: u64) -> RegisterCall {
        RegisterCall { begin, end: Some(end), is_put: true, value }
    }

    fn get(begin: u64, end: u64, value: u64) -> RegisterCall {
        RegisterCall { begin, end: Some(end), is_put: false, value }
    }

    fn unknown(begin: u64, value: u64) -> RegisterCall {
        RegisterCall { begin, end: None, is_put: true, value }
    }

    fn contradicts(calls: &[RegisterCall]) -> Option<u64> {
        first_contradiction(calls).map(|call| call.begin)
    }

    #[test]
    fn calls_in_turn_are_explained() {
        assert_eq!(contradicts(&[get(0, 1, UNSET), put(2, 3, 1), get(4, 5, 1), put(6, 7, 2), get(8, 9, 2)]), None);
    }

    #[test]
    fn old_value_after_a_put_is_found() {
        assert_eq!(contradicts(&[put(0, 1, 1), put(2, 3, 2), get(4, 5, 1)]), Some(4));
        assert_eq!(contradicts(&[put(0, 1, 1), get(2, 3, UNSET)]), Some(2));
    }

    #[test]
    fn value_that_nobody_has_put_is_found() {
        assert_eq!(contradicts(&[put(0, 1, 1), get(2, 3, 9)]), Some(2));
    }

    #[test]
    fn calls_at_the_same_time_take_effect_in_either_order() {
        for seen in [1, 2] {
            assert_eq!(contradicts(&[put(0, 9, 1), put(1, 8, 2), get(10, 11, seen), get(12, 13, seen)]), None);
        }
        assert_eq!(contradicts(&[put(0, 9, 1), put(1, 8, 2), get(10, 11, 1), get(12, 13, 2)]), Some(12));
        assert_eq!(contradicts(&[put(0, 20, 1), get(1, 2, 1), get(3, 4, UNSET)]), Some(3));
    }

    #[test]
    fn put_without_an_answer_takes_effect_once_later_or_never() {
        assert_eq!(contradicts(&[unknown(0, 1), put(2, 3, 2), get(4, 5, 2), get(6, 7, 2)]), None);
        assert_eq!(contradicts(&[unknown(0, 1), put(2, 3, 2), get(4, 5, 2), get(6, 7, 1)]), None);
        let twice = [unknown(0, 1), get(1, 2, 1), put(3, 4, 2), get(5, 6, 2), get(7, 8, 1)];
        assert_eq!(contradicts(&twice), Some(7));
        assert_eq!(contradicts(&[get(0, 1, 7), unknown(2, 7)]), Some(0));
    }

    #[test]
    fn many_puts_without_an_answer_are_decided_quickly() {
        let mut calls = Vec::new();
        for number in 1..400 {
            calls.push(unknown(10 * number, 1_000 + number));
            calls.push(put(10 * number + 1, 10 * number + 2, number));
            calls.push(get(10 * number + 3, 10 * number + 4, number));
        }
        assert_eq!(contradicts(&calls), None);
        calls.push(get(9_000, 9_001, 1_200));
        assert_eq!(contradicts(&calls), None);
        calls.push(get(9_002, 9_003, 399));
        assert_eq!(contradicts(&calls), Some(9_002));
    }
}
