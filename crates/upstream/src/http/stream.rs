//! The byte stream to a server, plain or TLS, or to one that another gateway runs.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

pub enum ServerStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Gateway(DuplexStream),
}

impl ServerStream {
    /// Whether the stream is open and nothing has arrived. This takes no system call unless something has happened.
    pub fn is_silent(&mut self) -> bool {
        let mut byte = [0];
        let mut context = Context::from_waker(Waker::noop());
        match self {
            ServerStream::Plain(stream) => {
                matches!(stream.try_read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            }
            ServerStream::Tls(stream) => {
                Pin::new(stream).poll_read(&mut context, &mut ReadBuf::new(&mut byte)).is_pending()
            }
            ServerStream::Gateway(stream) => {
                Pin::new(stream).poll_read(&mut context, &mut ReadBuf::new(&mut byte)).is_pending()
            }
        }
    }
}

impl AsyncRead for ServerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ServerStream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            ServerStream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
            ServerStream::Gateway(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            ServerStream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            ServerStream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
            ServerStream::Gateway(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            ServerStream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            ServerStream::Tls(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            ServerStream::Gateway(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            // A socket has nothing to flush.
            ServerStream::Plain(_) => Poll::Ready(Ok(())),
            ServerStream::Tls(stream) => Pin::new(stream).poll_flush(context),
            ServerStream::Gateway(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ServerStream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            ServerStream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            ServerStream::Gateway(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
