//! How people sign in and which tokens of agents count: `OAUTH`, `OIDC_ISSUER`, `JWT_ISSUER` and others. All of it is for
//! enterprise mode, and needs `PUBLIC_URL`.

use url::Url;

use super::variables::EnvVariables;
use super::{ConfigError, web_url};
use model::oauth::registration::SoftwareRules;
use model::oauth::{ClientHosts, PrivateSchemes};
use model::{Mode, Secret, Token};
use upstream::sign_in::{IdpSettings, PersonClaims, is_safe_url, issuer_url};

const DEFAULT_MAX_DAYS: u32 = 7;
const CALLBACK: &str = "/login/callback";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignInSettings {
    /// `OAUTH`: whether people can sign in, and whether the gateway is an authorization server.
    pub is_on: bool,
    /// `OAUTH_DCR`: whether clients may register themselves.
    pub registration_is_open: bool,
    /// `OAUTH_CLIENT_HOSTS` and `OAUTH_REDIRECT_SCHEMES`: which agents are accepted.
    pub software: SoftwareRules,
    /// The identity provider; `None` if people sign in with their token.
    pub oidc: Option<OidcClient>,
    /// Where tokens of the identity provider and of `JWT_ISSUER` have names and groups.
    pub claims: PersonClaims,
    /// `OIDC_ADMIN_GROUPS`: whose members are admins.
    pub admin_groups: Vec<String>,
    /// `OIDC_ALLOWED_GROUPS`: whose members may sign in; if empty, everybody.
    pub allowed_groups: Vec<String>,
    /// `OIDC_MAX_DAYS`: how long a grant counts after a sign-in that the identity provider cannot be asked about again.
    pub max_days: u32,
    /// The issuer of access tokens that takes the place of our authorization server.
    pub jwt: Option<JwtSettings>,
    /// The content of `ADMIN_TOKEN_FILE`.
    pub admin_token: Option<Token>,
}

/// The gateway's registration at the identity provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcClient {
    /// `OIDC_ISSUER`, exactly as it was written.
    pub issuer: String,
    pub client_id: String,
    pub client_secret: Option<Secret>,
    /// `None` for the default.
    pub scopes: Option<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSettings {
    /// `JWT_ISSUER`, exactly as it was written.
    pub issuer: String,
    /// `None` for the URL of the endpoint that is asked.
    pub audience: Option<String>,
}

impl Default for SignInSettings {
    fn default() -> Self {
        Self {
            is_on: true,
            registration_is_open: true,
            software: SoftwareRules::default(),
            oidc: None,
            claims: PersonClaims::default(),
            admin_groups: Vec::new(),
            allowed_groups: Vec::new(),
            max_days: DEFAULT_MAX_DAYS,
            jwt: None,
            admin_token: None,
        }
    }
}

impl SignInSettings {
    /// The settings of the identity provider for a gateway at this address, if there is one.
    pub fn identity_provider(&self, public_url: &Url) -> Option<IdpSettings> {
        let OidcClient { issuer, client_id, client_secret, scopes } = self.oidc.clone()?;
        let redirect_uri = format!("{}{CALLBACK}", public_url.as_str().trim_end_matches('/'));
        Some(IdpSettings {
            issuer,
            client_id,
            client_secret,
            scopes,
            claims: self.claims.clone(),
            redirect_uri,
        })
    }
}

pub fn read<E: Fn(&str) -> Option<String>>(
    variables: &EnvVariables<E>,
    mode: Mode,
) -> Result<SignInSettings, ConfigError> {
    let default = SignInSettings::default();
    let claim = |name| variables.parse(name, "the name of a claim", some_text);
    let groups = |name| variables.list(name, "names of groups", some_text);
    let days = variables.parse("OIDC_MAX_DAYS", "a number of days from 1 to 3650", |text| {
        text.parse().ok().filter(|days| (1..=3650).contains(days))
    })?;
    Ok(SignInSettings {
        is_on: switch(variables, "OAUTH")?,
        registration_is_open: switch(variables, "OAUTH_DCR")?,
        software: software_rules(variables)?,
        oidc: oidc_client(variables)?,
        claims: PersonClaims {
            username: claim("OIDC_USERNAME_CLAIM")?,
            groups: claim("OIDC_GROUPS_CLAIM")?.unwrap_or(default.claims.groups),
        },
        admin_groups: groups("OIDC_ADMIN_GROUPS")?,
        allowed_groups: groups("OIDC_ALLOWED_GROUPS")?,
        max_days: days.unwrap_or(DEFAULT_MAX_DAYS),
        jwt: jwt_settings(variables)?,
        admin_token: match mode {
            Mode::Enterprise => admin_token(variables)?,
            Mode::Development => None,
        },
    })
}

