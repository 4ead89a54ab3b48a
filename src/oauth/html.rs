//! HTML of the pages: a text in which everything from elsewhere is escaped, and the frame with its style and headers.

use std::sync::LazyLock;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::http::reply::escaped;

/// The style of all pages: the tokens of the dashboard, light and dark.
const STYLE: &str = include_str!("style.css");

/// No `form-action`: Chrome applies it to the redirects after a form, too, and the last one leads to the agent.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = STANDARD.encode(Sha256::digest(STYLE));
    format!("default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; frame-ancestors 'none'")
});

/// A part of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Html(String);

impl Html {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds markup, which is always ours.
    pub fn raw(mut self, markup: &'static str) -> Self {
        self.0.push_str(markup);
        self
    }

    /// Adds text, escaped: it may come from anywhere. It may also be the value of an attribute in quotes.
    pub fn text(mut self, text: &str) -> Self {
        self.0.push_str(&escaped(text));
        self
    }

    pub fn part(mut self, part: Html) -> Self {
        self.0.push_str(&part.0);
        self
    }

    /// Adds a hidden field of a form.
    pub fn hidden(self, name: &'static str, value: &str) -> Self {
        self.raw("<input type=\"hidden\" name=\"").raw(name).raw("\" value=\"").text(value).raw("\">\n")
    }

    /// Adds a row of a list of facts.
    pub fn fact(self, name: &'static str, value: Html) -> Self {
        self.raw("<div><dt>").raw(name).raw("</dt><dd>").part(value).raw("</dd></div>\n")
    }

    #[cfg(test)]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A whole page.
#[derive(Debug)]
pub struct Page {
    pub status: StatusCode,
    pub title: String,
    pub content: Html,
}

impl Page {
    pub fn ok(title: impl Into<String>, content: Html) -> Self {
        Self { status: StatusCode::OK, title: title.into(), content }
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let page = Html::new()
            .raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")
            .raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n")
            .raw("<meta name=\"robots\" content=\"noindex\">\n<title>")
            .text(&self.title)
            .raw(" · toolgate</title>\n<style>")
            .raw(STYLE)
            .raw("</style>\n</head>\n<body>\n<main>\n<p class=\"brand\">toolgate</p>\n<h1>")
            .text(&self.title)
            .raw("</h1>\n")
            .part(self.content)
            .raw("</main>\n</body>\n</html>\n");
        let mut response = (self.status, page.0).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        let policy = HeaderValue::from_str(&POLICY).expect("the policy is plain text");
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
        headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_markup_is_not() {
        let html = Html::new().raw("<b>").text("<script>\"&'").raw("</b>").hidden("next", "\"><x");
        assert_eq!(
            html.as_str(),
            "<b>&lt;script&gt;&quot;&amp;&#39;</b><input type=\"hidden\" name=\"next\" value=\"&quot;&gt;&lt;x\">\n"
        );
    }
}
