//! Standard input and output as lines, one message each.

use bytes::Bytes;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Stdin};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use upstream::stdio::append_line;

/// How many messages may wait to be written.
const WAITING: usize = 64;

pub struct Input(BufReader<Stdin>);

impl Input {
    pub fn new() -> Self {
        Self(BufReader::new(tokio::io::stdin()))
    }

    /// Returns the next line that is not empty; `None` at the end of the input.
    pub async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        loop {
            let mut line = Vec::new();
            if self.0.read_until(b'\n', &mut line).await? == 0 {
                return Ok(None);
            }
            let line = Bytes::from(line);
            let message = line.trim_ascii();
            if !message.is_empty() {
                return Ok(Some(line.slice_ref(message)));
            }
        }
    }
}

/// The sending side of standard output.
#[derive(Clone)]
pub struct Output(mpsc::Sender<Bytes>);

/// The task that writes to standard output.
pub struct Writer {
    task: JoinHandle<()>,
    /// Cancelled when nobody reads the output any more.
    pub gone: CancellationToken,
}

impl Output {
    pub fn open() -> (Self, Writer) {
        let (sender, waiting) = mpsc::channel(WAITING);
        let gone = CancellationToken::new();
        let task = tokio::spawn(write(waiting, gone.clone()));
        (Self(sender), Writer { task, gone })
    }

    pub async fn send(&self, message: Bytes) {
        // After an error of the writer, the bridge ends.
        let _ = self.0.send(message).await;
    }
}

impl Writer {
    /// Waits until everything is written. All senders must be dropped.
    pub async fn finish(self) {
        let _ = self.task.await;
    }
}

async fn write(mut waiting: mpsc::Receiver<Bytes>, gone: CancellationToken) {
    let mut stdout = tokio::io::stdout();
    while let Some(message) = waiting.recv().await {
        let mut lines = Vec::with_capacity(message.len() + 1);
        append_line(&mut lines, &message);
        while let Ok(message) = waiting.try_recv() {
            append_line(&mut lines, &message);
        }
        let written = async {
            stdout.write_all(&lines).await?;
            stdout.flush().await
        };
        if let Err(error) = written.await {
            tracing::debug!(%error, "standard output is closed");
            return gone.cancel();
        }
    }
}
