//! The methods of MCP, in all revisions and both directions.

use super::keys::same_folded;

/// The most frequent ones first, since they are searched in this order.
const KNOWN: &[&str] = &[
    "tools/call",
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "subscriptions/listen",
    "completion/complete",
    "logging/setLevel",
    "tasks/list",
    "tasks/get",
    "tasks/result",
    "tasks/update",
    "tasks/cancel",
    "roots/list",
    "sampling/createMessage",
    "elicitation/create",
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "notifications/message",
    "notifications/roots/list_changed",
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/subscriptions/acknowledged",
    "notifications/elicitation/complete",
    "notifications/tasks/status",
    "notifications/tasks",
];

/// Whether a method differs from one of MCP in case only. A server that ignores case would take it for that one, while
/// the gateway would not check it as that one.
pub fn is_misspelled(method: &str) -> bool {
    !KNOWN.contains(&method) && KNOWN.iter().any(|known| same_folded(known, method))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_case_makes_a_method_misspelled() {
        for method in ["TOOLS/CALL", "tools/Call", "Tasks/get", "toolſ/call", "notifications/Cancelled"] {
            assert!(is_misspelled(method), "{method}");
        }
        for method in
            KNOWN.iter().chain(&["", "vendor/TOOLS", "tools/call ", "tools/calls", "logging/set_level"])
        {
            assert!(!is_misspelled(method), "{method}");
        }
    }
}
