//! Signal handling of a running gateway.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Watches for signals: the first one cancels `shutdown` for a graceful stop, the second one cancels `hurry`.
pub fn watch(
    shutdown: CancellationToken,
    hurry: CancellationToken,
) -> std::io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut hangup = if is_ignored(libc::SIGHUP) { None } else { Some(signal(SignalKind::hangup())?) };
    // SIGXFSZ is sent when a file would exceed its size limit. With a handler, the write fails like one to a full disk,
    // which the store handles. Child processes do not inherit a handler; they would inherit an ignored signal.
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

/// Tells whether the parent process set the signal to be ignored, as `nohup` does.
fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: only reads the current action into a value that outlives the call.
    #[allow(unsafe_code)]
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}
