//! Any bytes as a message: no panic, serde_json agrees on what is JSON, and a quickly found id stands at top
//! level.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;
use toolgate::wire::scan::{MAX_DEPTH, members, whole};
use toolgate::wire::{Head, HeadError, find_answer_id};

fuzz_target!(|body: &[u8]| {
    let theirs = std::str::from_utf8(body).is_ok_and(|text| serde_json::from_str::<&RawValue>(text).is_ok());
    let ours = whole(body);
    match &ours {
        Ok(_) => assert!(theirs),
        // serde_json skips over raw values of any depth.
        Err(error) => assert!(
            !theirs || body.iter().filter(|byte| matches!(byte, b'{' | b'[')).count() > MAX_DEPTH,
            "{error}"
        ),
    }
    match Head::parse(body) {
        Ok(_) | Err(HeadError::Invalid { .. }) => assert!(ours.is_ok()),
        Err(HeadError::Syntax { at, .. }) => assert!(ours.is_err() && at <= body.len()),
    }
    if let (Ok(object), Some(id)) = (ours, find_answer_id(body)) {
        assert!(members(body, &object).any(|(key, _, value)| key == "id" && value == id));
    }
});
