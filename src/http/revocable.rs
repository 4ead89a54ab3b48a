//! Answers that last only while the token is valid that they were asked with.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::error::ErrorResponse;

/// The answer, unless the token that it was asked with is revoked before.
pub async fn until_revoked<T>(
    revoked: Option<&CancellationToken>,
    answer: impl Future<Output = T>,
) -> Result<T, ErrorResponse> {
    // Pinned here: moving a future costs as much as it is large.
    let answer = pin!(answer);
    let Some(revoked) = revoked else { return Ok(answer.await) };
    tokio::select! {
        // What was asked may have heard of it as well; this is the better answer.
        biased;
        () = revoked.cancelled() => Err(ErrorResponse::revoked_token()),
        answer = answer => Ok(answer),
    }
}

/// A body that ends when the token that it was asked with is revoked.
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
