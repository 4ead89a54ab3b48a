//! Responses that are event streams: progress events while a future runs, its result as the last event, and keep-alive
//! comments so that proxies do not close the connection. Dropping the stream drops the future.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use tokio::sync::mpsc;
use tokio::time::{Interval, interval};

const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The body of an event stream: frames from `notices`, and at the end the one that `work` returns.
pub struct SseBody<F> {
    work: Option<Pin<Box<F>>>,
    notices: mpsc::Receiver<Bytes>,
    keep_alive: Interval,
}

impl<F: Future<Output = Bytes> + Send + 'static> SseBody<F> {
    pub fn response(work: F, notices: mpsc::Receiver<Bytes>) -> Response {
        let mut keep_alive = interval(KEEP_ALIVE);
        keep_alive.reset();
        let body = Self { work: Some(Box::pin(work)), notices, keep_alive };
        let mut response = Response::new(Body::new(body));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        response
    }
}

impl<F: Future<Output = Bytes>> HttpBody for SseBody<F> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.work.is_none() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(Some(notice)) = self.notices.poll_recv(context) {
            return Poll::Ready(Some(Ok(Frame::data(notice))));
        }
        if let Some(work) = &mut self.work
            && let Poll::Ready(last) = work.as_mut().poll(context)
        {
            // Notices that arrived just before the end are sent first.
            let mut frames = Vec::new();
            while let Ok(notice) = self.notices.try_recv() {
                frames.extend_from_slice(&notice);
            }
            frames.extend_from_slice(&last);
            self.work = None;
            return Poll::Ready(Some(Ok(Frame::data(frames.into()))));
        }
        if self.keep_alive.poll_tick(context).is_ready() {
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b": still here\n\n")))));
        }
        Poll::Pending
    }
}
