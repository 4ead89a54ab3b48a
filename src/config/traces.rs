//! Traces: the variables `OTEL_*` of OpenTelemetry, as far as they concern a program that exports spans over HTTP. Unless an
//! address is set, or if traces are switched off, none of the others is read.

use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use url::Url;

use super::variables::EnvVariables;
use super::{ConfigError, web_url};
use model::Secret;
use telemetry::traces::{Sampler, TracerSettings};

/// The path below `OTEL_EXPORTER_OTLP_ENDPOINT`.
const PATH: &str = "v1/traces";

/// How spans are made and exported.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSettings {
    /// Where they are posted to.
    pub endpoint: Url,
    /// Headers of each request.
    pub headers: Vec<(String, Secret)>,
    /// How long one request may take.
    pub timeout: Duration,
    /// How long a span waits for others at most.
    pub delay: Duration,
    pub tracer: TracerSettings,
}

impl TraceSettings {
    /// The defaults of the standard.
    pub fn new(endpoint: Url) -> Self {
        let resource = vec![("service.name".to_owned(), "toolgate".to_owned())];
        Self {
            endpoint,
            headers: Vec::new(),
            timeout: Duration::from_secs(10),
            delay: Duration::from_secs(5),
            tracer: TracerSettings { sampler: Sampler::default(), resource, queue: 2048, batch: 512 },
        }
    }
}

pub fn read<E: Fn(&str) -> Option<String>>(
    variables: &EnvVariables<E>,
) -> Result<Option<TraceSettings>, ConfigError> {
    let exporter = variables.parse("OTEL_TRACES_EXPORTER", "otlp or none", |text| match text {
        "otlp" => Some(true),
        "none" => Some(false),
        _ => None,
    })?;
    let is_disabled = variables.flag("OTEL_SDK_DISABLED")?.unwrap_or(false);
    let Some(endpoint) = endpoint(variables)?.filter(|_| !is_disabled && exporter.unwrap_or(true)) else {
        return Ok(None);
    };
    for name in ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"] {
        let is_known = |text: &str| (text == "http/protobuf").then_some(());
        // The more specific one counts.
        if variables.parse(name, "http/protobuf, which is all that is supported", is_known)?.is_some() {
            break;
        }
    }
    let default = TraceSettings::new(endpoint);
    let timeout = match milliseconds(variables, "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")? {
        Some(timeout) => Some(timeout),
        None => milliseconds(variables, "OTEL_EXPORTER_OTLP_TIMEOUT")?,
    };
    let count = |name: &str| {
        let positive =
            |text: &str| text.parse().ok().filter(|number: &usize| (1..=1_000_000).contains(number));
        variables.parse(name, "a number from 1 to 1,000,000", positive)
    };
    let queue = count("OTEL_BSP_MAX_QUEUE_SIZE")?.unwrap_or(default.tracer.queue);
    let batch = count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE")?.unwrap_or(default.tracer.batch);
    Ok(Some(TraceSettings {
        headers: headers(variables)?,
        timeout: timeout.unwrap_or(default.timeout),
        delay: milliseconds(variables, "OTEL_BSP_SCHEDULE_DELAY")?.unwrap_or(default.delay),
        tracer: TracerSettings {
            sampler: sampler(variables)?,
            resource: resource(variables)?,
            queue,
            batch: batch.min(queue),
        },
        endpoint: default.endpoint,
    }))
}

fn endpoint<E: Fn(&str) -> Option<String>>(variables: &EnvVariables<E>) -> Result<Option<Url>, ConfigError> {
    let wanted = "an http or https URL";
    if let Some(whole) = variables.parse("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", wanted, web_url)? {
        return Ok(Some(whole));
    }
    let base = variables.parse("OTEL_EXPORTER_OTLP_ENDPOINT", wanted, web_url)?;
    Ok(base.map(|mut url| {
        let path = format!("{}/{PATH}", url.path().trim_end_matches('/'));
        url.set_path(&path);
        url
    }))
}

fn milliseconds<E: Fn(&str) -> Option<String>>(
    variables: &EnvVariables<E>,
    name: &str,
) -> Result<Option<Duration>, ConfigError> {
    let parse = |text: &str| text.parse::<u64>().ok().filter(|number| (1..=3_600_000).contains(number));
    let number = variables.parse(name, "a number of milliseconds from 1 to 3,600,000", parse)?;
    Ok(number.map(Duration::from_millis))
}

