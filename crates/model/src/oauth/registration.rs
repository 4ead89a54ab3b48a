//! Reads the metadata of software (RFC 7591): from the body of a registration, or from a metadata document. Unknown fields
//! are ignored, as the RFC says.

use serde_json::{Map, Value, json};
use url::Url;

use super::problem::{OAuthProblem, ProblemCode};
use super::{
    ClientHosts, ClientKeys, ClientUrl, PrivateSchemes, Proof, RedirectUri, SecretHash, Software,
    SoftwareOrigin,
};
use crate::{FieldError, Fields, Secret, excerpt};

/// The longest client id of a dynamic registration.
pub const LONGEST_CLIENT_ID: usize = 2048;

const LONGEST_NAME: usize = 120;
const MOST_REDIRECTS: usize = 32;
const UNNAMED: &str = "Unnamed agent";

/// What the operator allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SoftwareRules {
    pub hosts: ClientHosts,
    pub schemes: PrivateSchemes,
}

/// Software that was just registered, with its secret if it has one.
pub struct Registered {
    pub software: Software,
    pub secret: Option<Secret>,
}

impl SoftwareRules {
    /// Reads a registration at `/register`. The client id is still missing: it is the sealed software.
    pub fn read_registration(&self, metadata: Map<String, Value>) -> Result<Registered, OAuthProblem> {
        self.read(metadata, SoftwareOrigin::Registration)
    }

    /// Reads a registration by an admin, whose redirect URIs may have any https host. The client id is still missing.
    pub fn read_admins(&self, metadata: Map<String, Value>) -> Result<Registered, OAuthProblem> {
        self.read(metadata, SoftwareOrigin::Admin)
    }

    /// Reads the metadata document at the URL that is the client id.
    pub fn read_document(&self, url: &ClientUrl, document: &[u8]) -> Result<Software, OAuthProblem> {
        if !self.hosts.admit(url.host()) {
            return Err(OAuthProblem::invalid_client("OAUTH_CLIENT_HOSTS does not allow this host"));
        }
        let wrong = |sentence: &str| OAuthProblem::invalid_metadata(sentence);
        let Ok(Value::Object(metadata)) = serde_json::from_slice(document) else {
            return Err(wrong("the document is not a JSON object"));
        };
        if metadata.get("client_id").and_then(Value::as_str) != Some(url.as_str()) {
            return Err(wrong("the client_id in the document is not its URL"));
        }
        if metadata.get("client_name").and_then(Value::as_str).is_none_or(|name| shown_name(name).is_empty())
        {
            return Err(wrong("the document has no client_name"));
        }
        if ["client_secret", "client_secret_expires_at"].iter().any(|key| metadata.contains_key(*key)) {
            return Err(wrong("the document contains a client_secret"));
        }
        let registered = self.read(metadata, SoftwareOrigin::Document)?;
        Ok(Software { client_id: url.as_str().to_owned(), ..registered.software })
    }

    fn read(&self, metadata: Map<String, Value>, origin: SoftwareOrigin) -> Result<Registered, OAuthProblem> {
        let mut fields = Fields::new(metadata);
        let named = fields.text("client_name").map_err(invalid)?;
        let name = named.map(|name| shown_name(&name)).filter(|name| !name.is_empty());
        let redirect_uris = self.read_redirects(&mut fields, origin)?;
        for (field, needed) in [("grant_types", "authorization_code"), ("response_types", "code")] {
            let listed = fields.texts(field).map_err(invalid)?;
            if listed.is_some_and(|listed| !listed.iter().any(|item| item == needed)) {
                return Err(OAuthProblem::invalid_metadata(format!("{field} must contain {needed}")));
            }
        }
        let (proof, secret) = read_proof(&mut fields, origin)?;
        let name = name.unwrap_or_else(|| UNNAMED.to_owned());
        let software = Software { client_id: String::new(), name, redirect_uris, proof, origin };
        Ok(Registered { software, secret })
    }

