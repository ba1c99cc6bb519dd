//! A relay that answers 200 and then does not do what it says.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// What the relay does after its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray)]
pub(super) enum Lie {
    /// Connects to the VM of another tenant.
    OtherVm,
    /// Closes the connection.
    Drop,
    /// Sends what the VM sent on an earlier connection.
    Replay,
    /// Closes the connection in the middle of the handshake.
    Cut,
    /// Sends random bytes.
    Garbage,
    /// Sends nothing.
    Slow,
    /// Changes one bit of what the VM sends.
    Flip,
    /// Sends an endless answer of its own.
    Endless,
}

/// Bytes of the VM after which [`Lie::Cut`] and the recording of [`Lie::Replay`] end. Less than a
/// handshake with its certificate.
const CUT_BYTES: usize = 300;

impl Lie {
    pub(super) const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The classes of failure that it may cause.
    pub(super) fn failures(self) -> &'static [&'static str] {
        match self {
            Self::OtherVm => &["wrong_vm"],
            Self::Slow => &["timeout"],
            Self::Endless => &["connect"],
            Self::Drop | Self::Replay | Self::Cut | Self::Garbage | Self::Flip => &["tls"],
        }
    }
}

/// Starts the relay on a free port; it lives as long as the process. `other` is the address of
/// another tenant's VM.
pub(super) fn start(lie: Lie, other: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let recorded = Arc::new(Mutex::new(Vec::new()));
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let recorded = Arc::clone(&recorded);
            // Its errors are the collector closing the connection.
            thread::spawn(move || serve(stream, lie, other, &recorded).ok());
        }
    });
    address
}

fn serve(
    mut collector: TcpStream,
    lie: Lie,
    other: SocketAddr,
    recorded: &Mutex<Vec<u8>>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        collector.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    if lie == Lie::Endless {
        return endless(&mut collector);
    }
    collector.write_all(b"HTTP/1.1 200 connected\r\n\r\n")?;
    let head = String::from_utf8_lossy(&head).into_owned();
    let vm: SocketAddr = head.split(' ').nth(1).unwrap().parse().unwrap();
    // The client's first record.
    let mut first = [0; 4096];
    let read = collector.read(&mut first)?;
    match lie {
        // Endless is handled above: its answer is the lie.
        Lie::Drop | Lie::Endless => Ok(()),
        Lie::Slow => collector.read_to_end(&mut Vec::new()).map(drop),
        Lie::Garbage => collector.write_all(&[0xa5; 5000]),
        Lie::OtherVm => pass(collector, other, &first[..read], |_| {}, usize::MAX),
        Lie::Flip => {
            let flip = |bytes: &mut [u8]| {
                if let Some(last) = bytes.last_mut() {
                    *last ^= 1;
                }
            };
            pass(collector, vm, &first[..read], flip, usize::MAX)
        }
        Lie::Cut => pass(collector, vm, &first[..read], |_| {}, CUT_BYTES),
        Lie::Replay => {
            let known = recorded.lock().unwrap().clone();
            if !known.is_empty() {
                collector.write_all(&known)?;
                return collector.read_to_end(&mut Vec::new()).map(drop);
            }
            let record = |bytes: &mut [u8]| recorded.lock().unwrap().extend_from_slice(bytes);
            pass(collector, vm, &first[..read], record, CUT_BYTES)
        }
    }
}

/// An answer without end.
fn endless(collector: &mut TcpStream) -> std::io::Result<()> {
    collector.write_all(b"HTTP/1.1 200 ")?;
    loop {
        collector.write_all(&[b'x'; 1024])?;
    }
}

/// Passes bytes to `vm` and at most `max` bytes back, each piece after `change`.
fn pass(
    mut collector: TcpStream,
    vm: SocketAddr,
    first: &[u8],
    mut change: impl FnMut(&mut [u8]),
    max: usize,
) -> std::io::Result<()> {
    let mut vm = TcpStream::connect(vm)?;
    vm.write_all(first)?;
    let (mut from, mut to) = (collector.try_clone()?, vm.try_clone()?);
    thread::spawn(move || std::io::copy(&mut from, &mut to).ok());
    let (mut buffer, mut passed) = ([0; 4096], 0);
    while passed < max {
        let read = vm.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        let end = read.min(max - passed);
        change(&mut buffer[..end]);
        collector.write_all(&buffer[..end])?;
        passed += end;
    }
    collector.shutdown(Shutdown::Both)
}
