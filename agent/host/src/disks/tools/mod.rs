//! One module per external tool: its command line and the meaning of its exit codes.

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
pub mod wipefs;
pub mod xfs;

use std::path::PathBuf;

use crate::CommandError;

/// Why a filesystem's size is unknown.
#[derive(Debug, thiserror::Error)]
pub enum SizeError {
    /// The tool failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The tool printed unexpected output.
    #[error("`{0} {path}` does not print the filesystem's size", path = .1.display())]
    Strange(&'static str, PathBuf),
}
