//! Pages of files in memory, which no longer change.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, FromRawFd as _};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bytes::Bytes;

/// The most texts in pages, since each needs a file descriptor; further ones are ordinary bytes.
const MOST: usize = 16;

/// All texts in pages that are in use, by their addresses.
static KEPT: Mutex<BTreeMap<usize, (usize, Weak<Text>)>> = Mutex::new(BTreeMap::new());

fn kept() -> MutexGuard<'static, BTreeMap<usize, (usize, Weak<Text>)>> {
    KEPT.lock().expect("no code panics while it holds the texts")
}

/// A text in a file, and mapped from it.
struct Text {
    file: File,
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the pages are only read, by whichever thread.
#[allow(unsafe_code)]
unsafe impl Send for Text {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Text {}

/// The owner of bytes in pages.
struct Owner(Arc<Text>);

impl AsRef<[u8]> for Owner {
    #[allow(unsafe_code)]
    fn as_ref(&self) -> &[u8] {
        // SAFETY: that many bytes are mapped until the text is dropped, and the file is sealed against changes.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr(), self.0.length) }
    }
}

impl Drop for Text {
    #[allow(unsafe_code)] // The function has no safe interface.
    fn drop(&mut self) {
        kept().remove(&self.start.addr().get());
        // SAFETY: nobody has a reference to the mapping any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

impl Text {
    #[allow(unsafe_code)] // The functions have no safe interface.
    fn new(text: &[u8]) -> io::Result<Self> {
        const SEALS: libc::c_int =
            libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name ends with NUL.
        let descriptor = checked(unsafe { libc::memfd_create(c"toolgate-list".as_ptr(), flags) })?;
        // SAFETY: the descriptor is new, and nobody else has it.
        let mut file = unsafe { File::from_raw_fd(descriptor) };
        file.write_all(text)?;
        // SAFETY: the descriptor is open, and the command takes a number.
        checked(unsafe { libc::fcntl(descriptor, libc::F_ADD_SEALS, SEALS) })?;
        let length = text.len();
        // SAFETY: the system picks a free place.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, descriptor, 0)
        };
        match NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED) {
            Some(start) => Ok(Self { file, start, length }),
            None => Err(io::Error::last_os_error()),
        }
    }
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub fn pages_with(text: &[u8]) -> Option<Bytes> {
    if kept().len() >= MOST {
        return None;
    }
    let text = Arc::new(Text::new(text).ok()?);
    kept().insert(text.start.addr().get(), (text.length, Arc::downgrade(&text)));
    Some(Bytes::from_owner(Owner(text)))
}

pub fn find(bytes: &Bytes) -> Option<Pages> {
    let address = bytes.as_ptr().addr();
    let kept = kept();
    let (start, (length, text)) = kept.range(..=address).next_back()?;
    let from = address - start;
    // Whoever has the bytes holds the text, so it cannot be dropped here, where the texts are locked.
    let is_inside = from.checked_add(bytes.len()).is_some_and(|end| end <= *length);
    let text = is_inside.then(|| text.upgrade())??;
    Some(Pages { text, at: from as libc::off_t, remaining: bytes.len() })
}

/// A part of a text in pages, which becomes shorter while it is sent.
pub struct Pages {
    text: Arc<Text>,
    at: libc::off_t,
    remaining: usize,
}

impl Pages {
    /// How many bytes have not been sent.
    pub fn remaining(&self) -> usize {
        self.remaining
    }

    /// Sends as much as a socket takes now.
    #[allow(unsafe_code)] // The function has no safe interface.
    pub fn send(&mut self, socket: &impl AsFd) -> io::Result<()> {
        let (to, from) = (socket.as_fd().as_raw_fd(), self.text.file.as_raw_fd());
        // SAFETY: both descriptors are open, and the position is ours.
        let sent = unsafe { libc::sendfile(to, from, &raw mut self.at, self.remaining) };
        match usize::try_from(sent) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => {
                self.remaining -= sent;
                Ok(())
            }
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Held by each test, since there is a limit for all together.
    static TURN: Mutex<()> = Mutex::new(());

    fn text(length: usize) -> Vec<u8> {
        (0..length).map(|index| (index % 251) as u8).collect()
    }

    #[test]
    fn a_part_of_a_text_is_sent_from_its_pages() {
        let _turn = TURN.lock().unwrap();
        let whole = text(300_000);
        let bytes = pages_with(&whole).unwrap();
        assert_eq!(bytes, whole);
        let mut pages = find(&bytes.slice(1000..200_000)).unwrap();
        // What is being sent stays, even if nobody else needs it.
        drop(bytes);
        let (mut reader, writer) = UnixStream::pair().unwrap();
        let received = std::thread::spawn(move || {
            let mut received = Vec::new();
            reader.read_to_end(&mut received).unwrap();
            received
        });
        while pages.remaining() > 0 {
            pages.send(&writer).unwrap();
        }
        drop(writer);
        assert!(received.join().unwrap() == whole[1000..200_000]);
    }

    #[test]
    fn only_texts_in_pages_have_pages() {
        let _turn = TURN.lock().unwrap();
        let (whole, other) = (text(100_000), Bytes::from(text(100_000)));
        let bytes = pages_with(&whole).unwrap();
        assert!(find(&bytes).is_some() && find(&bytes.clone().slice(5..)).is_some());
        assert!(find(&other).is_none() && find(&Bytes::new()).is_none());
        let address = bytes.as_ptr().addr();
        assert!(kept().contains_key(&address));
        drop(bytes);
        assert!(!kept().contains_key(&address));
    }

    #[test]
    fn so_many_texts_and_no_more_are_in_pages() {
        let _turn = TURN.lock().unwrap();
        let whole = text(70_000);
        let all: Vec<_> = (0..MOST + 10).map(|_| crate::keep(whole.clone())).collect();
        assert!(all.iter().all(|bytes| *bytes == whole));
        assert!(all.iter().filter(|bytes| crate::behind(bytes).is_some()).count() <= MOST);
        assert!(kept().len() <= MOST);
    }
}
