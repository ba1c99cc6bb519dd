//! `tests/parts/crates.sh` and `agent.sh`: clones share compiled crates of the registry, and the
//! agent that was built from the same sources, and nothing else.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::process::Launch;

const TIMEOUT: Duration = Duration::from_secs(30);

fn crates(verb: &str, cache: &Path, target: &Path) -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("parts/crates.sh");
    let (code, said) = Launch::new(script)
        .arg(verb)
        .env("VIRTFLEET_CRATES", cache)
        .env("CARGO_TARGET_DIR", target)
        .said(TIMEOUT)?;
    ensure!(code == 0, "{said}");
    Ok(())
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let file = folder.join("debug").join(name);
    fs::create_dir_all(file.parent().context("its folder")?)?;
    Ok(fs::write(file, text)?)
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for part in [".fingerprint", "build", "deps"] {
        for entry in fs::read_dir(folder.join("debug").join(part))? {
            found.push(format!("{part}/{}", entry?.file_name().display()));
        }
    }
    found.sort();
    Ok(found)
}

#[test]
fn only_crates_of_the_registry_are_shared_and_only_with_an_empty_target_folder() {
    let folder = tempfile::tempdir().unwrap();
    let [cache, first, second] = ["cache", "first", "second"].map(|name| folder.path().join(name));
    let (foreign, own) = ("0123456789abcdef", "fedcba9876543210");
    for (name, text) in [
        (format!(".fingerprint/libc-{foreign}/lib-libc"), "1"),
        (
            format!(".fingerprint/virtfleet-wire-{own}/lib-virtfleet_wire"),
            "2",
        ),
        (format!("build/libc-{foreign}/output"), "3"),
        (format!("deps/liblibc-{foreign}.rlib"), "4"),
        (format!("deps/libvirtfleet_wire-{own}.rlib"), "5"),
        (format!("deps/scenarios-{own}"), "6"),
    ] {
        write(&first, &name, text).unwrap();
    }
    crates("save", &cache, &first).unwrap();
    crates("restore", &cache, &second).unwrap();
    let shared = [
        format!(".fingerprint/libc-{foreign}"),
        format!("build/libc-{foreign}"),
        format!("deps/liblibc-{foreign}.rlib"),
    ];
    assert_eq!(names(&second).unwrap(), shared);
    // Cargo compares the times of these files.
    let time = |folder: &Path| {
        let file = folder.join(format!("debug/deps/liblibc-{foreign}.rlib"));
        fs::metadata(file).unwrap().modified().unwrap()
    };
    assert_eq!(time(&first), time(&second));

    // What was built in this clone is never replaced.
    write(&second, &format!("deps/liblibc-{foreign}.rlib"), "built here").unwrap();
    crates("restore", &cache, &second).unwrap();
    let kept = second.join(format!("debug/deps/liblibc-{foreign}.rlib"));
    assert_eq!(fs::read_to_string(kept).unwrap(), "built here");
}

/// A project of which only the files matter that the scripts read, and a cache.
struct Project {
    folder: tempfile::TempDir,
}

impl Project {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let parts = folder.path().join("tests/parts");
        fs::create_dir_all(&parts)?;
        for script in ["crates.sh", "agent.sh"] {
            fs::copy(own.join("parts").join(script), parts.join(script))?;
        }
        let project = Self { folder };
        for name in [
            "Cargo.toml",
            "Cargo.lock",
            "Makefile",
            "agent/main.rs",
            "agent/unit",
        ] {
            project.write(name, name)?;
        }
        Ok(project)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let file = self.folder.path().join(name);
        fs::create_dir_all(file.parent().context("its folder")?)?;
        Ok(fs::write(file, text)?)
    }

    fn built(&self) -> PathBuf {
        let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let release = self.folder.path().join("target").join(triple).join("release");
        release.join("virtfleet-agent")
    }

    /// The agent and its list of sources, as cargo writes them.
    fn build(&self, program: &str) -> Result<()> {
        let built = self.built();
        fs::create_dir_all(built.parent().context("its folder")?)?;
        let root = self.folder.path().display();
        let list = format!(
            "{}: {root}/agent/main.rs {root}/agent/../agent/unit\n",
            built.display()
        );
        fs::write(built.with_extension("d"), list)?;
        Ok(fs::write(built, program)?)
    }

    /// Runs a script; its exit code.
    fn run(&self, script: &str, verb: &str) -> Result<i32> {
        let parts = self.folder.path().join("tests/parts");
        let (code, said) = Launch::new(parts.join(script))
            .arg(verb)
            .env("VIRTFLEET_CRATES", self.folder.path().join("cache"))
            .env("CARGO_TARGET_DIR", self.folder.path().join("target"))
            .said(TIMEOUT)?;
        ensure!(code == 0 || said.is_empty(), "{said}");
        Ok(code)
    }

    /// Whether a clone without anything built gets an agent, and which.
    fn restored(&self) -> Result<Option<String>> {
        fs::remove_dir_all(self.folder.path().join("target"))?;
        let code = self.run("agent.sh", "restore")?;
        let found = fs::read_to_string(self.built()).ok();
        ensure!((code == 0) == found.is_some(), "{code}: {found:?}");
        fs::create_dir_all(self.folder.path().join("target"))?;
        Ok(found)
    }
}

#[test]
fn an_agent_is_shared_only_between_the_same_sources() {
    let project = Project::new().unwrap();
    project.build("first").unwrap();
    for script in ["crates.sh", "agent.sh"] {
        assert_eq!(project.run(script, "save").unwrap(), 0);
    }
    assert_eq!(project.restored().unwrap().as_deref(), Some("first"));
    let list = fs::read_to_string(project.built().with_extension("d")).unwrap();
    for source in ["agent/main.rs", "agent/unit"] {
        let source = project.folder.path().join(source);
        assert!(list.contains(&format!(" {}", source.display())), "{list}");
    }
    // What was built in this clone is left to cargo.
    assert_eq!(project.run("agent.sh", "restore").unwrap(), 1);

    for name in [
        "agent/main.rs",
        "agent/unit",
        "Makefile",
        "Cargo.toml",
        "Cargo.lock",
    ] {
        project.write(name, "changed").unwrap();
        assert_eq!(project.restored().unwrap(), None, "{name}");
        project.write(name, name).unwrap();
    }
    // Two states of the sources are kept at the same time.
    project.write("agent/main.rs", "changed").unwrap();
    project.build("second").unwrap();
    assert_eq!(project.run("agent.sh", "save").unwrap(), 0);
    assert_eq!(project.restored().unwrap().as_deref(), Some("second"));
    project.write("agent/main.rs", "agent/main.rs").unwrap();
    assert_eq!(project.restored().unwrap().as_deref(), Some("first"));

    // Edited while it was built.
    project.build("third").unwrap();
    project.write("agent/main.rs", "edited").unwrap();
    let source = fs::File::options()
        .write(true)
        .open(project.folder.path().join("agent/main.rs"))
        .unwrap();
    source
        .set_modified(SystemTime::now() + Duration::from_mins(1))
        .unwrap();
    assert_eq!(project.run("agent.sh", "save").unwrap(), 0);
    assert_eq!(project.restored().unwrap(), None);
}
