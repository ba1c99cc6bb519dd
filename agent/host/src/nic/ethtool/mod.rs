//! `SIOCETHTOOL` (`linux/ethtool.h`): what drivers of network interfaces are asked and told. The ioctl and its buffers are here and nowhere
//! else; what the answers mean is in the files below.

mod queues;
mod told;

use std::{
    ffi::c_char,
    os::fd::{AsRawFd as _, OwnedFd},
};

use nix::{
    errno::Errno,
    libc,
    sys::socket::{AddressFamily, SockFlag, SockType, socket},
};

pub use told::{Driver, LinkModes};

/// Counters that a driver may have; it has tens, or a few for each queue.
const COUNTERS: usize = 16_384;
/// `ETH_GSTRING_LEN`.
const NAME: usize = 32;
/// `ETH_SS_STATS`: the counters, among the sets of strings that a driver has.
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

/// A command whose structure is `N` numbers of 32 bits, the first of them the command.
#[derive(Debug, Clone, Copy)]
struct Command<const N: usize>(u32);

/// The drivers of this network namespace.
pub(super) struct Drivers(OwnedFd);

impl Drivers {
    /// A socket to ask through; any does.
    pub(super) fn open() -> Result<Self, Errno> {
        socket(
            AddressFamily::Inet,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .map(Self)
    }

    /// Asks for a structure of numbers, or gives one.
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

    /// The driver's counters by name, in its order. There are `count` of them, as it has said; none when the set has changed since.
    fn counters(&self, device: &str, count: usize) -> Result<Vec<(String, u64)>, Errno> {
        if count == 0 || count > COUNTERS {
            return Ok(Vec::new());
        }
        // struct ethtool_gstrings and struct ethtool_stats. The kernel writes as many as there are now, whatever was said: there is room for twice as many as any
        // device that we ask.
        let mut names = command_of(STRINGS, STATISTICS, 12 + 2 * COUNTERS * NAME);
        let mut values = command_of(
            VALUES,
            u32::try_from(count).unwrap_or_default(),
            8 + 2 * COUNTERS * 8,
        );
        self.call(device, &mut names)?;
        self.call(device, &mut values)?;
        // The set may have changed between the calls; then a name might stand beside another's value.
        let told = number(&names[1].to_ne_bytes(), 0);
        let counted = number(&values[0].to_ne_bytes(), 4);
        if told as usize != count || counted as usize != count {
            return Ok(Vec::new());
        }
        let names = bytes(&names[..(12 + count * NAME).div_ceil(8)]);
        let both = names[12..].chunks_exact(NAME).zip(&values[1..]).take(count);
        Ok(both
            .map(|(name, value)| (text(name).trim().to_owned(), *value))
            .collect())
    }

    /// The ioctl. `words` begin with a command and are as long as its structure, or, for those commands whose answers vary, longer than any answer.
    fn call(&self, device: &str, words: &mut [u64]) -> Result<(), Errno> {
        let name = device.as_bytes();
        // SAFETY: ifreq holds numbers and pointers only, for all of which 0 is a value.
        #[expect(unsafe_code, reason = "the kernel's structures have no constructor")]
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains(&0) {
            return Err(Errno::ENODEV);
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name) {
            *to = from.cast_signed() as c_char;
        }
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        // SAFETY: the descriptor is open, the name ends in a NUL, and the buffer, which is borrowed for the call, is as long as
        // the command's structure: `numbers` takes the length from the command's type, `told` gives that of its two structures,
        // and `counters` gives those commands whose answers vary more room than any answer takes.
        #[expect(unsafe_code, reason = "ioctl(2) has no safe form")]
        unsafe { raw::ethtool(self.0.as_raw_fd(), &raw mut request) }?;
        Ok(())
    }
}

/// None for what a driver does not support.
fn supported<T>(answer: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Errno::EOPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// A zeroed buffer of `length` bytes that begins with the command and its first number.
fn command_of(command: u32, first: u32, length: usize) -> Vec<u64> {
    let mut words = vec![0; length.div_ceil(8)];
    put(&mut words, 0, command);
    if length >= 8 {
        put(&mut words, 1, first);
    }
    words
}

/// Writes the number of 32 bits with this index.
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
    fn numbers_stand_where_the_structure_has_them() {
        let mut words = command_of(0x3d, 7, 36);
        assert_eq!(words.len(), 5);
        put(&mut words, 8, 9);
        put(&mut words, 99, 1);
        let bytes = bytes(&words);
        assert_eq!([0, 4, 8, 32].map(|at| number(&bytes, at)), [0x3d, 7, 0, 9]);
        assert_eq!(number(&bytes, 38), 0, "beyond the end");
        assert_eq!(command_of(3, 1, 4).len(), 1);
    }

    #[test]
    fn a_name_that_is_none_is_no_device() {
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
    fn loopback_supports_none_of_it() {
        let drivers = Drivers::open().unwrap();
        assert_eq!(drivers.channels("lo"), Ok(None));
        assert_eq!(drivers.rings("lo"), Ok(None));
        assert_eq!(drivers.coalescing("lo"), Ok(None));
        assert_eq!(drivers.statistics("lo"), Ok(Vec::new()));
        // Without the right to, the kernel does not come to ask the driver.
        let answer = drivers.set_channels("lo", 1);
        assert!(
            matches!(answer, Err(Errno::EOPNOTSUPP | Errno::EPERM)),
            "{answer:?}"
        );
    }
}
