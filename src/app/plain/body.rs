//! The body of a plain request that has not arrived completely.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use tokio::io::AsyncReadExt;

use crate::app::in_use::READ_BUFFER;
use crate::app::stream::ClientStream;

pub struct RestOfBody<'a> {
    /// What arrived together with the head.
    arrived: Bytes,
    /// Bytes that are still to be read.
    missing: usize,
    stream: &'a mut ClientStream,
    buffer: &'a mut BytesMut,
}

impl<'a> RestOfBody<'a> {
    pub fn new(
        arrived: Bytes,
        length: usize,
        stream: &'a mut ClientStream,
        buffer: &'a mut BytesMut,
    ) -> Self {
        let missing = length - arrived.len();
        Self { arrived, missing, stream, buffer }
    }

    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }
}

impl Body for RestOfBody<'_> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if !self.arrived.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.arrived)))));
        }
        if self.missing == 0 {
            return Poll::Ready(None);
        }
        let Self { missing, stream, buffer, .. } = &mut *self;
        if buffer.is_empty() {
            buffer.reserve(READ_BUFFER);
            match pin!(stream.read_buf(*buffer)).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
            }
        }
        // The next request may follow.
        let piece = buffer.split_to(buffer.len().min(*missing)).freeze();
        *missing -= piece.len();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.arrived.len() + self.missing) as u64)
    }
}
