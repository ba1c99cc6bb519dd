//! The files of the images.

use std::path::PathBuf;

use super::layer::{FileContent, ImageFile};
use crate::manual::ManualFile;

/// The user of the program, for tools that show names.
const PASSWD: &str = "virtfleet:x:65532:65532::/:/\n";
/// Its group.
const GROUP: &str = "virtfleet:x:65532:\n";
/// User and group of QEMU in KubeVirt's virt-launcher, which reads a containerDisk
/// (<https://kubevirt.io/user-guide/storage/disks_and_volumes/#containerdisk>).
const QEMU: u32 = 107;

/// All files of an image of the project: the programs by name, their man pages and completions by
/// path, licence and bill of materials.
pub fn files(
    programs: Vec<(&str, Vec<u8>)>,
    manual: Vec<ManualFile>,
    licence: Vec<u8>,
    bill: Vec<u8>,
) -> Vec<ImageFile> {
    let file = |path: String, mode, content| ImageFile {
        path,
        mode,
        owner: 0,
        content: FileContent::Bytes(content),
    };
    let text = |path: &str, content| file(path.to_owned(), 0o644, content);
    let mut files = vec![
        text("etc/passwd", PASSWD.into()),
        text("etc/group", GROUP.into()),
        text("usr/share/doc/virtfleet/LICENSE", licence),
        text("usr/share/doc/virtfleet/sbom.cdx.json", bill),
    ];
    for (name, content) in programs {
        files.push(file(format!("usr/bin/{name}"), 0o755, content));
    }
    for (path, content) in manual {
        files.push(file(path, 0o644, content));
    }
    files
}

/// The one file of a containerDisk of KubeVirt: a disk image, qcow2 or raw, below `/disk`.
pub fn container_disk(image: PathBuf) -> Vec<ImageFile> {
    let kind = image
        .extension()
        .map_or("img".into(), |kind| kind.to_string_lossy());
    vec![ImageFile {
        path: format!("disk/disk.{kind}"),
        mode: 0o440,
        owner: QEMU,
        content: FileContent::File(image),
    }]
}