    /// Keeps the redirect URIs that are allowed. Fails if none is.
    fn read_redirects(
        &self,
        fields: &mut Fields,
        origin: SoftwareOrigin,
    ) -> Result<Vec<String>, OAuthProblem> {
        let wrong = |sentence: String| OAuthProblem::new(ProblemCode::InvalidRedirectUri, sentence);
        let texts = fields.texts("redirect_uris").map_err(|error| wrong(error.to_string()))?;
        let texts = texts.unwrap_or_default();
        if texts.len() > MOST_REDIRECTS {
            return Err(wrong(format!("there may be at most {MOST_REDIRECTS} redirect_uris")));
        }
        let mut refused = "redirect_uris is missing".to_owned();
        let mut allowed = Vec::new();
        for text in texts {
            let read = RedirectUri::parse(&text, &self.schemes).and_then(|uri| {
                let is_free = origin == SoftwareOrigin::Admin || uri.is_admitted_by(&self.hosts);
                is_free
                    .then_some(())
                    .ok_or_else(|| "has a host that OAUTH_CLIENT_HOSTS does not allow".into())
            });
            match read {
                Ok(()) => allowed.push(text),
                Err(problem) => {
                    let text = excerpt::cut(text, LONGEST_NAME);
                    refused = format!("no redirect URI is allowed: {text:?} {problem}");
                }
            }
        }
        match allowed.is_empty() {
            true => Err(wrong(refused)),
            false => Ok(allowed),
        }
    }
}

fn invalid(error: FieldError) -> OAuthProblem {
    OAuthProblem::invalid_metadata(error.to_string())
}

fn read_proof(fields: &mut Fields, origin: SoftwareOrigin) -> Result<(Proof, Option<Secret>), OAuthProblem> {
    let method = fields.text("token_endpoint_auth_method").map_err(invalid)?;
    let default = match origin {
        // Everybody can read a document.
        SoftwareOrigin::Document => "none",
        // The default of the RFC.
        SoftwareOrigin::Admin | SoftwareOrigin::Registration => "client_secret_basic",
    };
    let has_secret = |make: fn(SecretHash) -> Proof| {
        if origin == SoftwareOrigin::Document {
            return Err(OAuthProblem::invalid_metadata(
                "software with a document cannot have a shared secret",
            ));
        }
        let (secret, hash) = SecretHash::generate();
        Ok((make(hash), Some(secret)))
    };
    match method.as_deref().unwrap_or(default) {
        "none" => Ok((Proof::None, None)),
        "client_secret_basic" => has_secret(Proof::ClientSecretBasic),
        "client_secret_post" => has_secret(Proof::ClientSecretPost),
        "private_key_jwt" => Ok((Proof::PrivateKeyJwt(read_keys(fields)?), None)),
        _ => Err(OAuthProblem::invalid_metadata(
            "token_endpoint_auth_method must be none, client_secret_basic, client_secret_post or private_key_jwt",
        )),
    }
}

fn read_keys(fields: &mut Fields) -> Result<ClientKeys, OAuthProblem> {
    let wrong = |sentence: &str| Err(OAuthProblem::invalid_metadata(sentence));
    let inline = fields.object("jwks").map_err(invalid)?;
    match (inline, fields.text("jwks_uri").map_err(invalid)?) {
        (None, None) => wrong("private_key_jwt needs jwks or jwks_uri"),
        (Some(_), Some(_)) => wrong("there may be jwks or jwks_uri, not both"),
        (Some(keys), None) => {
            let listed = keys.get("keys").and_then(Value::as_array);
            if listed.is_none_or(|listed| listed.is_empty() || !listed.iter().all(Value::is_object)) {
                return wrong("jwks must have an array of keys");
            }
            // `d` is the private part of keys of every kind, `k` a shared key.
            let is_private = |key: &Value| key.get("d").is_some() || key.get("k").is_some();
            if listed.into_iter().flatten().any(is_private) {
                return wrong("jwks must have public keys only");
            }
            Ok(ClientKeys::Inline(Value::Object(keys)))
        }
        (None, Some(uri)) => match Url::parse(&uri) {
            Ok(url) if url.scheme() == "https" && url.username().is_empty() && url.password().is_none() => {
                Ok(ClientKeys::At(uri))
            }
            Ok(_) | Err(_) => wrong("jwks_uri must be an https URL"),
        },
    }
}

