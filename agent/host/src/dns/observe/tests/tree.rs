//! A guest's file tree, for tests.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use virtfleet_agent_core::dns::Seen;

use super::super::observe;
use crate::{CommandOutput, FakeCommands, Roots};

/// A guest's file tree.
pub(super) struct Tree {
    pub(super) dir: tempfile::TempDir,
    pub(super) roots: Roots,
    processes: u32,
}

impl Tree {
    /// A tree with one address on `eth0`, which has the default route and index 2.
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        let roots = Roots {
            rootfs: at("root"),
            procfs: at("proc"),
            sysfs: at("sys"),
            udev_data: at("udev"),
        };
        let tree = Self {
            dir,
            roots,
            processes: 100,
        };
        let route = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\nlo\n\
            eth0\t00000000\t0102000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            eth0\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        write(&tree.roots.proc("net/route"), route);
        let addresses = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.2.15\n        /32 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n";
        write(&tree.roots.proc("net/fib_trie"), addresses);
        tree.link("eth0", 2, true);
        tree.link("lo", 1, false);
        tree.link("cali123", 9, false);
        tree
    }

    pub(super) fn file(self, path: &str, text: &str) -> Self {
        write(&self.roots.root(path), text);
        self
    }

    pub(super) fn symlink(self, path: &str, target: &str) -> Self {
        let at: PathBuf = self.roots.root(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        symlink(target, at).unwrap();
        self
    }

    pub(super) fn link(&self, name: &str, index: u32, device: bool) {
        let folder = self.roots.sys("class/net").join(name);
        write(&folder.join("ifindex"), &format!("{index}\n"));
        write(
            &folder.join("uevent"),
            &format!("INTERFACE={name}\nIFINDEX={index}\n"),
        );
        if device {
            fs::create_dir(folder.join("device")).unwrap();
        }
    }

    pub(super) fn process(mut self, args: &[&str]) -> Self {
        self.processes += 1;
        let folder = self.roots.proc(self.processes.to_string());
        let name = args[0].rsplit('/').next().unwrap();
        write(
            &folder.join("comm"),
            &format!("{}\n", name.get(..15).unwrap_or(name)),
        );
        write(&folder.join("cmdline"), &(args.join("\0") + "\0"));
        self
    }

    /// Observes the tree; `outputs` maps commands to their output.
    pub(super) fn observe_with(&self, outputs: &[(&'static str, &'static str)]) -> Seen {
        let outputs: Vec<(&str, &str)> = outputs.to_vec();
        let commands = FakeCommands::new(move |line| {
            let stdout = outputs.iter().find(|(command, _)| *command == line)?.1.to_owned();
            Some(CommandOutput {
                stdout,
                ..CommandOutput::default()
            })
        });
        observe(&self.roots, &commands, "boot").unwrap()
    }

    pub(super) fn observe(&self) -> Seen {
        let commands = FakeCommands::new(|line| {
            (line == "systemctl --version").then(|| CommandOutput {
                stdout: "systemd 252 (252.39-1~deb12u1)\n+PAM +AUDIT\n".to_owned(),
                ..CommandOutput::default()
            })
        });
        observe(&self.roots, &commands, "boot").unwrap()
    }
}

/// Writes a file and creates its parent directories.
pub(super) fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}
