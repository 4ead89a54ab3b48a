//! Requests to begin with, and the ways to break them: bytes, JSON structure, headers, framing.

use serde_json::{Map, Value, json};
use toolgate_chaos::random::Random;

use crate::raw;

/// The server that the requests name, which nothing else uses.
pub const TARGET: &str = "target";

/// Valid requests of every kind; none registers a server, since a mutated one could run or reach anything.
pub fn corpus(session: &str) -> Vec<Vec<u8>> {
    let host = "localhost";
    let legacy = |method: &str, params: Value| {
        raw::post("/mcp", &raw::message(method, &params)).header("Mcp-Session-Id", session).to_bytes(host)
    };
    let rest = |method: &str, path: &str, body: Value| {
        toolgate_chaos::http::Request::new(method, path).json(&body).to_bytes(host)
    };
    let call = json!({"name": "target__echo", "arguments": {"message": "hi", "deep": [[1], {"a": null}]}});
    vec![
        legacy("tools/call", call.clone()),
        legacy("tools/list", json!({"cursor": "abc"})),
        legacy("resources/read", json!({"uri": "fake://item/1"})),
        legacy("resources/subscribe", json!({"uri": "fake://text"})),
        legacy(
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "b"}}),
        ),
        legacy(
            "initialize",
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}),
        ),
        legacy("notifications/cancelled", json!({"requestId": 1})),
        raw::post("/mcp", &json!([raw::message("ping", &json!({})), raw::message("tools/call", &call)]))
            .to_bytes(host),
        raw::post("/v0/servers/target/mcp", &raw::message("tools/call", &json!({"name": "echo"})))
            .to_bytes(host),
        raw::modern("/mcp", "tools/call", call).to_bytes(host),
        raw::modern("/mcp", "server/discover", json!({})).to_bytes(host),
        raw::modern("/mcp", "tools/list", json!({})).to_bytes(host),
        raw::modern("/mcp", "subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}))
            .to_bytes(host),
        rest("GET", "/sse", json!({})),
        rest("POST", "/message?sessionId=abc", raw::message("ping", &json!({}))),
        rest("DELETE", "/mcp", json!({})),
        rest("GET", "/health", json!({})),
        rest("POST", "/init", json!({"mode": "development"})),
        rest("GET", "/api/v0/servers/target", json!({})),
        rest("GET", "/api/v0/tools?server=target&all=true", json!({})),
        rest("POST", "/api/v0/tools/invoke", json!({"name": "target__echo", "message": "hi"})),
        rest("POST", "/api/v0/resources/read", json!({"uri": "fake://item/1"})),
        rest("POST", "/api/v0/prompts/render", json!({"name": "target__p", "arguments": {"a": "b"}})),
        rest("POST", "/api/v0/tools/disable?entity=target__other", json!({})),
        rest(
            "PATCH",
            "/api/v0/servers/none",
            json!({"description": "d", "timeout_ms": 5, "max_concurrency": 1}),
        ),
        rest(
            "POST",
            "/api/v0/tool-groups",
            json!({"name": "g", "included_servers": ["target"], "excluded_tools": []}),
        ),
        rest("PUT", "/api/v0/tool-groups/g", json!({"included_tools": ["target__echo"]})),
        rest("GET", "/api/dashboard/events", json!({})),
        rest("GET", "/metrics", json!({})),
    ]
}

/// Breaks a request in one to three ways.
pub fn mutate(random: &mut Random, request: &[u8]) -> Vec<u8> {
    let mut bytes = request.to_vec();
    for _ in 0..=random.below(3) {
        bytes = match random.below(10) {
            0..=2 => structure(random, &bytes),
            3..=5 => headers(random, &bytes),
            6..=7 => framing(random, &bytes),
            _ => noise(random, bytes),
        };
    }
    bytes
}

fn below(random: &mut Random, limit: usize) -> usize {
    usize::try_from(random.below(limit as u64)).unwrap_or_default()
}

/// Changes single bytes or ranges anywhere.
fn noise(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.is_empty() {
        return bytes;
    }
    let start = below(random, bytes.len());
    let end = (start + below(random, 40)).min(bytes.len());
    match random.below(6) {
        0 => bytes[start] ^= 1 << random.below(8),
        1 => bytes[start] = *random.pick(b"\0\r\n\t\"\\{}[]:,%/?#;\x1b\x7f\xff\xc0\xed"),
        2 => drop(bytes.drain(start..end)),
        3 => {
            let range = bytes[start..end].to_vec();
            bytes.splice(start..start, range.iter().copied().cycle().take(range.len() * 50));
        }
        4 => bytes.truncate(start),
        _ => drop(bytes.splice(start..start, (0..end - start).map(|_| random.below(256) as u8))),
    }
    bytes
}

fn split(bytes: &[u8]) -> (String, Vec<u8>) {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(bytes.len());
    let body = bytes.get(end + 4..).unwrap_or_default().to_vec();
    (String::from_utf8_lossy(&bytes[..end]).into_owned(), body)
}

