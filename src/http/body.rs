//! Reads request bodies, up to a size limit.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;

use super::error::ErrorResponse;

/// Largest accepted body, in bytes.
pub const BODY_LIMIT: usize = 4 * 1024 * 1024;
/// How much of a refused body is read and discarded, since a client that is still sending might not see the response.
const DISCARD_LIMIT: usize = 16 * 1024 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// Reads a whole body; fails if it is larger than the limit.
pub async fn read_body<B>(mut body: B) -> Result<Bytes, ErrorResponse>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| ErrorResponse::bad_request(format!("the body cannot be read: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > BODY_LIMIT {
            let received = whole.len() + data.len();
            drop(whole);
            discard(body, received).await;
            return Err(ErrorResponse::too_large(BODY_LIMIT));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// Reads and discards the rest of a refused body, up to limits of size and time.
pub async fn discard<B: Body<Data = Bytes> + Unpin>(mut body: B, mut received: usize) {
    let rest = async {
        while received < DISCARD_LIMIT
            && let Some(Ok(frame)) = body.frame().await
        {
            received += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    let _ = tokio::time::timeout(DISCARD_TIME, rest).await;
}
