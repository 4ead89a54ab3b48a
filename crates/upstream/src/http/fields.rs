//! The head of a request, as bytes: the request line, and header lines that are rendered once and sent many times. A
//! value that could begin another line cannot become one.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

use wire::headers::put_number;

/// A URL, and its form in a request line.
#[derive(Clone)]
pub struct Target {
    pub url: Url,
    path: Bytes,
}

impl Target {
    pub fn new(url: Url) -> Self {
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let is_valid = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
        let path = if is_valid { Bytes::from(path) } else { Bytes::from_static(b"/") };
        Self { url, path }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Delete,
}

/// A request to be sent.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub method: Method,
    pub target: &'a Target,
    /// Header lines, made by [`render`] and [`put`].
    pub fields: &'a [u8],
    pub authorization: Option<&'a HeaderValue>,
    /// Empty unless the method is POST.
    pub body: &'a Bytes,
}

impl Request<'_> {
    /// Writes the head with the empty line at its end.
    pub fn write_head(&self, buffer: &mut BytesMut) {
        let method: &[u8] = match self.method {
            Method::Get => b"GET ",
            Method::Post => b"POST ",
            Method::Delete => b"DELETE ",
        };
        buffer.put_slice(method);
        buffer.put_slice(&self.target.path);
        buffer.put_slice(b" HTTP/1.1\r\n");
        buffer.put_slice(self.fields);
        if let Some(token) = self.authorization {
            write_line(buffer, b"authorization", token.as_bytes());
        }
        if self.method == Method::Post {
            buffer.put_slice(b"content-length: ");
            put_number(buffer, self.body.len());
            buffer.put_slice(b"\r\n");
        }
        buffer.put_slice(b"\r\n");
    }
}

/// Renders headers as lines.
pub fn render(headers: &HeaderMap) -> Bytes {
    let mut lines = BytesMut::new();
    for (name, value) in headers {
        write_line(&mut lines, name.as_str().as_bytes(), value.as_bytes());
    }
    lines.freeze()
}

/// Adds a line, unless its name or value is not valid.
pub fn put(lines: &mut Vec<u8>, name: &str, value: &str) {
    if let Ok(name) = HeaderName::try_from(name) {
        put_known(lines, name.as_str(), value);
    }
}

/// Adds a line with a name that is valid, unless the value is not.
pub fn put_known(lines: &mut Vec<u8>, name: &str, value: &str) {
    if value.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')) {
        write_line(lines, name.as_bytes(), value.as_bytes());
    }
}

fn write_line(lines: &mut impl BufMut, name: &[u8], value: &[u8]) {
    lines.put_slice(name);
    lines.put_slice(b": ");
    lines.put_slice(value);
    lines.put_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head_of(request: &Request<'_>) -> String {
        let mut buffer = BytesMut::new();
        request.write_head(&mut buffer);
        String::from_utf8(buffer.to_vec()).unwrap()
    }

    #[test]
    fn a_head_is_the_request_line_the_fields_and_the_length() {
        let target = Target::new("http://h/a%20b?c=d#e".parse().unwrap());
        let body = Bytes::from_static(b"0123456789");
        let token = HeaderValue::from_static("Bearer t");
        let request = Request {
            method: Method::Post,
            target: &target,
            fields: b"host: h\r\n",
            authorization: Some(&token),
            body: &body,
        };
        assert_eq!(
            head_of(&request),
            "POST /a%20b?c=d HTTP/1.1\r\nhost: h\r\nauthorization: Bearer t\r\ncontent-length: 10\r\n\r\n"
        );
        let nothing = Bytes::new();
        let request = Request { method: Method::Get, authorization: None, body: &nothing, ..request };
        assert_eq!(head_of(&request), "GET /a%20b?c=d HTTP/1.1\r\nhost: h\r\n\r\n");
        let request = Request { method: Method::Delete, ..request };
        assert!(head_of(&request).starts_with("DELETE /a%20b?c=d HTTP/1.1\r\n"));
        let request = Request { method: Method::Post, ..request };
        assert!(head_of(&request).ends_with("\r\ncontent-length: 0\r\n\r\n"));
    }

    #[test]
    fn a_line_cannot_become_two() {
        let mut lines = Vec::new();
        for (name, value) in
            [("a", "b\r\nevil: 1"), ("a\r\nevil", "b"), ("a b", "c"), ("", "b"), ("a", "b\0")]
        {
            put(&mut lines, name, value);
        }
        assert!(lines.is_empty());
        put(&mut lines, "Mcp-Name", "x\ty z");
        assert_eq!(lines, b"mcp-name: x\ty z\r\n");
    }
}
