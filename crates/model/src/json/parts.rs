//! Objects split into members, for merging without a tree in time linear in all texts, even if a member is removed and
//! added repeatedly.

use std::borrow::Cow;

use bytes::Bytes;

use super::names::Places;
use super::scan::{members, name_of};
use super::{RawJson, write_string};

/// Returns an object with these members set, in their order: an existing one keeps its place, a later one of the same
/// name wins. Anything but an object counts as an empty one.
pub fn with_members<'m>(object: &RawJson, laid: impl IntoIterator<Item = (&'m str, &'m RawJson)>) -> RawJson {
    let laid: Vec<(String, &RawJson)> = laid.into_iter().map(|(name, value)| (quoted(name), value)).collect();
    let mut parts = Parts::of(object.text());
    for (key, value) in &laid {
        let place = parts.place(key, value.text());
        parts.lay(vec![place], usize::MAX);
    }
    let mut text = String::with_capacity(parts.len());
    parts.write(&mut text);
    RawJson::trusted(Bytes::from(text))
}

/// Returns the bytes that a member takes in an object, with a colon and a comma.
pub fn member_bytes(name: &str, value: &RawJson) -> usize {
    quoted(name).len() + value.bytes().len() + 2
}

/// Returns a name as a JSON string.
pub(super) fn quoted(name: &str) -> String {
    let mut text = Vec::with_capacity(name.len() + 2);
    write_string(name, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// The members of an object, with the texts of their names and values.
#[derive(Default)]
pub(super) struct Parts<'p> {
    /// Each name once, removed members included, so that positions in the table stay valid.
    list: Vec<(Cow<'p, str>, Member<'p>)>,
    places: Places<'p>,
    /// Positions of members in their order; one that was removed and added again appears twice, and counts at its
    /// `turn`.
    order: Vec<usize>,
    /// Number of members that are not removed.
    count: usize,
    /// Bytes of these members, with separators.
    bytes: usize,
}

/// A member as it was written.
#[derive(Clone, Copy)]
pub(super) struct Member<'p> {
    key: &'p str,
    value: &'p str,
    /// Index in the order; `None` if it was removed, as a newer value did not fit.
    turn: Option<usize>,
}

impl Member<'_> {
    /// Returns its bytes, with a colon and a comma.
    fn bytes(&self) -> usize {
        self.key.len() + self.value.len() + 2
    }
}

/// A member to be set: the position of the one that it replaces, its name, and its text.
pub(super) type Laid<'p> = (Option<usize>, Cow<'p, str>, Member<'p>);

impl<'p> Parts<'p> {
    /// Splits a checked text; anything but an object has no members.
    pub fn of(object: &'p str) -> Self {
        let mut parts = Self::default();
        for (key, value) in members(object) {
            let (_, name, member) = parts.place(key, value);
            parts.push(name, member);
        }
        parts
    }

    /// Returns true if these members replace all present ones.
    pub fn are_replaced_by(&self, laid: &[Laid<'p>]) -> bool {
        laid.iter().filter(|(at, ..)| self.present(*at).is_some()).count() == self.count
    }

    /// Returns the length of the object's text.
    pub fn len(&self) -> usize {
        // The last comma counts as the closing brace.
        if self.count == 0 { 2 } else { 1 + self.bytes }
    }

    /// Looks up the member that a new one replaces.
    pub fn place(&self, key: &'p str, value: &'p str) -> Laid<'p> {
        let name = name_of(key);
        (self.places.find(&self.list, &name), name, Member { key, value, turn: None })
    }

