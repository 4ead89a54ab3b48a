//! One stored thing (a server, group, client or user): its expected state, and the changes of it. Every chosen change is
//! valid in the current state, so only a fault is a reason to refuse it.

use serde_json::{Value, json};

use crate::http::Request;
use crate::random::Random;
use crate::server::{self, Server};

/// A registered server whose tools the groups include.
pub const ANCHOR: &str = "anchor";
/// How many tools every server has.
pub const TOOLS: usize = 4;
/// Maximum number of revoked tokens that are remembered for each thing.
const DEAD_TOKENS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Server,
    Group,
    Client,
    User,
}

/// The expected state of a name: the members that the gateway must show, or `None`.
pub type State = Option<Value>;

pub struct Thing {
    pub kind: Kind,
    pub name: String,
    pub state: State,
    /// The alternative state if the last request, which got no response, was carried out.
    pub doubt: Option<State>,
    /// Tokens that must be refused: replaced, deleted, or never accepted.
    pub dead_tokens: Vec<String>,
}

/// A request and the state after it.
pub struct Change {
    pub what: &'static str,
    pub request: Request,
    pub after: State,
}

impl Kind {
    /// The path of the list that has all things of the kind, and the key of their names.
    pub fn list(self) -> (&'static str, &'static str) {
        match self {
            Self::Server => ("/api/v0/server_configs", "name"),
            Self::Group => ("/api/v0/tool-groups", "name"),
            Self::Client => ("/api/v0/clients", "name"),
            Self::User => ("/api/v0/users", "username"),
        }
    }

    /// The members of a list item that the model knows.
    pub fn members(self) -> &'static [&'static str] {
        match self {
            Self::Server => &["url", "description", "enabled", "disabled_tools", "disabled_prompts"],
            Self::Group => &["description", "included_tools", "included_servers", "excluded_tools"],
            Self::Client => &["description", "access_token", "allow_list"],
            Self::User => &["role"],
        }
    }
}

impl Thing {
    pub fn new(kind: Kind, name: String) -> Self {
        Self { kind, name, state: None, doubt: None, dead_tokens: Vec::new() }
    }

    /// Applies the outcome of a change.
    pub fn settle(&mut self, state: State) {
        let other = match self.doubt.take() {
            Some(doubt) if state == self.state => doubt,
            _ => self.state.clone(),
        };
        self.bury_token(&other, &state);
        self.state = state;
    }

    /// Records a refused change: its result must never be visible.
    pub fn refuse(&mut self, after: &State) {
        let state = self.state.clone();
        self.bury_token(after, &state);
    }

    fn bury_token(&mut self, lost: &State, kept: &State) {
        if let Some(token) = token(lost)
            && self::token(kept) != Some(token)
        {
            self.dead_tokens.push(token.to_owned());
            let surplus = self.dead_tokens.len().saturating_sub(DEAD_TOKENS);
            self.dead_tokens.drain(..surplus);
        }
    }

    /// A change that is possible now.
    pub fn change(&self, random: &mut Random, server: &Server) -> Change {
        match self.kind {
            Kind::Server => self.change_server(random, server),
            Kind::Group => self.change_group(random),
            Kind::Client => self.change_client(random),
            Kind::User => self.change_user(random),
        }
    }

    fn change_server(&self, random: &mut Random, server: &Server) -> Change {
        let name = &self.name;
        let path = format!("/api/v0/servers/{name}");
        let registration = |random: &mut Random| {
            let url = server.url(&format!("{name}/{}", random.below(1000)));
            json!({"name": name, "transport": "streamable_http", "url": url, "description": text(random)})
        };
        let Some(state) = &self.state else {
            let body = registration(random);
            let after = json!({"url": body["url"], "description": body["description"], "enabled": true,
                "disabled_tools": [], "disabled_prompts": []});
            return change("register server", "POST", "/api/v0/servers", Some(body), Some(after));
        };
        let mut after = state.clone();
        match random.below(7) {
            0 => change("delete server", "DELETE", &path, None, None),
            1 => {
                let body = registration(random);
                after["url"] = body["url"].clone();
                after["description"] = body["description"].clone();
                after["enabled"] = json!(true);
                let path = "/api/v0/servers?force=true";
                change("replace server", "POST", path, Some(body), Some(after))
            }
            2 => {
                let enabled = state["enabled"] != json!(true);
                after["enabled"] = json!(enabled);
                let verb = if enabled { "enable" } else { "disable" };
                change("switch server", "POST", &format!("{path}/{verb}"), None, Some(after))
            }
            3 | 4 => {
                let tool = server::tool(usize::try_from(random.below(TOOLS as u64)).unwrap_or(0));
                let verb = toggle(&mut after["disabled_tools"], &tool);
                let path = format!("/api/v0/tools/{verb}?entity={name}__{tool}");
                change("switch tool", "POST", &path, None, Some(after))
            }
            5 => {
                let prompt = *random.pick(&server::PROMPTS);
                let verb = toggle(&mut after["disabled_prompts"], prompt);
                let path = format!("/api/v0/prompts/{verb}?entity={name}__{prompt}");
                change("switch prompt", "POST", &path, None, Some(after))
            }
            _ => {
                let body = json!({"description": text(random)});
                after["description"] = body["description"].clone();
                change("amend server", "PATCH", &path, Some(body), Some(after))
            }
        }
    }

