//! Sets of feature bits (Virtual I/O Device specification, 2.2 and 6; Linux
//! `include/uapi/linux/virtio_*.h`), and their formats in sysfs and debugfs. The names are in
//! [`net`], [`blk`] and so on; those of all devices are in [`transport`].

mod bits;

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use bits::{
    balloon, blk, console, crypto, fs, gpu, iommu, mem, net, pmem, scsi, sound, transport, vsock,
};

use super::Kind;

/// Set of feature bits: bit *i* of the number is bit *i* of the specification.
///
/// It is serialised as hexadecimal text (`0x10000029d`), because JSON readers keep only 53 bits of
/// a number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Features(pub u128);

/// A text is not a valid set of feature bits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found:?}")]
pub struct FeaturesError {
    pub expected: &'static str,
    /// Found text, at most 40 characters.
    pub found: String,
}

impl FeaturesError {
    fn new(expected: &'static str, found: &str) -> Self {
        Self {
            expected,
            found: found.chars().take(40).collect(),
        }
    }
}

/// Input of [`Features::of_sysfs`].
const LINE: &str = "64 or 128 characters 0 and 1";
/// Input of [`Features::of_debugfs`].
const LIST: &str = "bit numbers below 128, one per line";
/// Text form.
const HEX: &str = "a hexadecimal number such as 0x130000000";

impl Features {
    /// Creates a set from bit numbers; bits above 127 do not exist and are ignored.
    pub fn of(bits: impl IntoIterator<Item = u32>) -> Self {
        bits.into_iter().fold(Self(0), Self::with)
    }

    /// Parses `/sys/bus/virtio/devices/*/features`: character *i* is bit *i*. It has 64 characters,
    /// or 128 from Linux 6.17 on (`drivers/virtio/virtio.c`, `features_show`).
    ///
    /// # Errors
    ///
    /// The text has another length or another character.
    pub fn of_sysfs(text: &str) -> Result<Self, FeaturesError> {
        let line = text.trim();
        let bad = || FeaturesError::new(LINE, line);
        if !matches!(line.len(), 64 | 128) {
            return Err(bad());
        }
        let mut all = Self(0);
        for (bit, letter) in (0_u32..).zip(line.bytes()) {
            match letter {
                b'1' => all = all.with(bit),
                b'0' => {}
                _ => return Err(bad()),
            }
        }
        Ok(all)
    }

    /// Parses `/sys/kernel/debug/virtio/*/device_features`: the bit numbers that the device offers,
    /// one per line (`drivers/virtio/virtio_debug.c`).
    ///
    /// # Errors
    ///
    /// A line is not a valid bit number.
    pub fn of_debugfs(text: &str) -> Result<Self, FeaturesError> {
        let mut all = Self(0);
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let bit = line.parse().ok().filter(|bit| *bit < u128::BITS);
            all = all.with(bit.ok_or_else(|| FeaturesError::new(LIST, line))?);
        }
        Ok(all)
    }

    /// Whether bit `bit` is set.
    pub fn has(self, bit: u32) -> bool {
        bit < u128::BITS && self.0 >> bit & 1 == 1
    }

    #[must_use]
    pub fn with(self, bit: u32) -> Self {
        Self(self.0 | 1_u128.checked_shl(bit).unwrap_or(0))
    }

    #[must_use]
    pub fn without(self, bit: u32) -> Self {
        Self(self.0 & !1_u128.checked_shl(bit).unwrap_or(0))
    }

    /// Numbers of the set bits, ascending.
    pub fn bits(self) -> impl Iterator<Item = u32> {
        (0..u128::BITS).filter(move |bit| self.has(*bit))
    }

    /// Names of the set bits by number, as in the specification without `VIRTIO_` and the type:
    /// `GUEST_TSO4`. A bit without name is `bit 44`.
    pub fn names(self, kind: Kind) -> Vec<String> {
        let name = |bit| bit_name(kind, bit).map_or_else(|| format!("bit {bit}"), str::to_owned);
        self.bits().map(name).collect()
    }

    /// Formats the set like sysfs, with 64 or 128 characters; higher bits are left out.
    pub fn to_sysfs(self, characters: u32) -> String {
        let letter = |bit| if self.has(bit) { '1' } else { '0' };
        (0..characters.min(u128::BITS)).map(letter).collect()
    }
}

/// Name of a bit, of the device's type or of all devices.
pub fn bit_name(kind: Kind, bit: u32) -> Option<&'static str> {
    let of = |names: &[(u32, &'static str)]| names.iter().find(|one| one.0 == bit).map(|one| one.1);
    let own: &[(u32, &'static str)] = match kind {
        Kind::NET => net::NAMES,
        Kind::BLOCK => blk::NAMES,
        Kind::CONSOLE => console::NAMES,
        Kind::BALLOON => balloon::NAMES,
        Kind::SCSI => scsi::NAMES,
        Kind::GPU => gpu::NAMES,
        Kind::VSOCK => vsock::NAMES,
        Kind::CRYPTO => crypto::NAMES,
        Kind::IOMMU => iommu::NAMES,
        Kind::MEM => mem::NAMES,
        Kind::SOUND => sound::NAMES,
        Kind::FS => fs::NAMES,
        Kind::PMEM => pmem::NAMES,
        _ => &[],
    };
    of(own).or_else(|| of(transport::NAMES))
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl Serialize for Features {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Features {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Hex;

        impl de::Visitor<'_> for Hex {
            type Value = Features;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(HEX)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Features, E> {
                let digits = text
                    .strip_prefix("0x")
                    // A sign is not allowed.
                    .filter(|digits| !digits.starts_with('+'));
                let number = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
                let bad = || E::custom(FeaturesError::new(HEX, text));
                number.map(Features).ok_or_else(bad)
            }
        }

        deserializer.deserialize_str(Hex)
    }
}

#[cfg(test)]
mod tests;
