//! Random changes on random gateways: all show the same in the end, and it is what the changes made.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::support::TestApp;
use super::support::fake::{Behaviour, Fake};
use super::{epoch, get_since};

const GATEWAYS: usize = 3;
const CHANGES: usize = 120;

/// A sequence of numbers that looks random and is the same in every run.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_changes_on_random_gateways_converge() {
    let mut gateways = vec![TestApp::start_enterprise().await];
    while gateways.len() < GATEWAYS {
        gateways.push(TestApp::start_beside(&gateways[0]).await);
    }
    let fake = Fake::start(Behaviour::default()).await;
    gateways[0].register_http("up", &fake).await;
    let mut groups: BTreeMap<String, Value> = BTreeMap::new();
    let mut clients: BTreeMap<String, Value> = BTreeMap::new();
    let (mut is_disabled, mut dice, mut last) = (false, Dice(0x5eed), "0".to_owned());
    for number in 0..CHANGES {
        let app = &gateways[dice.throw(GATEWAYS)];
        let name = format!("n{}", dice.throw(6));
        let send = async |method: &str, path: String, body: Value| {
            let headers = [("x-toolgate-min-epoch", last.as_str()), ("content-type", "application/json")];
            app.send(method, &path, &headers, body.to_string()).await
        };
        let answer = match dice.throw(5) {
            0 => {
                let description = format!("change {number}");
                let group =
                    json!({ "name": name, "description": description, "included_tools": ["up__echo"] });
                let answer = match groups.contains_key(&name) {
                    true => {
                        let mut replacement = group.clone();
                        replacement.as_object_mut().unwrap().remove("name");
                        send("PUT", format!("/api/v0/tool-groups/{name}"), replacement).await
                    }
                    false => send("POST", "/api/v0/tool-groups".into(), group).await,
                };
                groups.insert(name, json!(description));
                answer
            }
            1 => {
                let answer = send("DELETE", format!("/api/v0/tool-groups/{name}"), json!({})).await;
                assert_eq!(groups.remove(&name).is_some(), answer.status < 300, "{answer:?}");
                answer
            }
            2 => {
                let description = format!("change {number}");
                let client = json!({ "name": name, "description": description, "allow_list": ["up"] });
                let answer = match clients.contains_key(&name) {
                    true => {
                        let change = json!({ "description": description, "allow_list": ["up"] });
                        send("PUT", format!("/api/v0/clients/{name}"), change).await
                    }
                    false => send("POST", "/api/v0/clients".into(), client).await,
                };
                clients.insert(name, json!(description));
                answer
            }
            3 => {
                let answer = send("DELETE", format!("/api/v0/clients/{name}"), json!({})).await;
                assert_eq!(clients.remove(&name).is_some(), answer.status < 300, "{answer:?}");
                answer
            }
            _ => {
                is_disabled = !is_disabled;
                let verb = if is_disabled { "disable" } else { "enable" };
                send("POST", format!("/api/v0/tools/{verb}?entity=up__echo"), json!({})).await
            }
        };
        assert!(answer.status < 300 || answer.status == 404, "{number}: {answer:?}");
        if answer.status < 300 {
            last = epoch(&answer);
        }
    }
    for app in &gateways {
        let shown = |rows: Value| -> BTreeMap<String, Value> {
            let rows = rows.as_array().unwrap().clone();
            rows.into_iter()
                .map(|row| (row["name"].as_str().unwrap().into(), row["description"].clone()))
                .collect()
        };
        assert_eq!(shown(get_since(app, &last, "/api/v0/tool-groups").await.expect(200).json()), groups);
        assert_eq!(shown(get_since(app, &last, "/api/v0/clients").await.expect(200).json()), clients);
        let tools = get_since(app, &last, "/api/v0/tools").await.expect(200).json();
        let echo = tools.as_array().unwrap().iter().find(|tool| tool["name"] == "up__echo").unwrap();
        assert_eq!(echo["enabled"], json!(!is_disabled), "{echo}");
    }
}
