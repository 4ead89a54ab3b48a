//! Seals and opens the configuration of a server. All of it is sealed, not only the fields that are named as secrets:
//! arguments and URLs contain credentials too.

use serde_json::{Map, Value};
use zeroize::Zeroizing;

use model::{Registration, ServerConfig};
use seal::Seal;

const PURPOSE: &str = "server config";

/// Keys of a registration that are stored elsewhere, so that they can change without the rest.
const FLAG_KEYS: [&str; 3] = ["enabled", "disabled_tools", "disabled_prompts"];

/// The purpose for which the configuration of a server is sealed.
pub(super) fn purpose(_server: &str) -> String {
    PURPOSE.to_owned()
}

pub(super) fn seal(seal: &Seal, registration: &Registration) -> Vec<u8> {
    let mut object = registration.to_json();
    for key in FLAG_KEYS {
        object.remove(key);
    }
    let plain = Zeroizing::new(Value::from(object).to_string());
    seal.seal(PURPOSE, plain.as_bytes())
}

/// Opens a sealed configuration. The error says what is wrong without showing any of the content.
pub(super) fn open(seal: &Seal, server: &str, sealed: &[u8]) -> Result<ServerConfig, String> {
    let plain = seal.open(PURPOSE, sealed).map_err(|error| format!("its configuration: {error}"))?;
    let object: Map<String, Value> =
        serde_json::from_slice(&plain).map_err(|_| "its configuration is not a JSON object".to_owned())?;
    let registration = Registration::parse(object).map_err(|error| format!("its configuration: {error}"))?;
    let config = registration.config;
    // If a sealed value were moved to another row, the secrets of one server would be sent to another.
    if config.name.as_str() != server {
        return Err(format!("its configuration is that of server \"{}\"", config.name));
    }
    Ok(config)
}