fn sampler<E: Fn(&str) -> Option<String>>(variables: &EnvVariables<E>) -> Result<Sampler, ConfigError> {
    let ratio = |text: &str| text.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    let ratio = |name| variables.parse(name, "a number from 0 to 1", ratio);
    let sampler = variables.parse("OTEL_TRACES_SAMPLER", Sampler::NAMES, |name| {
        Some((Sampler::parse(name, 1.0)?, name.to_owned()))
    })?;
    match sampler {
        // Only these have an argument that is known here.
        Some((_, name)) if name.ends_with("traceidratio") => {
            let ratio = ratio("OTEL_TRACES_SAMPLER_ARG")?.unwrap_or(1.0);
            Ok(Sampler::parse(&name, ratio).unwrap_or_default())
        }
        Some((sampler, _)) => Ok(sampler),
        None => Ok(Sampler::default()),
    }
}

/// What the spans say about this program.
fn resource<E: Fn(&str) -> Option<String>>(
    variables: &EnvVariables<E>,
) -> Result<Vec<(String, String)>, ConfigError> {
    let wanted = "pairs key=value, separated by commas, with other characters percent-encoded";
    let given = variables.parse("OTEL_RESOURCE_ATTRIBUTES", wanted, pairs)?.unwrap_or_default();
    let name = variables.get("OTEL_SERVICE_NAME").map(|name| ("service.name".to_owned(), name));
    let own = [("service.name", "toolgate"), ("service.version", env!("CARGO_PKG_VERSION"))];
    let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut resource: Vec<(String, String)> = Vec::new();
    // The first one of each key counts.
    for (key, value) in name.into_iter().chain(given).chain(own) {
        if resource.iter().all(|(known, _)| *known != key) {
            resource.push((key, value));
        }
    }
    Ok(resource)
}

/// The headers of requests. Their values are secrets, so an error does not show them.
fn headers<E: Fn(&str) -> Option<String>>(
    variables: &EnvVariables<E>,
) -> Result<Vec<(String, Secret)>, ConfigError> {
    for name in ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"] {
        let Some(text) = variables.get(name) else { continue };
        let valid = |(name, value): (String, String)| {
            let is_valid = HeaderName::try_from(&name).is_ok() && HeaderValue::try_from(&value).is_ok();
            is_valid.then(|| (name.to_ascii_lowercase(), Secret::new(value)))
        };
        let read = pairs(&text).and_then(|pairs| pairs.into_iter().map(valid).collect());
        let wanted = "headers name=value, separated by commas, with other characters percent-encoded";
        return read.ok_or_else(|| ConfigError(format!("{name} is wrong: it must be {wanted}")));
    }
    Ok(Vec::new())
}

/// Pairs as in W3C baggage: `key=value`, separated by commas, percent-encoded.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (key, value) = part.split_once('=')?;
            let key = key.trim();
            (!key.is_empty()).then_some(())?;
            Some((decode(key)?, decode(value.trim())?))
        })
        .collect()
}

