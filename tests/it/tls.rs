//! TLS: https only, keep-alive, files that change while the gateway runs, and slow handshakes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ProtocolVersion, RootCertStore, SupportedProtocolVersion};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use toolgate::config::TlsFiles;

use crate::support::{Process, TestApp, client, eventually, process};

/// Longer than it takes until a connection counts as idle.
const LONG: Duration = Duration::from_millis(150);
const REQUEST: &[u8] = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A folder with the files of the certificate in use.
struct Pair(TempDir);

impl Pair {
    fn new(name: &str) -> Self {
        let pair = Self(TempDir::new().unwrap());
        pair.put("cert", name);
        pair.put("key", name);
        pair
    }

    fn path(&self, part: &str) -> PathBuf {
        self.0.path().join(format!("{part}.pem"))
    }

    /// Replaces one of the two files.
    fn put(&self, part: &str, name: &str) {
        std::fs::write(self.path(part), stored(part, name)).unwrap();
    }

    fn files(&self) -> TlsFiles {
        TlsFiles { certificate: self.path("cert"), key: self.path("key") }
    }
}

fn stored(part: &str, name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/tls");
    std::fs::read(folder.join(format!("{name}.{part}.pem"))).unwrap()
}

fn certificate(name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(&stored("cert", name)).unwrap()
}

