//! What commands print in narrow and wide terminals: nothing is wider than the terminal, and no name is broken.

use serde_json::json;

use crate::support::cli::Cli;
use crate::support::{Behaviour, Fake, TestApp, snapshot};

const LONG_NAME: &str = "create_an_issue_in_the_tracker_of_the_project";
const LONG_URI: &str = "file:///srv/projects/documentation/handbook/chapters/introduction.md";

#[tokio::test(flavor = "multi_thread")]
async fn pages_fit_80_and_200_columns_and_break_no_name() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy",
        "tools": [
            { "name": LONG_NAME, "description": "Creates an issue with a title, a text and labels, and assigns it to \
                somebody if that is wanted", "inputSchema": { "type": "object", "required": ["title", "people"],
                "properties": { "title": { "type": "string", "description": "One line that says what is wrong" },
                    "people": { "type": "array", "description": "Whom to tell about it", "items": { "type": "object",
                        "required": ["mail"], "properties": { "mail": { "type": "string", "format": "email" },
                            "name": { "type": "string" } } } } } } },
            { "name": "echo", "description": "Says it again", "inputSchema": { "type": "object" } }],
        "resources": [{ "uri": LONG_URI, "name": "introduction", "mimeType": "text/markdown",
            "description": "The first chapter of the handbook, for people who are new here" }],
    })))
    .await;
    let url = fake.url();
    let here = url.replace("http://", "").replace("/mcp", "");
    let cli = Cli::new(&app.address);
    cli.ok(&["register", "--name", "tracker", "--url", &url, "--description", "Issues of all projects"])
        .await;
    app.register(json!({ "name": "broken", "transport": "stdio", "command": "/no/such/program",
        "description": "Never worked", "keep_failed": true }))
        .await;
    cli.ok(&["create", "group", "dev", "--included-servers", "tracker"]).await;
    let tool = format!("tracker__{LONG_NAME}");
    for columns in ["80", "200"] {
        let mut page = String::new();
        for arguments in [
            &["list", "servers"][..],
            &["list", "tools"],
            &["list", "resources"],
            &["list", "groups"],
            &["usage", &tool],
            &["get", "server", "tracker"],
            &["get", "server", "broken"],
            &["why", "tracker__echo", "--group", "dev"],
        ] {
            let ended = cli.run_with(arguments, &[("COLUMNS", columns)]).await;
            assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
            let text = format!("$ toolgate {}\n{}{}\n", arguments.join(" "), ended.stderr, ended.stdout);
            // All ports have five digits in the page, so that the width does not depend on them.
            page.push_str(&text.replace(&here, "127.0.0.1:00000").replace(&app.address, "GATEWAY"));
        }
        assert!(page.contains(&tool) && page.contains(LONG_URI), "names are whole: {page}");
        snapshot::compare(&format!("pages_{columns}.txt"), &page);
    }
}
