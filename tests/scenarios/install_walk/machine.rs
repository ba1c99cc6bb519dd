//! The machine of an admin who runs the commands of a page: a clone of the sources, a home, and
//! programs in `PATH`. Stand-ins are `make`, which builds nothing; `helm`, which calls the real
//! one; and `kubectl`, which leaves its work to the test. Everything else is real.

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use virtfleet_runtime::digest::Sha256;
use virtfleet_tests::{bins, process::Launch, skip};

use crate::expressions::root;

/// Maximum time of one command.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(2);
/// Stands in for the static agent.
const AGENT: &str = "the agent\n";
/// What the clone does not have.
const NOT_CLONED: [&str; 3] = [".git", "out", "target"];

/// The real make checks the targets, and prints what it would run; what that would build is copied.
const MAKE: &str = r#"#!/bin/sh
unset MAKEFLAGS
"$REAL_MAKE" -n "$@" >"$RECORD/make" && mkdir -p out && cp -a "$BUILT/." out/
"#;
/// The real Helm, with the settings of the test. `--wait` waits for pods, which the test starts
/// after this command.
const HELM: &str = r#"#!/bin/sh
for word do
    shift
    [ "$word" = --wait ] || set -- "$@" "$word"
done
[ "$1" != install ] || set -- "$@" --set-json "config=$SETTINGS"
exec "$REAL_HELM" "$@"
"#;
/// Records its arguments.
const KUBECTL: &str = r#"#!/bin/sh
printf '%s\n' "$@" >"$RECORD/kubectl"
"#;
/// Stands in for virtfleetctl in the archive of krew.
const PLUGIN: &str = "#!/bin/sh\n";

/// The machine.
pub(crate) struct AdminMachine {
    folder: PathBuf,
    helm: PathBuf,
    make: PathBuf,
    settings: String,
}

impl AdminMachine {
    /// A machine in `folder`, with this kubeconfig. `helm install` gets `settings` (JSON) as the
    /// value `config`; `make` builds an agent disk for `registry`.
    pub(crate) fn new(
        folder: &Path,
        helm: PathBuf,
        settings: String,
        kubeconfig: &str,
        registry: &str,
    ) -> Result<Self> {
        let machine = Self {
            folder: folder.to_owned(),
            helm,
            make: skip::program("make")?,
            settings,
        };
        for name in [
            "built/bin",
            "built/image/root/usr/bin",
            "clone",
            "home",
            "record",
            "tools",
        ] {
            fs::create_dir_all(folder.join(name))?;
        }
        fs::write(machine.kubeconfig(), kubeconfig)?;
        let sources = root().canonicalize()?;
        for entry in fs::read_dir(&sources)? {
            let name = entry?.file_name();
            if !NOT_CLONED.iter().any(|other| name == *other) {
                symlink(sources.join(&name), folder.join("clone").join(&name))?;
            }
        }
        for (name, script) in [("make", MAKE), ("helm", HELM), ("kubectl", KUBECTL)] {
            executable(&folder.join("tools").join(name), script)?;
        }
        executable(&folder.join("built/bin/virtfleetctl"), PLUGIN)?;
        symlink(bins::ctl()?, folder.join("built/image/root/usr/bin/virtfleetctl"))?;
        let agent = folder.join("virtfleet-agent");
        fs::write(&agent, AGENT)?;
        Launch::new(sources.join("packaging/image/agent-disk.sh"))
            .args([folder.join("built/agent-disk"), agent])
            .arg(registry)
            .text(COMMAND_TIMEOUT)?;
        Ok(machine)
    }

    /// The kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// A file of the clone.
    pub(crate) fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.folder.join("clone").join(path)
    }

    /// The SHA-256 of the agent that `make` builds.
    pub(crate) fn sum_of_agent() -> String {
        let mut sum = Sha256::default();
        sum.update(AGENT.as_bytes());
        sum.hex()
    }

    /// Runs a command in the clone; returns what it prints. Its exit code must be 0.
    pub(crate) fn run(&self, command: &str) -> Result<String> {
        let at = |name: &str| self.folder.join(name);
        let old = env::var_os("PATH").unwrap_or_default();
        let own = [at("tools"), at("home/.local/bin")];
        let path = env::join_paths(own.into_iter().chain(env::split_paths(&old)))?;
        let script = format!("cd '{}'\n{command}", at("clone").display());
        let mut launch = Launch::new("bash").args(["-euo", "pipefail", "-c", &script]);
        for (name, value) in [
            ("HOME", at("home")),
            ("XDG_CACHE_HOME", at("home/.cache")),
            ("XDG_CONFIG_HOME", at("home/.config")),
            ("XDG_DATA_HOME", at("home/.local/share")),
            ("KUBECONFIG", self.kubeconfig()),
            ("VIRTFLEET_SERVER", PathBuf::new()),
            ("REAL_MAKE", self.make.clone()),
            ("REAL_HELM", self.helm.clone()),
            ("RECORD", at("record")),
            ("BUILT", at("built")),
        ] {
            launch = launch.env(name, value);
        }
        let launch = launch.env("PATH", path).env("SETTINGS", &self.settings);
        let (code, said) = launch.said(COMMAND_TIMEOUT)?;
        ensure!(code == 0, "exit code {code}: {said}");
        Ok(said)
    }

    /// The arguments of the last call of kubectl, one a line; none if there was no call since.
    pub(crate) fn kubectl_call(&self) -> Result<Option<String>> {
        let call = self.folder.join("record/kubectl");
        if !call.exists() {
            return Ok(None);
        }
        let arguments = fs::read_to_string(&call)?;
        fs::remove_file(call)?;
        Ok(Some(arguments))
    }

    /// What the last call of make would have run.
    pub(crate) fn made(&self) -> Result<String> {
        fs::read_to_string(self.folder.join("record/make")).context("make was not called")
    }
}

fn executable(path: &Path, script: &str) -> Result<()> {
    fs::write(path, script)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}
