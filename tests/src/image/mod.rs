//! Container images, written as OCI layouts without a container engine: those of collector and
//! agent, and KubeVirt containerDisks with a disk image.
//! <https://github.com/opencontainers/image-spec/blob/main/image-layout.md>.
//!
//! ```text
//! programs, licence, SBOM ─▶ layer (tar, gzip) ─▶ configuration ─▶ manifest ─▶ index
//! ```
//! The same input gives the same bytes.

mod contents;
mod hashed;
mod layer;
mod layout;
mod program;
mod sbom;

pub use contents::{container_disk, files};
pub use layer::{FileContent, ImageFile, layer, unpack};
pub use layout::{Image, ImageInput};
pub use program::{ImageKind, USER};
pub use sbom::{licence, metadata_options, sbom};
