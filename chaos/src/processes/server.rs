//! `chaos __server BEHAVIOUR MARK DELAY`: a small MCP server over stdio with badly behaved child processes.

use std::process::ExitCode;
use std::time::Duration;

use toolgate_chaos::stdio;

use super::offspring::Family;

/// Serves until standard input ends, or for ever if the behaviour ignores that.
pub fn serve(words: &[String]) -> ExitCode {
    let [behaviour, mark, delay] = words else { return ExitCode::from(2) };
    let delay = Duration::from_millis(delay.parse().unwrap_or_default());
    let family = Family { behaviour, mark, delay };
    family.unleash();
    stdio::serve(&["echo"], |params| params["arguments"]["value"].clone());
    while family.is_stubborn() {
        std::thread::sleep(Duration::from_secs(1));
    }
    ExitCode::SUCCESS
}
