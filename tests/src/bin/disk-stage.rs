//! Runs the disk engine on loop devices, in a root of its own. `virtfleet_tests::disks` starts this
//! program and communicates with it.
//!
//! ```text
//! disk-stage host ROOT    first process of its namespaces: builds the root, enters it, executes
//!                         orders from the socket in run/
//! disk-stage pass         one reconcile run, as run/order.json says; killed from outside, or by
//!                         itself at a point between two effects
//! disk-stage read DEVICE  keeps a device open for reading until it is killed, as a second instance
//!                         of the program would
//! ```

use std::{
    cell::{Cell, RefCell},
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use nix::{
    mount::{MsFlags, mount},
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, chdir, chroot, getpid},
};
use virtfleet_agent_core::pass::Stage;
use virtfleet_agent_host::{FailPoints, Roots, SystemCommands, disks::Kinds};
use virtfleet_agent_provision::{
    BootIdentity, Mode,
    disks::{DiskProvisioner, approve},
};
use virtfleet_tests::{
    disks::{Order, Outcome, StagedSystemd},
    process::{Launch, Process},
};

const ORDER: &str = "/run/order.json";
const ANSWER: &str = "/run/answer.json";
const LONGEST: Duration = Duration::from_mins(4);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["host", root] => host(Path::new(root)),
        ["pass"] => pass(),
        ["read", device] => {
            let _open = File::open(device).with_context(|| (*device).to_owned())?;
            loop {
                thread::park();
            }
        }
        _ => anyhow::bail!("usage: disk-stage host ROOT"),
    }
}

/// Binds the files that programs need into the root, and enters it.
fn enter(root: &Path) -> Result<()> {
    let none = None::<&str>;
    let bind = |from: &Path, to: PathBuf, flags| {
        mount(Some(from), &to, none, MsFlags::MS_BIND | flags, none)
            .with_context(|| format!("bind {} to {}", from.display(), to.display()))
    };
    bind(root, root.to_owned(), MsFlags::empty())?;
    for name in ["usr", "bin", "sbin", "lib", "lib64", "dev", "sys"] {
        let from = Path::new("/").join(name);
        let to = root.join(name);
        if from.is_dir() {
            fs::create_dir_all(&to)?;
            bind(&from, to, MsFlags::MS_REC)?;
        }
    }
    mount(
        Some("proc"),
        &root.join("proc"),
        Some("proc"),
        MsFlags::empty(),
        none,
    )
    .context("mount proc")?;
    bind(
        &root.join("run/boot_id"),
        root.join("proc/sys/kernel/random/boot_id"),
        MsFlags::empty(),
    )?;
    chdir(root)?;
    chroot(".")?;
    chdir("/").context("change into the root")
}

fn host(root: &Path) -> Result<()> {
    enter(root)?;
    let listener = UnixListener::bind("/run/stage.sock").context("/run/stage.sock")?;
    for stream in listener.incoming() {
        let mut stream = stream?;
        let mut line = String::new();
        BufReader::new(stream.try_clone()?).read_line(&mut line)?;
        if line.is_empty() {
            continue;
        }
        let outcome = serve(&serde_json::from_str(&line)?).unwrap_or_else(|error| Outcome {
            code: -1,
            text: format!("{error:#}"),
            ..Outcome::default()
        });
        // The client may have disconnected.
        drop(stream.write_all((serde_json::to_string(&outcome)? + "\n").as_bytes()));
    }
    Ok(())
}

fn serve(order: &Order) -> Result<Outcome> {
    if let Some(script) = &order.script {
        let output = Launch::new("/bin/sh").args(["-c", script]).output(LONGEST)?;
        let text = [output.stdout, output.stderr].concat();
        return Ok(Outcome {
            code: output.status.code().unwrap_or(-1),
            text: String::from_utf8_lossy(&text).into_owned(),
            ..Outcome::default()
        });
    }
    fs::write(ORDER, serde_json::to_vec(order)?)?;
    drop(fs::remove_file(ANSWER));
    let logs = tempfile::tempdir()?;
    let begun = Instant::now();
    let mut child = Launch::new("/proc/self/exe").arg("pass").start(logs.path())?;
    let limit = order.kill_after_us.map_or(LONGEST, Duration::from_micros);
    let status = loop {
        if let Some(status) = child.ended()? {
            break status;
        }
        if begun.elapsed() >= limit {
            end(order, &child)?;
            break child.wait(Duration::from_secs(20))?;
        }
        thread::park_timeout(Duration::from_micros(200));
    };
    let us = u64::try_from(begun.elapsed().as_micros())?;
    reap(order);
    let mut outcome: Outcome = match fs::read(ANSWER) {
        Ok(answer) => serde_json::from_slice(&answer)?,
        Err(_) => Outcome {
            code: status.code().unwrap_or(0),
            text: child.log(),
            ..Outcome::default()
        },
    };
    outcome.killed = status.code().is_none();
    if outcome.us == 0 {
        outcome.us = us;
    }
    Ok(outcome)
}