/// A name that cannot pretend to be something else: in one line, without characters that are invisible or change the direction
/// of the text, and short.
fn shown_name(name: &str) -> String {
    let is_invisible = |c: char| {
        matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
    };
    let visible: String = name
        .chars()
        .filter(|c| !is_invisible(*c) && (!c.is_control() || c.is_whitespace()))
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .collect();
    let words: Vec<_> = visible.split(' ').filter(|word| !word.is_empty()).collect();
    excerpt::cut(words.join(" "), LONGEST_NAME)
}

impl Registered {
    /// The response to a registration (RFC 7591, section 3.2.1), for software with this client id.
    pub fn response(&self, client_id: &str, issued_at: i64) -> Map<String, Value> {
        let Software { name, redirect_uris, proof, .. } = &self.software;
        let mut response = Map::new();
        response.insert("client_id".into(), client_id.into());
        response.insert("client_id_issued_at".into(), issued_at.into());
        if let Some(secret) = &self.secret {
            response.insert("client_secret".into(), secret.expose().into());
            response.insert("client_secret_expires_at".into(), 0.into());
        }
        response.insert("client_name".into(), name.as_str().into());
        response.insert("redirect_uris".into(), json!(redirect_uris));
        response.insert("grant_types".into(), json!(["authorization_code", "refresh_token"]));
        response.insert("response_types".into(), json!(["code"]));
        response.insert("token_endpoint_auth_method".into(), proof.method().into());
        match proof {
            Proof::PrivateKeyJwt(ClientKeys::Inline(keys)) => response.insert("jwks".into(), keys.clone()),
            Proof::PrivateKeyJwt(ClientKeys::At(uri)) => {
                response.insert("jwks_uri".into(), uri.as_str().into())
            }
            Proof::None | Proof::ClientSecretBasic(_) | Proof::ClientSecretPost(_) => None,
        };
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    fn register(metadata: Value) -> Result<Registered, OAuthProblem> {
        SoftwareRules::default().read_registration(object(metadata))
    }

    fn code(result: Result<Registered, OAuthProblem>) -> &'static str {
        result.map(|_| "fine").unwrap_or_else(|problem| problem.code.as_str())
    }

    #[test]
    fn a_registration_has_the_defaults_of_the_rfc() {
        let registered = register(json!({
            "client_name": "Agent", "redirect_uris": ["http://localhost/cb"], "software_id": 7, "scope": "x y",
        }))
        .unwrap();
        assert_eq!(registered.software.proof.method(), "client_secret_basic");
        let response = Value::Object(registered.response("the-id", 5));
        let secret = response["client_secret"].as_str().unwrap();
        assert!(registered.software.proof.secret_hash().unwrap().is_of(secret));
        assert_eq!(
            (&response["client_id"], &response["client_id_issued_at"], &response["client_secret_expires_at"]),
            (&json!("the-id"), &json!(5), &json!(0))
        );
        let public = json!({ "redirect_uris": ["cursor://a/cb"], "token_endpoint_auth_method": "none" });
        let public = register(public).unwrap();
        assert!(public.secret.is_none() && public.software.proof == Proof::None);
        assert!(!public.response("x", 0).contains_key("client_secret"));
    }

    #[test]
    fn allowed_redirect_uris_are_kept_and_none_is_an_error() {
        let some = json!({ "redirect_uris": ["http://evil.example/cb", "https://good.example/cb", "x:/y"] });
        assert_eq!(register(some).unwrap().software.redirect_uris, ["https://good.example/cb"]);
        for bad in [
            json!({}),
            json!({ "redirect_uris": [] }),
            json!({ "redirect_uris": null }),
            json!({ "redirect_uris": "https://a.example/cb" }),
            json!({ "redirect_uris": [1] }),
            json!({ "redirect_uris": ["http://a.example/cb", "javascript:alert(1)"] }),
            json!({ "redirect_uris": vec!["https://a.example/cb"; 33] }),
        ] {
            assert_eq!(code(register(bad.clone())), "invalid_redirect_uri", "{bad}");
        }
        let rules = SoftwareRules { hosts: ClientHosts::parse("a.example").unwrap(), ..Default::default() };
        let metadata = || object(json!({ "redirect_uris": ["https://b.example/cb"] }));
        assert_eq!(code(rules.read_registration(metadata())), "invalid_redirect_uri");
        assert_eq!(code(rules.read_admins(metadata())), "fine");
    }

