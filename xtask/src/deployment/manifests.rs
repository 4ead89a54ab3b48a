//! What must hold for the manifests of the chart beyond the schemas of Kubernetes: rights, probes, variables, and that
//! manifests that name each other fit together.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

/// The kinds of the manifests, sorted.
pub fn kinds(documents: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = documents.iter().filter_map(|document| document["kind"].as_str()).collect();
    kinds.sort_unstable();
    kinds
}

pub fn check(documents: &[Value]) -> Result<()> {
    let deployment = one(documents, "Deployment")?;
    let pod = &deployment["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    for spec in [&pod["spec"], &one(documents, "Pod")?["spec"]] {
        has_least_rights(spec)?;
    }
    probes(container)?;
    variables(deployment, container)?;
    stop(&pod["spec"], container)?;
    let labels = pod["metadata"]["labels"].as_object().context("the pods have no labels")?;
    let service = one(documents, "Service")?;
    selects(&service["spec"]["selector"], labels).context("Service")?;
    selects(&deployment["spec"]["selector"]["matchLabels"], labels).context("Deployment")?;
    for constraint in pod["spec"]["topologySpreadConstraints"].as_array().into_iter().flatten() {
        selects(&constraint["labelSelector"]["matchLabels"], labels).context("topologySpreadConstraints")?;
    }
    if let Ok(budget) = one(documents, "PodDisruptionBudget") {
        selects(&budget["spec"]["selector"]["matchLabels"], labels).context("PodDisruptionBudget")?;
    }
    ensure!(
        container["ports"][0]["name"] == service["spec"]["ports"][0]["targetPort"],
        "the port is not served"
    );
    if let Ok(monitor) = one(documents, "ServiceMonitor") {
        let labels = service["metadata"]["labels"].as_object().context("the Service has no labels")?;
        selects(&monitor["spec"]["selector"]["matchLabels"], labels).context("ServiceMonitor")?;
        ensure!(
            monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"],
            "ServiceMonitor: port"
        );
        ensure!(monitor["spec"]["endpoints"][0]["path"] == "/metrics", "ServiceMonitor: path");
    }
    if let Ok(ingress) = one(documents, "Ingress") {
        let backend = &ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"];
        ensure!(backend["name"] == service["metadata"]["name"], "Ingress: there is no such Service");
        ensure!(backend["port"]["name"] == service["spec"]["ports"][0]["name"], "Ingress: port");
    }
    if let Ok(scaler) = one(documents, "HorizontalPodAutoscaler") {
        ensure!(scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"], "HPA: target");
        ensure!(deployment["spec"].get("replicas").is_none(), "the Deployment resets what the HPA has set");
    }
    volumes(&pod["spec"], container)
}

fn one<'a>(documents: &'a [Value], kind: &str) -> Result<&'a Value> {
    documents.iter().find(|document| document["kind"] == kind).with_context(|| format!("there is no {kind}"))
}

fn has_least_rights(spec: &Value) -> Result<()> {
    let (pod, container) = (&spec["securityContext"], &spec["containers"][0]["securityContext"]);
    let holds = pod["runAsNonRoot"] == true
        && pod["seccompProfile"]["type"] == "RuntimeDefault"
        && container["allowPrivilegeEscalation"] == false
        && container["readOnlyRootFilesystem"] == true
        && container["capabilities"] == json!({"drop": ["ALL"]})
        && spec["automountServiceAccountToken"] == false;
    ensure!(holds, "a pod does not run with the least rights");
    Ok(())
}

fn probes(container: &Value) -> Result<()> {
    for (probe, path) in
        [("startupProbe", "/health"), ("livenessProbe", "/health"), ("readinessProbe", "/ready")]
    {
        ensure!(container[probe]["httpGet"]["path"] == path, "{probe} does not ask {path}");
    }
    Ok(())
}

/// Checks the variables, and that a second gateway never opens the same SQLite file.
fn variables(deployment: &Value, container: &Value) -> Result<()> {
    let listed = container["env"].as_array().context("there are no variables")?;
    let names: Vec<&str> = listed.iter().filter_map(|variable| variable["name"].as_str()).collect();
    let unique: BTreeSet<&str> = names.iter().copied().collect();
    ensure!(unique.len() == names.len(), "a variable is set twice: {names:?}");
    for variable in listed {
        // Kubernetes refuses a number or a truth value, and Helm writes a large number as 2e+06.
        let is_text = variable.get("value").is_none_or(Value::is_string);
        let is_plain = variable["value"].as_str().is_none_or(|value| !value.contains("e+"));
        ensure!(is_text && is_plain, "{variable} is not the text of a setting");
    }
    let place = |name: &str| names.iter().position(|known| *known == name);
    let strategy = &deployment["spec"]["strategy"]["type"];
    if place("SQLITE_DB_PATH").is_some() {
        ensure!(
            strategy == "Recreate" && deployment["spec"]["replicas"] == 1,
            "two gateways would share a file"
        );
        return Ok(());
    }
    ensure!(strategy == "RollingUpdate", "an update would stop all replicas");
    ensure!(
        place("DATABASE_URL").is_some() != place("POSTGRES_HOST").is_some(),
        "not one way to reach Postgres"
    );
    // `$(POD_IP)` stays as it is unless the variable is set before.
    let (address, internal) =
        (place("POD_IP").context("POD_IP")?, place("INTERNAL_URL").context("INTERNAL_URL")?);
    let refers = listed[internal]["value"].as_str().is_some_and(|value| value.contains("$(POD_IP)"));
    ensure!(address < internal && refers, "INTERNAL_URL does not have the address of the pod");
    let key = place("TOOLGATE_SECRET_KEY").context("TOOLGATE_SECRET_KEY")?;
    ensure!(
        listed[key]["valueFrom"]["secretKeyRef"]["optional"] == false,
        "replicas could start without the key"
    );
    Ok(())
}

/// Checks that Kubernetes waits for the pause before the end and for the 17 seconds that a gateway may take.
fn stop(spec: &Value, container: &Value) -> Result<()> {
    let pause = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap_or_default();
    let grace = spec["terminationGracePeriodSeconds"].as_u64().unwrap_or_default();
    ensure!(grace >= pause + 20, "a gateway has not the time to finish its calls");
    Ok(())
}

fn selects(selector: &Value, labels: &Map<String, Value>) -> Result<()> {
    let selector =
        selector.as_object().filter(|selector| !selector.is_empty()).context("it selects everything")?;
    let fits = selector.iter().all(|(name, value)| labels.get(name) == Some(value));
    ensure!(fits, "it selects nothing: {selector:?}");
    Ok(())
}

/// Checks that each mount has its volume, and that what a gateway writes is in one.
fn volumes(spec: &Value, container: &Value) -> Result<()> {
    let names = |list: &Value, key: &str| -> BTreeSet<String> {
        let list = list.as_array().into_iter().flatten();
        list.filter_map(|item| item[key].as_str().map(str::to_owned)).collect()
    };
    let (volumes, mounts) = (names(&spec["volumes"], "name"), names(&container["volumeMounts"], "name"));
    ensure!(volumes == mounts, "volumes {volumes:?} are mounted as {mounts:?}");
    let paths = names(&container["volumeMounts"], "mountPath");
    ensure!(paths.contains("/tmp") && paths.contains("/var/lib/toolgate"), "a gateway could not write");
    Ok(())
}
