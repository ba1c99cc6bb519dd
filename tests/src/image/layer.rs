//! The one layer of the image.

use std::{
    collections::BTreeSet,
    fs::{self, File, Permissions},
    io::{Read, Write},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use tar::{Archive, Builder, EntryType, Header};

use super::hashed::Hashed;

/// Content of a file of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileContent {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Those of a file, which is read while the layer is written.
    File(PathBuf),
}

/// A file of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFile {
    /// Path without the leading slash, e.g. `usr/bin/virtfleetctl`.
    pub path: String,
    /// Permissions, e.g. 0o755.
    pub mode: u32,
    /// User and group, by number.
    pub owner: u32,
    /// Its content.
    pub content: FileContent,
}

/// Writes a layer with these files and their folders, which belong to root: a tar archive,
/// compressed with gzip. `time` is the time of change of all entries, in seconds since 1970.
/// Returns the digest of the archive before its compression.
pub fn layer(files: &[ImageFile], time: u64, compression: Compression, out: impl Write) -> Result<String> {
    let mut files: Vec<&ImageFile> = files.iter().collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let mut folders = BTreeSet::new();
    for file in &files {
        let parents = Path::new(&file.path).ancestors().skip(1);
        folders.extend(parents.filter_map(Path::to_str).filter(|path| !path.is_empty()));
    }
    let mut archive = Builder::new(Hashed::new(GzEncoder::new(out, compression)));
    for folder in folders {
        let mut header = header(EntryType::Directory, 0o755, 0, time);
        header.set_size(0);
        archive
            .append_data(&mut header, format!("{folder}/"), &[][..])
            .with_context(|| folder.to_owned())?;
    }
    for file in files {
        append(&mut archive, file, time).with_context(|| file.path.clone())?;
    }
    let (gzip, digest, _) = archive.into_inner().context("the archive")?.finish();
    gzip.finish().context("compress the layer")?;
    Ok(digest)
}

fn append(archive: &mut Builder<impl Write>, file: &ImageFile, time: u64) -> Result<()> {
    let mut header = header(EntryType::Regular, file.mode, file.owner, time);
    let mut append = |size: u64, content: &mut dyn Read| -> Result<()> {
        header.set_size(size);
        Ok(archive.append_data(&mut header, &file.path, content)?)
    };
    match &file.content {
        FileContent::Bytes(bytes) => append(bytes.len() as u64, &mut bytes.as_slice()),
        FileContent::File(path) => {
            let mut source = File::open(path).with_context(|| format!("open {}", path.display()))?;
            append(source.metadata()?.len(), &mut source)
        }
    }
}

fn header(kind: EntryType, mode: u32, owner: u32, time: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(owner.into());
    header.set_gid(owner.into());
    header.set_mtime(time);
    header
}

/// Writes the files and their folders into `folder`, which must exist, with their permissions. They
/// belong to the caller. `folder` becomes the root of an image: all users may enter it.
pub fn write_tree(files: &[ImageFile], folder: &Path) -> Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(0o755))
        .with_context(|| format!("set the permissions of {}", folder.display()))?;
    for file in files {
        let path = folder.join(&file.path);
        let write = || -> Result<()> {
            let parents = path.ancestors().skip(1).take_while(|parent| *parent != folder);
            let parents: Vec<&Path> = parents.collect();
            for parent in parents.into_iter().rev() {
                fs::create_dir_all(parent)?;
                fs::set_permissions(parent, Permissions::from_mode(0o755))?;
            }
            match &file.content {
                FileContent::Bytes(bytes) => fs::write(&path, bytes)?,
                FileContent::File(source) => drop(fs::copy(source, &path)?),
            }
            Ok(fs::set_permissions(&path, Permissions::from_mode(file.mode))?)
        };
        write().with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Unpacks a compressed layer into a folder.
pub fn unpack(layer: impl Read, folder: &Path) -> Result<()> {
    let mut archive = Archive::new(GzDecoder::new(layer));
    archive.set_preserve_permissions(true);
    for entry in archive.entries().context("the layer is no archive")? {
        let mut entry = entry.context("an entry of the layer")?;
        let path = entry.path().context("a path in the layer")?.into_owned();
        let is_inside = entry
            .unpack_in(folder)
            .with_context(|| path.display().to_string())?;
        ensure!(is_inside, "{} is outside of the image", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_files_does_not_matter() {
        let file = |path: &str| ImageFile {
            path: path.to_owned(),
            mode: 0o755,
            owner: 7,
            content: FileContent::Bytes(path.as_bytes().to_vec()),
        };
        let layer = |files: &[ImageFile]| {
            let mut bytes = Vec::new();
            let digest = layer(files, 5, Compression::best(), &mut bytes).unwrap();
            (digest, bytes)
        };
        let (one, two) = (file("usr/bin/a"), file("etc/b"));
        let first = layer(&[one.clone(), two.clone()]);
        assert_eq!(first, layer(&[two, one]));
        let mut archive = Archive::new(GzDecoder::new(first.1.as_slice()));
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let header = entry.header();
            let owner = if header.entry_type() == EntryType::Regular {
                7
            } else {
                0
            };
            assert_eq!((header.uid().unwrap(), header.mtime().unwrap()), (owner, 5));
            (path, header.mode().unwrap())
        });
        let expected = [
            ("etc/", 0o755),
            ("usr/", 0o755),
            ("usr/bin/", 0o755),
            ("etc/b", 0o755),
            ("usr/bin/a", 0o755),
        ];
        let expected = expected.map(|(path, mode)| (path.to_owned(), mode));
        assert_eq!(entries.collect::<Vec<_>>(), expected);
    }

    /// With umask 077 the folder is private when it is made, and container engines copy its mode.
    #[test]
    fn every_user_may_enter_the_root_of_the_tree() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        let file = ImageFile {
            path: "etc/a".to_owned(),
            mode: 0o644,
            owner: 0,
            content: FileContent::Bytes(Vec::new()),
        };
        write_tree(&[file], folder.path()).unwrap();
        let mode = |path: &str| {
            let metadata = fs::metadata(folder.path().join(path)).unwrap();
            metadata.permissions().mode() & 0o777
        };
        assert_eq!(["", "etc", "etc/a"].map(mode), [0o755, 0o755, 0o644]);
    }
}
