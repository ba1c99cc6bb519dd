//! Builds the agent's RPM package from a tree of files and four scripts. `build.sh` prepares the
//! tree.

mod package;

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;

/// Build the agent's RPM package
#[derive(Debug, Parser)]
#[command(name = "virtfleet-rpm")]
struct Arguments {
    /// Root of the files, as in the guest
    #[arg(long)]
    tree: PathBuf,
    /// Folder of the scripts post, preun and postun
    #[arg(long)]
    scripts: PathBuf,
    /// Version of the package
    #[arg(long)]
    version: String,
    /// Architecture, as `uname -m` prints it
    #[arg(long)]
    arch: String,
    /// Time of the build, in seconds since 1970
    #[arg(long)]
    source_date: u32,
    /// Folder of the package
    #[arg(long)]
    out: PathBuf,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let package = package::build(&package::PackageSource {
        tree: &arguments.tree,
        scripts: &arguments.scripts,
        version: &arguments.version,
        arch: &arguments.arch,
        built_at: arguments.source_date,
    })?;
    let path = package.write_to(&arguments.out)?;
    println!("rpm: {}", path.display());
    Ok(())
}
