//! The stage, as used by the tests.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use virtfleet_wire::settings::DiskSettings;

use super::{LoopDisk, folder, systemd};
use crate::{
    bins,
    process::{Launch, Process},
    skip,
    wait::eventually,
};

const SOON: Duration = Duration::from_secs(30);
/// Timeout of a reconcile run; longer than any run of the tests.
const PASS: Duration = Duration::from_mins(5);

/// Requires root, loop devices and the programs that the stage uses.
pub fn needs(programs: &[&str]) -> Result<()> {
    skip::root()?;
    ensure!(
        Path::new("/dev/loop-control").exists(),
        "there are no loop devices"
    );
    for program in ["losetup", "unshare", "blkid"].iter().chain(programs) {
        let found = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
            .iter()
            .any(|folder| Path::new(folder).join(program).is_file());
        ensure!(found, "{program} is not installed; as root: tests/parts/setup.sh");
    }
    Ok(())
}

/// Requires that a mounted filesystem of this kind can be grown here. The kernel requires
/// `CAP_SYS_RESOURCE` for ext4, and root in a container may lack it.
pub fn grows(filesystem: &str) -> Result<()> {
    const SYS_RESOURCE: u64 = 1 << 24;
    let status = fs::read_to_string("/proc/self/status")?;
    let mut lines = status.lines().filter_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = lines.next().context("CapEff in /proc/self/status")?;
    let capabilities = u64::from_str_radix(capabilities.trim(), 16)?;
    ensure!(
        filesystem != "ext4" || capabilities & SYS_RESOURCE != 0,
        "root has no CAP_SYS_RESOURCE here, without which the kernel grows no mounted ext4"
    );
    Ok(())
}

/// An order to the stage: a reconcile run, or a script.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Order {
    /// A shell script to run instead of a reconcile run.
    pub script: Option<String>,
    /// The declared disks.
    pub disks: Vec<DiskSettings>,
    /// The VM's UUID.
    pub vm: String,
    /// Whether systemd is simulated ([`super::StagedSystemd`]); otherwise there is none.
    pub systemd: bool,
    /// The reconcile run of a boot, not a later one.
    pub boot: bool,
    /// The number of the loop device that is treated as the root disk.
    pub root_loop: Option<u32>,
    /// Only compute the plan.
    pub plan: bool,
    /// An approval by the user: disk name and evidence.
    pub approve: Option<(String, String)>,
    /// Kill the run with SIGKILL at this point between two effects, counted from 1.
    pub kill_at: Option<usize>,
    /// Kill the run with SIGKILL after so many microseconds.
    pub kill_after_us: Option<u64>,
    /// Kill only the process of the run; its child processes continue.
    pub orphans: bool,
    /// Run this shell script at the point whose name has this suffix, before the run continues.
    pub script_at: Option<(String, String)>,
}

impl Order {
    /// Stops this program at its fifth write in the run of `disk`, and then kills the agent. strace
    /// sends the signal: whoever looks for the process may find it only after it has ended. (Before
    /// the point `audited` its version was asked.)
    pub fn freezing(disk: &str, program: &str) -> Self {
        let script = format!(
            "A=$PPID; strace -f -o /tmp/calls -e trace=pwrite64 \
             -e inject=pwrite64:signal=SIGSTOP:when=5 -p $A </dev/null >/dev/null 2>/tmp/tracer & S=$!; \
             while ! grep -q attached /tmp/tracer; do kill -0 $S || exit 1; sleep 0.01; done; \
             (while ! grep -q \"stopped by SIGSTOP\" /tmp/calls; do sleep 0.01; done; kill -KILL $S; \
             while ! grep -q \"^State:.T\" /proc/$(pidof {program})/status; do sleep 0.01; done; \
             kill -KILL $A) </dev/null >/dev/null 2>&1 &"
        );
        Self {
            script_at: Some((format!("{disk} audited"), script)),
            kill_after_us: Some(60_000_000),
            orphans: true,
            ..Self::default()
        }
    }
}

/// Result of an order.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Outcome {
    /// The run was killed.
    pub killed: bool,
    /// Exit code if it was not killed.
    pub code: i32,
    /// Its output, or why it failed.
    pub text: String,
    /// The state of the disks (`disks.json`).
    pub state: Value,
    /// The plan.
    pub plan: Value,
    /// Whether anything was changed.
    pub changed: bool,
    /// The points that the run reached.
    pub points: Vec<String>,
    /// Duration of the run in microseconds.
    pub us: u64,
}

