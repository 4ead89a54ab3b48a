//! The parameters of a request to the authorization server, from a query or a form. An empty parameter counts as missing,
//! and a repeated one is an error (RFC 6749, section 3.1), except `resource` (RFC 8707).

use std::collections::HashMap;
use std::fmt;

use url::form_urlencoded;

use super::OAuthProblem;

/// The largest query or form.
pub const LONGEST: usize = 32 * 1024;

const RESOURCE: &str = "resource";

/// Parameters may be secrets, so they are not printed.
pub struct Parameters {
    values: HashMap<String, String>,
    resources: Vec<String>,
    /// The names that were sent more than once.
    repeated: Vec<String>,
}

impl Parameters {
    pub fn parse(text: &[u8]) -> Result<Self, OAuthProblem> {
        if text.len() > LONGEST {
            return Err(OAuthProblem::invalid_request(format!(
                "the parameters must have at most {LONGEST} bytes"
            )));
        }
        let (mut values, mut resources, mut repeated) = (HashMap::new(), Vec::new(), Vec::new());
        for (name, value) in form_urlencoded::parse(text) {
            if value.is_empty() {
                continue;
            }
            if name == RESOURCE {
                resources.push(value.into_owned());
            } else if values.insert(name.clone().into_owned(), value.into_owned()).is_some() {
                repeated.push(name.into_owned());
            }
        }
        Ok(Self { values, resources, repeated })
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    pub fn required(&self, name: &str) -> Result<&str, OAuthProblem> {
        self.get(name)
            .ok_or_else(|| OAuthProblem::invalid_request(format!("the parameter {name} is missing")))
    }

    /// Every `resource`.
    pub fn resources(&self) -> &[String] {
        &self.resources
    }

    pub fn repeats(&self, name: &str) -> bool {
        self.repeated.iter().any(|repeated| repeated == name)
    }

    /// Refuses repeated parameters.
    pub fn require_single(&self) -> Result<(), OAuthProblem> {
        match self.repeated.is_empty() {
            true => Ok(()),
            false => Err(OAuthProblem::invalid_request("a parameter is repeated")),
        }
    }
}

impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parameters(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_is_missing_and_repeated_is_wrong() {
        let parameters = Parameters::parse(b"a=1&b=&c=x+y%2B&resource=r&resource=s").unwrap();
        assert_eq!((parameters.get("a"), parameters.get("b")), (Some("1"), None));
        assert_eq!(parameters.get("c"), Some("x y+"));
        assert_eq!(parameters.resources(), ["r", "s"]);
        assert!(parameters.require_single().is_ok() && parameters.required("b").is_err());
        let parameters = Parameters::parse(b"a=1&a=1&b=2").unwrap();
        assert!(parameters.require_single().is_err() && parameters.repeats("a") && !parameters.repeats("b"));
        assert!(Parameters::parse(&vec![b'a'; LONGEST + 1]).is_err());
        assert!(!format!("{parameters:?}").contains('1'));
    }
}
