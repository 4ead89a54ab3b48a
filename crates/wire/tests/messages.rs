//! Properties of `wire` over generated, truncated and mutated messages: nothing is lost, nothing panics, and
//! serde_json, an independent reader, agrees. Single cases are tested next to the code.

use std::borrow::Cow;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;
use wire::scan::Span;
use wire::sse::{Event, Scanner, TooLong, frame};
use wire::walk::{self, members};
use wire::{Head, HeadError, MessageKind, Patch, find_answer_id, text};

/// JSON values with short, hostile keys, so that `id` and the like occur at every depth.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z\"\\\\,:{}é😀\n]{0,8}".prop_map(Value::from),
        Just(Value::from(",\"id\":1}")),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map("(id|name|Name|x\"id|result|[a-c]{1,2})", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn id() -> impl Strategy<Value = Value> {
    prop_oneof![any::<u64>().prop_map(Value::from), "[a-z\"\\\\, }é]{0,6}".prop_map(Value::from)]
}

/// The members of a message in any order, as (key, value).
fn parts() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let params = btree_map("(name|uri|arguments|_meta|cursor|[a-c]{1,2})", value(), 0..5)
        .prop_map(|map| Value::Object(map.into_iter().collect()));
    let request = ("[a-z/]{1,8}", params, id()).prop_map(|(method, params, id)| {
        vec![("jsonrpc", "2.0".into()), ("id", id), ("method", method.into()), ("params", params)]
    });
    prop_oneof![request, answer_parts()]
}

fn answer_parts() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    (id(), value(), proptest::option::of(value())).prop_map(|(id, result, extra)| {
        let mut parts = vec![("jsonrpc", Value::from("2.0")), ("id", id), ("result", result)];
        parts.extend(extra.map(|extra| ("extra", extra)));
        parts
    })
}