/// Reads `PUBLIC_URL`. In enterprise mode it is also the issuer of the authorization server, unless `OAUTH=off`.
pub fn public_url<E: Fn(&str) -> Option<String>>(
    variables: &EnvVariables<E>,
    mode: Mode,
    settings: &SignInSettings,
) -> Result<Option<Url>, ConfigError> {
    if mode == Mode::Development || !settings.is_on {
        return variables.parse("PUBLIC_URL", "an http or https URL", web_url);
    }
    let wanted =
        "an https URL without a path (http only on localhost) in enterprise mode, unless OAUTH=off is set";
    variables.parse("PUBLIC_URL", wanted, |text| {
        web_url(text).filter(|url| is_safe_url(url) && url.path() == "/" && url.query().is_none())
    })
}

fn software_rules<E: Fn(&str) -> Option<String>>(
    variables: &EnvVariables<E>,
) -> Result<SoftwareRules, ConfigError> {
    let wanted = "a comma-separated list of host names such as claude.ai or *.example.com";
    let hosts = variables.parse("OAUTH_CLIENT_HOSTS", wanted, |text| ClientHosts::parse(text).ok())?;
    let wanted =
        "a comma-separated list of schemes of programs such as vscode, and none of browsers such as https";
    let schemes =
        variables.parse("OAUTH_REDIRECT_SCHEMES", wanted, |text| PrivateSchemes::parse(text).ok())?;
    Ok(SoftwareRules { hosts: hosts.unwrap_or_default(), schemes: schemes.unwrap_or_default() })
}

fn oidc_client<E: Fn(&str) -> Option<String>>(
    variables: &EnvVariables<E>,
) -> Result<Option<OidcClient>, ConfigError> {
    let Some(issuer) = issuer(variables, "OIDC_ISSUER")? else { return Ok(None) };
    let missing =
        || ConfigError("OIDC_CLIENT_ID is missing: OIDC_ISSUER is set, and signing in needs both".into());
    let scopes =
        variables.parse("OIDC_SCOPES", "scopes separated by spaces, one of which is openid", scopes)?;
    Ok(Some(OidcClient {
        issuer,
        client_id: variables.get("OIDC_CLIENT_ID").and_then(|text| some_text(&text)).ok_or_else(missing)?,
        client_secret: variables.value_or_file("OIDC_CLIENT_SECRET")?.map(Secret::new),
        scopes,
    }))
}

fn jwt_settings<E: Fn(&str) -> Option<String>>(
    variables: &EnvVariables<E>,
) -> Result<Option<JwtSettings>, ConfigError> {
    let audience = variables.parse("JWT_AUDIENCE", "a text", some_text)?;
    Ok(issuer(variables, "JWT_ISSUER")?.map(|issuer| JwtSettings { issuer, audience }))
}

fn issuer<E: Fn(&str) -> Option<String>>(
    variables: &EnvVariables<E>,
    name: &str,
) -> Result<Option<String>, ConfigError> {
    variables.parse(name, "an https URL without a query (http on localhost only)", |text| {
        issuer_url(text).map(|_| text.to_owned())
    })
}

/// Reads the token that an admin gets when the gateway initializes itself. The error does not show it.
fn admin_token<E: Fn(&str) -> Option<String>>(
    variables: &EnvVariables<E>,
) -> Result<Option<Token>, ConfigError> {
    let Some(path) = variables.get("ADMIN_TOKEN_FILE") else { return Ok(None) };
    let wrong = |reason: String| ConfigError(format!("ADMIN_TOKEN_FILE={path} {reason}"));
    let text = std::fs::read_to_string(&path).map(Secret::new);
    let text = text.map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let token = Token::parse(text.expose().trim());
    token.map(Some).map_err(|reason| wrong(format!("has no valid token: it {reason}")))
}

fn switch<E: Fn(&str) -> Option<String>>(
    variables: &EnvVariables<E>,
    name: &str,
) -> Result<bool, ConfigError> {
    let value = variables.parse(name, "on or off", |text| match text.to_ascii_lowercase().as_str() {
        "on" | "true" | "1" => Some(true),
        "off" | "false" | "0" => Some(false),
        _ => None,
    });
    Ok(value?.unwrap_or(true))
}

fn some_text(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty() && !text.contains(char::is_control)).then(|| text.to_owned())
}

