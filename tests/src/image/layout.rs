//! Configuration, manifest and index of the image, and the folder that holds them.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::Path,
};

use anyhow::{Context as _, Result};
use flate2::Compression;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    hashed::Hashed,
    layer::{ImageFile, layer},
};

/// Media types of the image specification.
const MEDIA_TYPE: &str = "application/vnd.oci.image";

/// What an image is made of.
#[derive(Debug, Clone)]
pub struct ImageInput {
    /// Name of the image, for people.
    pub title: String,
    /// What it is for.
    pub description: String,
    /// Files of the image.
    pub files: Vec<ImageFile>,
    /// How much the layer is compressed.
    pub compression: Compression,
    /// How a container of it runs (`config.md` of the image specification), without labels.
    pub config: Value,
    /// The command that made it.
    pub made_by: String,
    /// Version, also the tag in the index.
    pub version: String,
    /// Commit of the sources; empty if it is unknown.
    pub revision: String,
    /// Architecture in Go's words, e.g. `amd64`.
    pub architecture: String,
    /// Time of the commit, in seconds since 1970.
    pub created: u64,
}

/// An image that has been written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Digest of the manifest, `sha256:…`: it names the image in a registry.
    pub digest: String,
    /// Bytes that a registry stores and a node pulls.
    pub size: u64,
}

impl ImageInput {
    /// Writes the image as an OCI layout into `folder`, which must be empty or absent.
    pub fn write(&self, folder: &Path) -> Result<Image> {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        let is_empty = fs::read_dir(folder)?.next().is_none();
        anyhow::ensure!(is_empty, "{} is not empty", folder.display());
        let blobs = Blobs { folder };
        let (layer, archive) = blobs.add(&format!("{MEDIA_TYPE}.layer.v1.tar+gzip"), |out| {
            layer(&self.files, self.created, self.compression, out)
        })?;
        let configuration = self.configuration(&archive)?;
        let configuration = blobs.add_json(&format!("{MEDIA_TYPE}.config.v1+json"), &configuration)?;
        let sizes = [&layer, &configuration].map(|blob| blob["size"].as_u64().unwrap_or_default());
        let media_type = format!("{MEDIA_TYPE}.manifest.v1+json");
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": media_type,
            "config": configuration,
            "layers": [layer],
            "annotations": self.labels()?,
        });
        let mut manifest = blobs.add_json(&media_type, &manifest)?;
        let image = Image {
            digest: manifest["digest"].as_str().unwrap_or_default().to_owned(),
            size: sizes.iter().sum::<u64>() + manifest["size"].as_u64().unwrap_or_default(),
        };
        manifest["platform"] = json!({ "architecture": self.architecture, "os": "linux" });
        manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": self.version });
        let index = json!({
            "schemaVersion": 2,
            "mediaType": format!("{MEDIA_TYPE}.index.v1+json"),
            "manifests": [manifest],
        });
        write(&folder.join("index.json"), &serde_json::to_vec(&index)?)?;
        let layout = json!({ "imageLayoutVersion": "1.0.0" });
        write(&folder.join("oci-layout"), &serde_json::to_vec(&layout)?)?;
        Ok(image)
    }

    /// Labels of the image (`annotations.md` of the image specification).
    fn labels(&self) -> Result<Value> {
        let label = |name: &str| format!("org.opencontainers.image.{name}");
        let mut labels = json!({
            label("title"): self.title,
            label("description"): self.description,
            label("licenses"): "Apache-2.0",
            label("version"): self.version,
            label("created"): self.time()?,
        });
        if !self.revision.is_empty() {
            labels[label("revision")] = self.revision.clone().into();
        }
        Ok(labels)
    }

    fn time(&self) -> Result<String> {
        let seconds = i64::try_from(self.created).context("the time of the commit")?;
        Ok(Timestamp::from_second(seconds)
            .context("the time of the commit")?
            .to_string())
    }

    fn configuration(&self, layer: &str) -> Result<Value> {
        let mut config = self.config.clone();
        config["Labels"] = self.labels()?;
        Ok(json!({
            "created": self.time()?,
            "architecture": self.architecture,
            "os": "linux",
            "config": config,
            "rootfs": { "type": "layers", "diff_ids": [layer] },
            "history": [{ "created": self.time()?, "created_by": self.made_by }],
        }))
    }
}

/// The blobs of a layout.
struct Blobs<'a> {
    folder: &'a Path,
}

impl Blobs<'_> {
    /// Stores what `write` writes as a blob. Returns its descriptor, and what `write` returned.
    fn add<T>(
        &self,
        media_type: &str,
        write: impl FnOnce(&mut dyn Write) -> Result<T>,
    ) -> Result<(Value, T)> {
        let folder = self.folder.join("blobs/sha256");
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        // Its name is its digest, which is known at the end.
        let new = folder.join("new");
        let file = File::create(&new).with_context(|| format!("create {}", new.display()))?;
        let mut hashed = Hashed::new(BufWriter::new(file));
        let value = write(&mut hashed)?;
        let (mut file, digest, size) = hashed.finish();
        file.flush().with_context(|| format!("write {}", new.display()))?;
        let name = digest.strip_prefix("sha256:").context("a digest")?;
        fs::rename(&new, folder.join(name)).with_context(|| format!("rename {}", new.display()))?;
        let descriptor = json!({ "mediaType": media_type, "digest": digest, "size": size });
        Ok((descriptor, value))
    }

    fn add_json(&self, media_type: &str, content: &Value) -> Result<Value> {
        let content = serde_json::to_vec(content)?;
        let (descriptor, ()) = self.add(media_type, |out| Ok(out.write_all(&content)?))?;
        Ok(descriptor)
    }
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    fs::write(path, content).with_context(|| format!("write {}", path.display()))
}
