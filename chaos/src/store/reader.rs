//! A reader: lists and calls without pause, which must work whatever happens to the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;

use super::thing::ANCHOR;
use super::writer::Stage;
use crate::http::Request;
use crate::report::Report;
use crate::server::ECHO;

/// Far longer than a read takes on a busy machine, and shorter than the store's busy timeout.
const LIMIT: Duration = Duration::from_secs(4);

#[derive(Default)]
pub struct Reader {
    pub report: Report,
    pub slowest: Duration,
}

impl Reader {
    /// Reads until the stage stops or the gateway has ended.
    pub async fn run(mut self, stage: Arc<Stage>) -> Self {
        while !stage.stop.load(Ordering::SeqCst) && self.pass(&stage).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self
    }

    /// Reads everything once; returns false when the gateway has ended.
    pub async fn pass(&mut self, stage: &Stage) -> bool {
        let call = json!({"name": format!("{ANCHOR}__{ECHO}"), "message": "hello"});
        let requests = [
            ("health", Request::new("GET", "/health")),
            ("list servers", Request::new("GET", "/api/v0/servers")),
            ("list tools", Request::new("GET", "/api/v0/tools?all=true")),
            ("call", Request::new("POST", "/api/v0/tools/invoke").json(&call)),
        ];
        for (what, request) in requests {
            if !self.read(stage, what, request).await {
                return false;
            }
        }
        true
    }

    /// Sends one request; returns false when the gateway has ended.
    async fn read(&mut self, stage: &Stage, what: &str, mut request: Request) -> bool {
        if let Some(admin) = &stage.admin {
            request = request.token(admin);
        }
        let begun = Instant::now();
        let sent = request.limit(LIMIT).send(&stage.address).await;
        if stage.is_ending.load(Ordering::SeqCst) {
            return sent.is_ok();
        }
        self.slowest = self.slowest.max(begun.elapsed());
        self.report.operation(what);
        match sent {
            Ok(response) if response.status == 200 => {}
            Ok(response) => {
                let fault = stage.names();
                let (status, said) = (response.status, response.text());
                self.report.violation(format!("{what} while {fault}: {status} {said}"));
            }
            Err(error) => {
                self.report.violation(format!("{what} while {}: {error:#}", stage.names()));
            }
        }
        true
    }
}
