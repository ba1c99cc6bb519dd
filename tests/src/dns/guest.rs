//! A guest without a VM: a network namespace, mounts, processes and a root of its own.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use super::NetNs;
use crate::{
    process::{Launch, Process},
    scratch,
    wait::eventually,
};

const SOON: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_mins(2);
/// Builds the root (`$1`), binds programs (`name path`…) into `/opt`, enters the root, prints its
/// process id, and stays as the first process. The id is printed from inside the root: a process
/// that entered earlier would have the machine's root and `/etc/resolv.conf`.
const FIRST: &str = r#"set -e; r=$1; shift
mount --bind "$r" "$r"
for d in usr bin sbin lib lib64 dev; do
    [ -d "/$d" ] || continue
    mkdir -p "$r/$d"; mount --rbind "/$d" "$r/$d"
done
mount -t proc proc "$r/proc"
mount -t sysfs sysfs "$r/sys"
while [ $# -gt 0 ]; do : >"$r/opt/$1"; mount --bind "$2" "$r/opt/$1"; shift 2; done
read -r id rest </proc/self/stat
echo "$id" >"$r/run/first.new"
exec chroot "$r" /bin/sh -c 'mv /run/first.new /run/first && exec sleep infinity'"#;
/// Real lookups, one after the other, each of another name (`$1`, with the resolver options `$2`).
/// Prints `ok` or `failed`, the name, and the start and end (bash, seconds since 1970).
const LOOKUPS: &str = r#"i=0; while :; do i=$((i + 1)); printf -v name "$1" "$i"; begun=$EPOCHREALTIME
if RES_OPTIONS="$2" getent ahostsv4 "$name" >/dev/null; then result=ok; else result=failed; fi
echo "$result $name $begun $EPOCHREALTIME"; done"#;

/// The guest. Dropping it ends all its processes.
pub struct Guest {
    // In drop order.
    first: Process,
    id: String,
    folder: tempfile::TempDir,
    namespace: String,
}

impl Guest {
    /// Boots the guest in the namespace, with these programs in `/opt` under these names.
    pub fn new(namespace: &NetNs, programs: &[(&str, PathBuf)]) -> Result<Self> {
        let folder = scratch::marked().context("a folder for the guest")?;
        let root = folder.path().join("root");
        for path in [
            "etc/dhcp/dhclient-enter-hooks.d",
            "run",
            "var/lib/dhcp",
            "proc",
            "sys",
            "dev",
            "tmp",
            "opt",
        ] {
            fs::create_dir_all(root.join(path))?;
        }
        fs::write(root.join("etc/nsswitch.conf"), "hosts: files dns\n")?;
        fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n")?;
        // dhclient's script reads it.
        fs::write(root.join("etc/fstab"), "")?;
        fs::write(
            root.join("etc/dhcp/dhclient.conf"),
            "timeout 20;\nrequest subnet-mask, broadcast-address, routers, domain-name, domain-name-servers, domain-search;\n",
        )?;
        for file in ["passwd", "group", "ld.so.cache"] {
            let from = Path::new("/etc").join(file);
            if from.exists() {
                fs::copy(&from, root.join("etc").join(file))?;
            }
        }
        let mut launch = Launch::new("unshare")
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--kill-child=KILL",
                "--propagation",
                "private",
                "--",
                "/bin/sh",
                "-c",
                FIRST,
                "first",
            ])
            .arg(&root);
        for (name, path) in programs {
            launch = launch.arg(name).arg(path);
        }
        let mut first = launch
            .in_namespace(namespace.name())
            .tied()
            .start(folder.path())?;
        let said = root.join("run/first");
        let id = first.wait_for(SOON, "the guest's first process", |_| {
            fs::read_to_string(&said).context("not yet")
        })?;
        Ok(Self {
            first,
            id: id.trim().to_owned(),
            folder,
            namespace: namespace.name().to_owned(),
        })
    }

    /// The path of its root, from outside.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// The path of one of its files, from outside.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    /// Writes a file in the guest; replaces whatever is there, including a link.
    pub fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.path(path);
        let folder = path.parent().context("a path with a folder")?;
        fs::create_dir_all(folder)?;
        if fs::symlink_metadata(&path).is_ok() {
            fs::remove_file(&path)?;
        }
        fs::write(&path, text).with_context(|| path.display().to_string())
    }

    /// Creates a symbolic link in the guest; replaces whatever is there.
    pub fn link(&self, path: &str, target: &str) -> Result<()> {
        let path = self.path(path);
        if fs::symlink_metadata(&path).is_ok() {
            fs::remove_file(&path)?;
        }
        symlink(target, &path).with_context(|| path.display().to_string())
    }

    /// The content of `/etc/resolv.conf` in the guest.
    pub fn resolv_conf(&self) -> Result<String> {
        self.sh("cat /etc/resolv.conf")
    }

    /// Prepares a program to run in the guest.
    pub fn launch(&self, program: &str) -> Launch {
        Launch::new("nsenter")
            .args([
                "--target", &self.id, "--mount", "--pid", "--net", "--root",
            ])
            // The working directory is outside the new root until it changes into it.
            .args(["--", "/usr/bin/env", "-C", "/", "-i"])
            .arg("PATH=/usr/sbin:/usr/bin:/sbin:/bin")
            .arg(program)
    }

    /// Runs a shell script in the guest; returns its exit code and output.
    pub fn try_sh(&self, script: &str) -> Result<(i32, String)> {
        self.launch("/bin/sh").args(["-c", script]).said(LONG)
    }

    /// As [`Guest::try_sh`], but the script must succeed.
    pub fn sh(&self, script: &str) -> Result<String> {
        let (code, text) = self.try_sh(script)?;
        ensure!(code == 0, "{script}: {code}: {text}");
        Ok(text)
    }

    /// Resolves a name as programs do: through glibc and `/etc/resolv.conf`.
    pub fn lookup(&self, name: &str) -> Result<()> {
        let script = format!("RES_OPTIONS='timeout:2 attempts:2' getent ahostsv4 {name}");
        self.sh(&script)
            .map(drop)
            .with_context(|| format!("with {:?}", self.resolv_conf()))
    }

    /// Starts continuous lookups of names made from a printf pattern, e.g. `w%d.example`. Each name
    /// is tried once: a lost query fails, and a busy machine has time to answer.
    pub fn watch(&self, pattern: &str) -> Result<Watched> {
        Watched::start(self.launch("/bin/bash"), pattern, "timeout:5 attempts:1")
    }

    /// Adds an interface with that address, as NodeLocal DNSCache does: a dummy interface or, if
    /// the kernel has none, one end of an unconnected veth pair.
    pub fn interface(&self, name: &str, address: &str) -> Result<()> {
        self.sh(&format!(
            "ip link add {name} type dummy 2>/dev/null || ip link add {name} type veth peer name nowhere\n\
             ip address add {address} dev {name} && ip link set {name} up && ip address show dev {name}"
        ))
        .map(drop)
    }

    /// Requests a lease on `eth0`; dhclient stays and writes `/etc/resolv.conf`.
    pub fn dhclient(&self) -> Result<()> {
        self.sh(
            "dhclient -1 -cf /etc/dhcp/dhclient.conf -pf /run/dhclient.pid -lf /var/lib/dhcp/dhclient.eth0.leases eth0 && grep -q nameserver \
             /etc/resolv.conf",
        )
        .map(drop)
    }

    /// Ends dhclient without releasing the lease, as a stop of its service does.
    pub fn stop_dhclient(&self) -> Result<()> {
        // No process reaps it here: a process without memory has ended.
        self.sh("read -r id </run/dhclient.pid && kill \"$id\" && while grep -q VmSize \"/proc/$id/status\" 2>/dev/null; do sleep 0.05; done")
            .map(drop)
    }

    /// The namespace's name.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Process id of the first process; when it ends, all others end.
    pub fn first(&self) -> u32 {
        self.first.id()
    }
}

