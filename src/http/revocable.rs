//! Responses that end when the token of their request is revoked.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::error::ErrorResponse;

/// Waits for `answer`; fails with 401 if the token of the request is revoked first. The caller pins it, since moving a large
/// future is expensive.
pub async fn until_revoked<T>(
    revoked: Option<&CancellationToken>,
    answer: Pin<&mut impl Future<Output = T>>,
) -> Result<T, ErrorResponse> {
    let Some(revoked) = revoked else { return Ok(answer.await) };
    tokio::select! {
        // The request itself may end for the same reason; 401 is the better response.
        biased;
        () = revoked.cancelled() => Err(ErrorResponse::revoked_token()),
        answer = answer => Ok(answer),
    }
}

/// A body that ends when the token of its request is revoked.
pub struct UntilRevoked<B> {
    body: B,
    revoked: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<B> UntilRevoked<B> {
    pub fn new(body: B, revoked: &CancellationToken) -> Self {
        Self { body, revoked: Box::pin(revoked.clone().cancelled_owned()) }
    }
}

impl<B: Body + Unpin> Body for UntilRevoked<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let Self { body, revoked } = self.get_mut();
        match revoked.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