impl Outcome {
    /// State of a disk: `ready` and so on.
    pub fn standing(&self, name: &str) -> String {
        let disks = self.state["disks"].as_array();
        let disk = disks.and_then(|disks| disks.iter().find(|disk| disk["name"] == name));
        disk.map_or("absent".to_owned(), |disk| {
            disk["standing"].as_str().unwrap_or("unknown").to_owned()
        })
    }

    /// Kinds of a disk's refusals.
    pub fn refusals(&self, name: &str) -> Vec<String> {
        let of = |list: &Value, key: &str| -> Vec<String> {
            list[key]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|disk| disk["name"] == name)
                .flat_map(|disk| disk["refusals"].as_array().cloned().unwrap_or_default())
                .filter_map(|refusal| Some(refusal["kind"].as_str()?.to_owned()))
                .collect()
        };
        let of_plan = of(&self.plan, "disks");
        if of_plan.is_empty() {
            of(&self.state, "disks")
        } else {
            of_plan
        }
    }
}

impl Outcome {
    /// The error in a disk's state.
    pub fn error(&self, name: &str) -> String {
        let disks = self.state["disks"].as_array().into_iter().flatten();
        let mut errors = disks
            .filter(|disk| disk["name"] == name)
            .map(|disk| &disk["error"]);
        errors
            .next()
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    }
}

/// A separate root in which the engine works on loop devices.
pub struct Stage {
    // In drop order.
    host: Option<Process>,
    folder: tempfile::TempDir,
    boots: u32,
    /// Unique for each stage: stages that run at the same time see each other's loop devices, and
    /// the engine refuses two filesystems with one UUID.
    vm: String,
}

impl Stage {
    /// Builds and boots the root.
    pub fn new() -> Result<Self> {
        let folder = folder::new()?;
        let mut stage = Self {
            host: None,
            folder,
            boots: 0,
            vm: format!("6f1c1f3a-95d6-5e0b-8b43-{:012x}", fastrand::u64(..) >> 16),
        };
        let root = stage.root();
        for path in [
            "etc",
            "run/udev/data",
            "var/lib",
            "proc",
            "sys",
            "dev",
            "tmp",
            "srv",
        ] {
            fs::create_dir_all(root.join(path))?;
        }
        for file in ["mke2fs.conf", "passwd", "group"] {
            let from = Path::new("/etc").join(file);
            if from.exists() {
                fs::copy(&from, root.join("etc").join(file))?;
            }
        }
        stage.boot()?;
        Ok(stage)
    }

