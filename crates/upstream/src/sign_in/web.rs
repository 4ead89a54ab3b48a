//! Requests to the operator's identity provider, which may be at any address: bounded in time and size, without redirects.

use std::error::Error;
use std::sync::OnceLock;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use url::form_urlencoded::byte_serialize;
use url::{Host, Url};

use super::signed_jwt::Members;
use crate::{CLIENT, Tls};
use model::Secret;

const TIME_LIMIT: Duration = Duration::from_secs(10);
const LARGEST_RESPONSE: usize = 1024 * 1024;

/// The HTTP client for the identity provider, made when it is first needed.
pub struct Web {
    tls: Tls,
    client: OnceLock<Result<reqwest::Client, String>>,
}

/// Why there is no response. It shows with all reasons, for logs.
#[derive(Debug, thiserror::Error)]
pub enum WebProblem {
    #[error("{}", reason(.0))]
    Failed(#[from] reqwest::Error),
    #[error("the response has more than {0} KiB")]
    TooLarge(usize),
}

impl WebProblem {
    /// The same in words for anybody, who need not know what the gateway's network is like.
    pub fn for_anybody(&self) -> String {
        match self {
            WebProblem::Failed(error) if error.is_timeout() => {
                "its server does not answer in time".to_owned()
            }
            WebProblem::Failed(error) if error.is_connect() => "its server cannot be reached".to_owned(),
            WebProblem::Failed(_) => "the connection broke".to_owned(),
            WebProblem::TooLarge(_) => self.to_string(),
        }
    }
}

pub struct WebResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// How the gateway proves who it is, beside what is in the form.
pub enum Proof {
    Nothing,
    Bearer(Secret),
    /// Name and password.
    Basic(String, Secret),
}

impl Web {
    pub fn new(tls: Tls) -> Self {
        Self { tls, client: OnceLock::new() }
    }

    /// The same without open connections: whoever uses it finds out whether new ones can be made.
    pub fn anew(&self) -> Self {
        Self::new(self.tls.clone())
    }

    pub async fn get(&self, url: &Url, proof: &Proof) -> Result<WebResponse, String> {
        receive_own(self.client()?.get(url.clone()).headers(headers(proof)?)).await
    }

    pub async fn post(&self, url: &Url, form: &[(&str, &str)], proof: &Proof) -> Result<WebResponse, String> {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let mut headers = headers(proof)?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        receive_own(self.client()?.post(url.clone()).headers(headers).body(body)).await
    }

    pub async fn post_json(&self, url: &Url, body: &str) -> Result<WebResponse, String> {
        let mut headers = headers(&Proof::Nothing)?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        receive_own(self.client()?.post(url.clone()).headers(headers).body(body.to_owned())).await
    }

    fn client(&self) -> Result<&reqwest::Client, String> {
        let made = self.client.get_or_init(|| {
            let client = reqwest::Client::builder()
                .tls_backend_preconfigured(self.tls.config().as_ref().clone())
                .user_agent(format!("{}/{}", CLIENT.name, CLIENT.version))
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .timeout(TIME_LIMIT)
                .build();
            client.map_err(|error| reason(&error))
        });
        made.as_ref().map_err(Clone::clone)
    }
}

impl WebResponse {
    /// The body as an object.
    pub fn object(&self) -> Result<Members, String> {
        Members::parse(&self.body).ok_or_else(|| "the response is not a JSON object".to_owned())
    }
}

/// Asks the operator's own identity provider.
async fn receive_own(request: reqwest::RequestBuilder) -> Result<WebResponse, String> {
    receive(request, LARGEST_RESPONSE).await.map_err(|problem| problem.to_string())
}

/// Sends a request and reads its response, of at most `most` bytes.
pub async fn receive(request: reqwest::RequestBuilder, most: usize) -> Result<WebResponse, WebProblem> {
    let mut response = request.send().await?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let mut body = BytesMut::new();
    while let Some(piece) = response.chunk().await? {
        if body.len() + piece.len() > most {
            return Err(WebProblem::TooLarge(most / 1024));
        }
        body.extend_from_slice(&piece);
    }
    Ok(WebResponse { status, headers, body: body.freeze() })
}

/// Whether the gateway may send requests to this URL: https, or http on this machine, without user info and fragment.
pub fn is_safe_url(url: &Url) -> bool {
    let is_encrypted = match url.scheme() {
        "https" => true,
        "http" => is_loopback(url),
        _ => false,
    };
    is_encrypted
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.fragment().is_none()
}

pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn headers(proof: &Proof) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let proof = match proof {
        Proof::Nothing => return Ok(headers),
        Proof::Bearer(token) => format!("Bearer {}", token.expose()),
        Proof::Basic(name, password) => {
            let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
            let pair = format!("{}:{}", encoded(name), encoded(password.expose()));
            format!("Basic {}", BASE64_STANDARD.encode(pair))
        }
    };
    let mut proof = HeaderValue::try_from(proof).map_err(|_| "a token cannot be sent as a header")?;
    proof.set_sensitive(true);
    headers.insert(AUTHORIZATION, proof);
    Ok(headers)
}

/// The reasons of an error in one line, without the URL, which may contain secrets.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "it does not answer in time".to_owned();
    }
    let mut reasons: Vec<String> = Vec::new();
    let mut next = error.source();
    while let Some(error) = next {
        reasons.push(error.to_string());
        next = error.source();
    }
    reasons.dedup();
    match reasons.is_empty() {
        true => "the request failed".to_owned(),
        false => reasons.join(": "),
    }
}
