//! A root folder that stands in for a guest, and the few programs that must not be this machine's.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use virtfleet_tests::{bins, process::Launch, scratch};
use virtfleet_wire::layered::parse_yaml;

/// Maximum time of one command.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_mins(1);
const AGENT: &str = "opt/virtfleet/bin/virtfleet-agent";

/// A file of the tree.
pub(crate) fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The text that `virtfleetctl render` prints.
pub(crate) fn render<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> String {
    let launch = Launch::new(bins::ctl().unwrap()).arg("render").args(args);
    launch.text(COMMAND_TIMEOUT).unwrap()
}

/// A guest's root with a boot command.
pub(crate) struct Guest {
    pub(crate) folder: tempfile::TempDir,
    shell: &'static str,
    wait: u32,
}

pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) said: String,
}

impl Guest {
    /// With a copy of the real agent beside the root, as its source.
    pub(crate) fn new() -> Self {
        let guest = Self {
            folder: scratch::folder().unwrap(),
            shell: "dash",
            wait: 50,
        };
        for folder in ["root/dev", "root/etc", "root/run", "root/opt", "tools"] {
            fs::create_dir_all(guest.at(folder)).unwrap();
        }
        let users = "root:x:0:0::/:/bin/sh\nvirtfleet:x:0:0::/:/usr/sbin/nologin\n";
        guest.write("root/etc/passwd", users);
        guest.write("root/etc/group", users);
        fs::copy(bins::agent().unwrap(), guest.at("source")).unwrap();
        for tool in ["systemctl", "cloud-init", "reboot", "restorecon"] {
            guest.tool(tool, "");
        }
        guest
    }

    /// With another shell than dash.
    pub(crate) fn shell(mut self, shell: &'static str) -> Self {
        self.shell = shell;
        self
    }

    /// With so many seconds for the delivery instead of more than it takes on a busy machine.
    pub(crate) fn wait(mut self, seconds: u32) -> Self {
        self.wait = seconds;
        self
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_default()
    }

    /// A program that notes how it was called, then does what `script` says.
    pub(crate) fn tool(&self, name: &str, script: &str) {
        let log = self.at("calls");
        let text = format!("#!/bin/sh\necho \"{name} $*\" >>'{}'\n{script}\n", log.display());
        self.write(&format!("tools/{name}"), text);
        let path = self.at(&format!("tools/{name}"));
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What `uname -m` prints here.
    pub(crate) fn machine(&self) -> String {
        let said = self.launch("uname").arg("-m").text(COMMAND_TIMEOUT).unwrap();
        said.trim().to_owned()
    }

    /// What the programs noted.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.text("calls").lines().map(str::to_owned).collect()
    }

    /// SHA-256 of a file.
    pub(crate) fn sum(&self, path: &str) -> String {
        self.sums(&[path.to_owned()]).remove(0)
    }

    /// SHA-256 of each of these files, by one process.
    fn sums(&self, paths: &[String]) -> Vec<String> {
        if paths.is_empty() {
            return Vec::new();
        }
        let launch = Launch::new("sha256sum").args(paths.iter().map(|path| self.at(path)));
        let said = launch.text(COMMAND_TIMEOUT).unwrap();
        let sums = said
            .lines()
            .map(|line| line.split(' ').next().unwrap().to_owned());
        sums.collect()
    }

    /// Renders an input whose sources are these lines and keeps its boot command.
    pub(crate) fn deliver_from(&self, sources: &str, more: &str) {
        self.deliver_agent(&format!("  file: source\n  sources:\n{sources}\n"), more);
    }

    /// As [`Self::deliver_from`], with these lines of `agent`.
    pub(crate) fn deliver_agent(&self, agent: &str, more: &str) {
        let input = format!(
            "apiVersion: virtfleet.io/v1alpha1\nkind: Delivery\nagent:\n{agent}wait: {}s\nsettings: {{ log: {{ \
             level: debug }} }}\n{more}",
            self.wait
        );
        self.write("input.yaml", input);
        let file = self.at("input.yaml");
        let text = render([
            "cloud-init".as_ref(),
            "--text".as_ref(),
            "--without-tls".as_ref(),
            file.as_os_str(),
        ]);
        let document = parse_yaml(&text).unwrap().remove(0).to_json();
        let script = document["bootcmd"][0].as_str().unwrap();
        self.write("boot", script);
    }

    pub(crate) fn deliver_the_source(&self, more: &str) {
        let url = format!("    - url: file://{}", self.at("source").display());
        self.deliver_from(&url, more);
    }

    /// A command in this guest: its root, and its tools before the machine's.
    pub(crate) fn launch(&self, program: &str) -> Launch {
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.at("tools").display());
        Launch::new(program)
            .env("VIRTFLEET_ROOT", self.at("root"))
            .env("PATH", path)
    }

    fn run(launch: Launch) -> Ran {
        let output = launch.output(COMMAND_TIMEOUT).unwrap();
        Ran {
            code: output.status.code(),
            said: String::from_utf8_lossy(&output.stderr).into_owned()
                + &String::from_utf8_lossy(&output.stdout),
        }
    }

    /// Runs the boot command to its end.
    pub(crate) fn boot(&self) -> Ran {
        Self::run(self.launch(self.shell).arg(self.at("boot")))
    }

    /// Runs the delivery as its unit does.
    pub(crate) fn service(&self) -> Ran {
        let script = self.at("root/var/lib/virtfleet/delivery/deliver");
        Self::run(self.launch(self.shell).arg(script))
    }

    /// Whether the agent in place is the source.
    pub(crate) fn has_agent(&self) -> bool {
        self.at(&format!("root/{AGENT}")).exists() && self.sum(&format!("root/{AGENT}")) == self.sum("source")
    }

    /// What [`Self::state`] has of one path below the root; none when nothing is there.
    pub(crate) fn entry(&self, name: &str) -> Option<String> {
        self.at(&format!("root/{name}")).symlink_metadata().ok()?;
        self.entries(vec![name.to_owned()]).remove(name)
    }

    fn entries(&self, names: Vec<String>) -> BTreeMap<String, String> {
        let at = |name: &String| self.at(&format!("root/{name}"));
        let (links, files): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| at(name).is_symlink());
        let paths: Vec<_> = files.iter().map(|name| format!("root/{name}")).collect();
        let files = files.into_iter().zip(self.sums(&paths)).map(|(name, sum)| {
            let mode = fs::symlink_metadata(at(&name)).unwrap().permissions().mode();
            (name, format!("{mode:o} {sum}"))
        });
        let links = links.into_iter().map(|name| {
            let target = fs::read_link(at(&name)).unwrap().display().to_string();
            (name, target)
        });
        files.chain(links).collect()
    }

    /// Every file, link and mode below the root, without what a running system makes.
    pub(crate) fn state(&self) -> BTreeMap<String, String> {
        let mut names = Vec::new();
        let root = self.at("root");
        let mut open = vec![root.clone()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let path = entry.path();
                let name = path.strip_prefix(&root).unwrap().display().to_string();
                if path.is_dir() && !path.is_symlink() {
                    if name != "run" {
                        open.push(path);
                    }
                } else {
                    names.push(name);
                }
            }
        }
        self.entries(names)
    }
}
