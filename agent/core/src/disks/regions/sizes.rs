//! Sizes in bytes.

pub(super) const KIB: u64 = 1 << 10;

pub(super) const MIB: u64 = 1 << 20;

pub(super) const GIB: u64 = 1 << 30;

pub(super) const TIB: u64 = 1 << 40;

/// Alignment of direct reads in bytes.
pub(super) const ALIGN: u64 = 4 * KIB;
