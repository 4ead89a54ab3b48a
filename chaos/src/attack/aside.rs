//! Work on a thread of its own. The attackers keep the threads of the harness busy for seconds, above all in a debug build;
//! what they delayed would be taken for a delay of the gateway.

use anyhow::Result;
use tokio::sync::oneshot;

/// Work that goes on until this is dropped.
pub struct Aside(#[expect(dead_code, reason = "its drop ends the work")] oneshot::Sender<()>);

impl Aside {
    pub fn run(work: impl Future<Output = ()> + Send + 'static) -> Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = work => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Self(stop))
    }
}
