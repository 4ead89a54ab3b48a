//! Nginx as a plain reverse proxy in front of one server.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::Plan;

const STARTING: Duration = Duration::from_secs(10);
/// Debian has it where only root looks for programs.
const PLACES: &[&str] = &["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"];

/// It ends with this value.
pub struct Nginx {
    pub address: String,
    pub process: u32,
    _child: Child,
    _folder: TempDir,
}

impl Nginx {
    /// `None` if nginx is not installed.
    pub async fn start(plan: &Plan, upstream: &str) -> Result<Option<Self>> {
        let Some(program) = PLACES.iter().find(|place| Path::new(place).exists()) else { return Ok(None) };
        let folder = tempfile::tempdir()?;
        // Nginx cannot choose a port by itself.
        let address = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.to_string();
        let file = folder.path().join("nginx.conf");
        fs::write(&file, configuration(folder.path(), &address, upstream))?;
        let line = plan.pinned();
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).arg(program).arg("-c").arg(&file).arg("-e").arg(folder.path().join("log"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn()?;
        let process = child.id().context("nginx has ended")?;
        let deadline = Instant::now() + STARTING;
        while TcpStream::connect(&address).await.is_err() {
            ensure!(Instant::now() < deadline, "nginx does not answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Some(Self { address, process, _child: child, _folder: folder }))
    }
}

/// One process, connections kept on both sides, buffers that hold a result.
fn configuration(folder: &Path, address: &str, upstream: &str) -> String {
    let folder = folder.display();
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {folder}/{kind};\n"))
        .concat();
    format!(
        "daemon off; master_process off; worker_processes 1; pid {folder}/pid;
events {{ worker_connections 8192; }}
http {{
access_log off; keepalive_requests 100000000; proxy_buffers 16 16k; proxy_buffer_size 16k;
{paths}
upstream server {{ server {upstream}; keepalive 1024; keepalive_requests 100000000; }}
server {{
listen {address};
location / {{ proxy_pass http://server; proxy_http_version 1.1; proxy_set_header Connection \"\"; }}
}}
}}
"
    )
}