/// Continuous lookups.
pub struct Watched {
    process: Process,
    _folder: tempfile::TempDir,
}

impl Watched {
    /// Starts the lookups in a shell of the guest, with these options of the resolver
    /// (resolv.conf(5)).
    pub(crate) fn start(shell: Launch, pattern: &str, options: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let process = shell
            .args(["-c", LOOKUPS, "lookups", pattern, options])
            .tied()
            .start(folder.path())?;
        let watched = Self {
            process,
            _folder: folder,
        };
        watched.more(3)?;
        Ok(watched)
    }

    fn lines(&self, kind: &str) -> Vec<String> {
        let log = self.process.log();
        let lines = log.lines().filter(|line| line.starts_with(kind));
        lines.map(str::to_owned).collect()
    }

    /// Waits for `count` more lookups.
    pub fn more(&self, count: usize) -> Result<()> {
        let all = || self.lines("ok ").len() + self.lines("failed ").len();
        let wanted = all() + count;
        eventually(LONG, "lookups", || {
            let now = all();
            ensure!(now >= wanted, "{now} of {wanted}");
            Ok(())
        })
    }

    /// Number of successful lookups so far, and the failed ones.
    pub fn so_far(&self) -> (usize, Vec<String>) {
        (self.lines("ok ").len(), self.lines("failed "))
    }
}
