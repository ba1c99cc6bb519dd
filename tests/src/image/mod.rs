//! Container images, written as OCI layouts without a container engine: those of collector and
//! agent, and KubeVirt containerDisks with a disk image.
//! <https://github.com/opencontainers/image-spec/blob/main/image-layout.md>.
//!
//! ```text
//! programs, man pages, completions, licence, SBOM ─┬─▶ layer (tar, gzip) ─▶ configuration ─▶ manifest ─▶ index
//!                                                  └─▶ a folder, for the Containerfile
//! ```
//! The same input gives the same bytes.

mod contents;
mod hashed;
mod layer;
mod layout;
mod program;
mod sbom;
mod static_program;

pub use contents::{container_disk, files};
pub use layer::{FileContent, ImageFile, layer, unpack, write_tree};
pub use layout::{Image, ImageInput};
pub use program::{ImageKind, USER};
pub use sbom::{licence, metadata_options, sbom};
pub use static_program::require_static;
