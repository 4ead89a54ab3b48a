//! A load balancer without stickiness: each connection goes to the next gateway. It runs until this program ends.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use anyhow::Result;

/// What clients send to use a connection for several requests, and what they send otherwise, in the same length.
const KEEP: &[u8; 22] = b"connection: keep-alive";
const CLOSE: &[u8; 22] = b"connection: close     ";
/// The longest head of a request.
const HEAD: usize = 64 * 1024;

/// Starts a balancer in front of gateways, and returns its address.
pub fn start(gateways: Vec<String>) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    thread::spawn(move || {
        for (client, gateway) in listener.incoming().flatten().zip(gateways.iter().cycle()) {
            let gateway = gateway.clone();
            thread::spawn(move || serve(client, &gateway));
        }
    });
    Ok(address)
}

/// Serves a connection. A failure of one side ends both.
fn serve(mut client: TcpStream, gateway: &str) -> io::Result<()> {
    let mut gateway = TcpStream::connect(gateway)?;
    let (mut from_gateway, mut to_client) = (gateway.try_clone()?, client.try_clone()?);
    let answering = thread::spawn(move || {
        let _ = io::copy(&mut from_gateway, &mut to_client);
        to_client.shutdown(Shutdown::Both)
    });
    let mut first = vec![0; HEAD];
    let length = client.read(&mut first)?;
    gateway.write_all(for_one_request(&mut first[..length]))?;
    let _ = io::copy(&mut client, &mut gateway);
    gateway.shutdown(Shutdown::Write)?;
    let _ = answering.join();
    Ok(())
}

/// Asks the gateway to close the connection after its response, so that the next request of the client goes elsewhere.
fn for_one_request(bytes: &mut [u8]) -> &[u8] {
    let found = bytes.windows(KEEP.len()).position(|part| part.eq_ignore_ascii_case(KEEP));
    if let Some(start) = found {
        bytes[start..start + KEEP.len()].copy_from_slice(CLOSE);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_used_for_one_request() {
        let mut request = *b"POST / HTTP/1.1\r\nConnection: Keep-Alive\r\n\r\n";
        assert_eq!(for_one_request(&mut request), b"POST / HTTP/1.1\r\nconnection: close     \r\n\r\n");
    }
}
