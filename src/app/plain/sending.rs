//! Sends a large text, such as a list, from its pages: without a copy of it.

use std::io;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::response::Pieces;

/// More follows at once, so that it need not be sent by itself.
#[cfg(target_os = "linux")]
const MORE: i32 = libc::MSG_MORE | libc::MSG_NOSIGNAL;
#[cfg(not(target_os = "linux"))]
const MORE: i32 = 0;

/// Sends a head and the body up to the end of the first text in pages, and takes what is sent from both. Without such a text
/// nothing is sent.
pub async fn send_pages(socket: &TcpStream, head: &mut Vec<u8>, body: &mut Pieces) -> io::Result<()> {
    let mut texts = body.0.iter().enumerate();
    let Some((index, mut pages)) = texts.find_map(|(index, piece)| Some((index, pages::behind(piece)?)))
    else {
        return Ok(());
    };
    // What is before the text is short: the beginning of a message.
    body.0.drain(..index).for_each(|piece| head.extend_from_slice(&piece));
    let mut sent = 0;
    while sent < head.len() {
        let send = || SockRef::from(socket).send_with_flags(&head[sent..], MORE);
        sent += socket.async_io(Interest::WRITABLE, send).await?;
    }
    head.clear();
    while pages.remaining() > 0 {
        socket.async_io(Interest::WRITABLE, || pages.send(socket)).await?;
    }
    body.0.pop_front();
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn received(pieces: Vec<Bytes>) -> Vec<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut writer, _) = listener.accept().await.unwrap();
        let sending = async {
            let (mut head, mut body) = (b"head;".to_vec(), Pieces(pieces.into()));
            send_pages(&writer, &mut head, &mut body).await.unwrap();
            writer.write_all(&head).await.unwrap();
            writer.write_all_buf(&mut body).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let reading = async {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).await.unwrap();
            all
        };
        tokio::join!(sending, reading).1
    }

    #[tokio::test]
    async fn a_response_is_the_same_from_pages() {
        // More than a socket takes at once.
        let long = vec![b'x'; 9_000_000];
        for text in [pages::keep(long.clone()), Bytes::from(long.clone())] {
            let pieces = vec![Bytes::from("before;"), text, Bytes::from(";after")];
            assert!(received(pieces).await == [b"head;before;", long.as_slice(), b";after"].concat());
        }
    }

    #[tokio::test]
    async fn a_reader_that_leaves_ends_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let reader = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (writer, _) = listener.accept().await.unwrap();
        let mut body = Pieces::of(pages::keep(vec![b'x'; 20_000_000]));
        drop(reader);
        assert!(send_pages(&writer, &mut b"head;".to_vec(), &mut body).await.is_err());
    }
}