/// Decodes `%41`. A percent sign without two digits stays as it is.
fn decode(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let digits =
            text.get(at + 1..at + 3).filter(|digits| digits.bytes().all(|it| it.is_ascii_hexdigit()));
        match digits.filter(|_| bytes[at] == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use telemetry::traces::SamplerKind;

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");

    fn load(env: &[(&str, &str)]) -> Result<Option<TraceSettings>, ConfigError> {
        let find =
            |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        read(&EnvVariables::new(HashMap::new(), find))
    }

    fn loaded(env: &[(&str, &str)]) -> TraceSettings {
        load(&[&[ENDPOINT], env].concat()).unwrap().unwrap()
    }

    #[test]
    fn traces_are_off_without_an_address_or_when_switched_off() {
        assert_eq!(load(&[]).unwrap(), None);
        assert_eq!(load(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]).unwrap(), None);
        assert_eq!(load(&[ENDPOINT, ("OTEL_SDK_DISABLED", "true")]).unwrap(), None);
        assert_eq!(load(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")]).unwrap(), None);
        // Settings of other programs do not keep the gateway from starting.
        assert_eq!(load(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).unwrap(), None);
        assert!(
            load(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "otlp"), ("OTEL_SDK_DISABLED", "false")])
                .unwrap()
                .is_some()
        );
    }

    #[test]
    fn the_path_is_added_to_the_common_address_only() {
        for (name, value, expected) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318", "http://c:4318/v1/traces"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/", "http://c:4318/v1/traces"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c/otlp/", "https://c/otlp/v1/traces"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://c/mine", "https://c/mine"),
        ] {
            let settings = load(&[(name, value)]).unwrap().unwrap();
            assert_eq!(settings.endpoint.as_str(), expected);
        }
        let both = [ENDPOINT, ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://other/x")];
        assert_eq!(load(&both).unwrap().unwrap().endpoint.as_str(), "http://other/x");
    }

    #[test]
    fn headers_are_decoded_and_never_shown() {
        let text = "api-key = se%20cret%3D,X-Other=a=b,,broken=%zz%";
        let settings = loaded(&[("OTEL_EXPORTER_OTLP_HEADERS", text)]);
        let exposed: Vec<_> =
            settings.headers.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        assert_eq!(exposed, [("api-key", "se cret="), ("x-other", "a=b"), ("broken", "%zz%")]);
        assert!(!format!("{settings:?}").contains("cret"));
        let more = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=1");
        assert_eq!(loaded(&[("OTEL_EXPORTER_OTLP_HEADERS", text), more]).headers.len(), 1);
        for wrong in ["key", "=hidden", "k y=hidden", "k=hidden%0a", "k=%ffhidden"] {
            let error = load(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_HEADERS", wrong)]).unwrap_err().to_string();
            assert!(error.starts_with("OTEL_EXPORTER_OTLP_HEADERS is wrong"), "{error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn the_name_of_the_service_wins_over_other_attributes() {
        let resource = |env: &[(&str, &str)]| loaded(env).tracer.resource;
        let version = env!("CARGO_PKG_VERSION");
        let own = |list: &[(&str, &str)]| -> Vec<(String, String)> {
            list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(resource(&[]), own(&[("service.name", "toolgate"), ("service.version", version)]));
        let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,team=x%2Cy");
        let expected = [("service.name", "a"), ("team", "x,y"), ("service.version", version)];
        assert_eq!(resource(&[attributes]), own(&expected));
        let named = resource(&[attributes, ("OTEL_SERVICE_NAME", "gate")]);
        assert_eq!(named[0], ("service.name".to_owned(), "gate".to_owned()));
        assert_eq!(named.len(), 3);
    }

    #[test]
    fn samplers_have_the_names_of_the_standard() {
        let sampler = |env: &[(&str, &str)]| loaded(env).tracer.sampler;
        let named = |name| ("OTEL_TRACES_SAMPLER", name);
        let quarter = ("OTEL_TRACES_SAMPLER_ARG", "0.25");
        assert_eq!(sampler(&[]), Sampler::following(SamplerKind::Always));
        assert_eq!(sampler(&[named("always_off"), quarter]), Sampler::alone(SamplerKind::Never));
        assert_eq!(sampler(&[named("traceidratio"), quarter]), Sampler::alone(SamplerKind::Ratio(0.25)));
        assert_eq!(
            sampler(&[named("parentbased_traceidratio")]),
            Sampler::following(SamplerKind::Ratio(1.0))
        );
    }

    #[test]
    fn a_wrong_value_names_its_variable() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4318"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
            ("OTEL_TRACES_EXPORTER", "console"),
            ("OTEL_SDK_DISABLED", "yes"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
            ("OTEL_RESOURCE_ATTRIBUTES", "team"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "many"),
            ("OTEL_BSP_SCHEDULE_DELAY", "-1"),
        ] {
            let error = load(&[ENDPOINT, (name, value)]).unwrap_err().to_string();
            assert!(error.starts_with(name), "{name}={value}: {error}");
        }
        let ratio = [ENDPOINT, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")];
        assert!(load(&ratio).unwrap_err().to_string().starts_with("OTEL_TRACES_SAMPLER_ARG"));
        let both = [
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
        ];
        assert!(load(&both).unwrap().is_some());
    }
}
