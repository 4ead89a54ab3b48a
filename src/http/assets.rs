//! The dashboard's files, embedded in the program. They are built from `web/` and committed under `web/dist`, so that
//! cargo alone can build the gateway.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use sha2::{Digest, Sha256};

/// Content security policy: nothing from other origins, nothing inline. Images and audio that tools return are shown as
/// `data:` and `blob:` URLs.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
                      media-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Headers of every file. File names do not change between versions, so browsers must revalidate.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::CACHE_CONTROL, "no-cache"),
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::VARY, "accept-encoding"),
];

/// All files of the dashboard.
pub struct Assets(Vec<File>);

struct File {
    path: &'static str,
    media: &'static str,
    plain: &'static [u8],
    /// The gzip-compressed content; only for text.
    gzip: Option<&'static [u8]>,
    etag: HeaderValue,
}

macro_rules! built {
    ($path:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/web/dist/", $path))
    };
}

impl Default for Assets {
    fn default() -> Self {
        let (script, style) = (built!("assets/app.js.gz"), built!("assets/app.css.gz"));
        Self(vec![
            File::new("index.html", "text/html; charset=utf-8", built!("index.html"), None),
            File::new(
                "assets/app.js",
                "text/javascript; charset=utf-8",
                built!("assets/app.js"),
                Some(script),
            ),
            File::new("assets/app.css", "text/css; charset=utf-8", built!("assets/app.css"), Some(style)),
            File::new("assets/icon.svg", "image/svg+xml", built!("assets/icon.svg"), None),
        ])
    }
}

impl Assets {
    /// Responds with a file, or with 304 if the browser has it already. Returns `None` if there is no such file.
    pub fn respond(&self, path: &str, headers: &HeaderMap) -> Option<Response> {
        self.0.iter().find(|file| file.path == path).map(|file| file.response(headers))
    }
}

impl File {
    fn new(
        path: &'static str,
        media: &'static str,
        plain: &'static [u8],
        gzip: Option<&'static [u8]>,
    ) -> Self {
        let hash: String = Sha256::digest(plain).iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        // A weak tag, since the compressed and the plain file share it.
        let etag = HeaderValue::try_from(format!("W/\"{hash}\"")).expect("hexadecimal digits make a header");
        Self { path, media, plain, gzip, etag }
    }

    fn response(&self, asked: &HeaderMap) -> Response {
        let text =
            |name: HeaderName| asked.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let known = text(header::IF_NONE_MATCH);
        let is_known = known.split(',').any(|tag| tag.trim() == "*" || tag.trim() == self.etag);
        let gzip = self.gzip.filter(|_| accepts_gzip(text(header::ACCEPT_ENCODING)));
        let mut response = Response::new(Body::empty());
        for (name, value) in HEADERS {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response.headers_mut().insert(header::ETAG, self.etag.clone());
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return response;
        }
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media));
        if gzip.is_some() {
            response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        *response.body_mut() = Body::from(Bytes::from_static(gzip.unwrap_or(self.plain)));
        response
    }
}

fn accepts_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|part| {
        let (coding, quality) = part.split_once(';').unwrap_or((part, ""));
        let refused = quality
            .replace(' ', "")
            .strip_prefix("q=")
            .is_some_and(|q| q.trim_matches(['0', '.']).is_empty());
        coding.trim().eq_ignore_ascii_case("gzip") && !refused
    })
}
