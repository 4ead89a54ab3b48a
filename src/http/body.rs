//! Reads request bodies, up to a size limit.

use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use super::error::ErrorResponse;
use budget::{Bound, Budgets, Exceeded, Taken};

/// Largest accepted body, in bytes.
pub const BODY_LIMIT: usize = 4 * 1024 * 1024;
/// Time to send a body. It may take longer as long as it arrives with at least [`BODY_RATE`] on average.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Bytes per second.
const BODY_RATE: usize = 16 * 1024;
/// How much of a refused body is read and discarded, since a client that is still sending might not see the response.
const DISCARD_LIMIT: usize = 16 * 1024 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// Bodies up to this size are not charged: they are part of what a connection costs.
const UNCHARGED: usize = 8 * 1024;

/// Reads a whole body; fails if it is larger than the limit, arrives too slowly or does not fit into the budget, to which
/// it is charged until it is dropped.
pub async fn read_body<B>(body: B, budgets: &Budgets) -> Result<Bytes, ErrorResponse>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + 'static,
{
    let (mut whole, mut taken) = (Vec::new(), None::<Taken>);
    let announced = body.size_hint().upper().map_or(BODY_LIMIT, |length| BODY_LIMIT.min(length as usize));
    receive(body, budgets, |data| {
        let needed = whole.len() + data.len();
        if needed > whole.capacity() {
            // Grows with what arrives, since a client may announce more than it sends.
            let capacity = needed.max(announced.min(2 * whole.capacity()));
            match &mut taken {
                None if capacity <= UNCHARGED => {}
                None => taken = Some(budgets.buffered.take(capacity as u64)?),
                Some(taken) => taken.grow(capacity as u64 - taken.amount())?,
            }
            whole.reserve_exact(capacity - whole.len());
        }
        whole.extend_from_slice(&data);
        Ok(())
    })
    .await?;
    Ok(match taken {
        None => whole.into(),
        Some(taken) => budget::charged(whole.into(), taken),
    })
}

/// Receives a body that nobody needs, without keeping it; fails as [`read_body`] does.
pub async fn drop_body<B>(body: B, budgets: &Budgets) -> Result<(), ErrorResponse>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + 'static,
{
    receive(body, budgets, |_| Ok(())).await
}

/// Receives a body within the limits of size and time, and gives each piece to `take`.
async fn receive<B>(
    mut body: B,
    budgets: &Budgets,
    mut take: impl FnMut(Bytes) -> Result<(), Exceeded>,
) -> Result<(), ErrorResponse>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + 'static,
{
    let too_large = || ErrorResponse::too_large(budgets.exceeded(Bound::BodySize, BODY_LIMIT as u64));
    // It is received all the same: a client that is still sending would not read why it is refused.
    let is_too_large = body.size_hint().lower() > BODY_LIMIT as u64;
    let (begun, mut received) = (Instant::now(), 0);
    loop {
        let mut until = begun + time_for(received);
        if is_too_large {
            until = until.min(Instant::now() + DISCARD_TIME);
        }
        let Ok(next) = timeout_at(until, body.frame()).await else {
            if is_too_large {
                return Err(too_large());
            }
            budgets.refusals.count(Bound::BodyTime);
            return Err(ErrorResponse::slow_body());
        };
        let Some(frame) = next else { return Ok(()) };
        let frame = frame.map_err(|error| match exceeded_by(&error) {
            Some(exceeded) => ErrorResponse::overloaded(exceeded),
            None => ErrorResponse::bad_request(format!("the body cannot be read: {error}")),
        })?;
        let Ok(data) = frame.into_data() else { continue };
        received += data.len();
        if received > BODY_LIMIT {
            discard(body, received).await;
            return Err(too_large());
        }
        if is_too_large {
            continue;
        }
        if let Err(exceeded) = take(data) {
            discard(body, received).await;
            return Err(ErrorResponse::overloaded(exceeded));
        }
    }
}

/// The bound because of which the connection stopped reading, if that is why a body ended: its read buffer is part of the
/// budget, too.
fn exceeded_by(error: &(dyn std::error::Error + 'static)) -> Option<Exceeded> {
    let mut causes = std::iter::successors(Some(error), |cause| cause.source());
    causes.find_map(|cause| {
        let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        inner.and_then(|inner| inner.downcast_ref::<Exceeded>()).copied()
    })
}

/// How long a body may take of which this many bytes have arrived.
fn time_for(received: usize) -> Duration {
    BODY_TIME.max(Duration::from_secs((received / BODY_RATE) as u64))
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll};

    use axum::response::IntoResponse;
    use http_body::{Frame, SizeHint};

    use super::*;

    /// A body of pieces with a pause before each; after the last one nothing comes any more.
    struct Trickle {
        pieces: usize,
        size: usize,
        pause: Pin<Box<tokio::time::Sleep>>,
    }

    impl Body for Trickle {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.pieces == 0 || self.pause.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            let next = self.pause.deadline() + Duration::from_secs(1);
            self.pause.as_mut().reset(next);
            self.pieces -= 1;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b'x'; self.size])))))
        }
    }

    /// The seconds after which a body of pieces that never ends is given up.
    async fn given_up_after(pieces: usize, size: usize) -> u64 {
        let begun = Instant::now();
        let body = Trickle { pieces, size, pause: Box::pin(tokio::time::sleep(Duration::from_secs(1))) };
        let error = pin!(read_body(body, &Budgets::default())).await.unwrap_err();
        assert_eq!(error.into_response().status().as_u16(), 408);
        begun.elapsed().as_secs()
    }

    /// A body whose connection may not read any more.
    struct Stopped;

    impl Body for Stopped {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            let exceeded = Exceeded { bound: Bound::BufferedBytes, limit: 1 };
            Poll::Ready(Some(Err(std::io::Error::other(exceeded))))
        }
    }

    #[tokio::test]
    async fn a_body_for_which_no_read_buffer_is_left_is_refused_as_overload() {
        let error = read_body(Stopped, &Budgets::default()).await.unwrap_err();
        assert_eq!(error.into_response().status().as_u16(), 503);
    }

    /// A body of which nothing arrives.
    struct Announced(usize);

    impl Body for Announced {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0 as u64)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_announced_as_too_large_is_refused_as_that() {
        for (length, seconds, status) in [(BODY_LIMIT, 30, 408), (BODY_LIMIT + 1, 5, 413), (1 << 40, 5, 413)]
        {
            let begun = Instant::now();
            let error = read_body(Announced(length), &Budgets::default()).await.unwrap_err();
            assert_eq!(error.into_response().status().as_u16(), status, "{length}");
            assert_eq!(begun.elapsed().as_secs(), seconds, "{length}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_has_half_a_minute_and_longer_while_it_is_fast_enough() {
        assert_eq!(given_up_after(0, 0).await, 30);
        assert_eq!(given_up_after(1000, 1).await, 30);
        assert_eq!(given_up_after(1000, BODY_RATE - 1).await, 30);
        assert_eq!(given_up_after(100, 2 * BODY_RATE).await, 200);
    }
}
