//! A guest without a machine: a network namespace, mounts, processes and a root of its own.

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
    wait::eventually,
};

const SOON: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_mins(2);
/// Builds the root (`$1`), binds programs (`name path`…) into `/opt`, changes into the root, says its id, and stays as the first process.
/// The id comes from within the root: whoever entered the process before would have the machine's root, and its `/etc/resolv.conf`.
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
/// Real lookups, one after the other, each of another name (`$1`, with `$2` attempts): `ok` or `failed`, the name, and when it began and ended (bash, seconds since 1970).
const LOOKUPS: &str = r#"i=0; while :; do i=$((i + 1)); printf -v name "$1" "$i"; begun=$EPOCHREALTIME
if RES_OPTIONS="timeout:1 attempts:$2" getent ahostsv4 "$name" >/dev/null; then result=ok; else result=failed; fi
echo "$result $name $begun $EPOCHREALTIME"; done"#;

/// The guest. All of it ends with its drop.
pub struct Guest {
    // In the order of their drop.
    first: Process,
    id: String,
    folder: tempfile::TempDir,
    namespace: String,
}

impl Guest {
    /// Boots it in the namespace, with these programs in `/opt` by these names.
    pub fn new(namespace: &NetNs, programs: &[(&str, PathBuf)]) -> Result<Self> {
        let folder = tempfile::tempdir().context("a folder for the guest")?;
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

    /// Its root, from outside.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// A file of it, by its path in the guest, as it is from outside.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    /// Writes a file of it, whatever was there, a link included.
    pub fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.path(path);
        let folder = path.parent().context("a path with a folder")?;
        fs::create_dir_all(folder)?;
        if fs::symlink_metadata(&path).is_ok() {
            fs::remove_file(&path)?;
        }
        fs::write(&path, text).with_context(|| path.display().to_string())
    }

    /// Makes a link in the place of whatever is there.
    pub fn link(&self, path: &str, target: &str) -> Result<()> {
        let path = self.path(path);
        if fs::symlink_metadata(&path).is_ok() {
            fs::remove_file(&path)?;
        }
        symlink(target, &path).with_context(|| path.display().to_string())
    }

    /// What programs in it read as `/etc/resolv.conf`.
    pub fn resolv_conf(&self) -> Result<String> {
        self.sh("cat /etc/resolv.conf")
    }

    /// A program in it.
    pub fn launch(&self, program: &str) -> Launch {
        Launch::new("nsenter")
            .args([
                "--target", &self.id, "--mount", "--pid", "--net", "--root",
            ])
            // Its directory is outside of the new root until it changes into that.
            .args(["--", "/usr/bin/env", "-C", "/", "-i"])
            .arg("PATH=/usr/sbin:/usr/bin:/sbin:/bin")
            .arg(program)
    }

    /// A shell script in it: its exit code and what it printed.
    pub fn try_sh(&self, script: &str) -> Result<(i32, String)> {
        self.launch("/bin/sh").args(["-c", script]).said(LONG)
    }

    /// The same, which must succeed.
    pub fn sh(&self, script: &str) -> Result<String> {
        let (code, text) = self.try_sh(script)?;
        ensure!(code == 0, "{script}: {code}: {text}");
        Ok(text)
    }

    /// Looks a name up as programs do: glibc, with `/etc/resolv.conf`.
    pub fn lookup(&self, name: &str) -> Result<()> {
        let script = format!("RES_OPTIONS='timeout:2 attempts:2' getent ahostsv4 {name}");
        self.sh(&script)
            .map(drop)
            .with_context(|| format!("with {:?}", self.resolv_conf()))
    }

    /// Looks names up all along, made from a pattern of printf, e.g. `w%d.example`.
    pub fn watch(&self, pattern: &str) -> Result<Watched> {
        Watched::start(self.launch("/bin/bash"), pattern, 1)
    }

    /// An interface with that address, as NodeLocal DNS makes it: a dummy, or where the kernel has none one end of a cable that leads nowhere.
    pub fn interface(&self, name: &str, address: &str) -> Result<()> {
        self.sh(&format!(
            "ip link add {name} type dummy 2>/dev/null || ip link add {name} type veth peer name nowhere\n\
             ip address add {address} dev {name} && ip link set {name} up && ip address show dev {name}"
        ))
        .map(drop)
    }

    /// Asks for a lease on `eth0`; dhclient stays and writes `/etc/resolv.conf`.
    pub fn dhclient(&self) -> Result<()> {
        self.sh(
            "dhclient -1 -cf /etc/dhcp/dhclient.conf -pf /run/dhclient.pid -lf /var/lib/dhcp/dhclient.eth0.leases eth0 && grep -q nameserver \
             /etc/resolv.conf",
        )
        .map(drop)
    }

    /// Ends it without giving the lease back, as a stop of its service does.
    pub fn stop_dhclient(&self) -> Result<()> {
        // Nobody reaps it here: ended is what has no memory any more.
        self.sh("read -r id </run/dhclient.pid && kill \"$id\" && while grep -q VmSize \"/proc/$id/status\" 2>/dev/null; do sleep 0.05; done")
            .map(drop)
    }

    /// The namespace's name.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Its first process, which ends all others with it.
    pub fn first(&self) -> u32 {
        self.first.id()
    }
}

/// Lookups under way.
pub struct Watched {
    process: Process,
    _folder: tempfile::TempDir,
}

impl Watched {
    /// With a shell of the guest's; each name is asked so often until it counts as failed.
    pub(crate) fn start(shell: Launch, pattern: &str, attempts: u32) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let process = shell
            .args(["-c", LOOKUPS, "lookups", pattern, &attempts.to_string()])
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

    /// Waits for so many lookups more.
    pub fn more(&self, count: usize) -> Result<()> {
        let all = || self.lines("ok ").len() + self.lines("failed ").len();
        let wanted = all() + count;
        eventually(LONG, "lookups", || {
            let now = all();
            ensure!(now >= wanted, "{now} of {wanted}");
            Ok(())
        })
    }

    /// How many succeeded so far, and those that failed.
    pub fn so_far(&self) -> (usize, Vec<String>) {
        (self.lines("ok ").len(), self.lines("failed "))
    }
}
