//! Reading request bodies, within a limit of size.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;

use super::error::ErrorResponse;

pub const BODY_LIMIT: usize = 4 * 1024 * 1024;
/// A client that is still sending would not see our refusal; so much is read and thrown away for its sake.
const DISCARD_LIMIT: usize = 16 * 1024 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// The whole body, if it is within the limit.
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

/// Reads what is left of a body that nobody wants, within reason.
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
