//! `SIOCETHTOOL` (`linux/ethtool.h`): requests to drivers of network interfaces. Only this module
//! has the ioctl and its buffers; the submodules interpret the answers.

mod driver;
mod queues;

use std::{
    ffi::c_char,
    os::fd::{AsRawFd as _, OwnedFd},
};

use nix::{
    errno::Errno,
    libc,
    sys::socket::{AddressFamily, SockFlag, SockType, socket},
};

pub use driver::{Driver, LinkModes};

/// Maximum number of counters. A driver has tens, or a few per queue.
const MAX_COUNTERS: usize = 16_384;
/// `ETH_GSTRING_LEN`.
const NAME_BYTES: usize = 32;
/// `ETH_SS_STATS`: the set of strings with the names of the counters.
const STATISTICS: u32 = 1;
/// `ETHTOOL_GSTRINGS`.
const STRINGS: u32 = 0x1b;
/// `ETHTOOL_GSTATS`.
const VALUES: u32 = 0x1d;

mod raw {
    use nix::libc;
    // include/uapi/linux/sockios.h: SIOCETHTOOL.
    nix::ioctl_readwrite_bad!(ethtool, 0x8946, libc::ifreq);
}

/// A command whose structure consists of `N` 32-bit numbers; the first is the command.
#[derive(Debug, Clone, Copy)]
struct Command<const N: usize>(u32);

/// The drivers in this network namespace.
pub(super) struct Drivers(OwnedFd);

impl Drivers {
    /// Opens a socket for the ioctls; any kind of socket works.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn open() -> Result<Self, Errno> {
        socket(
            AddressFamily::Inet,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .map(Self)
    }

    /// Reads or writes a structure of numbers.
    fn numbers<const N: usize>(
        &self,
        device: &str,
        command: Command<N>,
        mut numbers: [u32; N],
    ) -> Result<[u32; N], Errno> {
        let mut words = command_of(command.0, 0, size_of_val(&numbers));
        for (index, number) in numbers.iter().enumerate().skip(1) {
            put(&mut words, index, *number);
        }
        self.call(device, &mut words)?;
        let bytes = bytes(&words);
        for (index, to) in numbers.iter_mut().enumerate() {
            *to = number(&bytes, 4 * index);
        }
        Ok(numbers)
    }

    /// The driver's counters by name, in its order. `count` is the number that the driver reported.
    /// Empty if the set has changed since.
    fn counters(&self, device: &str, count: usize) -> Result<Vec<(String, u64)>, Errno> {
        if count == 0 || count > MAX_COUNTERS {
            return Ok(Vec::new());
        }
        // struct ethtool_gstrings and struct ethtool_stats. The kernel writes the current number of
        // counters, independent of the request, so the buffer has room for twice the supported
        // maximum.
        let mut names = command_of(STRINGS, STATISTICS, 12 + 2 * MAX_COUNTERS * NAME_BYTES);
        let mut values = command_of(
            VALUES,
            u32::try_from(count).unwrap_or_default(),
            8 + 2 * MAX_COUNTERS * 8,
        );
        self.call(device, &mut names)?;
        self.call(device, &mut values)?;
        // If the set changed between the calls, names and values would not match.
        let reported = number(&names[1].to_ne_bytes(), 0);
        let counted = number(&values[0].to_ne_bytes(), 4);
        if reported as usize != count || counted as usize != count {
            return Ok(Vec::new());
        }
        let names = bytes(&names[..(12 + count * NAME_BYTES).div_ceil(8)]);
        let both = names[12..].chunks_exact(NAME_BYTES).zip(&values[1..]).take(count);
        Ok(both
            .map(|(name, value)| (text(name).trim().to_owned(), *value))
            .collect())
    }

    /// Calls the ioctl. `words` starts with a command and is as long as the command's structure or,
    /// for commands with answers of variable length, longer than any answer.
    fn call(&self, device: &str, words: &mut [u64]) -> Result<(), Errno> {
        let name = device.as_bytes();
        // SAFETY: ifreq consists of numbers and pointers, for which zero is a valid value.
        #[expect(unsafe_code, reason = "the kernel's structures have no constructor")]
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains(&0) {
            return Err(Errno::ENODEV);
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name) {
            *to = from.cast_signed() as c_char;
        }
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        // SAFETY: the descriptor is open, the name ends with a NUL, and the buffer, which is
        // borrowed for the call, is as long as the command's structure: `numbers` takes the length
        // from the command's type, `driver` and `link_modes` pass that of their structures, and
        // `counters` has more room than any answer of variable length.
        #[expect(unsafe_code, reason = "ioctl(2) has no safe form")]
        unsafe { raw::ethtool(self.0.as_raw_fd(), &raw mut request) }?;
        Ok(())
    }
}

/// `None` if the driver does not support the command.
fn supported<T>(answer: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Errno::EOPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// A zeroed buffer of `length` bytes that starts with the command and its first number.
fn command_of(command: u32, first: u32, length: usize) -> Vec<u64> {
    let mut words = vec![0; length.div_ceil(8)];
    put(&mut words, 0, command);
    if length >= 8 {
        put(&mut words, 1, first);
    }
    words
}

/// Writes the 32-bit number at this index.
fn put(words: &mut [u64], index: usize, number: u32) {
    let Some(word) = words.get_mut(index / 2) else {
        return;
    };
    let mut bytes = word.to_ne_bytes();
    let at = 4 * (index % 2);
    bytes[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    *word = u64::from_ne_bytes(bytes);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_at_their_offsets() {
        let mut words = command_of(0x3d, 7, 36);
        assert_eq!(words.len(), 5);
        put(&mut words, 8, 9);
        put(&mut words, 99, 1);
        let bytes = bytes(&words);
        assert_eq!([0, 4, 8, 32].map(|at| number(&bytes, at)), [0x3d, 7, 0, 9]);
        assert_eq!(number(&bytes, 38), 0, "behind the end");
        assert_eq!(command_of(3, 1, 4).len(), 1);
    }

    #[test]
    fn an_invalid_name_is_no_device() {
        let drivers = Drivers::open().unwrap();
        for name in [
            "",
            "no-such-device",
            "a\0b",
            "a name of more than fifteen characters",
        ] {
            assert_eq!(drivers.channels(name), Err(Errno::ENODEV), "{name:?}");
            assert_eq!(drivers.set_channels(name, 1), Err(Errno::ENODEV), "{name:?}");
            assert_eq!(drivers.statistics(name), Err(Errno::ENODEV), "{name:?}");
        }
    }

    #[test]
    fn loopback_supports_no_command() {
        let drivers = Drivers::open().unwrap();
        assert_eq!(drivers.channels("lo"), Ok(None));
        assert_eq!(drivers.rings("lo"), Ok(None));
        assert_eq!(drivers.coalescing("lo"), Ok(None));
        assert_eq!(drivers.statistics("lo"), Ok(Vec::new()));
        // Without the privilege, the kernel does not call the driver.
        let answer = drivers.set_channels("lo", 1);
        assert!(
            matches!(answer, Err(Errno::EOPNOTSUPP | Errno::EPERM)),
            "{answer:?}"
        );
    }
}
