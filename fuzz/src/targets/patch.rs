//! Removes and sets members of any JSON object. Promise: the result is JSON in which only those members changed.
//! The first two bytes choose the changes.

use wire::Patch;
use wire::walk::{members, whole};

pub fn run(input: &[u8]) {
    let [start, end, body @ ..] = input else { return };
    let mut patch = Patch::new(body);
    patch.remove(usize::from(*start)..usize::from(*end)).insert(usize::from(*start), &b"x"[..]);
    // It may be refused, but must not panic.
    let _ = patch.try_apply();

    let Ok(object) = whole(body) else { return };
    if body[object.start] != b'{' {
        return;
    }
    let is_unwanted = |key: &str| key.len() % 2 == usize::from(start % 2);
    let mut patch = Patch::new(body);
    patch.edit_members(&object, is_unwanted, &[("id", b"1"), ("params", b"{}")]);
    let edited = patch.try_apply().expect("members do not overlap");
    let after = whole(&edited).expect("still JSON");
    for key in ["id", "params"] {
        assert_eq!(members(&edited, &after).filter(|(name, ..)| name == key).count(), 1);
    }
    let is_kept = |key: &str| !is_unwanted(key) && key != "id" && key != "params";
    assert!(members(&edited, &after).all(|(key, ..)| is_kept(&key) || key == "id" || key == "params"));
    let kept = members(body, &object)
        .filter(|(key, ..)| is_kept(key))
        .map(|(_, key, value)| (&body[key], &body[value]));
    let there = members(&edited, &after).filter(|(key, ..)| is_kept(key));
    let there = there.map(|(_, key, value)| (&edited[key], &edited[value]));
    assert!(kept.eq(there), "another member was changed");
}
