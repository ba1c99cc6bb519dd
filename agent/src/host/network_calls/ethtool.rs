//! `SIOCETHTOOL` (`linux/ethtool.h`): link modes, the driver, and the driver's own counters.

use std::{ffi::c_char, os::fd::AsRawFd};

use nix::{
    errno::Errno,
    libc,
    sys::socket::{AddressFamily, SockFlag, SockType, socket},
};

use super::NetworkError;

/// Counters that a driver may have; it has tens, or a few for each queue.
const COUNTERS: usize = 16_384;
/// `ETH_GSTRING_LEN`.
const NAME: usize = 32;

/// What a device's driver says of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ethtool {
    /// None if the driver knows no such thing.
    pub link: Option<LinkModes>,
    /// None if the driver does not say.
    pub driver: Option<Driver>,
    /// Its counters by name, in its order.
    pub counters: Vec<(String, u64)>,
}

/// `ETHTOOL_GSET`: bits of `enum ethtool_link_mode_bit_indices`, the first 32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkModes {
    /// What it can do.
    pub supported: u32,
    /// What it offers to the other side.
    pub advertised: u32,
    /// Whether it finds its mode with the other side.
    pub autonegotiate: bool,
}

/// `ETHTOOL_GDRVINFO`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Driver {
    /// The driver's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The firmware's version.
    pub firmware: String,
    /// Where the device is, e.g. `0000:01:00.0`.
    pub bus: String,
    /// The version of the ROM on the card.
    pub rom: String,
}

mod raw {
    use nix::libc;
    // include/uapi/linux/sockios.h: SIOCETHTOOL.
    nix::ioctl_readwrite_bad!(ethtool, 0x8946, libc::ifreq);
}

/// Asks a device's driver.
///
/// Errors: there is no such device. What a driver does not support is none.
pub(super) fn ask(device: &str) -> Result<Ethtool, NetworkError> {
    let socket = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let mut found = Ethtool::default();
    let call = |words: &mut [u64]| match ioctl(&socket, device, words) {
        Ok(()) => Ok(true),
        Err(Errno::ENODEV) => Err(NetworkError::from(Errno::ENODEV)),
        // Not supported, not now, not by us: the rest may be.
        Err(_) => Ok(false),
    };
    // struct ethtool_cmd, 44 bytes.
    let mut words = command(0x01, 0, 44);
    if call(&mut words)? {
        let bytes = bytes(&words);
        found.link = Some(LinkModes {
            supported: number(&bytes, 4),
            advertised: number(&bytes, 8),
            autonegotiate: bytes[18] != 0,
        });
    }
    // struct ethtool_drvinfo, 196 bytes.
    let mut words = command(0x03, 0, 196);
    if !call(&mut words)? {
        return Ok(found);
    }
    let info = bytes(&words);
    found.driver = Some(Driver {
        name: text(&info[4..36]),
        version: text(&info[36..68]),
        firmware: text(&info[68..100]),
        bus: text(&info[100..132]),
        rom: text(&info[132..164]),
    });
    let count = number(&info, 180) as usize;
    if count == 0 || count > COUNTERS {
        return Ok(found);
    }
    // struct ethtool_gstrings of ETH_SS_STATS and struct ethtool_stats. The kernel writes as many as there are now,
    // whatever was said: there is room for twice as many as any device that we ask.
    let mut names = command(0x1b, 1, 12 + 2 * COUNTERS * NAME);
    let mut values = command(
        0x1d,
        u32::try_from(count).unwrap_or_default(),
        8 + 2 * COUNTERS * 8,
    );
    if !(call(&mut names)? && call(&mut values)?) {
        return Ok(found);
    }
    // The set may have changed between the calls; then a name might stand beside another's value.
    let told = number(&names[1].to_ne_bytes(), 0);
    let counted = number(&values[0].to_ne_bytes(), 4);
    if told as usize != count || counted as usize != count {
        return Ok(found);
    }
    let names = bytes(&names[..(12 + count * NAME).div_ceil(8)]);
    found.counters = names[12..]
        .chunks_exact(NAME)
        .zip(&values[1..])
        .take(count)
        .map(|(name, value)| (text(name).trim().to_owned(), *value))
        .collect();
    Ok(found)
}

/// A zeroed buffer of `length` bytes that begins with the command and its first number.
fn command(command: u32, first: u32, length: usize) -> Vec<u64> {
    let mut words = vec![0; length.div_ceil(8)];
    let [a, b, c, d] = command.to_ne_bytes();
    let [e, f, g, h] = first.to_ne_bytes();
    words[0] = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
    words
}

fn ioctl(socket: &impl AsRawFd, device: &str, words: &mut [u64]) -> Result<(), Errno> {
    let name = device.as_bytes();
    // SAFETY: ifreq holds numbers and pointers only, for all of which 0 is a value.
    #[expect(unsafe_code, reason = "the kernel's structures have no constructor")]
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() || name.contains(&0) {
        return Err(Errno::ENODEV);
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = from.cast_signed() as c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the descriptor is open, the name ends in a NUL, and the buffer, which is borrowed for the call, is as long as
    // the command's structure; `ask` gives those commands whose answers vary more room than any answer takes.
    #[expect(unsafe_code, reason = "ioctl(2) has no safe form")]
    unsafe { raw::ethtool(socket.as_raw_fd(), &raw mut request) }?;
    Ok(())
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let chunk = bytes.get(at..).and_then(|rest| rest.first_chunk());
    chunk.copied().map(u32::from_ne_bytes).unwrap_or_default()
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