    /// Returns the member at a position, if it is not removed.
    fn present(&self, at: Option<usize>) -> Option<&Member<'p>> {
        self.list.get(at?).map(|(_, member)| member).filter(|member| member.turn.is_some())
    }

    /// Returns the text of a member's value.
    pub fn value(&self, name: &str) -> Option<&'p str> {
        self.present(self.places.find(&self.list, name)).map(|member| member.value)
    }

    /// Removes the member with this quoted name.
    pub fn remove(&mut self, key: &str) {
        let at = self.places.find(&self.list, &name_of(key));
        self.bytes -= self.present(at).map_or(0, Member::bytes);
        if let Some(at) = at {
            self.lose(at);
        }
    }

    fn push(&mut self, name: Cow<'p, str>, member: Member<'p>) {
        if self.places.add(&self.list, &name) {
            self.list.push((name, member));
            self.put(self.list.len() - 1, member);
        }
    }

    /// Sets a member at its present turn, or at the end.
    fn put(&mut self, at: usize, member: Member<'p>) {
        let Some((_, present)) = self.list.get_mut(at) else { return };
        let turn = present.turn.unwrap_or(self.order.len());
        if present.turn.is_none() {
            self.order.push(at);
            self.count += 1;
        }
        self.bytes += member.bytes();
        *present = Member { turn: Some(turn), ..member };
    }

    fn lose(&mut self, at: usize) {
        let lost = self.list.get_mut(at).and_then(|(_, member)| member.turn.take());
        self.count -= usize::from(lost.is_some());
    }

    /// Sets members in their order while the whole takes at most `most` bytes; returns the number that did not fit. If
    /// the newest member of a name does not fit, older ones are removed.
    pub fn lay(&mut self, laid: Vec<Laid<'p>>, most: usize) -> usize {
        let replaced = laid.iter().filter_map(|(at, ..)| self.present(*at));
        self.bytes -= replaced.map(Member::bytes).sum::<usize>();
        let mut left_out = 0;
        for (at, name, member) in laid {
            let fits = 1 + self.bytes + member.bytes() <= most;
            left_out += usize::from(!fits);
            match at {
                Some(at) if fits => self.put(at, member),
                Some(at) => self.lose(at),
                None if fits => self.push(name, member),
                None => {}
            }
        }
        left_out
    }

    /// Writes the object.
    pub fn write(&self, out: &mut String) {
        out.push('{');
        let in_turn = self.order.iter().zip(0..).filter_map(|(at, turn)| {
            let (_, member) = self.list.get(*at)?;
            (member.turn == Some(turn)).then_some(member)
        });
        for (index, member) in in_turn.enumerate() {
            if index > 0 {
                out.push(',');
            }
            out.push_str(member.key);
            out.push(':');
            out.push_str(member.value);
        }
        out.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::names::counted::compared;

    fn raw(text: &str) -> RawJson {
        RawJson::check(Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    #[test]
    fn members_are_replaced_in_place() {
        let object = raw(r#"{"a":1, "b\n" : [ 2 ],"c":3}"#);
        let (four, five, six) = (raw("4"), raw(r#"{"x":5}"#), raw("6"));
        let laid = [("b\n", &four), ("new\"", &five), ("c", &four), ("c", &six), ("new\"", &six)];
        let with = with_members(&object, laid);
        assert_eq!(with.text(), r#"{"a":1,"b\n":4,"c":6,"new\"":6}"#);
        assert_eq!(with_members(&raw("7"), [("a", &four)]).text(), r#"{"a":4}"#);
        assert_eq!(with_members(&raw("{}"), []).text(), "{}");
        let bytes: usize = [("a", "1"), ("b\n", "4"), ("c", "6"), ("new\"", "6")]
            .map(|(name, value)| member_bytes(name, &raw(value)))
            .into_iter()
            .sum();
        assert_eq!(1 + bytes, with.bytes().len());
    }

    #[test]
    fn merge_of_many_members_takes_linear_time() {
        const NAMES: usize = 5_000;
        let names: Vec<_> = (0..NAMES).map(|n| format!("k{n}")).collect();
        let one = raw("1");
        let object = with_members(&raw("{}"), names.iter().map(|name| (name.as_str(), &one)));
        let two = raw("2");
        let laid = || with_members(&object, names.iter().rev().map(|name| (name.as_str(), &two)));
        let (compared, with) = compared(laid);
        assert!(compared < 8 * NAMES, "{compared} comparisons of {NAMES} names");
        assert_eq!(with.text(), object.text().replace(":1", ":2"));
    }
}
