//! Fuzz targets: each takes any bytes, passes them to a part of the gateway that reads untrusted input, and panics if
//! that part breaks a promise. Inputs are made in `mutation` and run in `runner`, on the stable toolchain.

pub mod corpus;
pub mod mutation;
mod random;
pub mod runner;
pub mod supervisor;
mod targets;

use targets::{
    authorize, body, head, import, input, jwt, patch, request, response, session, sse, state, template,
};

pub struct Target {
    pub name: &'static str,
    /// Panics if the input breaks a promise.
    pub run: fn(&[u8]),
    /// Texts that mutations insert into inputs.
    pub dictionary: &'static [&'static str],
}

pub const TARGETS: &[Target] = &[
    Target { name: "head", run: head::run, dictionary: head::DICTIONARY },
    Target { name: "patch", run: patch::run, dictionary: head::DICTIONARY },
    Target { name: "sse", run: sse::run, dictionary: sse::DICTIONARY },
    Target { name: "request", run: request::run, dictionary: request::DICTIONARY },
    Target { name: "response", run: response::run, dictionary: response::DICTIONARY },
    Target { name: "template", run: template::run, dictionary: template::DICTIONARY },
    Target { name: "import", run: import::run, dictionary: import::DICTIONARY },
    Target { name: "body", run: body::run, dictionary: body::DICTIONARY },
    Target { name: "session", run: session::run, dictionary: session::DICTIONARY },
    Target { name: "input", run: input::run, dictionary: input::DICTIONARY },
    Target { name: "jwt", run: jwt::run, dictionary: jwt::DICTIONARY },
    Target { name: "state", run: state::run, dictionary: state::DICTIONARY },
    Target { name: "authorize", run: authorize::run, dictionary: authorize::DICTIONARY },
];

pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