/// Kills the reconcile run and, unless the order leaves orphans, every other process in the
/// namespace.
fn end(order: &Order, child: &Process) -> Result<()> {
    if order.orphans {
        child.signal(Signal::SIGKILL)
    } else {
        kill(Pid::from_raw(-1), Signal::SIGKILL).context("kill all")
    }
}

/// Reaps ended children that no other code waits for; waits for them if all were killed.
fn reap(order: &Order) {
    let flag = if order.orphans || (order.kill_at.is_none() && order.kill_after_us.is_none()) {
        WaitPidFlag::WNOHANG
    } else {
        WaitPidFlag::empty()
    };
    while !matches!(waitpid(None, Some(flag)), Ok(WaitStatus::StillAlive) | Err(_)) {}
}

/// Counts the points between effects, and kills the process at one of them.
struct Killer {
    at: Option<usize>,
    orphans: bool,
    script: Option<(String, String)>,
    count: Cell<usize>,
    points: RefCell<Vec<String>>,
}

impl FailPoints for Killer {
    fn at(&self, point: &str) {
        self.count.set(self.count.get() + 1);
        self.points.borrow_mut().push(point.to_owned());
        if let Some((_, script)) = self
            .script
            .as_ref()
            .filter(|(at, _)| point.ends_with(at.as_str()))
        {
            let done = Launch::new("/bin/sh").args(["-c", script]).output(LONGEST);
            assert!(done.is_ok_and(|done| done.status.success()), "{script}");
        }
        if self.at == Some(self.count.get()) {
            if !self.orphans {
                // All processes in this namespace except its first process and this one.
                kill(Pid::from_raw(-1), Signal::SIGKILL).ok();
            }
            kill(getpid(), Signal::SIGKILL).ok();
        }
    }
}

fn pass() -> Result<()> {
    let order: Order = serde_json::from_slice(&fs::read(ORDER)?)?;
    let roots = Roots::default();
    let boot = BootIdentity {
        vm_uuid: order.vm.clone(),
        systemd: order.systemd,
        ..BootIdentity::of(&roots)
    };
    let killer = Killer {
        at: order.kill_at,
        orphans: order.orphans,
        script: order.script_at.clone(),
        count: Cell::new(0),
        points: RefCell::new(Vec::new()),
    };
    let provisioner = DiskProvisioner {
        commands: if order.systemd {
            &StagedSystemd
        } else {
            &SystemCommands
        },
        kinds: order.root_loop.map_or(Kinds::WithLoop, Kinds::LoopRoot),
        fail_points: &killer,
        ..DiskProvisioner::of_guest(&roots, &boot, None)
    };
    let stage = if order.boot {
        Stage::Provision
    } else {
        Stage::Reconcile
    };
    let mut outcome = Outcome::default();
    let begun = Instant::now();
    if let Some((name, evidence)) = &order.approve {
        outcome.text = approve(&provisioner, &order.disks, name, evidence)?;
    } else if order.plan {
        outcome.plan = serde_json::to_value(provisioner.plan(&order.disks)?.plan)?;
    } else if let Some(result) = provisioner.run(&order.disks, Mode::of_stage(stage, None))? {
        outcome.state = serde_json::to_value(result.state)?;
        outcome.changed = result.changed;
    }
    outcome.us = u64::try_from(begun.elapsed().as_micros())?;
    outcome.points = killer.points.take();
    let mut file = File::create(format!("{ANSWER}.new"))?;
    file.write_all(&serde_json::to_vec(&outcome)?)?;
    fs::rename(format!("{ANSWER}.new"), ANSWER).context(ANSWER)
}
