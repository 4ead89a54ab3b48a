//! Badly behaved clients: they stall while sending, disconnect during a call, or do not read the response.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::caller::{Call, Caller, DOORS};
use super::fault::Faults;
use crate::random::Random;

/// How long a client that stalls or does not read keeps its connection.
const HOLD: Duration = Duration::from_secs(3);

/// Misbehaves once, in a random way.
pub async fn misbehave(
    address: &str,
    server: &str,
    number: u64,
    random: &mut Random,
    faults: &Arc<Faults>,
) -> Result<()> {
    let mut caller = Caller::new(address, *random.pick(DOORS));
    let tool = *random.pick(&["echo", "slow", "progress", "big"]);
    let call = Call { server: server.to_owned(), tool, text: format!("rude~{number}") };
    let request = caller.raw(&call).await?;
    let part = usize::try_from(random.below(request.len() as u64)).unwrap_or_default();
    let mut stream = TcpStream::connect(address).await?;
    match random.below(5) {
        0 => {
            faults.count("client stalls while sending");
            stream.write_all(&request[..part]).await?;
            tokio::time::sleep(HOLD).await;
        }
        1 => {
            faults.count("client resets while sending");
            stream.write_all(&request[..part]).await?;
            stream.set_zero_linger()?;
        }
        2 => {
            faults.count("client closes during its call");
            stream.write_all(&request).await?;
            tokio::time::sleep(Duration::from_millis(random.below(40))).await;
        }
        3 => {
            faults.count("client resets during its call");
            stream.write_all(&request).await?;
            tokio::time::sleep(Duration::from_millis(random.below(40))).await;
            stream.set_zero_linger()?;
        }
        _ => {
            faults.count("client does not read");
            let big = Call { tool: "big", ..call };
            stream.write_all(&caller.raw(&big).await?).await?;
            // One byte shows that the response has started; the rest is not read.
            let mut first = [0];
            let _ = tokio::time::timeout(HOLD, stream.read(&mut first)).await;
            tokio::time::sleep(HOLD).await;
        }
    }
    Ok(())
}
