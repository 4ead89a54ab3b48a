//! The Helm chart: linted and rendered by each Helm with several values, and the manifests compared with the schemas of the
//! oldest and the newest Kubernetes. What schemas cannot know is in `manifests.rs`. No cluster is involved.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::manifests;
use super::tools::{Tools, succeeded, text};
use crate::command;
use crate::run::Run;

const CHART: &str = "deploy/helm/toolgate";

/// A file in `tests/deploy/values`, the oldest Kubernetes that it works with, and the kinds of manifests that it makes.
struct Case {
    values: &'static str,
    since: &'static str,
    kinds: &'static [&'static str],
}

/// The oldest is that of `kubeVersion` in Chart.yaml.
const OLDEST: &str = "1.25";
const NEWEST: &str = "1.37";

#[rustfmt::skip]
const CASES: &[Case] = &[
    Case { values: "sqlite", since: OLDEST, kinds: &[
        "Deployment", "PersistentVolumeClaim", "Pod", "Service", "ServiceAccount",
    ] },
    Case { values: "existing", since: OLDEST, kinds: &["Deployment", "Pod", "Service"] },
    Case { values: "replicas", since: OLDEST, kinds: &[
        "Deployment", "Ingress", "Pod", "PodDisruptionBudget", "Service", "ServiceAccount", "ServiceMonitor",
    ] },
    // A pause before the end needs this version.
    Case { values: "autoscaled", since: "1.30", kinds: &[
        "Deployment", "HorizontalPodAutoscaler", "Pod", "PodDisruptionBudget", "Service", "ServiceAccount",
    ] },
];

/// Values that must be refused, and a part of the reason.
const REFUSED: &[(&str, &str)] = &[
    ("replicaCount=2", "more than one replica needs Postgres"),
    ("autoscaling.enabled=true", "more than one replica needs Postgres"),
    ("database.type=postgres", "needs existingSecret"),
    (
        "database.type=postgres,existingSecret=a,autoscaling.enabled=true,autoscaling.minReplicas=11",
        "minReplicas",
    ),
    (
        "database.type=postgres,existingSecret=a,autoscaling.enabled=true,autoscaling.targetCPUUtilizationPercentage=null",
        "needs a target",
    ),
    ("settings.DATABASE_URL=postgres://db", "settings.DATABASE_URL: the chart sets this variable itself"),
    ("settings.lower=1", "lower"),
    ("database.type=mysql", "database"),
    ("replicas=3", "replicas"),
    ("database.sqlite.accessModes[0]=ReadWriteMany", "accessModes"),
    ("publicUrl=gate.example.com", "publicUrl"),
];

pub fn check(run: &Run, tools: &Tools) -> Result<()> {
    documented(tools)?;
    let chart = fs::read_to_string(run.root.join(CHART).join("Chart.yaml"))?;
    ensure!(chart.contains(&format!(">={OLDEST}.0-0")), "Chart.yaml: kubeVersion is not {OLDEST}");
    let helms = tools.helm()?;
    if helms.is_empty() {
        return run.leave_out("chart", "there is no package of Helm for this platform; install Helm itself");
    }
    let mut rendered = Vec::new();
    for helm in &helms {
        let helm = Helm { tools, program: helm };
        for (set, reason) in REFUSED {
            helm.refuses(set, reason)?;
        }
        rendered.push(CASES.iter().map(|case| helm.render(case)).collect::<Result<Vec<_>>>()?);
    }
    let first = rendered.first().context("nothing was rendered")?;
    ensure!(rendered.iter().all(|other| other == first), "the versions of Helm do not render the same");
    for (case, documents) in CASES.iter().zip(first) {
        let kinds = manifests::kinds(documents);
        ensure!(
            kinds == case.kinds,
            "{}: the chart makes {kinds:?} instead of {:?}",
            case.values,
            case.kinds
        );
        manifests::check(documents).with_context(|| format!("the chart with {}.yaml", case.values))?;
        compare_with_schemas(tools, case, documents)?;
    }
    let (values, refused) = (CASES.len(), REFUSED.len());
    println!(
        "  chart: {values} sets of values rendered by {} versions of Helm, {refused} refused",
        helms.len()
    );
    println!(
        "  manifests: valid for Kubernetes {OLDEST} and {NEWEST}; that of ServiceMonitor has no schema here"
    );
    Ok(())
}

struct Helm<'a> {
    tools: &'a Tools,
    program: &'a str,
}