    /// The path of the root, from outside.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// A folder for the files behind disks.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends everything in the stage, mounts included, and boots again with another boot id and an
    /// empty `/run`.
    pub fn boot(&mut self) -> Result<()> {
        drop(self.host.take());
        self.boots += 1;
        let root = self.root();
        let state = root.join("run/virtfleet");
        if state.exists() {
            fs::remove_dir_all(&state)?;
        }
        let socket = root.join("run/stage.sock");
        drop(fs::remove_file(&socket));
        fs::write(
            root.join("run/boot_id"),
            format!("00000000-0000-4000-8000-{:012}\n", self.boots),
        )?;
        let logs = self.folder.path().join(format!("log-{}", self.boots));
        fs::create_dir(&logs)?;
        let mut host = Launch::new("unshare")
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--kill-child=KILL",
                "--propagation",
                "private",
                "--",
            ])
            .arg(bins::disk_stage()?)
            .arg("host")
            .arg(&root)
            .tied()
            .start(&logs)?;
        host.wait_for(SOON, "the stage's socket", |_| {
            UnixStream::connect(&socket).map(drop).context("no answer")
        })?;
        self.host = Some(host);
        Ok(())
    }

    /// Sets a disk's serial in udev's database.
    pub fn serial(&self, disk: &LoopDisk, serial: &str) -> Result<()> {
        let file = self
            .root()
            .join("run/udev/data")
            .join(format!("b{}", disk.number()?));
        fs::write(file, format!("E:ID_SERIAL_SHORT={serial}\n")).context("udev's data")
    }

    /// Removes a disk's serial.
    pub fn no_serial(&self, disk: &LoopDisk) -> Result<()> {
        let file = self
            .root()
            .join("run/udev/data")
            .join(format!("b{}", disk.number()?));
        fs::remove_file(file).context("udev's data")
    }

    /// Executes an order.
    pub fn order(&self, order: &Order) -> Result<Outcome> {
        let mut order = order.clone();
        if order.vm.is_empty() {
            self.vm.clone_into(&mut order.vm);
        }
        let mut stream = UnixStream::connect(self.root().join("run/stage.sock")).context("the stage")?;
        stream.set_read_timeout(Some(PASS))?;
        stream.write_all((serde_json::to_string(&order)? + "\n").as_bytes())?;
        let mut line = String::new();
        BufReader::new(stream)
            .read_line(&mut line)
            .context("the stage says nothing")?;
        serde_json::from_str(&line).with_context(|| format!("the stage says {line:?}"))
    }

    /// Makes a reconcile run with these disks.
    pub fn pass(&self, disks: &[DiskSettings]) -> Result<Outcome> {
        let outcome = self.order(&Order {
            disks: disks.to_vec(),
            ..Order::default()
        })?;
        ensure!(outcome.code == 0, "the pass failed: {}", outcome.text);
        Ok(outcome)
    }

    /// Repeats reconcile runs until the disk reaches this state, because leftovers of an
    /// interrupted run may still be busy. Returns the last outcome.
    pub fn pass_until(&self, disks: &[DiskSettings], name: &str, standing: &str) -> Result<Outcome> {
        eventually(SOON, &format!("disk {name} {standing}"), || {
            let outcome = self.pass(disks)?;
            ensure!(
                outcome.standing(name) == standing,
                "{}",
                serde_json::to_string(&outcome.state["disks"])?
            );
            Ok(outcome)
        })
    }

    /// Computes the plan.
    pub fn plan(&self, disks: &[DiskSettings]) -> Result<Outcome> {
        let outcome = self.order(&Order {
            disks: disks.to_vec(),
            plan: true,
            ..Order::default()
        })?;
        ensure!(outcome.code == 0, "no plan: {}", outcome.text);
        Ok(outcome)
    }

    /// Runs a shell script in the stage and returns its output; the script must succeed.
    pub fn sh(&self, script: &str) -> Result<String> {
        let outcome = self.order(&Order {
            script: Some(script.to_owned()),
            ..Order::default()
        })?;
        ensure!(outcome.code == 0, "{script}: {}", outcome.text);
        Ok(outcome.text)
    }

    /// Starts a process `sleep` with this redirection of the shell, and returns its number when it
    /// has that name and what it opens.
    pub fn hold(&self, redirection: &str) -> Result<String> {
        let script = format!(
            "sleep 900 {redirection} >/dev/null 2>&1 & n=0; \
             until [ \"$(cat /proc/$!/comm)\" = sleep ]; do n=$((n+1)); [ $n -lt 1200 ] || exit 1; sleep 0.05; done; \
             echo $!"
        );
        Ok(self.sh(&script)?.trim().to_owned())
    }

    /// Ends processes that [`Self::hold`] started, and waits until what they opened is closed.
    pub fn let_go(&self, processes: &[&str]) -> Result<()> {
        let processes = processes.join(" ");
        // The kernel closes the files of a process before it shows it as ended.
        let script = format!(
            "kill {processes}; n=0; for p in {processes}; do \
             while grep -q '^State:.*[^Z] (' /proc/$p/status 2>/dev/null; do \
             n=$((n+1)); [ $n -lt 1200 ] || exit 1; sleep 0.05; done; done"
        );
        self.sh(&script).map(drop)
    }

    /// The requests to systemd since the last call, one per line.
    pub fn asked(&self) -> Vec<String> {
        let file = self.root().join(systemd::ASKED.trim_start_matches('/'));
        let text = fs::read_to_string(&file).unwrap_or_default();
        drop(fs::remove_file(file));
        text.lines().map(str::to_owned).collect()
    }

    /// Lines of the audit record about a disk, as `moment step`.
    pub fn audit(&self, name: &str) -> Result<Vec<String>> {
        let folder = self.root().join("var/lib/virtfleet/journal");
        let mut lines = Vec::new();
        for file in ["audit.jsonl.1", "audit.jsonl"] {
            let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
            for line in text.lines() {
                let Ok(record) = serde_json::from_str::<Value>(line) else {
                    continue;
                };
                if record["name"] == name {
                    let word = |key: &str| record[key].as_str().unwrap_or_default().to_owned();
                    lines.push(format!("{} {}", word("moment"), word("step")));
                }
            }
        }
        Ok(lines)
    }
}
