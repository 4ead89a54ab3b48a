//! The signals a running gateway reacts to: what stops it, and what must not.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The first signal asks for a graceful stop, the second for a quick one.
pub fn watch(
    shutdown: CancellationToken,
    hurry: CancellationToken,
) -> std::io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut hangup = if is_ignored(libc::SIGHUP) { None } else { Some(signal(SignalKind::hangup())?) };
    // Sent when a file would grow beyond its limit. The write then fails like one to a full disk, which the store
    // can deal with. A handler, unlike ignoring the signal, is not inherited by the servers we start.
    let too_large = signal(SignalKind::from_raw(libc::SIGXFSZ))?;
    Ok(async move {
        let _too_large = too_large;
        for token in [shutdown, hurry] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = received(&mut hangup) => {}
            }
            token.cancel();
            tracing::info!("stopping");
        }
    })
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Whether whoever started us wants the signal to have no effect, as `nohup` does.
fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: only reads the current action into a value that outlives the call.
    #[allow(unsafe_code)]
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}
