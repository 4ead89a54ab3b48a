//! What a server that runs as a child process can see of the gateway, and which rights it has.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::app::stdio_input;
use crate::support::process::{command, is_alive, run};
use crate::support::{Behaviour, Process, eventually};

const NOBODY: u32 = 65534;

fn is_root() -> bool {
    // SAFETY: a plain system call without memory.
    #[allow(unsafe_code)]
    unsafe {
        libc::geteuid() == 0
    }
}

/// A line of `/proc/PID/status`, without its name.
fn status(pid: &str, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The soft and the hard limit of open descriptors of a process.
fn descriptors(pid: &str) -> (u64, u64) {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    (numbers[0], numbers[1])
}

/// Copies a program to where every user can run it.
fn public_copy(program: &str, folder: &Path) -> String {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.join(Path::new(program).file_name().unwrap());
    std::fs::copy(program, &copy).unwrap();
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
    copy.display().to_string()
}

/// The input of a fake that every user can run.
fn public_input(name: &str, behaviour: Value, folder: &Path) -> Value {
    let mut input = stdio_input(name, &Behaviour::of(behaviour));
    input["command"] = json!(public_copy(input["command"].as_str().unwrap(), folder));
    input
}

#[tokio::test(flavor = "multi_thread")]
async fn children_inherit_what_programs_need_and_what_is_named() {
    let key = "cd".repeat(32);
    let variables = [
        ("TOOLGATE_SECRET_KEY", key.as_str()),
        ("TOOLGATE_TOKEN", "t"),
        ("POSTGRES_PASSWORD", "p"),
        ("INIT_SECRET", "i"),
        ("OIDC_SECRET", "o"),
        ("LC_ALL", "C"),
        ("https_proxy", "http://proxy"),
        ("MY_SETTING", "inherited"),
        ("MY_OTHER", "inherited"),
    ];
    for (named, other) in [("", ""), ("MY_OTHER,INIT_SECRET", "inherited"), ("*", "inherited")] {
        let all = [&variables[..], &[("STDIO_ENV", named)]].concat();
        let gateway = Process::start_in(TempDir::new().unwrap(), &all).await;
        let mut input = stdio_input("plain", &Behaviour::default());
        gateway.post("/api/v0/servers", &input).await.expect(201);
        input["name"] = json!("given");
        input["env"] = json!({ "MY_SETTING": "given", "TOOLGATE_TOKEN": "given" });
        gateway.post("/api/v0/servers", &input).await.expect(201);
        let setting = if named == "*" { "inherited" } else { "" };
        for (name, plain, given) in [
            ("TOOLGATE_SECRET_KEY", "", ""),
            ("TOOLGATE_TOKEN", "", "given"),
            ("POSTGRES_PASSWORD", "", ""),
            ("INIT_SECRET", "", ""),
            ("OIDC_SECRET", "", ""),
            ("LC_ALL", "C", "C"),
            ("https_proxy", "http://proxy", "http://proxy"),
            ("MY_SETTING", setting, "given"),
            ("MY_OTHER", other, other),
        ] {
            for (server, expected) in [("plain", plain), ("given", given)] {
                let body = json!({ "name": format!("{server}__env"), "arguments": { "name": name } });
                let result = gateway.post("/api/v0/tools/invoke", &body).await.expect(200).json();
                assert_eq!(result["content"][0]["text"], expected, "STDIO_ENV={named} {server} {name}");
            }
        }
        let guard = status(&gateway.call("plain__pid", json!({})).await, "PPid");
        let seen = std::fs::read(format!("/proc/{guard}/environ")).unwrap();
        let seen = String::from_utf8_lossy(&seen);
        assert!(!seen.contains(&key) && !seen.contains("INIT_SECRET="), "{seen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn children_have_no_new_privileges_and_the_limits_of_the_start() {
    let folder = TempDir::new().unwrap();
    let mut start = command(folder.path(), &[]);
    // SAFETY: makes system calls that are allowed between fork and exec.
    #[allow(unsafe_code)]
    unsafe {
        start.pre_exec(|| {
            let mut limit = std::mem::zeroed::<libc::rlimit>();
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
            limit.rlim_cur = 200;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            Ok(())
        })
    };
    let gateway = Process::start_as(start, folder).await;
    gateway.post("/api/v0/servers", &stdio_input("s", &Behaviour::default())).await.expect(201);
    let child = gateway.call("s__pid", json!({})).await;
    assert_eq!(status(&child, "NoNewPrivs"), "1");
    let (soft, hard) = descriptors(&gateway.id().to_string());
    assert_eq!((soft, descriptors(&child)), (hard, (200, hard)));
}

#[tokio::test(flavor = "multi_thread")]
async fn other_processes_of_its_user_cannot_read_the_gateway() {
    let folder = TempDir::new().unwrap();
    let input = public_input("s", json!({}), folder.path());
    let mut start = command(folder.path(), &[]);
    if is_root() {
        // What belongs to root belongs to it in any case, so the gateway runs as another user.
        let program = public_copy(env!("CARGO_BIN_EXE_toolgate"), folder.path());
        let arguments =
            start.as_std().get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        let mut other = tokio::process::Command::new(program);
        other.arg("start").current_dir(folder.path()).env_clear().envs(arguments).kill_on_drop(true);
        other
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .uid(NOBODY)
            .gid(NOBODY);
        chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        start = other;
    }
    let gateway = Process::start_as(start, folder).await;
    let owner = std::fs::metadata(format!("/proc/{}/environ", gateway.id())).unwrap().uid();
    assert_eq!(owner, 0, "the files of a process that is not dumpable belong to root");
    // Everything that the gateway and the guard read about processes still works.
    gateway.post("/api/v0/servers", &input).await.expect(201);
    let child = gateway.call("s__pid", json!({})).await;
    let grandchild = gateway.call("s__spawn_grandchild", json!({ "setsid": true })).await;
    gateway.post("/api/v0/servers/s/disable", &json!({})).await.expect(200);
    eventually("all are gone", async || !is_alive(&child) && !is_alive(&grandchild)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_cannot_read_the_environment_of_the_gateway_even_as_root() {
    let key = "ef".repeat(32);
    let gateway = Process::start_in(TempDir::new().unwrap(), &[("TOOLGATE_SECRET_KEY", &key)]).await;
    let script = format!("cat /proc/{0}/environ /proc/{0}/maps >&2; exit 1", gateway.id());
    let input = json!({ "name": "s", "transport": "stdio", "command": "sh", "args": ["-c", script] });
    let said = gateway.post("/api/v0/servers", &input).await.expect(500).error();
    assert!(said.matches("Permission denied").count() == 2, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn children_run_as_the_user_that_is_named() {
    let folder = TempDir::new().unwrap();
    let unknown = run(command(folder.path(), &[("STDIO_USER", "no-such-user")])).await;
    assert!(unknown.sentence().contains("STDIO_USER=no-such-user is wrong"), "{unknown:?}");
    if !is_root() {
        let refused = run(command(folder.path(), &[("STDIO_USER", "root")])).await;
        assert!(refused.sentence().contains("may not change user"), "{refused:?}");
        return;
    }
    let input = public_input("s", json!({ "stubborn": true }), folder.path());
    for user in ["nobody", "65534"] {
        let gateway =
            Process::start_in(TempDir::new().unwrap(), &[("STDIO_USER", user), ("HOME", "/root")]).await;
        let mut input = input.clone();
        gateway.post("/api/v0/servers", &input).await.expect(201);
        let child = gateway.call("s__pid", json!({})).await;
        assert_eq!(status(&child, "Uid"), "65534 65534 65534 65534");
        assert_eq!(status(&child, "Gid"), "65534 65534 65534 65534");
        assert_eq!(
            (status(&child, "Groups").as_str(), status(&child, "CapEff").as_str()),
            ("65534", "0000000000000000")
        );
        let env = async |name: &str| {
            let body = json!({ "name": "s__env", "arguments": { "name": name } });
            let result = gateway.post("/api/v0/tools/invoke", &body).await.expect(200).json();
            result["content"][0]["text"].as_str().unwrap().to_owned()
        };
        assert_eq!((env("USER").await.as_str(), env("LOGNAME").await.as_str()), ("nobody", "nobody"));
        assert_ne!(env("HOME").await, "/root");
        let key = std::fs::metadata(gateway.folder.path().join("toolgate.key")).unwrap();
        assert_eq!((key.uid(), key.mode() & 0o077), (0, 0), "readable for the gateway's user alone");
        // The guard can end a process of another user, even one that ignores SIGTERM.
        input["env"] = json!({ "HOME": "/registered" });
        gateway.post("/api/v0/servers?force=true", &input).await.expect(201);
        eventually("the first process is gone", async || !is_alive(&child)).await;
        assert_eq!(env("HOME").await, "/registered");
    }
}