fn written(parts: Vec<(&'static str, Value)>, space: &'static str) -> Vec<u8> {
    let members: Vec<_> =
        parts.iter().map(|(key, value)| format!("\"{key}\"{space}:{space}{value}")).collect();
    format!("{space}{{{space}{}{space}}}{space}", members.join(&format!("{space},{space}"))).into_bytes()
}

fn spaced(
    parts: impl Strategy<Value = Vec<(&'static str, Value)>> + 'static,
) -> impl Strategy<Value = Vec<u8>> {
    (parts.prop_shuffle(), prop_oneof![Just(""), Just(" "), Just("\r\n\t")])
        .prop_map(|(parts, space)| written(parts, space))
}

fn message() -> impl Strategy<Value = Vec<u8>> {
    spaced(parts())
}

fn answer() -> impl Strategy<Value = Vec<u8>> {
    spaced(answer_parts())
}

/// A valid message, cut or with some bytes overwritten, removed or doubled.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let change =
        (any::<prop::sample::Index>(), prop_oneof![any::<u8>(), Just(b'"'), Just(b'}'), Just(b',')], 0..3);
    (message(), vec(change, 0..4), any::<prop::sample::Index>(), any::<bool>()).prop_map(
        |(mut body, changes, cut, cuts)| {
            for (at, byte, kind) in changes {
                let at = at.index(body.len());
                match kind {
                    0 => body[at] = byte,
                    1 => body.insert(at, byte),
                    _ if body.len() > 1 => _ = body.remove(at),
                    _ => {}
                }
            }
            if cuts {
                body.truncate(cut.index(body.len()));
            }
            body
        },
    )
}

fn is_json(body: &[u8]) -> bool {
    std::str::from_utf8(body).is_ok_and(|text| serde_json::from_str::<&RawValue>(text).is_ok())
}

/// Every `id` at the top level, found by a full pass.
fn top_level_ids(body: &[u8]) -> Vec<Span> {
    let whole = walk::whole(body).unwrap_or(0..0);
    members(body, &whole).filter(|(key, ..)| key == "id").map(|(.., value)| value).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_message_without_edits_comes_out_byte_for_byte(body in message()) {
        Head::parse(&body).expect("a valid message");
        prop_assert_eq!(Patch::new(&body).apply(), body);
    }

    #[test]
    fn the_head_says_what_serde_json_says(body in message()) {
        let head = Head::parse(&body).expect("a valid message");
        let whole: Value = serde_json::from_slice(&body).expect("JSON");
        prop_assert_eq!(head.method.as_deref(), whole.get("method").and_then(Value::as_str));
        let id: Value = serde_json::from_slice(head.id.as_ref().expect("an id").raw()).expect("JSON");
        prop_assert_eq!(Some(&id), whole.get("id"));
        if let Some(params) = &head.params {
            let name = params.name.as_ref().map(|name| name.as_str());
            prop_assert_eq!(name, whole["params"].get("name").and_then(Value::as_str));
            let arguments = whole["params"].get("arguments").filter(|value| value.is_object());
            prop_assert_eq!(params.arguments.is_some(), arguments.is_some());
        }
    }

    #[test]
    fn an_edit_changes_only_its_range(body in message(), new in id()) {
        let head = Head::parse(&body).expect("a valid message");
        let span = head.id.expect("an id").span;
        let new = new.to_string().into_bytes();
        let mut patch = Patch::new(&body);
        patch.replace(span.clone(), Cow::Borrowed(&new[..]));
        let edited = patch.apply();
        prop_assert_eq!(&edited[..span.start], &body[..span.start]);
        prop_assert_eq!(&edited[span.start..span.start + new.len()], &new[..]);
        prop_assert_eq!(&edited[span.start + new.len()..], &body[span.end..]);
    }

    #[test]
    fn any_edits_apply_or_conflict(
        body in vec(any::<u8>(), 0..20),
        edits in vec((0..24_usize, 0..24_usize, vec(any::<u8>(), 0..3)), 0..5),
    ) {
        let mut patch = Patch::new(&body);
        let mut length = body.len() as i64;
        for (start, end, with) in edits {
            length += with.len() as i64 - (end as i64 - start as i64);
            patch.replace(start..end, with);
        }
        if let Ok(applied) = patch.try_apply() {
            prop_assert_eq!(applied.len() as i64, length);
        }
    }

    #[test]
    fn editing_members_is_what_serde_json_would_do(
        object in btree_map("[a-d]", value(), 0..5),
        drop in vec("[a-d]", 0..4),
        set in btree_map("[c-f]", value(), 0..3),
    ) {
        let mut expected: serde_json::Map<_, _> = object.into_iter().collect();
        let body = Value::Object(expected.clone()).to_string().into_bytes();
        let raw: Vec<_> = set.iter().map(|(key, value)| (key.as_str(), value.to_string())).collect();
        let raw: Vec<_> = raw.iter().map(|(key, value)| (*key, value.as_bytes())).collect();
        let mut patch = Patch::new(&body);
        patch.edit_members(&(0..body.len()), |key| drop.iter().any(|other| other == key), &raw);
        expected.retain(|key, _| !drop.contains(key));
        expected.extend(set.clone());
        let edited: Value = serde_json::from_slice(&patch.apply()).expect("JSON");
        prop_assert_eq!(edited, Value::Object(expected));
    }

    #[test]
    fn a_mutated_message_is_an_error_or_a_message(body in mutated()) {
        prop_assert_eq!(walk::whole(&body).is_ok(), is_json(&body));
        match Head::parse(&body) {
            Ok(head) => {
                prop_assert!(is_json(&body));
                prop_assert_eq!(head.result.is_some(), head.kind == MessageKind::Result);
            }
            Err(HeadError::Syntax { at, .. }) => prop_assert!(!is_json(&body) && at <= body.len()),
            Err(HeadError::Invalid { .. }) => prop_assert!(is_json(&body)),
        }
        let id = find_answer_id(&body);
        if is_json(&body) && let Some(id) = id {
            prop_assert!(top_level_ids(&body).contains(&id));
        }
    }

    #[test]
    fn an_answers_id_is_the_one_the_full_pass_finds(body in answer()) {
        prop_assert_eq!(find_answer_id(&body), Head::parse(&body).expect("an answer").id.map(|id| id.span));
    }

    #[test]
    fn strings_read_as_serde_json_reads_them(token in "\"([a-z😀]|\\\\(u00[0-7][0-9a-f]|ud83d|ude00|n|\"|\\\\)){0,8}\"") {
        let theirs = serde_json::from_str::<String>(&token).ok();
        prop_assert_eq!(text::unescape(token.as_bytes()).map(Cow::into_owned), theirs);
    }

    #[test]
    fn chunking_never_changes_the_events(
        lines in vec("(data|event|id|retry|x|)(:| |: )[a1\u{feff}\0 ]{0,6}|", 0..20),
        ends in vec(prop_oneof![Just("\n"), Just("\r"), Just("\r\n")], 20),
        bom in any::<bool>(),
        cuts in vec(any::<prop::sample::Index>(), 0..10),
        limit in 4..40_usize,
    ) {
        let mut stream = if bom { "\u{feff}".to_owned() } else { String::new() };
        for (line, end) in lines.iter().zip(&ends) {
            stream.push_str(line);
            stream.push_str(end);
        }
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        let mut chunks = Vec::new();
        let mut rest = stream.as_bytes();
        for cut in cuts.into_iter().rev() {
            chunks.push(&rest[cut..]);
            rest = &rest[..cut];
        }
        chunks.push(rest);
        chunks.reverse();
        prop_assert_eq!(read(limit, &chunks), read(limit, &[stream.as_bytes()]));
        let bytes: Vec<_> = stream.as_bytes().chunks(1).collect();
        prop_assert_eq!(read(limit, &bytes), read(limit, &[stream.as_bytes()]));
    }

    #[test]
    fn a_frame_arrives_as_it_was_sent(data in "[a-z \r\n:]{0,20}", name in proptest::option::of("[a-z]{1,5}")) {
        let (events, ..) = read(100, &[&frame(name.as_deref(), data.as_bytes())]);
        let lines = data.replace("\r\n", "\n").replace('\r', "\n").into_bytes().into();
        prop_assert_eq!(events, [Ok(Event { name, data: lines, id: None })]);
    }
}

type Read = (Vec<Result<Event, TooLong>>, Option<String>, Option<std::time::Duration>);

fn read(limit: usize, chunks: &[&[u8]]) -> Read {
    let mut scanner = Scanner::new(limit);
    let mut events = Vec::new();
    for chunk in chunks {
        scanner.feed(chunk);
        events.extend(std::iter::from_fn(|| scanner.next_event()));
    }
    (events, scanner.last_event_id().map(str::to_owned), scanner.retry())
}
