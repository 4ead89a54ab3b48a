//! A request to `/authorize`, read in the order in which it becomes known where an error may go: first the software, then the
//! redirect URI, then everything else.

use url::Url;

use super::problem::{OAuthProblem, ProblemCode};
use super::registration::SoftwareRules;
use super::{Parameters, RedirectUri, Software, SoftwareOrigin, pkce, resource};
use crate::Reach;

/// The parameters of a request, of which only the client id has been read.
#[derive(Debug)]
pub struct Asked {
    parameters: Parameters,
    pub client_id: String,
}

/// What the software asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizeRequest {
    pub reach: Reach,
    pub code_challenge: String,
    /// Whether the person must be asked even if they agreed before.
    pub asks_again: bool,
}

impl Asked {
    /// Reads the query of a request.
    pub fn read(query: &str) -> Result<Self, OAuthProblem> {
        let parameters = Parameters::parse(query.as_bytes())?;
        if parameters.repeats("client_id") {
            return Err(OAuthProblem::invalid_request("the parameter client_id is repeated"));
        }
        let client_id = parameters.required("client_id")?.to_owned();
        Ok(Self { parameters, client_id })
    }

    /// The redirect URI, if the software may have its answers there. Without one in the request, it is the only one that the
    /// software has.
    pub fn redirect_uri(
        &self,
        software: &Software,
        rules: &SoftwareRules,
    ) -> Result<RedirectUri, OAuthProblem> {
        let wrong =
            |problem: &str| OAuthProblem::invalid_request(format!("the parameter redirect_uri {problem}"));
        if self.parameters.repeats("redirect_uri") {
            return Err(wrong("is repeated"));
        }
        let text = match (self.parameters.get("redirect_uri"), software.redirect_uris.as_slice()) {
            (Some(text), _) => text,
            (None, [only]) => only,
            (None, _) => return Err(wrong("is missing")),
        };
        let uri = RedirectUri::parse(text, &rules.schemes).map_err(|problem| wrong(&problem))?;
        if !software.may_redirect_to(&uri) {
            return Err(wrong("is not one that the software has registered"));
        }
        // It may have been allowed when the software was registered.
        match software.origin == SoftwareOrigin::Admin || uri.is_admitted_by(&rules.hosts) {
            true => Ok(uri),
            false => Err(wrong("has a host that OAUTH_CLIENT_HOSTS does not allow")),
        }
    }

    /// The state, which goes back with every answer.
    pub fn state(&self) -> Option<&str> {
        self.parameters.get("state").filter(|_| !self.parameters.repeats("state"))
    }

    /// Reads the rest.
    pub fn request(&self, base: &Url) -> Result<AuthorizeRequest, OAuthProblem> {
        let parameters = &self.parameters;
        parameters.require_single()?;
        if parameters.required("response_type")? != "code" {
            let sentence = "the parameter response_type must be code";
            return Err(OAuthProblem::new(ProblemCode::UnsupportedResponseType, sentence));
        }
        if parameters.get("response_mode").is_some_and(|mode| mode != "query") {
            return Err(OAuthProblem::invalid_request("the parameter response_mode must be query"));
        }
        let code_challenge = parameters.required("code_challenge")?;
        if parameters.get("code_challenge_method") != Some("S256") {
            return Err(OAuthProblem::invalid_request("the parameter code_challenge_method must be S256"));
        }
        if !pkce::is_challenge(code_challenge) {
            return Err(OAuthProblem::invalid_request(
                "the parameter code_challenge must be a SHA-256 hash in base64url",
            ));
        }
        let reach = resource::requested_reach(base, parameters.resources())?;
        let mut prompts = parameters.get("prompt").unwrap_or_default().split(' ');
        Ok(AuthorizeRequest {
            reach: reach.unwrap_or(Reach::Everything),
            code_challenge: code_challenge.to_owned(),
            asks_again: prompts.any(|prompt| prompt == "consent"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oauth::Proof;

    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    fn software(redirect_uris: &[&str]) -> Software {
        Software {
            client_id: "c".into(),
            name: "Agent".into(),
            redirect_uris: redirect_uris.iter().map(|uri| (*uri).to_owned()).collect(),
            proof: Proof::None,
            origin: SoftwareOrigin::Registration,
        }
    }

    fn read(query: &str) -> Result<AuthorizeRequest, &'static str> {
        let base = Url::parse("https://gate.example").unwrap();
        let request = Asked::read(query).and_then(|asked| asked.request(&base));
        request.map_err(|problem| problem.code.as_str())
    }

    #[test]
    fn a_complete_request_is_read() {
        let query = format!(
            "client_id=c&response_type=code&code_challenge={CHALLENGE}&code_challenge_method=S256&scope=mcp+x\
             &resource=https%3A%2F%2Fgate.example%2Fmcp&state=s&prompt=login+consent&nonce="
        );
        let request = read(&query).unwrap();
        assert_eq!(request.reach, Reach::Endpoint("/mcp".into()));
        assert!(request.asks_again && request.code_challenge == CHALLENGE);
        assert_eq!(Asked::read(&query).unwrap().state(), Some("s"));
        let least =
            format!("client_id=c&response_type=code&code_challenge={CHALLENGE}&code_challenge_method=S256");
        assert_eq!(read(&least).unwrap().reach, Reach::Everything);
    }

    #[test]
    fn each_mistake_has_its_code() {
        let fine =
            format!("client_id=c&response_type=code&code_challenge={CHALLENGE}&code_challenge_method=S256");
        for (query, code) in [
            ("response_type=code".to_owned(), "invalid_request"),
            (format!("{fine}&client_id=c"), "invalid_request"),
            (format!("{fine}&scope=a&scope=a"), "invalid_request"),
            (format!("{fine}&resource=https://evil.example"), "invalid_target"),
            (format!("{fine}&response_mode=fragment"), "invalid_request"),
            (fine.replace("response_type=code", "response_type=token"), "unsupported_response_type"),
            (fine.replace("response_type=code", "response_type=code+token"), "unsupported_response_type"),
            (fine.replace("response_type=code", "x=y"), "invalid_request"),
            (fine.replace("method=S256", "method=plain"), "invalid_request"),
            (fine.replace("&code_challenge_method=S256", ""), "invalid_request"),
            (fine.replace(CHALLENGE, ""), "invalid_request"),
            (fine.replace(CHALLENGE, "short"), "invalid_request"),
        ] {
            assert_eq!(read(&query), Err(code), "{query}");
        }
    }

    #[test]
    fn only_registered_redirect_uris_are_accepted() {
        let rules = SoftwareRules::default();
        let uri = |query: &str, registered: &[&str]| {
            let asked = Asked::read(&format!("client_id=c{query}")).unwrap();
            asked.redirect_uri(&software(registered), &rules).map(|uri| uri.as_str().to_owned())
        };
        let (one, two) = ("https://a.example/cb", "http://localhost/cb");
        assert_eq!(uri("", &[one]).as_deref(), Ok(one));
        assert!(uri("", &[one, two]).is_err());
        assert_eq!(
            uri("&redirect_uri=http://localhost:7/cb", &[one, two]).as_deref(),
            Ok("http://localhost:7/cb")
        );
        for bad in [
            "&redirect_uri=https://evil.example/cb",
            "&redirect_uri=https://a.example/cb&redirect_uri=https://a.example/cb",
            "&redirect_uri=https://a.example/cb/../x",
            "&redirect_uri=https://a.example/cb%0d%0aX:y",
            "&redirect_uri=//a.example/cb",
        ] {
            assert!(uri(bad, &[one, two]).is_err(), "{bad}");
        }
    }
}