fn connector(versions: &[&'static SupportedProtocolVersion]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(["first", "second"].map(certificate));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    TlsConnector::from(Arc::new(config))
}

async fn connect(address: &str, versions: &[&'static SupportedProtocolVersion]) -> TlsStream<TcpStream> {
    try_connect(address, versions).await.unwrap()
}

async fn try_connect(
    address: &str,
    versions: &[&'static SupportedProtocolVersion],
) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    connector(versions).connect(name, socket).await
}

/// The certificate that new connections get.
async fn presented(address: &str) -> CertificateDer<'static> {
    let stream = connect(address, rustls::DEFAULT_VERSIONS).await;
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

async fn start(pair: &Pair) -> TestApp {
    TestApp::start_with(|config| config.tls = Some(pair.files())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_use_tls_1_2_or_1_3_and_survive_pauses() {
    let app = start(&Pair::new("first")).await;
    for (version, number) in [
        (&rustls::version::TLS12, ProtocolVersion::TLSv1_2),
        (&rustls::version::TLS13, ProtocolVersion::TLSv1_3),
    ] {
        let mut stream = connect(&app.address, &[version]).await;
        let session = stream.get_ref().1;
        assert_eq!(session.protocol_version(), Some(number));
        assert_eq!(session.alpn_protocol(), Some(&b"http/1.1"[..]));
        for _ in 0..3 {
            // Two records, with a pause in the middle of the head.
            stream.write_all(&REQUEST[..20]).await.unwrap();
            stream.flush().await.unwrap();
            assert!(tokio::time::timeout(LONG, stream.read(&mut [0; 1])).await.is_err());
            stream.write_all(&REQUEST[20..]).await.unwrap();
            client::is_healthy(&mut stream).await;
            assert!(tokio::time::timeout(LONG, stream.read(&mut [0; 1])).await.is_err());
        }
        // Several requests in one record.
        stream.write_all(&REQUEST.repeat(2)).await.unwrap();
        let mut said = String::new();
        while said.matches("HTTP/1.1 200").count() < 2 || !said.ends_with('}') {
            let mut part = [0; 1024];
            let length = stream.read(&mut part).await.unwrap();
            assert!(length > 0, "the connection ended after {said:?}");
            said.push_str(&String::from_utf8_lossy(&part[..length]));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_is_not_served_and_urls_say_https() {
    let app = start(&Pair::new("first")).await;
    let said = client::rest(client::raw(&app.address, REQUEST).await).await;
    assert!(!said.contains("HTTP/"), "{said}");
    let mut stream = connect(&app.address, rustls::DEFAULT_VERSIONS).await;
    let request = "GET /api/dashboard/overview HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).await.unwrap();
    let overview: Value = serde_json::from_str(said.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(overview["endpoints"][0]["url"], "https://localhost:1/mcp");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_starting_says_so_over_tls_too() {
    let pair = Pair::new("first");
    let (certificate, key) = (pair.path("cert"), pair.path("key"));
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://anna@{}/tools", silent.local_addr().unwrap());
    let secret_key = "ab".repeat(32);
    let variables = [
        ("TLS_CERT_FILE", certificate.to_str().unwrap()),
        ("TLS_KEY_FILE", key.to_str().unwrap()),
        ("DATABASE_URL", &url),
        ("TOOLGATE_SECRET_KEY", &secret_key),
    ];
    let folder = TempDir::new().unwrap();
    let gateway = process::Unready::start(process::command(folder.path(), &variables)).await;
    let mut stream = connect(&gateway.address, rustls::DEFAULT_VERSIONS).await;
    stream.write_all(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).await.unwrap();
    assert!(said.starts_with("HTTP/1.1 503") && said.ends_with(r#"{"status":"starting"}"#), "{said}");
    let plain = client::rest(client::raw(&gateway.address, REQUEST).await).await;
    assert!(!plain.contains("HTTP/"), "{plain}");
    assert_eq!(gateway.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_files_are_read_again_and_a_wrong_pair_is_not_used() {
    let pair = Pair::new("first");
    let app = start(&pair).await;
    let mut open = connect(&app.address, rustls::DEFAULT_VERSIONS).await;
    assert_eq!(presented(&app.address).await, certificate("first"));
    // The key of the old pair with the certificate of the new one, for longer than one look at the files.
    pair.put("cert", "second");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(6) {
        assert_eq!(presented(&app.address).await, certificate("first"));
        tokio::time::sleep(LONG).await;
    }
    pair.put("key", "second");
    let begun = Instant::now();
    while presented(&app.address).await != certificate("second") {
        assert!(begun.elapsed() < Duration::from_secs(10), "the new pair is not in use");
        tokio::time::sleep(LONG).await;
    }
    open.write_all(REQUEST).await.unwrap();
    client::is_healthy(&mut open).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pair_that_cannot_be_read_is_logged() {
    let pair = Pair::new("first");
    let (certificate, key) = (pair.path("cert"), pair.path("key"));
    let variables =
        [("TLS_CERT_FILE", certificate.to_str().unwrap()), ("TLS_KEY_FILE", key.to_str().unwrap())];
    let gateway = Process::start_in(TempDir::new().unwrap(), &variables).await;
    std::fs::remove_file(&key).unwrap();
    let logged = async || {
        let log = gateway.log.lock().unwrap().clone();
        log.lines().any(|line| line.contains("last good TLS certificate") && line.contains("TLS_KEY_FILE"))
    };
    eventually("the missing file is logged", logged).await;
    let mut stream = connect(&gateway.address, rustls::DEFAULT_VERSIONS).await;
    stream.write_all(REQUEST).await.unwrap();
    client::is_healthy(&mut stream).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_and_a_first_head_share_the_time_of_a_head() {
    let app = start(&Pair::new("first")).await;
    // A handshake that goes on byte by byte.
    let drip = async {
        let mut socket = TcpStream::connect(&app.address).await.unwrap();
        let begun = Instant::now();
        let record = [&[22, 3, 1, 2, 0][..], &[1, 0, 1, 252, 3, 3], &[0; 600]].concat();
        for byte in record {
            let is_closed = socket.write_all(&[byte]).await.is_err()
                || tokio::time::timeout(LONG * 2, socket.read(&mut [0; 1])).await.is_ok();
            if is_closed {
                return begun.elapsed();
            }
        }
        panic!("the connection is still open");
    };
    // A handshake without a request after it.
    let silence = async {
        let begun = Instant::now();
        let mut stream = connect(&app.address, rustls::DEFAULT_VERSIONS).await;
        let _ = tokio::time::timeout(Duration::from_secs(60), stream.read(&mut [0; 1])).await.unwrap();
        begun.elapsed()
    };
    // A head in a record that goes on byte by byte, after a request.
    let half_a_record = async {
        let mut stream = connect(&app.address, rustls::DEFAULT_VERSIONS).await;
        stream.write_all(REQUEST).await.unwrap();
        client::is_healthy(&mut stream).await;
        let begun = Instant::now();
        let (mut socket, _) = stream.into_inner();
        for byte in [&[23, 3, 3, 2, 0][..], &[0; 600]].concat() {
            let is_closed = socket.write_all(&[byte]).await.is_err()
                || tokio::time::timeout(LONG * 2, socket.read(&mut [0; 1])).await.is_ok();
            if is_closed {
                return begun.elapsed();
            }
        }
        panic!("the connection is still open");
    };
    let (first, second, third) = tokio::join!(drip, silence, half_a_record);
    for taken in [first, second, third] {
        assert!((14..40).contains(&taken.as_secs()), "closed after {first:?}, {second:?}, {third:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_connection_rests_and_closes_for_a_new_one() {
    let pair = Pair::new("first");
    let app = TestApp::start_with(|config| {
        config.tls = Some(pair.files());
        config.limits.connections = 2;
    })
    .await;
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(TcpStream::connect(&app.address).await.unwrap());
    }
    // One that does not rest yet is not closed for a new one.
    let connected = OnceCell::new();
    eventually("another one is accepted", async || {
        let connecting = || try_connect(&app.address, rustls::DEFAULT_VERSIONS);
        connected.get_or_try_init(connecting).await.is_ok()
    })
    .await;
    let mut stream = connected.into_inner().unwrap();
    stream.write_all(REQUEST).await.unwrap();
    client::is_healthy(&mut stream).await;
    assert_eq!(silent[0].read(&mut [0; 1]).await.unwrap(), 0, "the first one has rested longest");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_handshakes_hold_is_limited() {
    let pair = Pair::new("first");
    let app = TestApp::start_with(|config| {
        config.tls = Some(pair.files());
        config.limits.buffered_bytes = 512 * 1024;
    })
    .await;
    // A hello of 60,000 bytes in several records, of which the last byte is missing.
    let mut hello = vec![22, 3, 1, 64, 0, 1, 0, 234, 96, 3, 3];
    for rest in [16_378, 16_384, 16_384, 10_853] {
        hello.resize(hello.len() + rest, 0);
        hello.extend([22, 3, 1, 64, 0]);
    }
    let mut held = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(&app.address).await.unwrap();
        let _ = stream.write_all(&hello).await;
        held.push(stream);
    }
    let mut closed = 0;
    for stream in &mut held {
        let read = tokio::time::timeout(LONG, stream.read(&mut [0; 1])).await;
        closed += usize::from(read.is_ok());
    }
    assert!((10..20).contains(&closed), "{closed} of 20 were refused");
    drop(held);
    let is_served = async || {
        let socket = TcpStream::connect(&app.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        connector(rustls::DEFAULT_VERSIONS).connect(name, socket).await.is_ok()
    };
    eventually("there is room again", is_served).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_cannot_be_used_stop_the_start() {
    let folder = TempDir::new().unwrap();
    let (good, other) = (Pair::new("first"), Pair::new("second"));
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    let missing = text(folder.path().join("missing.pem"));
    let (certificate, key) = (text(good.path("cert")), text(good.path("key")));
    for (certificate, key, named) in [
        (&certificate, "", "TLS_KEY_FILE"),
        (&String::new(), key.as_str(), "TLS_CERT_FILE"),
        (&missing, &key, "TLS_CERT_FILE"),
        (&certificate, &missing, "TLS_KEY_FILE"),
        (&key, &key, "no certificate"),
        (&certificate, &certificate, "no private key"),
        (&certificate, &text(other.path("key")), "does not belong"),
    ] {
        let variables = [("TLS_CERT_FILE", certificate.as_str()), ("TLS_KEY_FILE", key)];
        let ended = process::run(process::command(folder.path(), &variables)).await;
        assert!(ended.sentence().contains(named), "{named}: {ended:?}");
    }
}
