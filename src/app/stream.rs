//! The byte stream of a client: a socket, or TLS over one.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use budget::Taken;

pub enum ClientStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<RecordCounter>>),
}

impl ClientStream {
    /// Waits until a new stream has something to read: tokio takes a new socket for readable until a read has failed.
    pub async fn first_byte(&self) -> io::Result<()> {
        self.socket().peek(&mut [0]).await.map(drop)
    }

    /// Waits until there is something to read. Only for a stream whose last read had to wait: then a TLS session has no
    /// decrypted bytes left, and the next ones come over the socket.
    pub async fn readable(&self) -> io::Result<()> {
        self.socket().readable().await
    }

    fn socket(&self) -> &TcpStream {
        match self {
            ClientStream::Plain(socket) => socket,
            ClientStream::Tls(tls) => &tls.get_ref().0.socket,
        }
    }

    /// Tells whether the client has begun to send something that cannot be read yet: a part of a TLS record.
    fn has_begun_record(&self) -> bool {
        match self {
            ClientStream::Plain(_) => false,
            ClientStream::Tls(tls) => tls.get_ref().0.is_inside(),
        }
    }

    /// Tells whether the client has begun no further head. What arrives over TLS without being a request is a handshake or a
    /// part of a head, too.
    pub fn is_between_heads(&self, has_served: bool) -> bool {
        !self.is_tls() || has_served && !self.has_begun_record()
    }

    pub fn is_tls(&self) -> bool {
        matches!(self, ClientStream::Tls(_))
    }

    fn stream(&mut self) -> Pin<&mut (dyn Stream + Send + Unpin)> {
        match self {
            ClientStream::Plain(socket) => Pin::new(socket),
            ClientStream::Tls(tls) => Pin::new(tls.as_mut()),
        }
    }
}

trait Stream: AsyncRead + AsyncWrite {}
impl<S: AsyncRead + AsyncWrite> Stream for S {}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().stream().poll_read(context, buffer)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().stream().poll_write(context, data)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().stream().poll_write_vectored(context, data)
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            ClientStream::Plain(socket) => socket.is_write_vectored(),
            ClientStream::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream().poll_shutdown(context)
    }
}

/// The socket under a TLS session. It follows the lengths of the records that arrive: the session does not tell whether
/// it waits for the rest of one.
pub struct RecordCounter {
    socket: TcpStream,
    position: RecordPosition,
    /// The bytes of the handshake so far, while it lasts.
    handshake: Option<Taken>,
}

impl RecordCounter {
    /// A socket before its handshake, the bytes of which are added to a charge.
    pub fn new(socket: TcpStream, charge: Taken) -> Self {
        Self { socket, position: RecordPosition::default(), handshake: Some(charge) }
    }

    pub fn end_handshake(&mut self) {
        self.handshake = None;
    }

    fn is_inside(&self) -> bool {
        self.position != RecordPosition::default()
    }
}

/// The position in a sequence of TLS records.
#[derive(Debug, Default, PartialEq, Eq)]
struct RecordPosition {
    /// Bytes of the current record's header that have arrived; 0 in the content.
    header: u8,
    /// Content bytes of the current record that are still to come.
    left: u16,
}

impl RecordPosition {
    /// Type (1 byte), version (2 bytes) and length (2 bytes).
    const HEADER: u8 = 5;

    fn advance(&mut self, mut bytes: &[u8]) {
        while let Some((&first, rest)) = bytes.split_first() {
            if self.header == 0 && self.left > 0 {
                let skipped = bytes.len().min(self.left.into());
                self.left -= skipped as u16;
                bytes = &bytes[skipped..];
                continue;
            }
            self.header += 1;
            match self.header {
                4 => self.left = u16::from(first) << 8,
                Self::HEADER => (self.header, self.left) = (0, self.left | u16::from(first)),
                _ => {}
            }
            bytes = rest;
        }
    }
}

impl AsyncRead for RecordCounter {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.socket).poll_read(context, buffer);
        let arrived = &buffer.filled()[before..];
        self.position.advance(arrived);
        if let Some(charge) = &mut self.handshake {
            charge.grow(arrived.len() as u64).map_err(io::Error::other)?;
        }
        polled
    }
}

impl AsyncWrite for RecordCounter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn a_new_connection_without_a_byte_is_not_readable() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let stream = ClientStream::Plain(listener.accept().await.unwrap().0);
        let wait = std::time::Duration::from_millis(50);
        assert!(tokio::time::timeout(wait, stream.first_byte()).await.is_err());
        client.write_all(b"x").await.unwrap();
        stream.first_byte().await.unwrap();
    }

    #[test]
    fn a_part_of_a_record_is_noticed_wherever_it_ends() {
        let records = [&[22, 3, 1, 1, 2][..], &[7; 258], &[20, 3, 3, 0, 0], &[23, 3, 3, 0, 1, 9]].concat();
        let ends = [263, 268, 274];
        for length in 0..=records.len() {
            for piece in [1, 3, records.len()] {
                let mut position = RecordPosition::default();
                records[..length].chunks(piece).for_each(|piece| position.advance(piece));
                let is_between = length == 0 || ends.contains(&length);
                assert_eq!(
                    position == RecordPosition::default(),
                    is_between,
                    "{length} in pieces of {piece}"
                );
            }
        }
    }
}
