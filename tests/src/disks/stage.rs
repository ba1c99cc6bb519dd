//! The stage as the tests see it.

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
/// Longer than any pass of the tests.
const PASS: Duration = Duration::from_mins(5);

/// Root, loop devices and the programs that the stage itself needs.
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

/// Whether a mounted filesystem of that kind can be made larger here. The kernel lets nobody without `CAP_SYS_RESOURCE` grow an ext4, and root in a
/// container may lack it.
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

/// What is to be done on the stage.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Order {
    /// A shell script instead of a pass.
    pub script: Option<String>,
    /// The declared disks.
    pub disks: Vec<DiskSettings>,
    /// The VM's UUID.
    pub vm: String,
    /// Whether something stands for systemd ([`super::StagedSystemd`]); else there is none.
    pub systemd: bool,
    /// It is the pass of a boot, and no later one.
    pub boot: bool,
    /// The number of the loop device that counts as the root disk.
    pub root_loop: Option<u32>,
    /// Only the plan.
    pub plan: bool,
    /// A person's approval: name and evidence.
    pub approve: Option<(String, String)>,
    /// SIGKILL at this point between two effects, from 1.
    pub kill_at: Option<usize>,
    /// SIGKILL after so many microseconds.
    pub kill_after_us: Option<u64>,
    /// Kill the pass alone; what it has started goes on.
    pub orphans: bool,
    /// At the point that ends so, this shell script runs before the pass goes on.
    pub script_at: Option<(String, String)>,
}

/// What came of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Outcome {
    /// It was killed.
    pub killed: bool,
    /// How it ended otherwise.
    pub code: i32,
    /// What it printed, or why it failed.
    pub text: String,
    /// The state of the disks (`disks.json`).
    pub state: Value,
    /// The plan.
    pub plan: Value,
    /// Whether anything was changed.
    pub changed: bool,
    /// The points that were passed.
    pub points: Vec<String>,
    /// How long the pass took, in microseconds.
    pub us: u64,
}

impl Outcome {
    /// How a disk stands: `ready` and so on.
    pub fn standing(&self, name: &str) -> String {
        let disks = self.state["disks"].as_array();
        let disk = disks.and_then(|disks| disks.iter().find(|disk| disk["name"] == name));
        disk.map_or("absent".to_owned(), |disk| {
            disk["standing"].as_str().unwrap_or("unknown").to_owned()
        })
    }

    /// A disk's refusals, by kind.
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
    /// Why a disk stands as it does: its error.
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

/// A root of its own, where the engine works on loop devices.
pub struct Stage {
    // In the order of their drop.
    host: Option<Process>,
    folder: tempfile::TempDir,
    boots: u32,
    /// Of its own: stages that run at the same time see each other's loop devices, and two filesystems of one UUID are refused.
    vm: String,
}

impl Stage {
    /// Builds the root and boots it.
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

    /// The root, from outside.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// Where files behind disks may be made.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends everything there, mounts included, and starts anew with another boot id; `/run` is empty then.
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

    /// Gives a disk a serial, as udev's data have it.
    pub fn serial(&self, disk: &LoopDisk, serial: &str) -> Result<()> {
        let file = self
            .root()
            .join("run/udev/data")
            .join(format!("b{}", disk.number()?));
        fs::write(file, format!("E:ID_SERIAL_SHORT={serial}\n")).context("udev's data")
    }

    /// Takes the serial away.
    pub fn no_serial(&self, disk: &LoopDisk) -> Result<()> {
        let file = self
            .root()
            .join("run/udev/data")
            .join(format!("b{}", disk.number()?));
        fs::remove_file(file).context("udev's data")
    }

    /// Has something done.
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

    /// A pass over these disks.
    pub fn pass(&self, disks: &[DiskSettings]) -> Result<Outcome> {
        let outcome = self.order(&Order {
            disks: disks.to_vec(),
            ..Order::default()
        })?;
        ensure!(outcome.code == 0, "the pass failed: {}", outcome.text);
        Ok(outcome)
    }

    /// Passes until the disk stands so, for what is left of an interrupted one may be busy still; the last outcome.
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

    /// The plan.
    pub fn plan(&self, disks: &[DiskSettings]) -> Result<Outcome> {
        let outcome = self.order(&Order {
            disks: disks.to_vec(),
            plan: true,
            ..Order::default()
        })?;
        ensure!(outcome.code == 0, "no plan: {}", outcome.text);
        Ok(outcome)
    }

    /// What a shell script prints there; it must succeed.
    pub fn sh(&self, script: &str) -> Result<String> {
        let outcome = self.order(&Order {
            script: Some(script.to_owned()),
            ..Order::default()
        })?;
        ensure!(outcome.code == 0, "{script}: {}", outcome.text);
        Ok(outcome.text)
    }

    /// What systemd was asked since this was last called, a line each.
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
