//! Large texts that are sent again and again, such as lists, in pages that the kernel sends from without a copy. They are
//! ordinary [`Bytes`] for everybody else; whoever sends bytes asks for [`Pages`] behind them. Elsewhere than on Linux there
//! are none.

#[cfg(target_os = "linux")]
mod linux;

use bytes::Bytes;

/// Copying a shorter text costs less than sending it apart from what is around it.
const SHORTEST: usize = 64 * 1024;

/// Puts a text into pages, if it is large enough.
pub fn keep(text: Vec<u8>) -> Bytes {
    match text.len() < SHORTEST {
        true => text.into(),
        false => pages_with(&text).unwrap_or_else(|| text.into()),
    }
}

/// The pages that some bytes are in; `None` for ordinary bytes.
pub fn behind(bytes: &Bytes) -> Option<Pages> {
    match bytes.len() < SHORTEST {
        true => None,
        false => find(bytes),
    }
}

#[cfg(target_os = "linux")]
pub use linux::Pages;
#[cfg(target_os = "linux")]
use linux::{find, pages_with};

#[cfg(not(target_os = "linux"))]
pub enum Pages {}

#[cfg(not(target_os = "linux"))]
impl Pages {
    pub fn remaining(&self) -> usize {
        match *self {}
    }

    pub fn send<S>(&mut self, _socket: &S) -> std::io::Result<()> {
        match *self {}
    }
}

#[cfg(not(target_os = "linux"))]
fn pages_with(_text: &[u8]) -> Option<Bytes> {
    None
}

#[cfg(not(target_os = "linux"))]
fn find(_bytes: &Bytes) -> Option<Pages> {
    None
}