    fn change_group(&self, random: &mut Random) -> Change {
        let path = format!("/api/v0/tool-groups/{}", self.name);
        let one = server::tool(usize::try_from(random.below(TOOLS as u64)).unwrap_or(0));
        let is_whole = random.chance(50);
        let after = json!({
            "description": text(random),
            "included_tools": if is_whole { vec![] } else { vec![format!("{ANCHOR}__{one}")] },
            "included_servers": if is_whole { vec![ANCHOR] } else { vec![] },
            "excluded_tools": if is_whole { vec![format!("{ANCHOR}__{one}")] } else { vec![] },
        });
        let mut body = after.clone();
        body["name"] = json!(self.name);
        match &self.state {
            None => change("create group", "POST", "/api/v0/tool-groups", Some(body), Some(after)),
            Some(_) if random.chance(30) => change("delete group", "DELETE", &path, None, None),
            Some(_) => change("replace group", "PUT", &path, Some(body), Some(after)),
        }
    }

    fn change_client(&self, random: &mut Random) -> Change {
        let path = format!("/api/v0/clients/{}", self.name);
        let allowed = if random.chance(50) { json!(["*"]) } else { json!([ANCHOR]) };
        let mut after = json!({"description": text(random), "allow_list": allowed});
        let mut body = after.clone();
        body["name"] = json!(self.name);
        after["access_token"] = json!(self.fresh_token(random));
        match &self.state {
            None => {
                body["access_token"] = after["access_token"].clone();
                change("create client", "POST", "/api/v0/clients", Some(body), Some(after))
            }
            Some(_) if random.chance(30) => change("delete client", "DELETE", &path, None, None),
            Some(_) if random.chance(50) => {
                body["access_token"] = after["access_token"].clone();
                change("replace client's token", "PUT", &path, Some(body), Some(after))
            }
            Some(state) => {
                after["access_token"] = state["access_token"].clone();
                change("replace client", "PUT", &path, Some(body), Some(after))
            }
        }
    }

    fn change_user(&self, random: &mut Random) -> Change {
        let path = format!("/api/v0/users/{}", self.name);
        let role = if random.chance(50) { "user" } else { "admin" };
        let fresh = self.fresh_token(random);
        match &self.state {
            None => {
                let after = json!({"role": role, "access_token": fresh});
                let body = json!({"username": self.name, "role": role, "access_token": fresh});
                change("create user", "POST", "/api/v0/users", Some(body), Some(after))
            }
            Some(_) if random.chance(30) => change("delete user", "DELETE", &path, None, None),
            Some(state) if random.chance(50) => {
                let after = json!({"role": state["role"], "access_token": fresh});
                let body = json!({"access_token": fresh});
                change("replace user's token", "PUT", &path, Some(body), Some(after))
            }
            Some(state) => {
                let after = json!({"role": role, "access_token": state["access_token"]});
                change("change user's role", "PUT", &path, Some(json!({"role": role})), Some(after))
            }
        }
    }

    fn fresh_token(&self, random: &mut Random) -> String {
        format!("{}-{:016x}", self.name, random.draw())
    }
}

/// The token of a client or user.
pub fn token(state: &State) -> Option<&str> {
    state.as_ref()?.get("access_token")?.as_str()
}

fn change(what: &'static str, method: &str, path: &str, body: Option<Value>, after: State) -> Change {
    let request = Request::new(method, path);
    let request = match &body {
        Some(body) => request.json(body),
        None => request,
    };
    Change { what, request, after }
}

/// Adds a name to a sorted list of disabled names or removes it; returns the name of that operation.
fn toggle(off: &mut Value, name: &str) -> &'static str {
    let mut names: Vec<String> = serde_json::from_value(off.take()).unwrap_or_default();
    let verb = match names.iter().position(|known| known == name) {
        Some(index) => {
            names.remove(index);
            "enable"
        }
        None => {
            names.push(name.to_owned());
            names.sort();
            "disable"
        }
    };
    *off = json!(names);
    verb
}

/// A text that is usually short, and sometimes as long as several pages of the database.
fn text(random: &mut Random) -> String {
    let length = if random.chance(15) { 4000 + random.below(12_000) } else { random.below(200) };
    format!("{:016x}{}", random.draw(), "t".repeat(usize::try_from(length).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(token: &str) -> State {
        Some(json!({"description": "", "access_token": token, "allow_list": []}))
    }

    #[test]
    fn tokens_that_were_replaced_refused_or_deleted_are_dead() {
        let mut thing = Thing::new(Kind::Client, "c".to_owned());
        thing.settle(client("first"));
        assert!(thing.dead_tokens.is_empty());
        thing.settle(client("second"));
        thing.refuse(&client("third"));
        assert_eq!(thing.dead_tokens, ["first", "third"]);
        assert_eq!(thing.state, client("second"));
        thing.settle(None);
        assert_eq!(thing.dead_tokens, ["first", "third", "second"]);
    }

    #[test]
    fn a_doubt_is_settled_by_what_is_seen() {
        for (seen, dead) in [("old", "new"), ("new", "old")] {
            let mut thing = Thing::new(Kind::Client, "c".to_owned());
            thing.settle(client("old"));
            thing.doubt = Some(client("new"));
            thing.settle(client(seen));
            assert_eq!(thing.state, client(seen));
            assert_eq!(thing.doubt, None);
            assert_eq!(thing.dead_tokens, [dead]);
        }
    }

    #[test]
    fn what_is_toggled_twice_is_as_before() {
        let mut off = json!(["a"]);
        assert_eq!(toggle(&mut off, "b"), "disable");
        assert_eq!(off, json!(["a", "b"]));
        assert_eq!(toggle(&mut off, "b"), "enable");
        assert_eq!(off, json!(["a"]));
    }
}