fn scopes(text: &str) -> Option<Vec<String>> {
    let scopes: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let is_valid =
        |scope: &String| scope.bytes().all(|c| c.is_ascii_graphic() && c != b'"' && c != b'\\' && c != b',');
    let has_openid = scopes.iter().any(|scope| scope == "openid");
    (has_openid && scopes.iter().all(is_valid)).then_some(scopes)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const OIDC: [(&str, &str); 2] = [("OIDC_ISSUER", "https://idp.example/"), ("OIDC_CLIENT_ID", "gate")];

    fn variables<'a>(env: &'a [(&str, &str)]) -> EnvVariables<impl Fn(&str) -> Option<String> + 'a> {
        EnvVariables::new(HashMap::new(), |name: &str| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn load(env: &[(&str, &str)]) -> Result<SignInSettings, ConfigError> {
        read(&variables(env), Mode::Enterprise)
    }

    fn public(mode: Mode, env: &[(&str, &str)]) -> Result<Option<Url>, ConfigError> {
        let variables = variables(env);
        public_url(&variables, mode, &read(&variables, mode)?)
    }

    #[test]
    fn without_variables_people_sign_in_with_their_token() {
        assert_eq!(load(&[]).unwrap(), SignInSettings::default());
        assert_eq!(
            load(&[("OIDC_ISSUER", ""), ("OAUTH", ""), ("OAUTH_CLIENT_HOSTS", "")]).unwrap().oidc,
            None
        );
        let settings = SignInSettings::default();
        assert!(settings.is_on && settings.registration_is_open);
    }

    #[test]
    fn the_identity_provider_is_described_by_variables() {
        let more = [
            ("OIDC_CLIENT_SECRET", "geheim"),
            ("OIDC_SCOPES", " openid  groups "),
            ("OIDC_USERNAME_CLAIM", "upn"),
            ("OIDC_GROUPS_CLAIM", "https://x.example/roles"),
            ("OIDC_ADMIN_GROUPS", "ops, /root admins ,"),
            ("OIDC_ALLOWED_GROUPS", "eng"),
            ("OIDC_MAX_DAYS", "30"),
        ];
        let settings = load(&[&OIDC[..], &more].concat()).unwrap();
        assert!(!format!("{settings:?}").contains("geheim"));
        assert_eq!(settings.admin_groups, ["ops", "/root admins"]);
        assert_eq!((settings.allowed_groups.as_slice(), settings.max_days), (&["eng".to_owned()][..], 30));
        let idp = settings.identity_provider(&Url::parse("https://gate.example").unwrap()).unwrap();
        let expected = IdpSettings {
            // As it was written: tokens must name it with every character.
            issuer: "https://idp.example/".into(),
            client_id: "gate".into(),
            client_secret: Some(Secret::new("geheim")),
            scopes: Some(vec!["openid".into(), "groups".into()]),
            claims: PersonClaims { username: Some("upn".into()), groups: "https://x.example/roles".into() },
            redirect_uri: "https://gate.example/login/callback".into(),
        };
        assert_eq!(idp, expected);
        let plain = load(&OIDC).unwrap();
        assert_eq!(plain.claims, PersonClaims::default());
        let Some(OidcClient { client_secret: None, scopes: None, .. }) = plain.oidc else {
            panic!("{plain:?}")
        };
    }

    #[test]
    fn the_secret_and_the_admin_token_can_be_in_files() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        std::fs::write(path, "geheim-geheim\n").unwrap();
        let settings =
            load(&[&OIDC[..], &[("OIDC_CLIENT_SECRET_FILE", path), ("ADMIN_TOKEN_FILE", path)]].concat());
        let settings = settings.unwrap();
        assert_eq!(settings.oidc.unwrap().client_secret, Some(Secret::new("geheim-geheim")));
        assert_eq!(settings.admin_token.unwrap().secret(), &Secret::new("geheim-geheim"));
        let development = read(&variables(&[("ADMIN_TOKEN_FILE", "/nowhere")]), Mode::Development).unwrap();
        assert_eq!(development.admin_token, None);
        for content in ["", "geheim", "geheim geheim"] {
            std::fs::write(path, content).unwrap();
            let error = load(&[("ADMIN_TOKEN_FILE", path)]).unwrap_err().to_string();
            assert!(error.starts_with("ADMIN_TOKEN_FILE") && !error.contains("geheim"), "{error}");
        }
    }

    #[test]
    fn the_authorization_server_is_described_by_variables() {
        let settings = load(&[
            ("OAUTH", "OFF"),
            ("OAUTH_DCR", "off"),
            ("OAUTH_CLIENT_HOSTS", "Claude.ai, *.example.com, [::1],10.0.0.5"),
            ("OAUTH_REDIRECT_SCHEMES", "Zed, com.example.app+x"),
            ("JWT_ISSUER", "https://idp.example/tenant/"),
            ("JWT_AUDIENCE", "api://gate"),
        ]);
        let settings = settings.unwrap();
        assert!(!settings.is_on && !settings.registration_is_open);
        assert!(settings.software.hosts.admit("a.example.com") && settings.software.hosts.names("claude.ai"));
        assert_eq!(settings.software.schemes, PrivateSchemes::parse("zed,com.example.app+x").unwrap());
        let expected =
            JwtSettings { issuer: "https://idp.example/tenant/".into(), audience: Some("api://gate".into()) };
        assert_eq!(settings.jwt, Some(expected));
    }

    #[test]
    fn a_wrong_value_names_its_variable() {
        for (name, value) in [
            ("OAUTH", "maybe"),
            ("OAUTH_DCR", "2"),
            ("OAUTH_CLIENT_HOSTS", "*"),
            ("OAUTH_CLIENT_HOSTS", "https://claude.ai"),
            ("OAUTH_CLIENT_HOSTS", "claude.ai:443"),
            ("OAUTH_CLIENT_HOSTS", "a.*.example"),
            ("OAUTH_CLIENT_HOSTS", "*.*.example"),
            ("OAUTH_CLIENT_HOSTS", "*."),
            ("OAUTH_REDIRECT_SCHEMES", "javascript"),
            ("OAUTH_REDIRECT_SCHEMES", "vscode, HTTP"),
            ("OAUTH_REDIRECT_SCHEMES", "vscode://"),
            ("OAUTH_REDIRECT_SCHEMES", "1x"),
            ("OIDC_ISSUER", "idp.example"),
            ("OIDC_ISSUER", "http://idp.example"),
            ("OIDC_ISSUER", "https://idp.example?tenant=1"),
            ("OIDC_SCOPES", "profile email"),
            ("OIDC_SCOPES", "openid,profile"),
            ("OIDC_USERNAME_CLAIM", " "),
            ("OIDC_GROUPS_CLAIM", "\u{1}"),
            ("OIDC_MAX_DAYS", "0"),
            ("OIDC_MAX_DAYS", "a week"),
            ("OIDC_CLIENT_SECRET_FILE", "/nowhere"),
            ("JWT_ISSUER", "http://10.0.0.1"),
            ("JWT_AUDIENCE", " "),
            ("ADMIN_TOKEN_FILE", "/nowhere"),
        ] {
            let others = OIDC.iter().filter(|(other, _)| *other != name);
            let env: Vec<_> = others.copied().chain([(name, value)]).collect();
            let error = load(&env).unwrap_err().to_string();
            assert!(error.starts_with(name), "{name}={value}: {error}");
        }
        let error = load(&OIDC[..1]).unwrap_err().to_string();
        assert!(error.starts_with("OIDC_CLIENT_ID is missing"), "{error}");
    }

    #[test]
    fn in_enterprise_mode_the_public_address_is_an_issuer() {
        let set = |url| [("PUBLIC_URL", url)];
        for (url, expected) in [
            ("https://gate.example", "https://gate.example/"),
            ("https://Gate.example:8443/", "https://gate.example:8443/"),
            ("http://localhost:8080", "http://localhost:8080/"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/"),
            ("http://[::1]:8080", "http://[::1]:8080/"),
        ] {
            let found = public(Mode::Enterprise, &set(url)).unwrap().unwrap();
            assert_eq!(found.as_str(), expected);
        }
        for url in [
            "http://gate.example",
            "https://gate.example/base",
            "https://gate.example//",
            "https://gate.example?x",
            "https://gate.example/#x",
            "https://user:hunter2@gate.example",
            "gate.example",
        ] {
            let error = public(Mode::Enterprise, &set(url)).unwrap_err().to_string();
            assert!(error.starts_with("PUBLIC_URL") && !error.contains("hunter2"), "{url}: {error}");
        }
        assert_eq!(public(Mode::Enterprise, &[]).unwrap(), None);
        for url in ["http://gate.example", "https://gate.example/base"] {
            assert!(public(Mode::Development, &set(url)).unwrap().is_some());
            assert!(public(Mode::Enterprise, &[("PUBLIC_URL", url), ("OAUTH", "off")]).unwrap().is_some());
        }
    }
}
