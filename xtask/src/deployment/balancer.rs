//! The configuration of nginx, in a running nginx with three stand-ins for gateways behind it. Only names, ports and folders are
//! replaced.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::fake::{EVENTS, Fake, header, read_head};
use super::tools::{succeeded, text};
use crate::command;
use crate::run::Run;

const NGINX: &str = "/usr/sbin/nginx";
const UNTIL_READY: Duration = Duration::from_secs(10);
/// A response that takes longer was lost.
const UNTIL_LOST: Duration = Duration::from_secs(15);

pub fn check(run: &mut Run) -> Result<()> {
    let gateways = [Fake::start(0)?, Fake::start(1)?, Fake::start(2)?];
    let nginx = Nginx::start(run, &gateways)?;
    let mut client = nginx.connect()?;
    for _ in 0..9 {
        client.get("/mcp", "Cookie: session=1\r\nMcp-Session-Id: 1\r\nX-Forwarded-For: 10.1.2.3\r\n")?;
    }
    let seen: Vec<_> = gateways.iter().map(Fake::seen).collect();
    ensure!(
        seen == [(1, 3); 3],
        "9 requests of one client should be 3 on one connection to each gateway: {seen:?}"
    );
    println!("  round robin without stickiness, and connections to gateways are used again");

    let response = client.get("/mcp", "X-Forwarded-For: 10.1.2.3\r\nX-Forwarded-Host: other.example\r\n")?;
    let wanted = [
        ("host", "gate.example.com:8443"),
        ("x-forwarded-host", "gate.example.com:8443"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "http"),
    ];
    for (name, value) in wanted {
        ensure!(
            header(&response.body, name) == Some(value),
            "a gateway gets another {name}: {}",
            response.body
        );
    }
    println!("  gateways get the address of the client, which it cannot choose");

    let large = "x".repeat(4 << 20);
    let response = client.send("POST", "/mcp", "", &large)?;
    ensure!(
        response.body.contains("received 4194304\n"),
        "a body of 4 MiB does not arrive: {}",
        response.status
    );
    let before: usize = gateways.iter().map(|gateway| gateway.seen().1).sum();
    for path in ["/internal/forward", "/metrics"] {
        ensure!(client.send("POST", path, "", "")?.status == 404, "{path} is reachable from outside");
    }
    let after: usize = gateways.iter().map(|gateway| gateway.seen().1).sum();
    ensure!(before == after, "a gateway got a request that should have been refused");
    println!("  bodies of 4 MiB arrive; /internal/ and /metrics do not");

    ensure!(nginx.connect()?.events_arrive(&gateways)?, "an event arrives only when its stream has ended");
    println!("  events arrive at once");

    gateways[1].close();
    for number in 0..9 {
        let method = if number % 2 == 0 { "POST" } else { "GET" };
        // Each on a connection of its own: whatever process of nginx gets it, the request must not be lost.
        let response = nginx.connect()?.send(method, "/mcp", "", "")?;
        ensure!(response.status == 200, "a request is lost when a gateway ends: {}", response.status);
    }
    println!("  a gateway that has ended costs no request");
    Ok(())
}

struct Nginx {
    port: u16,
    child: Child,
    folder: PathBuf,
}

impl Nginx {
    fn start(run: &Run, gateways: &[Fake]) -> Result<Nginx> {
        // Its workers are another user, who must be able to reach the folder.
        let folder = std::env::temp_dir().join(format!("toolgate-balancer-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        // Nginx cannot choose a port by itself.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let ports: Vec<u16> = gateways.iter().map(|gateway| gateway.port).collect();
        let written = fs::read_to_string(run.root.join("deploy/nginx.conf"))?;
        let file = folder.join("nginx.conf");
        fs::write(&file, adapted(&written, &folder, port, &ports)?)?;
        let line = [NGINX, "-e", "stderr", "-c", text(&file)?];
        let test = [line.as_slice(), &["-t"]].concat();
        succeeded("nginx -t", &command::prepare(&run.root, &test).output()?)?;
        let mut command = command::prepare(&run.root, &[line.as_slice(), &["-g", "daemon off;"]].concat());
        command.stdin(Stdio::null()).stdout(fs::File::create(folder.join("access.log"))?);
        let child = command.stderr(fs::File::create(folder.join("error.log"))?).spawn()?;
        let mut nginx = Nginx { port, child, folder };
        let deadline = Instant::now() + UNTIL_READY;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = nginx.child.try_wait()? {
                bail!("nginx ended with {status}: {}", fs::read_to_string(nginx.folder.join("error.log"))?);
            }
            ensure!(Instant::now() < deadline, "nginx does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(nginx)
    }

    fn connect(&self) -> Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(UNTIL_LOST))?;
        Ok(Client { reader: BufReader::new(stream.try_clone()?), stream })
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its workers end with it only if it is asked.
        let asked = command::works(Path::new("/"), &["kill", "-TERM", &self.child.id().to_string()]);
        if !asked {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Replaces what is only true in the container: the names of the gateways, the port and the folder for files.
fn adapted(written: &str, folder: &Path, port: u16, gateways: &[u16]) -> Result<String> {
    let server = written.lines().find(|line| line.trim_start().starts_with("server gateway:8080 "));
    let server = server.context("nginx.conf: there is no server gateway:8080")?;
    let one =
        |port: &u16| server.replace("gateway:8080", &format!("127.0.0.1:{port}")).replace(" resolve", "");
    let servers: Vec<String> = gateways.iter().map(one).collect();
    let listen = "listen 8080";
    ensure!(written.contains(listen), "nginx.conf: it does not listen on port 8080");
    Ok(written
        .replace(server, &servers.join("\n"))
        .replace(listen, &format!("listen 127.0.0.1:{port}"))
        .replace(" /tmp/", &format!(" {}/", folder.display())))
}

struct Client {
    reader: BufReader<TcpStream>,
    stream: TcpStream,
}

struct Response {
    status: u16,
    body: String,
}

impl Client {
    fn get(&mut self, path: &str, headers: &str) -> Result<Response> {
        self.send("GET", path, headers, "")
    }

    fn send(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Result<Response> {
        write!(
            self.stream,
            "{method} {path} HTTP/1.1\r\nHost: gate.example.com:8443\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len(),
        )?;
        let head = read_head(&mut self.reader)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.with_context(|| format!("no response to {method} {path}: {head}"))?;
        let length = header(&head, "content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body)?;
        Ok(Response { status, body: String::from_utf8_lossy(&body).into_owned() })
    }

    /// Opens a stream, and returns whether each event arrives while the gateway waits with the rest of the response.
    fn events_arrive(&mut self, gateways: &[Fake]) -> Result<bool> {
        write!(self.stream, "GET /stream HTTP/1.1\r\nHost: gate.example.com\r\n\r\n")?;
        if read_head(&mut self.reader).is_err() {
            return Ok(false);
        }
        for name in EVENTS {
            let mut lines = self.reader.by_ref().lines().map_while(Result::ok);
            if !lines.any(|line| line == format!("data: {name}")) {
                return Ok(false);
            }
            gateways.iter().try_for_each(Fake::go_on)?;
        }
        Ok(true)
    }
}
