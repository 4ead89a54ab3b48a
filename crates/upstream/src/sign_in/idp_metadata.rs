//! What an issuer publishes about itself (OpenID Connect Discovery, RFC 8414), fetched and checked.

use std::time::{SystemTime, UNIX_EPOCH};

use http::header::DATE;
use serde_json::Value;
use url::Url;

use super::problem::{IdpProblem, excerpt};
use super::signed_jwt::Members;
use super::web::{Proof, Web, WebResponse, is_safe_url};

pub struct IdpMetadata {
    pub authorization_endpoint: Option<Url>,
    pub token_endpoint: Option<Url>,
    pub userinfo_endpoint: Option<Url>,
    pub keys: Url,
    /// How clients may prove who they are at the token endpoint; `None` if it does not say.
    pub client_proofs: Option<Vec<String>>,
    pub scopes: Vec<String>,
    /// Whether it names itself when it sends a browser back.
    pub names_itself: bool,
    /// The time of its clock when it answered, in seconds since 1970.
    pub date: Option<u64>,
}

/// Reads `OIDC_ISSUER` or `JWT_ISSUER`: https, or http on this machine, without query. The text itself is what tokens must
/// say, so it is not changed.
pub fn issuer_url(text: &str) -> Option<Url> {
    Url::parse(text).ok().filter(|url| is_safe_url(url) && url.query().is_none())
}

/// Fetches the metadata of an OpenID provider. `setting` is the variable that names the issuer.
pub async fn discover(web: &Web, setting: &str, issuer: &str) -> Result<IdpMetadata, IdpProblem> {
    let response = ask(web, setting, &openid_url(issuer)).await?;
    read(&response, setting, issuer)
}

/// Fetches the metadata of an authorization server, which may be an OpenID provider.
pub async fn discover_any(web: &Web, setting: &str, issuer: &str) -> Result<IdpMetadata, IdpProblem> {
    let first = discover(web, setting, issuer).await;
    let Err(problem @ IdpProblem::Refused(_)) = first else { return first };
    match oauth_url(issuer) {
        // If there is no other document either, the first problem is the more useful one.
        Some(url) => match ask(web, setting, &url).await {
            Ok(response) => read(&response, setting, issuer),
            Err(_) => Err(problem),
        },
        None => Err(problem),
    }
}

async fn ask(web: &Web, setting: &str, url: &str) -> Result<WebResponse, IdpProblem> {
    let parsed = Url::parse(url).map_err(|_| IdpProblem::Down(format!("{setting} is not a URL")))?;
    let response = web.get(&parsed, &Proof::Nothing).await;
    let response = response.map_err(|reason| {
        IdpProblem::Down(format!(
            "the identity provider cannot be used: {url}: {reason}; check {setting}, and that the gateway reaches this address"
        ))
    })?;
    match response.status {
        200 => Ok(response),
        status @ 300..=499 if status != 429 => Err(IdpProblem::Refused(format!(
            "the identity provider has no metadata: {url} answered with HTTP status {status}; check {setting}"
        ))),
        status => Err(IdpProblem::Down(format!(
            "the identity provider does not work: {url} answered with HTTP status {status}; check {setting}"
        ))),
    }
}

fn read(response: &WebResponse, setting: &str, issuer: &str) -> Result<IdpMetadata, IdpProblem> {
    let unusable = |reason: &str| {
        IdpProblem::Down(format!("the metadata of the identity provider is unusable: {reason}"))
    };
    let metadata = response.object().map_err(|reason| unusable(&reason))?;
    let named = metadata.text("issuer").unwrap_or_default();
    if named != issuer {
        return Err(IdpProblem::Lies(format!(
            "the metadata of the identity provider names the issuer {:?}, but {setting} is {issuer:?}; they must \
             be equal in every character",
            excerpt(named, 200)
        )));
    }
    let endpoint = |name: &str| match metadata.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let url = value.as_str().and_then(|text| Url::parse(text).ok());
            let url = url
                .filter(|url| is_safe_url(url) && (url.scheme() == "https" || issuer.starts_with("http:")));
            url.map(Some).ok_or_else(|| unusable(&format!("{name} is not an https URL")))
        }
    };
    Ok(IdpMetadata {
        authorization_endpoint: endpoint("authorization_endpoint")?,
        token_endpoint: endpoint("token_endpoint")?,
        userinfo_endpoint: endpoint("userinfo_endpoint")?,
        keys: endpoint("jwks_uri")?.ok_or_else(|| unusable("it has no jwks_uri"))?,
        client_proofs: texts(&metadata, "token_endpoint_auth_methods_supported"),
        scopes: texts(&metadata, "scopes_supported").unwrap_or_default(),
        names_itself: metadata.get("authorization_response_iss_parameter_supported")
            == Some(&Value::Bool(true)),
        date: response.headers.get(DATE).and_then(|date| seconds(date.to_str().ok()?)),
    })
}

/// The time of an HTTP date, in seconds since 1970.
pub fn seconds(date: &str) -> Option<u64> {
    let time: SystemTime = httpdate::parse_http_date(date).ok()?;
    time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

fn texts(metadata: &Members, name: &str) -> Option<Vec<String>> {
    let list = metadata.get(name)?.as_array()?;
    Some(list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

fn openid_url(issuer: &str) -> String {
    format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'))
}

/// The address of RFC 8414: before the path of the issuer.
fn oauth_url(issuer: &str) -> Option<String> {
    let url = issuer_url(issuer)?;
    let path = url.path().trim_end_matches('/');
    Some(format!("{}/.well-known/oauth-authorization-server{path}", url.origin().ascii_serialization()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_encrypted_or_on_this_machine() {
        for good in [
            "https://idp.example",
            "https://idp.example/realms/main/",
            "https://idp.example:8443/x",
            "http://localhost:9000",
            "http://127.0.0.1/x",
            "http://[::1]:1",
        ] {
            assert!(issuer_url(good).is_some(), "{good}");
        }
        for bad in [
            "idp.example",
            "http://idp.example",
            "http://10.0.0.1",
            "http://localhost.example",
            "https://idp.example?x=1",
            "https://idp.example#x",
            "https://user@idp.example",
            "ftp://idp.example",
            "",
        ] {
            assert!(issuer_url(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn documents_are_where_the_standards_put_them() {
        assert_eq!(openid_url("https://a/"), "https://a/.well-known/openid-configuration");
        assert_eq!(openid_url("https://a/b"), "https://a/b/.well-known/openid-configuration");
        let oauth = |issuer| oauth_url(issuer).unwrap();
        assert_eq!(oauth("https://a:1/b/"), "https://a:1/.well-known/oauth-authorization-server/b");
        assert_eq!(oauth("https://a/"), "https://a/.well-known/oauth-authorization-server");
    }
}
