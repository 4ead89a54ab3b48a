//! Members dropped from and set in any JSON object: what comes out is JSON with just those members changed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toolgate::wire::Patch;
use toolgate::wire::scan::{members, whole};

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (start, end, body) = input;
    let mut patch = Patch::new(body);
    patch.remove(usize::from(start)..usize::from(end)).insert(usize::from(start), &b"x"[..]);
    _ = patch.try_apply();

    let Ok(object) = whole(body) else { return };
    if body[object.start] != b'{' {
        return;
    }
    let is_unwanted = |key: &str| key.len() % 2 == usize::from(start % 2);
    let mut patch = Patch::new(body);
    patch.edit_members(&object, is_unwanted, &[("id", b"1"), ("params", b"{}")]);
    let edited = patch.try_apply().expect("members do not overlap");
    let object = whole(&edited).expect("still JSON");
    for key in ["id", "params"] {
        assert_eq!(members(&edited, &object).filter(|(name, ..)| name == key).count(), 1);
    }
    assert!(members(&edited, &object).all(|(key, ..)| !is_unwanted(&key) || key == "id" || key == "params"));
});
