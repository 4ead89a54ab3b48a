//! What a tool asks for while it runs is asked on the terminal of the person who calls it.

use serde_json::{Value, json};

use crate::support::cli::Cli;
use crate::support::script::ScriptedGateway;
use crate::support::terminal::Terminal;
use crate::support::{Behaviour, Fake, Kinds, TestApp};

const CALL: &str = "POST /api/v0/tools/invoke";
const ANSWER: &str = "POST /api/v0/tools/invoke/call-1/input";

fn done() -> Value {
    json!({"content": [{"type": "text", "text": "it worked"}], "isError": false})
}

fn input(requests: &Value) -> Value {
    json!({"call": "call-1", "requests": requests})
}

fn form(message: &str, name: &str) -> Value {
    let schema = json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
    json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}})
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_asked_one_after_the_other_and_each_is_answered_by_itself() {
    let mut gateway = ScriptedGateway::start().await;
    let mut terminal = Terminal::start(&Cli::new(&gateway.address), &["invoke", "s__ask"]);
    assert_eq!(gateway.request().await, (CALL.to_owned(), json!({"name": "s__ask"})));
    gateway.send("progress", &json!({"progress": 1, "message": "thinking"}));
    terminal.sees("thinking").await;
    let page = json!({"method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": "https://a.example/"}});
    gateway.send("input", &input(&json!({"1": form("Who are you?", "name"), "2": page})));
    terminal.sees("│ Who are you?").await;
    terminal.sees("d to decline").await;
    // More questions come while the first one is open.
    let message = json!({"role": "user", "content": {"type": "text", "text": "Capital of Norway?"}});
    let sampling =
        json!({"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 9}});
    gateway.send(
        "input",
        &input(&json!({"3": sampling, "4": {"method": "roots/list"}, "5": {"method": "x/y"}})),
    );
    terminal.types("\n");
    terminal.sees("name (text, required)").await;
    terminal.types("\nAda\n");
    terminal.sees("name is required.").await;
    let accepted = |key: &str, answer: Value| (ANSWER.to_owned(), json!({"responses": {key: answer}}));
    assert_eq!(
        gateway.request().await,
        accepted("1", json!({"action": "accept", "content": {"name": "Ada"}}))
    );
    terminal.sees("The page is on a.example.").await;
    terminal.types("d\n");
    assert_eq!(gateway.request().await, accepted("2", json!({"action": "decline"})));
    terminal.sees("│ Capital of Norway?").await;
    terminal.types("Oslo\n\n");
    let written = json!({"role": "assistant", "content": {"type": "text", "text": "Oslo"}, "model": "human"});
    assert_eq!(gateway.request().await, accepted("3", written));
    terminal.sees("one folder per line").await;
    terminal.types("/\n\n");
    assert_eq!(gateway.request().await, accepted("4", json!({"roots": [{"uri": "file:///"}]})));
    terminal.sees("\"x/y\", which cannot be answered here").await;
    assert_eq!(gateway.request().await, accepted("5", Value::Null));
    gateway.send("result", &done());
    let ended = terminal.end().await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "it worked\n"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_d_cancels_a_question_and_ctrl_c_the_call() {
    let mut gateway = ScriptedGateway::start().await;
    let mut terminal = Terminal::start(&Cli::new(&gateway.address), &["invoke", "s__ask", "-o", "json"]);
    gateway.request().await;
    // What was typed before the question is no answer to it.
    terminal.types("\nearly\n");
    terminal.sees("early").await;
    gateway.send("input", &input(&json!({"1": form("First?", "a")})));
    terminal.sees("Ctrl-D to cancel: ").await;
    terminal.types("\u{4}");
    let cancelled = json!({"responses": {"1": {"action": "cancel"}}});
    assert_eq!(gateway.request().await, (ANSWER.to_owned(), cancelled));
    gateway.send("input", &input(&json!({"2": form("Second?", "a")})));
    terminal.sees("│ Second?").await;
    terminal.sees("Ctrl-D to cancel: ").await;
    terminal.types("\u{3}");
    let ended = terminal.end().await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(130), ""), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_the_gateway_refuses_is_asked_for_again() {
    let mut gateway = ScriptedGateway::start().await;
    let mut terminal = Terminal::start(&Cli::new(&gateway.address), &["invoke", "s__ask", "-o", "json"]);
    gateway.request().await;
    gateway.refuse(400, "field \"responses.1\" is not what was asked for");
    gateway.send("input", &input(&json!({"1": form("Who?", "a")})));
    for _ in 0..2 {
        terminal.sees("│ Who?").await;
        terminal.sees("Ctrl-D to cancel: ").await;
        terminal.types("\nx\n");
        let (_, answer) = gateway.request().await;
        assert_eq!(answer["responses"]["1"]["content"], json!({"a": "x"}));
    }
    gateway.send("result", &done());
    let ended = terminal.end().await;
    assert!(ended.stderr.contains("responses.1"), "{ended:?}");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(serde_json::from_str::<Value>(&ended.stdout).unwrap(), done());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_ends_while_a_person_thinks_ends_the_command() {
    let mut gateway = ScriptedGateway::start().await;
    let mut terminal = Terminal::start(&Cli::new(&gateway.address), &["invoke", "s__ask"]);
    gateway.request().await;
    gateway.send("input", &input(&json!({"1": form("Who?", "a")})));
    terminal.sees("Ctrl-D to cancel: ").await;
    gateway.send("error", &json!({"error": "the server took too long"}));
    let ended = terminal.end().await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
    assert!(ended.stderr.ends_with("cancel: \r\ntoolgate: the server took too long\r\n"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_or_with_no_input_nothing_is_asked() {
    for arguments in [&["invoke", "s__ask"][..], &["invoke", "s__ask", "--no-input"]] {
        let mut gateway = ScriptedGateway::start().await;
        let cli = Cli::new(&gateway.address);
        let running = async {
            match arguments.contains(&"--no-input") {
                true => Terminal::start(&cli, arguments).end().await,
                false => cli.run(arguments).await,
            }
        };
        let playing = async {
            assert_eq!(gateway.request().await.0, format!("{CALL}?input=false"));
            gateway.send("error", &json!({"error": "the tool asks for a form"}));
        };
        let (ended, ()) = tokio::join!(running, playing);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
        assert!(ended.stderr.contains("the tool asks for a form"), "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_answers_over_every_kind_of_link() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    let cli = Cli::new(&app.address);
    let message = json!({"role": "user", "content": {"type": "text", "text": "Capital of Norway?"}});
    let sampling = json!({"messages": [message], "maxTokens": 9});
    let page =
        json!({"mode": "url", "message": "Sign in", "url": "https://a.example/", "elicitationId": "e"});
    let rounds = json!([
        [form("Who are you?", "name")],
        [
            {"method": "elicitation/create", "params": page},
            {"method": "sampling/createMessage", "params": sampling}
        ]
    ]);
    let input = json!({ "rounds": rounds }).to_string();
    for server in &kinds.servers {
        let tool = format!("{server}__ask");
        let mut terminal = Terminal::start(&cli, &["invoke", &tool, "--input", &input]);
        let answers = [
            ("│ Who are you?", "d to decline", "\n"),
            ("name (text, required)", "> ", "Ada\n"),
            ("The page is on a.example.", "d to decline", "\n"),
            ("│ Capital of Norway?", "> ", "Oslo\n\n"),
        ];
        for (text, prompt, typed) in answers {
            terminal.sees(text).await;
            terminal.sees(prompt).await;
            terminal.types(typed);
        }
        let ended = terminal.end().await;
        assert_eq!(ended.code, Some(0), "{server}: {ended:?}");
        let text = json!({"type": "text", "text": "Oslo"});
        let received = json!([
            [{"action": "accept", "content": {"name": "Ada"}}],
            [{"action": "accept"}, {"role": "assistant", "content": text, "model": "human"}]
        ]);
        assert_eq!(serde_json::from_str::<Value>(&ended.stdout).unwrap(), received, "{server}");
        let ended = cli.run(&["invoke", &tool, "--input", &input]).await;
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (Some(1), ""),
            "{server}: nobody can be asked: {ended:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_gets_folders_or_an_error_if_they_are_refused() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    let input = json!({"rounds": [[{"method": "roots/list"}], [{"method": "roots/list"}]]}).to_string();
    let mut terminal = Terminal::start(&Cli::new(&app.address), &["invoke", "s__ask", "--input", &input]);
    for typed in ["/\n\n", "\u{4}"] {
        terminal.sees("Ctrl-D refuses.").await;
        terminal.sees("> ").await;
        terminal.types(typed);
    }
    let ended = terminal.end().await;
    let answers: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(answers[0][0], json!({"roots": [{"uri": "file:///"}]}), "{ended:?}");
    assert!(answers[1][0]["code"].is_i64(), "{ended:?}");
}
