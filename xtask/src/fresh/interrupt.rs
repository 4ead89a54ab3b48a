//! Ctrl-C and other requests to end: recorded instead of ending this process, so that it can clean up first.

use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    pub fn watch() -> Result<Interrupt> {
        let happened = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register(signal, Arc::clone(&happened))?;
        }
        Ok(Interrupt(happened))
    }

    pub fn happened(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits until the child exits; kills it on an interrupt.
    pub fn wait(&self, child: &mut Child) -> Result<ExitStatus> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if self.happened() {
                child.kill()?;
                child.wait()?;
                bail!("interrupted");
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}
