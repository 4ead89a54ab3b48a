//! The command line against a gateway in enterprise mode, from initialization to the revocation of the last token.

use std::os::unix::fs::PermissionsExt;

use model::{Mode, Secret};
use serde_json::{Value, json};

use crate::support::cli::Cli;
use crate::support::{Agent, Behaviour, Fake, TestApp};

/// A gateway that waits to be initialized.
async fn fresh() -> (TestApp, Cli) {
    let app = TestApp::start_with(|config| config.mode = Mode::Enterprise).await;
    let cli = Cli::new(&app.address);
    (app, cli)
}

/// An initialized gateway with a server, and the administrator's command line.
async fn ready() -> (TestApp, Fake, Cli) {
    let (app, cli) = fresh().await;
    cli.ok(&["init-server"]).await;
    let fake = Fake::start(Behaviour::default()).await;
    cli.ok(&["register", "--name", "fake", "--url", &fake.url()]).await;
    (app, fake, cli)
}

/// The value after a label in the printed details.
fn field(card: &str, label: &str) -> String {
    let line = card.lines().find_map(|line| line.strip_prefix(&format!("{label}:")));
    line.unwrap_or_else(|| panic!("no {label} in {card}")).trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_is_initialized_once_and_the_token_is_kept() {
    let (_app, cli) = fresh().await;
    let before = cli.fails(&["list", "servers"]).await;
    assert!(before.contains("not initialized") && before.contains("toolgate init-server"), "{before}");
    let ended = cli.run(&["init-server"]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
    assert!(ended.stderr.contains(".toolgate.conf"), "{ended:?}");
    let file = cli.home.path().join(".toolgate.conf");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let kept = cli.read(".toolgate.conf");
    assert!(kept.contains(&cli.registry), "{kept}");
    assert_eq!(
        cli.json(&["whoami"]).await,
        json!({"username": "admin", "role": "admin", "allow_list": ["*"]})
    );
    let again = cli.fails(&["init-server"]).await;
    assert!(again.contains("initialized"), "{again}");
    assert_eq!(cli.read(".toolgate.conf"), kept, "a refusal takes nothing away");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_with_a_secret_is_initialized_with_it() {
    let app = TestApp::start_with(|config| {
        config.mode = Mode::Enterprise;
        config.init_secret = Some(Secret::new("sesame"));
    })
    .await;
    let cli = Cli::new(&app.address);
    let refused = cli.fails(&["init-server"]).await;
    assert!(refused.contains("set the variable INIT_SECRET"), "{refused}");
    for (secret, code) in [("wrong", 1), ("sesame", 0)] {
        // The token of an earlier gateway is not sent instead.
        let variables = [("INIT_SECRET", secret), ("TOOLGATE_TOKEN", "another-token")];
        assert_eq!(cli.run_with(&["init-server"], &variables).await.code, Some(code), "{secret}");
    }
    cli.ok(&["whoami"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_token_is_not_lost_when_it_cannot_be_kept() {
    let (_app, cli) = fresh().await;
    std::fs::create_dir_all(cli.home.path().join(".toolgate.conf")).unwrap();
    let refused = cli.fails(&["init-server"]).await;
    assert!(refused.contains(".toolgate.conf"), "it is noticed before anything is done: {refused}");
    std::fs::remove_dir(cli.home.path().join(".toolgate.conf")).unwrap();
    let initialized = cli.run_with(&["init-server"], &[("HOME", "/nonexistent/home")]).await;
    assert_eq!(initialized.code, Some(1), "{initialized:?}");
    let token = initialized.stdout.trim();
    let ended = cli.run_with(&["whoami", "-o", "json"], &[("TOOLGATE_TOKEN", token)]).await;
    assert!(ended.stdout.contains("admin"), "the token was printed: {ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_created_changed_and_deleted() {
    let (app, _fake, cli) = ready().await;
    let created = cli.ok(&["create", "user", "alice"]).await;
    assert_eq!((field(&created, "Username"), field(&created, "Role")), ("alice".into(), "user".into()));
    let token = field(&created, "Access token");
    let alice = Cli::new(&app.address);
    let ended = alice.run_fed(&["login", "-"], &format!("{token}\n")).await;
    assert!(ended.code == Some(0) && ended.stderr.contains("alice"), "{ended:?}");
    assert_eq!(alice.ok(&["invoke", "fake__echo", "text=hi"]).await, "hi\n");
    assert_eq!(alice.ok(&["invoke", "fake__add", "a=1", "b=1"]).await, "2\n");
    alice.ok(&["list", "tools"]).await;
    for arguments in [
        &["list", "users"][..],
        &["list", "groups"],
        &["list", "mcp-clients"],
        &["disable", "tool", "fake__echo"],
        &["deregister", "fake"],
        &["export"],
        &["create", "user", "eve"],
    ] {
        assert!(alice.fails(arguments).await.contains("admin"), "{arguments:?} is for admins");
    }
    let bob = cli.json(&["create", "user", "bob", "--role", "admin", "--access-token", "-bobs-token"]).await;
    let expected = json!({"username": "bob", "role": "admin", "access_token": "-bobs-token", "allow_list": ["*"],
        "disabled": false});
    assert_eq!(bob, expected);
    assert_eq!(
        Cli::new(&app.address).run(&["login", "-bobs-token"]).await.code,
        Some(0),
        "tokens may begin so"
    );
    cli.ok(&["update", "user", "bob", "--disabled", "true", "--allow", "fake, !fake__add"]).await;
    let listed = cli.ok(&["list", "users"]).await;
    let lines: Vec<Vec<_>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0].join(" "), "USERNAME ROLE SOURCE STATE LAST SEEN MAY USE");
    for (line, expected) in lines[1..].iter().zip([
        (["admin", "admin", "local", "enabled"], "*"),
        (["alice", "user", "local", "enabled"], "*"),
        (["bob", "admin", "local", "disabled"], "!fake__add"),
    ]) {
        assert_eq!((&line[..4], *line.last().unwrap()), (&expected.0[..], expected.1), "{listed}");
    }

    cli.ok(&["update", "user", "alice", "--username", "alicia", "--role", "admin"]).await;
    assert_eq!(
        alice.json(&["whoami"]).await,
        json!({"username": "alicia", "role": "admin", "allow_list": ["*"]})
    );
    cli.ok(&["update", "user", "alicia", "--access-token", "a-new-token"]).await;
    let refused = alice.fails(&["whoami"]).await;
    assert!(refused.contains("toolgate login"), "{refused}");
    let typo = cli.fails(&["delete", "user", "alica"]).await;
    assert!(typo.contains("did you mean \"alicia\"?"), "{typo}");
    cli.ok(&["delete", "user", "alicia"]).await;
    let gone = alice.run_with(&["whoami"], &[("TOOLGATE_TOKEN", "a-new-token")]).await;
    assert_eq!(gone.code, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_created_changed_and_deleted() {
    let (app, _fake, cli) = ready().await;
    let created = cli
        .ok(&["create", "mcp-client", "cursor", "--allow", " fake,, other ", "--description", "An editor"])
        .await;
    assert_eq!(field(&created, "May use"), "fake, other");
    let token = field(&created, "Access token");
    let agent = Agent::connect_as(&app, "/mcp", &token).await;
    assert!(agent.tools().await.contains(&"fake__echo".to_owned()));
    let address = format!("http://{}/mcp", app.address);
    let command = format!(
        "claude mcp add --transport http toolgate {address} --header \"Authorization: Bearer {token}\""
    );
    assert!(created.contains(&command), "{created}");
    let snippet = &created[created.find("{\n").unwrap()..=created.rfind('}').unwrap()];
    let snippet: Value = serde_json::from_str(snippet).unwrap();
    assert_eq!(snippet["mcpServers"]["toolgate"]["url"], address);
    assert_eq!(snippet["mcpServers"]["toolgate"]["headers"]["Authorization"], format!("Bearer {token}"));
    let ended = cli.run(&["create", "mcp-client", "typo", "--allow", "fakee, *"]).await;
    assert!(ended.stderr.contains("there is no server \"fakee\""), "{ended:?}");
    assert!(ended.stderr.contains("Did you mean \"fake\"?") && ended.code == Some(0), "{ended:?}");
    cli.ok(&["delete", "mcp-client", "typo"]).await;
    let ended = cli.run(&["create", "mcp-client", "nobody"]).await;
    assert!(ended.code == Some(0) && ended.stderr.contains("may not use any server"), "{ended:?}");
    let listed = cli.ok(&["list", "mcp-clients"]).await;
    assert_eq!(listed, "NAME    MAY USE      DESCRIPTION\ncursor  fake, other  An editor\nnobody\n");
    let shown = cli.json(&["list", "mcp-clients"]).await;
    assert_eq!(
        (&shown[0]["access_token"], &shown[0]["is_custom_access_token"]),
        (&json!(token), &json!(false))
    );

    cli.ok(&["update", "mcp-client", "cursor", "--access-token", "a-custom-token"]).await;
    let changed = &cli.json(&["list", "mcp-clients"]).await[0];
    assert_eq!(changed["allow_list"], json!(["fake", "other"]), "what is not named stays");
    assert_eq!(
        (&changed["description"], &changed["access_token"]),
        (&json!("An editor"), &json!("a-custom-token"))
    );
    cli.ok(&["update", "mcp-client", "cursor", "--allow", ""]).await;
    assert_eq!(cli.json(&["list", "mcp-clients"]).await[0]["allow_list"], json!([]));
    let typo = cli.fails(&["update", "mcp-client", "curser", "--allow", "*"]).await;
    assert!(typo.contains("did you mean \"cursor\"?"), "{typo}");
    cli.ok(&["delete", "mcp-client", "cursor"]).await;
    assert_eq!(cli.json(&["list", "mcp-clients"]).await.as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limits_are_given_kept_and_removed_with_flags() {
    let (_app, _fake, cli) = ready().await;
    let limit = |calls: u32, burst: u32| json!({"calls_per_minute": calls, "burst": burst});
    for (noun, listed) in [("mcp-client", "mcp-clients"), ("user", "users")] {
        let shown = async || {
            let all = cli.json(&["list", listed]).await;
            let named = |one: &&Value| one["name"] == "bot" || one["username"] == "bot";
            all.as_array().unwrap().iter().find(named).unwrap().get("rate_limit").cloned()
        };
        let create = ["create", noun, "bot", "--rate-limit", "60", "--rate-limit-burst", "5"];
        assert_eq!(field(&cli.ok(&create).await, "Rate limit"), "60 calls per minute, 5 at once");
        cli.ok(&["update", noun, "bot", "--access-token", &format!("another-token-{noun}")]).await;
        assert_eq!(shown().await, Some(limit(60, 5)), "what is not named stays");
        let updated = cli.ok(&["update", noun, "bot", "--rate-limit", "7"]).await;
        assert_eq!(field(&updated, "Rate limit"), "7 calls per minute");
        assert!(!cli.ok(&["update", noun, "bot", "--rate-limit", "0"]).await.contains("Rate limit"));
        assert_eq!(shown().await, None);
        cli.write("limited.json", &json!({"name": "bot", "rate_limit": limit(9, 8)}).to_string());
        cli.ok(&["update", noun, "--conf", "limited.json"]).await;
        assert_eq!(shown().await, Some(limit(9, 8)));
        let wrong = cli.run(&["update", noun, "bot", "--rate-limit-burst", "3"]).await;
        assert!(wrong.code == Some(2) && wrong.stderr.contains("--rate-limit <N>"), "{wrong:?}");
    }
    let update = ["update", "server", "fake", "--rate-limit", "60", "--rate-limit-burst", "50"];
    assert_eq!(field(&cli.ok(&update).await, "Rate limit"), "60 calls per minute, 50 at once");
    cli.write(
        "fake.yaml",
        "name: fake\ntool_limits:\n  echo: {calls_per_minute: 30}\n  \"a*\": {calls_per_minute: 20}\n",
    );
    let updated = cli.ok(&["update", "server", "--conf", "fake.yaml"]).await;
    assert_eq!(field(&updated, "Tool limits"), "a*: 20 calls per minute");
    assert!(updated.contains("\n              echo: 30 calls per minute\n"), "{updated}");
    assert!(!cli.ok(&["update", "server", "fake", "--rate-limit", "0"]).await.contains("Rate limit"));
}

#[tokio::test(flavor = "multi_thread")]
async fn users_and_clients_come_from_files() {
    let (_app, _fake, cli) = ready().await;
    cli.write("token.txt", "  token-from-file\n");
    let file = cli.home.path().join("token.txt").display().to_string();
    cli.write("ci.json", &json!({"name": "ci", "allowed_servers": ["*"], "access_token_ref": {"env": "CI_TOKEN", "file": file}}).to_string());
    cli.write("alice.yaml", "name: alice\naccess_token_ref:\n  env: ALICE_TOKEN\n");
    cli.write("bob.yaml", "name: ${WHO}\nrole: admin\naccess_token: token-of-bob\n");
    let ci = cli.json(&["create", "mcp-client", "--conf", "ci.json"]).await;
    assert_eq!((&ci["access_token"], &ci["allow_list"]), (&json!("token-from-file"), &json!(["*"])));
    let made = |ended: crate::support::process::Ended| -> Value {
        serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"))
    };
    let alice = cli
        .run_with(
            &["create", "user", "-c", "alice.yaml", "-o", "json"],
            &[("ALICE_TOKEN", " token-of-alice ")],
        )
        .await;
    assert_eq!(
        made(alice),
        json!({"username": "alice", "role": "user", "access_token": "token-of-alice", "allow_list": ["*"],
            "disabled": false})
    );
    let bob = cli.run_with(&["create", "user", "-c", "bob.yaml", "-o", "json"], &[("WHO", "bob")]).await;
    assert_eq!(made(bob)["role"], "admin");
    assert!(cli.fails(&["create", "user", "-c", "alice.yaml"]).await.contains("ALICE_TOKEN"));
    cli.write("ci.json", r#"{"name": "ci", "allowed_servers": ["fake"]}"#);
    let ci = cli.json(&["update", "mcp-client", "--conf", "ci.json"]).await;
    assert_eq!((&ci["access_token"], &ci["allow_list"]), (&json!("token-from-file"), &json!(["fake"])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_is_refused_everywhere_with_a_hint() {
    let (_app, _fake, cli) = ready().await;
    for arguments in
        [&["list", "tools"][..], &["invoke", "fake__echo"], &["whoami"], &["export"], &["deregister", "fake"]]
    {
        let ended = cli.run_with(arguments, &[("TOOLGATE_TOKEN", "wrong-token")]).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{arguments:?}");
        assert!(ended.complaint().contains("toolgate login"), "{ended:?}");
        assert!(!ended.stderr.contains("wrong-token"), "{ended:?}");
    }
    let kept = cli.read(".toolgate.conf");
    assert!(cli.fails(&["login", "wrong-token"]).await.contains("token"));
    assert_eq!(cli.read(".toolgate.conf"), kept, "a token that does not work is not kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn enterprise_commands_say_so_in_development_mode() {
    let app = TestApp::start().await;
    let cli = Cli::new(&app.address);
    for arguments in [
        &["list", "users"][..],
        &["list", "mcp-clients"],
        &["create", "user", "alice"],
        &["create", "mcp-client", "ci"],
        &["whoami"],
        &["login", "a-token"],
        &["init-server"],
    ] {
        let sentence = cli.fails(arguments).await;
        assert!(
            sentence.contains("enterprise") || sentence.contains("development"),
            "{arguments:?}: {sentence}"
        );
    }
    assert!(!cli.home.path().join(".toolgate.conf").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_of_the_identity_provider_and_oauth_clients_are_managed() {
    let (app, _fake, cli) = ready().await;
    let table = cli.ok(&["list", "idp-groups"]).await;
    assert!(table.contains("NAME") && table.contains('*'), "{table}");
    let made = cli.ok(&["update", "idp-group", "eng", "--allow", "fake, !fake__fail"]).await;
    assert!(made.contains("fake, !fake__fail"), "{made}");
    cli.ok(&["update", "idp-group", "eng", "--role", "admin", "--rate-limit", "60"]).await;
    cli.ok(&["update", "idp-group", "eng", "--rate-limit", "90"]).await;
    let groups = cli.json(&["list", "idp-groups"]).await;
    let eng = groups.as_array().unwrap().iter().find(|group| group["name"] == "eng").unwrap();
    assert_eq!((&eng["role"], &eng["allow_list"]), (&json!("admin"), &json!(["fake", "!fake__fail"])));
    assert_eq!(eng["rate_limit"]["calls_per_minute"], 90);
    let nothing = cli.run(&["update", "idp-group", "eng"]).await;
    assert!(nothing.code == Some(2) && nothing.stderr.contains("at least one setting"), "{nothing:?}");
    let unknown = cli.fails(&["delete", "idp-group", "enk"]).await;
    assert!(unknown.contains("did you mean \"eng\""), "{unknown}");
    cli.ok(&["delete", "idp-group", "eng"]).await;
    assert!(!cli.ok(&["list", "idp-groups"]).await.contains("eng"));

    assert_eq!(cli.json(&["list", "oauth-clients"]).await, json!([]));
    let software = json!({"client_name": "Portal", "redirect_uris": ["https://portal.example/cb"]});
    cli.ok(&["create", "user", "bob", "--role", "admin", "--access-token", "token-of-bob"]).await;
    let made =
        app.send_as("token-of-bob", "POST", "/api/v0/oauth-clients", software).await.expect(201).json();
    let table = cli.ok(&["list", "oauth-clients"]).await;
    assert!(table.contains("Portal"), "{table}");
    cli.ok(&["delete", "oauth-client", made["id"].as_str().unwrap()]).await;
    assert_eq!(cli.json(&["list", "oauth-clients"]).await, json!([]));
}