    #[test]
    fn wrong_metadata_is_refused() {
        for wrong in [
            json!({ "client_name": 1 }),
            json!({ "grant_types": ["client_credentials"] }),
            json!({ "grant_types": "authorization_code" }),
            json!({ "response_types": ["token"] }),
            json!({ "token_endpoint_auth_method": "client_secret_jwt" }),
            json!({ "token_endpoint_auth_method": "private_key_jwt" }),
            json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks": {} }),
            json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks": { "keys": [] } }),
            json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks": { "keys": [{ "k": "shared" }] } }),
            json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks_uri": "http://a.example/k" }),
            json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks_uri": "https://a.example/k",
                "jwks": { "keys": [{}] } }),
        ] {
            let mut metadata = object(wrong.clone());
            metadata.insert("redirect_uris".into(), json!(["https://a.example/cb"]));
            assert_eq!(code(register(Value::Object(metadata))), "invalid_client_metadata", "{wrong}");
        }
        let keys = json!({ "redirect_uris": ["https://a.example/cb"], "grant_types": ["refresh_token",
            "authorization_code"], "token_endpoint_auth_method": "private_key_jwt",
            "jwks_uri": "https://a.example/keys" });
        let keys = register(keys).unwrap();
        assert_eq!(keys.response("x", 0)["jwks_uri"], "https://a.example/keys");
    }

    #[test]
    fn a_name_cannot_hide_anything() {
        for (name, shown) in [
            ("Claude", "Claude"),
            ("  a \n\t b ", "a b"),
            ("gate\u{202e}txt", "gatetxt"),
            ("a\u{200b}\u{2066}b\u{0}", "ab"),
            ("Ünï 工具", "Ünï 工具"),
            ("\u{200b}", ""),
        ] {
            assert_eq!(shown_name(name), shown);
        }
        assert!(shown_name(&"x".repeat(1000)).chars().count() <= LONGEST_NAME + 3);
    }

    #[test]
    fn a_document_proves_its_host_and_follows_its_rules() {
        let url = ClientUrl::parse("https://claude.ai/client.json").unwrap();
        let good = json!({ "client_id": url.as_str(), "client_name": "Claude",
            "redirect_uris": ["https://claude.ai/cb"] });
        let rules = SoftwareRules::default();
        let software = rules.read_document(&url, good.to_string().as_bytes()).unwrap();
        assert_eq!((software.client_id.as_str(), &software.proof), (url.as_str(), &Proof::None));
        assert_eq!(software.proven_host().as_deref(), Some("claude.ai"));
        for wrong in [
            json!({ "client_id": "https://claude.ai/client.json/" }),
            json!({ "client_id": null }),
            json!({ "client_name": null }),
            json!({ "client_name": " " }),
            json!({ "redirect_uris": null }),
            json!({ "client_secret": "x" }),
            json!({ "client_secret_expires_at": 0 }),
            json!({ "token_endpoint_auth_method": "client_secret_post" }),
            json!({ "token_endpoint_auth_method": "client_secret_basic" }),
        ] {
            let mut document = object(good.clone());
            document.extend(object(wrong.clone()));
            let document = Value::Object(document).to_string();
            assert!(rules.read_document(&url, document.as_bytes()).is_err(), "{wrong}");
        }
        for wrong in ["", "[]", "null", "{"] {
            assert!(rules.read_document(&url, wrong.as_bytes()).is_err());
        }
        let bound = SoftwareRules { hosts: ClientHosts::parse("chatgpt.com").unwrap(), ..Default::default() };
        assert!(bound.read_document(&url, good.to_string().as_bytes()).is_err());
    }
}
