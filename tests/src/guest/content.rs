//! Creates the files behind a guest's disks, without mounting anything.

use std::{
    fs::{self, File},
    io::{Seek as _, SeekFrom, Write as _},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use super::{
    disk::Content,
    metrics,
    seed::{Format, Seed},
    vm::MIB,
};
use crate::process::Launch;

/// Timeout of one tool.
const DEADLINE: Duration = Duration::from_mins(2);
/// Size of every seed in bytes: a snapshot is restored with another seed behind the same device.
const SEED_SIZE: u64 = 4 * MIB;

/// Creates a sparse file of so many bytes.
pub(super) fn blank(path: &Path, bytes: u64) -> Result<()> {
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    file.set_len(bytes)
        .with_context(|| format!("{bytes} bytes of {}", path.display()))
}

/// The file with a disk's content: `own`, unless other guests share it.
pub(super) fn file<'a>(content: &'a Content, own: &'a Path) -> &'a Path {
    match content {
        Content::Shared(image) => image,
        _ => own,
    }
}

/// Writes a disk's content to a raw file.
pub(super) fn disk(content: &Content, path: &Path) -> Result<()> {
    match content {
        Content::Blank(bytes) => blank(path, *bytes),
        Content::Folder { from, label } => folder(from, label, path),
        Content::Raw(image) => Launch::new("cp")
            .args(["--sparse=always", "--"])
            .args([image, path])
            .text(DEADLINE)
            .map(drop),
        Content::Shared(image) => {
            ensure!(image.is_file(), "{} is no file", image.display());
            Ok(())
        }
        Content::DownwardMetrics(xml) => {
            blank(path, metrics::DISK_SIZE)?;
            let mut file = File::options()
                .write(true)
                .open(path)
                .with_context(|| format!("open {}", path.display()))?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&metrics::disk(xml)?)
                .with_context(|| format!("write {}", path.display()))
        }
    }
}

/// Creates an ext4 filesystem from a folder, a quarter larger than the content.
fn folder(from: &Path, label: &str, path: &Path) -> Result<()> {
    let size = taken(from)?;
    blank(path, (size + size / 4 + 16 * MIB).next_multiple_of(MIB))?;
    Launch::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-m", "0", "-L", label, "-d"])
        .args([from, path])
        .text(DEADLINE)
        .map(drop)
}

/// Size of a folder's files in bytes, each rounded up to blocks of 4 KiB.
fn taken(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let entry = entry?;
        let about = entry.metadata()?;
        sum += if about.is_dir() {
            4096 + taken(&entry.path())?
        } else {
            about.len().next_multiple_of(4096)
        };
    }
    Ok(sum)
}

/// Creates a seed; `scratch` is a folder for intermediate files.
pub(super) fn seed(seed: &Seed, path: &Path, scratch: &Path) -> Result<()> {
    let tree = scratch.join("seed.tree");
    for (name, content) in seed.files() {
        let file = tree.join(name);
        fs::create_dir_all(file.parent().unwrap_or(&tree))?;
        fs::write(&file, content).with_context(|| format!("write {}", file.display()))?;
    }
    let made = match seed.format {
        Format::Vfat => vfat(seed, path, &tree),
        Format::Iso => Launch::new("genisoimage")
            .args(["-quiet", "-J", "-R", "-V", seed.label(), "-o"])
            .args([path, &tree])
            .text(DEADLINE)
            .map(drop),
    };
    made.context("make the seed")?;
    fs::remove_dir_all(&tree).with_context(|| format!("remove {}", tree.display()))?;
    let size = fs::metadata(path)?.len();
    ensure!(
        size <= SEED_SIZE,
        "a seed of {size} bytes: {SEED_SIZE} is what stages of a guest leave room for"
    );
    Ok(File::options().write(true).open(path)?.set_len(SEED_SIZE)?)
}

fn vfat(seed: &Seed, path: &Path, tree: &Path) -> Result<()> {
    blank(path, SEED_SIZE)?;
    Launch::new("mkfs.vfat")
        .args(["-n", seed.label()])
        .arg(path)
        .text(DEADLINE)?;
    let mut copy = Launch::new("mcopy").arg("-s").arg("-i").arg(path);
    for entry in fs::read_dir(tree)? {
        copy = copy.arg(entry?.path());
    }
    copy.arg("::/").text(DEADLINE).map(drop)
}

/// Creates a guest's own writable layer over a read-only image.
pub(super) fn overlay(path: &Path, base: &Path, format: &str) -> Result<()> {
    Launch::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2", "-F", format, "-b"])
        .args([base, path])
        .text(DEADLINE)
        .map(drop)
}
