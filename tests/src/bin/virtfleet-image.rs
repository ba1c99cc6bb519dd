//! Writes container images as OCI layouts: that of collector and CLI (`make image`), that of the
//! agent (`make agent-image`), and a KubeVirt containerDisk with a disk image
//! (`make container-disk`).

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::MetadataCommand;
use clap::Parser;
use flate2::Compression;
use serde_json::json;
use virtfleet_tests::{
    image::{
        ImageInput, ImageKind, container_disk, files, metadata_options, require_static, sbom, write_tree,
    },
    process::Launch,
};

/// Maximum time of git.
const GIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Writes a container image as an OCI layout.
#[derive(Debug, Parser)]
enum Command {
    /// The image of collector and CLI, and beside it its files and software bill of materials
    Collector {
        /// Folder with the static programs virtfleet-collector and virtfleetctl
        #[arg(long)]
        programs: PathBuf,
        /// Folder to write to; it is replaced
        #[arg(long)]
        out: PathBuf,
    },
    /// The image of the agent, and beside it its files and software bill of materials
    Agent {
        /// Folder with the static program virtfleet-agent
        #[arg(long)]
        programs: PathBuf,
        /// Folder to write to; it is replaced
        #[arg(long)]
        out: PathBuf,
    },
    /// A containerDisk of KubeVirt
    ContainerDisk {
        /// The disk image: NAME.qcow2, or a raw one, NAME.img
        disk: PathBuf,
        /// Folder to write to; it must be empty or absent
        #[arg(long)]
        out: PathBuf,
        /// The tag in the index
        #[arg(long, default_value = env!("CARGO_PKG_VERSION"))]
        tag: String,
    },
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Collector { programs, out } => write_programs(ImageKind::Collector, &programs, &out),
        Command::Agent { programs, out } => write_programs(ImageKind::Agent, &programs, &out),
        Command::ContainerDisk { disk, out, tag } => {
            ensure!(disk.is_file(), "{}: no such file", disk.display());
            write(
                &ImageInput {
                    title: "containerDisk".to_owned(),
                    description: "Disk image with the agent of virtfleet, for KubeVirt".to_owned(),
                    files: container_disk(disk),
                    version: tag,
                    revision: String::new(),
                    architecture: architecture(),
                    created: created(Path::new("."))?,
                    // The disk is compressed itself.
                    compression: Compression::fast(),
                    config: json!({}),
                    made_by: "make container-disk".to_owned(),
                },
                &out,
            )
            .map(drop)
        }
    }
}

fn write_programs(kind: ImageKind, programs: &Path, out: &Path) -> Result<()> {
    let metadata = MetadataCommand::new()
        .other_options(metadata_options())
        .exec()
        .context("cargo metadata")?;
    let top = metadata.workspace_root.as_std_path();
    let read = |path: PathBuf| fs::read(&path).with_context(|| format!("read {}", path.display()));
    let lock = String::from_utf8(read(top.join("Cargo.lock"))?)?;
    let bill = sbom(&metadata, &lock, kind.package())?;
    let mut contents = Vec::new();
    for name in kind.programs() {
        let program = read(programs.join(name))?;
        require_static(name, &program)?;
        contents.push((*name, program));
    }
    let input = ImageInput {
        title: kind.package().to_owned(),
        description: kind.description().to_owned(),
        files: files(contents, kind.manual()?, read(top.join("LICENSE"))?, bill.clone()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: git(top, &["rev-parse", "HEAD"])
            .unwrap_or_default()
            .trim()
            .to_owned(),
        architecture: architecture(),
        created: created(top)?,
        compression: Compression::best(),
        config: kind.config(),
        made_by: kind.made_by().to_owned(),
    };
    if out.exists() {
        fs::remove_dir_all(out).with_context(|| format!("remove {}", out.display()))?;
    }
    let bytes = write(&input, &out.join("oci"))?;
    let root = out.join("root");
    fs::create_dir(&root).with_context(|| format!("create {}", root.display()))?;
    write_tree(&input.files, &root)?;
    fs::write(out.join("sbom.cdx.json"), bill)?;
    ensure!(
        bytes <= kind.max_bytes(),
        "the image has {:.1} MiB, the maximum is {:.1}",
        mib(bytes),
        mib(kind.max_bytes())
    );
    Ok(())
}

/// Writes the layout, and prints its digest and size. Returns the size in bytes.
fn write(input: &ImageInput, layout: &Path) -> Result<u64> {
    let image = input.write(layout)?;
    println!(
        "image: {} ({:.1} MiB compressed) {}",
        layout.display(),
        mib(image.size),
        image.digest
    );
    Ok(image.size)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The architecture of this machine, in Go's words.
fn architecture() -> String {
    match env::consts::ARCH {
        "x86_64" => "amd64".to_owned(),
        "aarch64" => "arm64".to_owned(),
        other => other.to_owned(),
    }
}

fn git(top: &Path, arguments: &[&str]) -> Result<String> {
    Launch::new("git")
        .arg("-C")
        .arg(top)
        .args(arguments)
        .text(GIT_TIMEOUT)
}

/// The time of the image, in seconds since 1970: that of the commit.
fn created(top: &Path) -> Result<u64> {
    let text = match env::var("SOURCE_DATE_EPOCH") {
        Ok(time) => time,
        Err(_) => git(top, &["log", "-1", "--format=%ct"])
            .context("the time of the image; outside of git, set SOURCE_DATE_EPOCH")?,
    };
    text.trim().parse().context("SOURCE_DATE_EPOCH, in seconds")
}
