//! Tools from a terminal: usage, calls, results, and cancelling a call.

use std::process::Stdio;

use serde_json::json;

use crate::support::cli::{Cli, finish};
use crate::support::process::send_signal;
use crate::support::{Behaviour, Fake, TestApp, eventually};

async fn ready() -> (TestApp, Fake, Cli) {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("fake", &fake).await;
    let cli = Cli::new(&app.address);
    (app, fake, cli)
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_get_the_types_of_the_schema() {
    let (_app, _fake, cli) = ready().await;
    assert_eq!(cli.ok(&["invoke", "fake__add", "a=1", "b=2.5"]).await, "3.5\n");
    assert_eq!(cli.ok(&["invoke", "fake__echo", "text=5"]).await, "5\n");
    let exact = async |arguments: &[&str]| {
        cli.ok(&[&["invoke", "fake__echo_args"], arguments].concat()).await.replace(['\n', ' '], "")
    };
    assert_eq!(
        exact(&["deep.a=1", "deep.b.c=x", "n=12345678901234567890123"]).await,
        r#"{"deep":{"a":1,"b":{"c":"x"}},"n":12345678901234567890123}"#
    );
    assert_eq!(
        exact(&["--input", r#"{"a": 1.0, "b": {"c": 2}}"#, "b.d=3"]).await,
        r#"{"a":1.0,"b":{"c":2,"d":3}}"#
    );
    let names = cli.ok(&["invoke", "fake__named", "name=x"]).await;
    assert_eq!(
        names.replace(['\n', ' '], ""),
        r#"{"name":"x"}"#,
        "an argument may be called like the tool's own key"
    );
    let ended = cli.run(&["invoke", "fake__add", "a=many"]).await;
    assert_eq!(ended.code, Some(2));
    assert!(ended.complaint().contains("a must be of type number"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn input_comes_from_the_command_line_a_file_or_a_pipe() {
    let (_app, _fake, cli) = ready().await;
    assert_eq!(cli.ok(&["invoke", "fake__echo", "--input", r#"{"text": "inline"}"#]).await, "inline\n");
    cli.write("input.json", r#"{"text": "from a file"}"#);
    assert_eq!(cli.ok(&["invoke", "fake__echo", "--input", "@input.json"]).await, "from a file\n");
    let piped = cli.run_fed(&["invoke", "fake__echo", "--input", "-"], r#"{"text": "from a pipe"}"#).await;
    assert_eq!((piped.code, piped.stdout.as_str()), (Some(0), "from a pipe\n"));
    assert!(cli.fails(&["invoke", "fake__echo", "--input", "@missing.json"]).await.contains("missing.json"));
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_shown_and_the_result_is_printed() {
    let (_app, _fake, cli) = ready().await;
    let ended = cli.run(&["invoke", "fake__progress", "steps=2"]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "2 steps\n"), "{ended:?}");
    assert_eq!(ended.stderr, "1/2 step 1\n2/2 step 2\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_reports_an_error_is_exit_code_1() {
    let (_app, _fake, cli) = ready().await;
    for format in ["table", "json"] {
        let ended = cli.run(&["invoke", "fake__fail", "--output", format]).await;
        assert_eq!(ended.code, Some(1));
        assert!(ended.stdout.contains("it went wrong"), "{ended:?}");
        assert_eq!(ended.complaint(), "toolgate: the tool reported an error");
    }
    assert!(cli.fails(&["invoke", "fake__rpc_error"]).await.contains("the tool refused"));
}

#[tokio::test(flavor = "multi_thread")]
async fn data_is_saved_to_files_that_are_never_overwritten() {
    let (_app, _fake, cli) = ready().await;
    cli.write("fake__image-1.png", "mine");
    let printed = cli.ok(&["invoke", "fake__image"]).await;
    assert_eq!(printed, "fake__image-2.png (image/png, 70 bytes)\n");
    assert_eq!(cli.read("fake__image-1.png"), "mine");
    assert_eq!(std::fs::read(cli.home.path().join("fake__image-2.png")).unwrap()[..4], *b"\x89PNG");
    let printed = cli.ok(&["get", "resource", "fake://blob", "--read"]).await;
    assert_eq!(printed, "blob-1.bin (application/octet-stream, 4 bytes)\n");
    let result = cli.json(&["invoke", "fake__image"]).await;
    assert_eq!(result["content"][0]["type"], "image");
    assert!(!cli.home.path().join("fake__image-3.png").exists(), "whoever wants JSON gets the data in it");
}

#[tokio::test(flavor = "multi_thread")]
async fn structured_content_is_printed_once_and_json_is_indented() {
    let (_app, _fake, cli) = ready().await;
    let expected = "{\n  \"city\": \"Rome\",\n  \"degrees\": 21.5\n}\n";
    assert_eq!(cli.ok(&["invoke", "fake__structured", "city=Rome"]).await, expected);
    let result = cli.json(&["invoke", "fake__structured"]).await;
    assert_eq!(result["structuredContent"], json!({"city": "Oslo", "degrees": 21.5}));
    assert_eq!(result["isError"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_takes_the_call_back_and_is_130() {
    let (_app, fake, cli) = ready().await;
    let child = cli.command(&["invoke", "fake__slow", "ms=600000"]).spawn().unwrap();
    eventually("the call has begun", async || fake.calls_of("slow") == 1).await;
    send_signal(&child, libc::SIGINT);
    let ended = finish(child).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(130), ""), "{ended:?}");
    eventually("the call is cancelled upstream", async || fake.cancelled().len() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_works_while_waiting_for_input() {
    let (_app, _fake, cli) = ready().await;
    let mut command = cli.command(&["register", "--conf", "-"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let (_open, pid) = (child.stdin.take(), child.id().unwrap());
    let caught = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let mask =
            status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim().to_owned();
        u64::from_str_radix(&mask, 16).unwrap_or_default() & 0b10 != 0
    };
    eventually("it listens for Ctrl-C", async || caught()).await;
    send_signal(&child, libc::SIGINT);
    assert_eq!(finish(child).await.code, Some(130));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_limits_what_is_called() {
    let (_app, fake, cli) = ready().await;
    cli.ok(&["create", "group", "few", "--included-tools", "fake__echo, fake__add"]).await;
    assert_eq!(cli.ok(&["invoke", "fake__echo", "text=hi", "--group", "few"]).await, "hi\n");
    let sentence = cli.fails(&["invoke", "fake__counter", "--group", "few"]).await;
    assert!(sentence.contains("fake__counter") && sentence.contains("few"), "{sentence}");
    assert_eq!(fake.calls_of("counter"), 0);
    let listed = cli.json(&["list", "tools", "--group", "few"]).await;
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["fake__add", "fake__echo"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_pipe_is_not_an_error() {
    let (_app, _fake, cli) = ready().await;
    let mut child = cli.command(&["invoke", "fake__huge", "bytes=3000000"]).spawn().unwrap();
    drop(child.stdout.take());
    let ended = finish(child).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
}