impl Helm<'_> {
    /// Lints the chart and renders it with one file of values.
    fn render(&self, case: &Case) -> Result<Vec<Value>> {
        let values = self.tools.path(&format!("tests/deploy/values/{}.yaml", case.values))?;
        succeeded("helm lint", &self.run(&["lint", "--strict", CHART, "--values", &values])?)?;
        let rendered =
            succeeded("helm template", &self.run(&["template", "gate", CHART, "--values", &values])?)?;
        let file = self.tools.folder.join(format!("{}.yaml", case.values));
        fs::write(&file, rendered)?;
        // A key that is there twice is lost when the file is read.
        self.tools.lint("yamllint", &["--config-data", "{rules: {key-duplicates: enable}}", text(&file)?])?;
        self.notes(&values)?;
        self.tools.documents(&file)
    }

    /// Renders the notes. Without a cluster Helm does not show them, so this copy of the chart has them in a manifest.
    fn notes(&self, values: &str) -> Result<()> {
        let copy = self.tools.folder.join("chart-with-notes");
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        command::show(&self.tools.root, &["cp", "-R", CHART, text(&copy)?])?;
        fs::rename(copy.join("templates/NOTES.txt"), copy.join("NOTES.txt"))?;
        fs::write(
            copy.join("templates/notes.yaml"),
            r#"notes: {{ tpl (.Files.Get "NOTES.txt") . | toJson }}"#,
        )?;
        let line =
            ["template", "gate", text(&copy)?, "--values", values, "--show-only", "templates/notes.yaml"];
        let notes = succeeded("helm template", &self.run(&line)?)?;
        ensure!(!notes.contains("<no value>") && notes.contains("rollout status"), "NOTES.txt: {notes}");
        Ok(())
    }

    fn refuses(&self, set: &str, reason: &str) -> Result<()> {
        let output = self.run(&["template", "gate", CHART, "--set", set])?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() || !said.contains(reason) {
            bail!("the chart does not refuse {set} with \"{reason}\": {said}");
        }
        Ok(())
    }

    /// Helm has folders of its own, so that it reads nothing of the user's.
    fn run(&self, arguments: &[&str]) -> Result<std::process::Output> {
        let line = [&[self.program], arguments].concat();
        let mut helm = command::prepare(&self.tools.root, &line);
        for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            helm.env(name, self.tools.folder.join("helm-home"));
        }
        helm.env("KUBECONFIG", "/dev/null");
        helm.output().with_context(|| format!("{} could not be started", self.program))
    }
}

fn compare_with_schemas(tools: &Tools, case: &Case, documents: &[Value]) -> Result<()> {
    let known = documents.iter().filter(|document| document["kind"] != "ServiceMonitor");
    let known: Vec<String> = known.map(Value::to_string).collect();
    let file: PathBuf = tools.folder.join(format!("{}.json", case.values));
    fs::write(&file, known.join("\n---\n"))?;
    for version in [case.since, NEWEST] {
        tools.lint("kubernetes-validate", &["--strict", "-k", version, text(&file)?])?;
    }
    Ok(())
}

/// Checks that each value that the schema knows is in values.yaml, where it is explained. Helm checks the reverse.
fn documented(tools: &Tools) -> Result<()> {
    let folder: &Path = &tools.root.join(CHART);
    let schema: Value = serde_json::from_str(&fs::read_to_string(folder.join("values.schema.json"))?)?;
    tools.lint("check-jsonschema", &["--check-metaschema", text(&folder.join("values.schema.json"))?])?;
    let values = tools.documents(&folder.join("values.yaml"))?;
    let missing = undocumented(&schema, values.first().context("values.yaml is empty")?, "");
    // Helm adds this one itself.
    let missing: Vec<_> = missing.into_iter().filter(|name| name != ".global").collect();
    ensure!(missing.is_empty(), "values.yaml does not have {missing:?} of values.schema.json");
    Ok(())
}

fn undocumented(schema: &Value, values: &Value, path: &str) -> Vec<String> {
    let mut missing = Vec::new();
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match values.get(name) {
            Some(value) => missing.extend(undocumented(inner, value, &path)),
            None => missing.push(path),
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_that_is_only_in_the_schema_is_found() {
        let schema = json!({"properties": {"a": {"properties": {"b": {}, "c": {}}}, "d": {}}});
        assert_eq!(undocumented(&schema, &json!({"a": {"b": 1}}), ""), [".a.c", ".d"]);
    }
}