/// A request whose length fits its body again.
fn join(head: &str, body: &[u8]) -> Vec<u8> {
    let lines = head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("content-length"));
    let head = lines.collect::<Vec<_>>().join("\r\n");
    [format!("{head}\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

/// Changes the JSON of the body, and keeps the length right.
fn structure(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let (head, body) = split(bytes);
    let body = match serde_json::from_slice::<Value>(&body) {
        Ok(mut value) => {
            change(random, &mut value, 0);
            let mut text = value.to_string();
            match random.below(12) {
                0 => text = format!("{}{text}{}", "[".repeat(5000), "]".repeat(5000)),
                1 => text = text.replacen('{', "{\"id\":2,\"method\":\"ping\",\"name\":7,", 1),
                2 => text = text.replace(':', ": \n\t "),
                3 => text.push_str(&text.clone()),
                4 => text = format!("\u{feff}{text}"),
                5 => text = format!("[{}]", vec![text.as_str(); 150].join(",")),
                _ => {}
            }
            text.into_bytes()
        }
        Err(_) => body,
    };
    join(&head, &body)
}

fn change(random: &mut Random, value: &mut Value, depth: usize) {
    if depth < 6 && random.chance(70) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                let keys: Vec<_> = fields.keys().cloned().collect();
                let key = random.pick(&keys).clone();
                if random.chance(15) {
                    fields.remove(&key);
                } else if random.chance(10)
                    && let Some(old) = fields.remove(&key)
                {
                    fields.insert(key.to_uppercase(), old);
                } else if let Some(inner) = fields.get_mut(&key) {
                    change(random, inner, depth + 1);
                }
                return;
            }
            Value::Array(items) if !items.is_empty() => {
                let index = below(random, items.len());
                change(random, &mut items[index], depth + 1);
                return;
            }
            _ => {}
        }
    }
    *value = odd(random);
}

fn odd(random: &mut Random) -> Value {
    match random.below(16) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(u64::MAX),
        4 => json!(1e308),
        5 => json!(""),
        6 => json!("x".repeat(100_000)),
        7 => json!("\u{0}\u{1b}[31m\u{202e}\u{ffff}"),
        8 => json!([]),
        9 => json!({}),
        10 => json!(vec![1; 5000]),
        11 => Value::Object((0..500).map(|number| (number.to_string(), Value::Null)).collect::<Map<_, _>>()),
        12 => json!("toolgate://res/target/ZmFrZTovL3RleHQ"),
        13 => json!("target__echo"),
        14 => json!("2026-07-28"),
        _ => json!(0.1),
    }
}

fn headers(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let (head, body) = split(bytes);
    let mut lines: Vec<String> = head.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        return bytes.to_vec();
    }
    let index = below(random, lines.len());
    match random.below(8) {
        0 => drop(lines.remove(index)),
        1 => lines.push(lines[index].clone()),
        2 => lines[index].push_str(&"a".repeat(below(random, 100_000))),
        3 => lines.extend((0..below(random, 300)).map(|number| format!("X-{number}: y"))),
        4 => {
            let first = lines[0].clone();
            let methods = [
                "GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "CONNECT", "post",
                "M-SEARCH",
            ];
            let target = first.split_once(' ').map_or("", |(_, rest)| rest);
            lines[0] = format!("{} {target}", random.pick(&methods));
        }
        5 => {
            let version = *random.pick(&["HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "HTTP/1.2", ""]);
            lines[0] = lines[0].replace("HTTP/1.1", version);
        }
        6 => {
            let path = [
                "/../..//mcp",
                "/%2e%2e/mcp",
                "/mcp%00",
                "*",
                "http://localhost/mcp",
                "/v0/groups/%ff/mcp",
                "//",
                "/api/v0/tools?server=%",
            ];
            let method = lines[0].split(' ').next().unwrap_or_default().to_owned();
            lines[0] = format!("{method} {} HTTP/1.1", random.pick(&path));
        }
        _ => lines.push((*random.pick(&EXTRA)).to_owned()),
    }
    [lines.join("\r\n").as_bytes(), b"\r\n\r\n", &body].concat()
}

const EXTRA: [&str; 18] = [
    "Authorization: Bearer x",
    "Authorization: \u{ff}",
    "Host: evil.example",
    "Origin: null",
    "Expect: 100-continue",
    "Upgrade: h2c",
    "Connection: upgrade, keep-alive, close",
    "Mcp-Session-Id: AAAA",
    "MCP-Protocol-Version: 2026-07-28",
    "MCP-Protocol-Version: 1999-01-01",
    "Mcp-Method: TOOLS/CALL",
    "Mcp-Name: =?base64?AAAA?=",
    "Accept: text/event-stream",
    "Accept: */*;q=0",
    "Last-Event-ID: 18446744073709551616",
    "Content-Type: application/xml",
    "Content-Encoding: gzip",
    " folded",
];

/// Changes how the length of the body is told.
fn framing(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let (head, body) = split(bytes);
    let plain: Vec<_> =
        head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("content-length")).collect();
    let head = plain.join("\r\n");
    let chunk = format!("{:x}\r\n{}\r\n", body.len(), String::from_utf8_lossy(&body));
    let length = body.len();
    let text = String::from_utf8_lossy(&body).into_owned();
    let (lines, rest) = match random.below(10) {
        0 => ("Transfer-Encoding: chunked".to_owned(), format!("{chunk}0\r\n\r\n")),
        1 => ("Transfer-Encoding: chunked".to_owned(), format!("{chunk}zz\r\n\r\n")),
        2 => (format!("Content-Length: {length}\r\nTransfer-Encoding: chunked"), format!("{chunk}0\r\n\r\n")),
        3 => ("Transfer-Encoding: gzip, chunked".to_owned(), format!("{chunk}0\r\n\r\n")),
        4 => (format!("Content-Length: {length}\r\nContent-Length: 0"), text),
        5 => ("Content-Length: -1".to_owned(), text),
        6 => ("Content-Length: 99999999999999999999".to_owned(), text),
        7 => (format!("Content-Length: {}", length + 1), text),
        8 => (format!("Content-Length: {}", length.saturating_sub(3)), text),
        _ => ("Transfer-Encoding: chunked".to_owned(), format!("ffffffffffffffff\r\n{text}")),
    };
    format!("{head}\r\n{lines}\r\n\r\n{rest}").into_bytes()
}
