//! The environment that child processes inherit: the variables that programs need, and those that `STDIO_ENV` names.

use std::ffi::{OsStr, OsString};

/// What nearly every program needs, and where it finds certificates. This is what the clients of the SDKs pass on.
const ALLOWED: [&str; 14] = [
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "TZ",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
];

/// Returns the variables that child processes inherit. `named` is the value of `STDIO_ENV`.
pub fn environment(all: Vec<(OsString, OsString)>, named: Option<&str>) -> Vec<(OsString, OsString)> {
    let named: Vec<&str> = named.unwrap_or_default().split(',').map(str::trim).collect();
    let is_inherited = |name: &OsStr| {
        let is_named = named.iter().any(|named| *named == "*" || name == *named);
        !is_our_own(name) && (is_named || is_allowed(name))
    };
    all.into_iter().filter(|(name, _)| is_inherited(name)).collect()
}

fn is_allowed(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    ALLOWED.contains(&name) || name.starts_with("LC_") || name.to_ascii_uppercase().ends_with("_PROXY")
}

/// Tells whether a variable may hold credentials of the gateway. No child process inherits it.
fn is_our_own(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let has_our_prefix = ["TOOLGATE_", "OIDC_", "POSTGRES_"].iter().any(|prefix| name.starts_with(prefix));
    let is_header = name.starts_with("OTEL_EXPORTER_OTLP_") && name.ends_with("HEADERS");
    has_our_prefix
        || is_header
        || ["ADMIN_TOKEN_FILE", "DATABASE_URL", "INIT_SECRET"].contains(&name.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: [&str; 17] = [
        "PATH",
        "LC_ALL",
        "http_proxy",
        "No_Proxy",
        "CURL_CA_BUNDLE",
        "path",
        "LANGUAGE",
        "MY_KEY",
        "TOOLGATE_SECRET_KEY",
        "OIDC_CLIENT_SECRET",
        "INIT_SECRET",
        "DATABASE_URL",
        "POSTGRES_PASSWORD",
        "TOOLGATE_PROXY",
        "ADMIN_TOKEN_FILE",
        "OTEL_EXPORTER_OTLP_HEADERS",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    ];

    fn inherited(named: Option<&str>) -> Vec<String> {
        let all = GIVEN.iter().map(|name| (name.into(), OsString::new())).collect();
        let names = environment(all, named).into_iter().map(|(name, _)| name.into_string());
        names.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn children_inherit_what_programs_need() {
        assert_eq!(inherited(None), GIVEN[..5]);
    }

    #[test]
    fn stdio_env_names_more_but_nothing_of_the_gateway() {
        let named = inherited(Some("MY_KEY, LANGUAGE,INIT_SECRET,TOOLGATE_SECRET_KEY"));
        assert_eq!(named, [&GIVEN[..5], &["LANGUAGE", "MY_KEY"]].concat());
        assert_eq!(inherited(Some("*")), GIVEN[..8]);
    }
}
