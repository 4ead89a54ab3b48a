//! Tests of connections, with a server that does what each of them says.

use std::collections::VecDeque;

use tokio::io::AsyncWriteExt;

use super::*;

/// A server that reads and writes as the test says.
#[derive(Default)]
struct Script {
    /// What it sends, one piece for each read, and then it closes the connection.
    sends: VecDeque<Vec<u8>>,
    /// How many bytes each write takes; all of them after that. `None` is an error, 0 is a full socket, which takes
    /// more only after the next piece was read.
    takes: VecDeque<Option<usize>>,
    writes: Vec<Vec<u8>>,
    /// Whether the next read has to wait first.
    waits: bool,
}

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.waits = !self.waits;
        if self.waits {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(mut piece) = self.sends.pop_front() {
            let rest = piece.split_off(piece.len().min(buffer.remaining()));
            buffer.put_slice(&piece);
            if !rest.is_empty() {
                self.sends.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Script {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.takes.pop_front() {
            Some(Some(0)) => Poll::Pending,
            Some(None) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            taken => {
                let length = taken.flatten().unwrap_or(usize::MAX).min(bytes.len());
                self.writes.push(bytes[..length].to_vec());
                Poll::Ready(Ok(length))
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.poll_write(context, &bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

async fn post(connection: &mut Connection<Script>, body: &[u8]) -> Result<ResponseHead, SendError> {
    let target = Target::new("http://h/mcp".parse().unwrap());
    let body = Bytes::copy_from_slice(body);
    let request = Request {
        method: Method::Post,
        target: &target,
        fields: b"host: h\r\n",
        authorization: None,
        body: &body,
    };
    connection.send(&request).await
}

fn with(script: Script) -> Box<Connection<Script>> {
    Connection::new(script, Security::Plain, None)
}

fn sending(pieces: &[&[u8]]) -> Box<Connection<Script>> {
    with(Script { sends: pieces.iter().map(|piece| piece.to_vec()).collect(), ..Script::default() })
}

/// The status, the body, and whether the connection can be used again.
type Seen = (u16, Vec<u8>, bool);

async fn read(connection: &mut Connection<Script>) -> Result<Seen, String> {
    let head = post(connection, b"{}").await.map_err(|error| format!("{error:?}"))?;
    let mut framing = head.framing;
    let mut body = Vec::new();
    while let Some(piece) = connection.piece(&mut framing).await? {
        body.extend_from_slice(&piece);
    }
    Ok((head.status, body, head.keeps_open && connection.rest()))
}

const LENGTH: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
const CHUNKED: &[u8] =
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x\r\nhel\r\n2\r\nlo\r\n0\r\nT: y\r\n\r\n";
const CLOSED_AFTER: &[u8] = b"HTTP/1.0 200 OK\r\n\r\nhello";

#[tokio::test]
async fn a_response_is_the_same_however_it_arrives() {
    let informed = [b"HTTP/1.1 100 Continue\r\n\r\n", LENGTH].concat();
    let excessive = [LENGTH, b"!"].concat();
    for (response, expected) in [
        (LENGTH, (200, b"hello".to_vec(), true)),
        (CHUNKED, (200, b"hello".to_vec(), true)),
        (CLOSED_AFTER, (200, b"hello".to_vec(), false)),
        (&informed, (200, b"hello".to_vec(), true)),
        (b"HTTP/1.1 204 x\r\n\r\n", (204, vec![], true)),
        (b"HTTP/1.1 202 x\r\ncontent-length: 0\r\n\r\n", (202, vec![], true)),
    ] {
        for cut in 0..response.len() {
            let (one, two) = response.split_at(cut);
            let pieces = [one, two];
            let pieces = if cut == 0 { &pieces[1..] } else { &pieces };
            assert_eq!(read(&mut sending(pieces)).await, Ok(expected.clone()), "{cut}");
        }
        let bytes: Vec<&[u8]> = response.chunks(1).collect();
        assert_eq!(read(&mut sending(&bytes)).await, Ok(expected));
    }
    // What follows a response makes the connection unusable.
    assert_eq!(read(&mut sending(&[&excessive])).await, Ok((200, b"hello".to_vec(), false)));
}

#[tokio::test]
async fn a_response_that_is_cut_off_is_lost() {
    for response in [LENGTH, CHUNKED] {
        for length in 0..response.len() {
            let seen = read(&mut sending(&[&response[..length]][usize::from(length == 0)..])).await;
            assert!(seen.unwrap_err().contains("the connection was closed before"), "{length}");
        }
    }
}

#[tokio::test]
async fn several_requests_share_a_connection_and_its_buffer() {
    let mut connection = sending(&[LENGTH, CHUNKED, LENGTH]);
    for _ in 0..3 {
        assert_eq!(read(&mut connection).await, Ok((200, b"hello".to_vec(), true)));
    }
    assert_eq!(connection.stream.writes.len(), 3);
}

#[tokio::test]
async fn head_and_body_are_one_write() {
    for length in [0, 2, 5_000, 8_192, 100_000] {
        let mut connection = sending(&[LENGTH]);
        let body = vec![b'x'; length];
        post(&mut connection, &body).await.unwrap();
        let [written] = connection.stream.writes.as_slice() else { panic!("not one write") };
        let head = format!("POST /mcp HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\n\r\n");
        assert_eq!(*written, [head.as_bytes(), &body].concat());
    }
}

#[tokio::test]
async fn a_request_is_written_in_as_many_steps_as_it_takes() {
    for body in [&[b'x'; 100][..], &[b'y'; 20_000]] {
        let mut whole = sending(&[LENGTH]);
        post(&mut whole, body).await.unwrap();
        let takes = [Some(7), Some(1), Some(60), Some(5)].into();
        let mut connection = with(Script { sends: [LENGTH.to_vec()].into(), takes, ..Script::default() });
        let head = post(&mut connection, body).await.unwrap();
        assert!(head.keeps_open);
        assert_eq!(connection.stream.writes.concat(), whole.stream.writes.concat());
        assert_eq!(connection.piece(&mut head.framing.clone()).await.unwrap().unwrap(), "hello");
    }
}

#[tokio::test]
async fn only_what_was_not_begun_counts_as_not_sent() {
    let failing = |takes: &[Option<usize>]| Script { takes: takes.to_vec().into(), ..Script::default() };
    let not_sent = post(&mut with(failing(&[None])), b"{}").await;
    assert!(matches!(not_sent, Err(SendError::NotSent(_))), "{not_sent:?}");
    let half = post(&mut with(failing(&[Some(1), None])), b"{}").await;
    assert!(matches!(half, Err(SendError::Lost(_))), "{half:?}");
    let mut encrypted = Connection::new(failing(&[None]), Security::Tls, None);
    let unknown = post(&mut encrypted, b"{}").await;
    assert!(matches!(unknown, Err(SendError::Lost(_))), "{unknown:?}");
    let unanswered = post(&mut with(failing(&[])), b"{}").await;
    assert!(matches!(unanswered, Err(SendError::Lost(_))), "{unanswered:?}");
}

#[tokio::test]
async fn an_answer_to_half_a_request_is_an_answer() {
    let early: &[u8] = b"HTTP/1.1 413 x\r\ncontent-length: 5\r\n\r\nlarge";
    // It comes while the socket is full, or is found after writing has failed.
    for takes in [vec![Some(10), Some(0), Some(0), Some(0), Some(0)], vec![Some(10), None]] {
        let (one, two) = early.split_at(20);
        let sends = [one.to_vec(), two.to_vec()].into();
        let mut connection = with(Script { sends, takes: takes.into(), ..Script::default() });
        let head = post(&mut connection, &[b'x'; 50_000]).await.unwrap();
        assert_eq!((head.status, head.keeps_open), (413, false));
        assert_eq!(connection.stream.writes.concat().len(), 10);
        assert_eq!(connection.piece(&mut head.framing.clone()).await.unwrap().unwrap(), "large");
    }
    // An informational response is none.
    let sends = [b"HTTP/1.1 100 x\r\n\r\n".to_vec(), LENGTH.to_vec()].into();
    let takes = [Some(10), Some(0), Some(0), Some(20)].into();
    let mut connection = with(Script { sends, takes, ..Script::default() });
    assert_eq!(read(&mut connection).await, Ok((200, b"hello".to_vec(), true)));
}

#[tokio::test]
async fn a_large_response_is_one_read_if_the_last_one_was_large() {
    let response = [b"HTTP/1.1 200 x\r\ncontent-length: 50000\r\n\r\n", &[b'x'; 50_000][..]].concat();
    for (last, arrives) in [(0, READ), (50_000, response.len()), (10_000_000, response.len())] {
        let mut connection = sending(&[&response]);
        connection.expect_again(last);
        let head = post(&mut connection, b"{}").await.unwrap();
        assert_eq!(connection.buffered(), arrives + 50_000 - response.len(), "{last}");
        let mut framing = head.framing;
        let mut body = Vec::new();
        while let Some(piece) = connection.piece(&mut framing).await.unwrap() {
            body.extend_from_slice(&piece);
        }
        assert!(body == [b'x'; 50_000] && connection.rest());
        assert!(connection.buffer.capacity() <= READ, "an idle connection holds no large buffer");
    }
}

#[tokio::test]
async fn a_large_response_holds_no_buffer_before_it_comes() {
    let (stream, mut server) = tokio::io::duplex(READ);
    let mut connection = Connection::new(stream, Security::Plain, None);
    {
        let mut beginning = pin!(connection.begin_large(50_000));
        for _ in 0..2 {
            assert!(beginning.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
    }
    assert_eq!(connection.buffer.capacity(), 0);
    // Nor if only a part of its head comes.
    server.write_all(b"HTTP/1.1 200").await.unwrap();
    assert_eq!(connection.begin_large(50_000).await.unwrap(), 12);
    assert_eq!((&connection.buffer[..], connection.buffer.capacity()), (&b"HTTP/1.1 200"[..], READ));
}

#[tokio::test]
async fn a_response_after_a_large_one_holds_at_most_twice_its_size() {
    for length in [8_400, 40_000, 70_000] {
        let head = format!("HTTP/1.1 200 x\r\ncontent-length: {length}\r\n\r\n").into_bytes();
        let mut connection = sending(&[&[head, vec![b'x'; length]].concat()]);
        connection.expect_again(120_000);
        post(&mut connection, b"{}").await.unwrap();
        assert_eq!(connection.buffered(), length);
        let body = connection.take(length).try_into_mut().unwrap();
        assert!(body == vec![b'x'; length] && body.capacity() <= 2 * length, "{}", body.capacity());
    }
}

#[tokio::test]
async fn an_early_beginning_of_a_response_is_kept_if_a_large_one_is_expected() {
    let mut connection = sending(&[b"HTTP/1.1 200 x\r\n", b"content-length: 5\r\n\r\nhello"]);
    connection.stream.takes = [Some(10), Some(0), Some(0)].into();
    connection.expect_again(50_000);
    assert_eq!(read(&mut connection).await, Ok((200, b"hello".to_vec(), true)));
}

#[tokio::test]
async fn a_stream_on_which_nothing_comes_holds_no_buffer() {
    let mut connection = sending(&[b"HTTP/1.1 200 x\r\n\r\n", b"data: 1\n\n"]);
    let mut framing = post(&mut connection, b"{}").await.unwrap().framing;
    assert!(connection.buffer.capacity() > 0);
    let polled = pin!(connection.piece(&mut framing)).poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    assert_eq!(connection.buffer.capacity(), 0);
    assert_eq!(connection.piece(&mut framing).await.unwrap().unwrap(), "data: 1\n\n");
}
