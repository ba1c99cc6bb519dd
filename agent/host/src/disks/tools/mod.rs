//! One wrapper for each tool, each a page: how it is called, and what its exit codes mean.

pub mod blkid;
pub mod btrfs;
pub mod check;
pub mod enroll;
pub mod ext4;
pub mod luks;
pub mod mkfs;
pub mod mount;
pub mod superblock;
pub mod swap;
pub mod xfs;

use std::path::PathBuf;

use crate::CommandError;

/// Why a filesystem's size is not known.
#[derive(Debug, thiserror::Error)]
pub enum SizeError {
    /// The tool failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// It said something else than its size.
    #[error("`{0} {path}` does not say the filesystem's size", path = .1.display())]
    Strange(&'static str, PathBuf),
}
