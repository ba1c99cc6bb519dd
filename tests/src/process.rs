//! Starts processes; the only module of this crate that does. It ends every process that it
//! started, and no others.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{OnceLock, mpsc},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{ports, scratch, wait::eventually};

/// A process to start.
#[derive(Debug)]
pub struct Launch {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    stdin: Option<String>,
    namespace: Option<String>,
    tied: bool,
    nobody: bool,
}

impl Launch {
    /// A program, by its path or by its name in `PATH`.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            stdin: None,
            namespace: None,
            tied: false,
            nobody: false,
        }
    }
    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }
    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }
    /// Sets an environment variable, in addition to the inherited environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets the standard input; the default is empty. Only for [`Launch::output`] and
    /// [`Launch::text`].
    #[must_use]
    pub fn stdin(mut self, text: impl Into<String>) -> Self {
        self.stdin = Some(text.into());
        self
    }

    /// Runs the process in the network namespace with this name (`/run/netns/<name>`).
    #[must_use]
    pub fn in_namespace(mut self, name: impl Into<String>) -> Self {
        self.namespace = Some(name.into());
        self
    }

    /// The kernel kills the process when this process ends, however that happens
    /// (`PR_SET_PDEATHSIG`, set by `setpriv`).
    #[must_use]
    pub fn tied(mut self) -> Self {
        self.tied = true;
        self
    }

    /// Runs as the user `nobody`, without groups and capabilities. Requires root; the program and
    /// its files must be readable by all users.
    #[must_use]
    pub fn as_nobody(mut self) -> Self {
        self.nobody = true;
        self
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place of this crate that starts processes"
    )]
    fn command(&self) -> Command {
        // Each wrapper program executes the next one in its place, so the process id stays the
        // same.
        let mut words: Vec<OsString> = Vec::new();
        if let Some(namespace) = &self.namespace {
            words.extend([
                "nsenter".into(),
                format!("--net=/run/netns/{namespace}").into(),
                "--".into(),
            ]);
        }
        if self.tied {
            words.extend(["setpriv", "--pdeathsig", "KILL", "--"].map(OsString::from));
        }
        if self.nobody {
            let user = [
                "--reuid=nobody",
                "--regid=nogroup",
                "--clear-groups",
                "--inh-caps=-all",
            ];
            words.push("setpriv".into());
            words.extend(user.map(OsString::from));
            words.push("--".into());
        }
        words.push(self.program.clone().into_os_string());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        command
    }

    fn name(&self) -> String {
        self.program
            .file_name()
            .unwrap_or(self.program.as_os_str())
            .to_string_lossy()
            .into_owned()
    }

    /// Starts the process. Both output streams go to `<name>.log` in `folder`, in order.
    pub fn start(self, folder: &Path) -> Result<Process> {
        let name = self.name();
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let copy = file.try_clone().context("second handle of a log")?;
        let mut command = self.command();
        command.stdout(file).stderr(copy);
        let started = if self.tied {
            spawn_tied(command)
        } else {
            command.spawn()
        };
        let child = started.with_context(|| format!("start {}", self.program.display()))?;
        Ok(Process { name, child, log })
    }

    /// Runs the process to completion and returns its output; any exit status is accepted.
    /// `deadline` is as in [`eventually`].
    pub fn output(self, deadline: Duration) -> Result<Output> {
        let folder = scratch::marked().context("a folder for output")?;
        let (out, err) = (folder.path().join("out"), folder.path().join("err"));
        let create = |path: &Path| File::create(path).with_context(|| format!("create {}", path.display()));
        let mut command = self.command();
        if let Some(text) = &self.stdin {
            let path = folder.path().join("in");
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
            command.stdin(File::open(&path).with_context(|| format!("open {}", path.display()))?);
        }
        let child = command
            .stdout(create(&out)?)
            .stderr(create(&err)?)
            .spawn()
            .with_context(|| format!("start {}", self.program.display()))?;
        let mut process = Process {
            name: self.name(),
            child,
            log: err.clone(),
        };
        let status = process.wait(deadline)?;
        Ok(Output {
            status,
            stdout: fs::read(&out)?,
            stderr: fs::read(&err)?,
        })
    }

    /// Runs the process to completion; returns its exit code (-1 if a signal ended it) and the
    /// output of both streams.
    pub fn said(self, deadline: Duration) -> Result<(i32, String)> {
        let output = self.output(deadline)?;
        let text = [output.stdout, output.stderr].concat();
        let code = output.status.code().unwrap_or(-1);
        Ok((code, String::from_utf8_lossy(&text).into_owned()))
    }

    /// Runs the process to completion on this process's terminal.
    pub fn attached(self) -> Result<ExitStatus> {
        let mut command = self.command();
        command.stdin(Stdio::inherit());
        command
            .status()
            .with_context(|| format!("start {}", self.program.display()))
    }

    /// As [`Launch::bytes`], for output that is text.
    pub fn text(self, deadline: Duration) -> Result<String> {
        let name = self.name();
        let output = self.bytes(deadline)?;
        String::from_utf8(output).with_context(|| format!("what {name} prints is not UTF-8"))
    }

    /// Runs the process to completion and returns its standard output; a non-zero exit code is an
    /// error that quotes standard error.
    pub fn bytes(self, deadline: Duration) -> Result<Vec<u8>> {
        let name = self.name();
        let output = self.output(deadline)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{name}: {}: {}",
            output.status,
            stderr.trim()
        );
        Ok(output.stdout)
    }
}

/// Starts the process on a thread that lives as long as this process: the signal of
/// `PR_SET_PDEATHSIG` is sent when the *thread* that started a process ends, and a test's own
/// thread may end early.
fn spawn_tied(command: Command) -> io::Result<Child> {
    type Order = (Command, mpsc::Sender<io::Result<Child>>);
    static STARTER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in inbox {
                // Fails only if the receiver is gone, and then drops the child.
                drop(answer.send(command.spawn()));
            }
        });
        orders
    });
    let (answer, child) = mpsc::channel();
    let gone = || io::Error::other("the thread that starts processes has ended");
    starter.send((command, answer)).map_err(|_| gone())?;
    child.recv().map_err(|_| gone())?
}

/// A shell script that runs when this value is dropped or this process ends, even by SIGKILL. For
/// essential cleanup.
#[derive(Debug)]
pub struct AtEnd(Child);

impl AtEnd {
    /// `arguments` are the script's `$1` and so on.
    pub fn new<S: AsRef<OsStr>>(script: &str, arguments: impl IntoIterator<Item = S>) -> Result<Self> {
        // The script waits until the other end of its standard input is closed. It is in its own
        // session, so that an interrupt does not reach it.
        let launch = Launch::new("setsid")
            .args(["sh", "-c", &format!("cat; {script}"), "at-end"])
            .args(arguments);
        let mut command = launch.command();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().map(Self).context("start setsid")
    }
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Fails only if it was waited for already.
        drop(self.0.wait());
    }
}

/// A running process. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("state of a child")
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        fs::read(&self.log).map_or_else(
            |error| format!("({}: {error})", self.log.display()),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        )
    }

    /// Waits for a line that contains `needle` and returns it. Fails at once if the process has
    /// ended.
    pub fn wait_for_line(&mut self, needle: &str, deadline: Duration) -> Result<String> {
        self.wait_for(deadline, &format!("{needle:?} in its output"), |process| {
            process
                .log()
                .lines()
                .find(|line| line.contains(needle))
                .map(str::to_owned)
                .context("no such line")
        })
    }

    /// Waits until a server accepts connections at `address`. Fails at once if the process has
    /// ended.
    pub fn wait_for_port(&mut self, address: SocketAddr, deadline: Duration) -> Result<()> {
        self.wait_for(deadline, &format!("an answer at {address}"), |_| {
            ports::answers(address)
                .then_some(())
                .context("connection refused")
        })
    }

    /// Waits until `probe` returns a value. Fails at once if the process has ended; errors quote
    /// the end of its output.
    pub fn wait_for<T>(
        &mut self,
        deadline: Duration,
        what: &str,
        mut probe: impl FnMut(&Self) -> Result<T>,
    ) -> Result<T> {
        let found = eventually(deadline, what, || {
            let ended = self.child.try_wait().context("state of a child")?;
            match (probe(self), ended) {
                (Err(_), Some(status)) => Ok(Err(anyhow::anyhow!("ended with {status} before {what}"))),
                (Err(error), None) => Err(error),
                (value, _) => Ok(value),
            }
        });
        found
            .and_then(|inner| inner)
            .with_context(|| format!("{}, whose output ends with:\n{}", self.name, self.tail()))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = i32::try_from(self.child.id()).context("process id")?;
        kill(Pid::from_raw(id), signal).with_context(|| format!("{signal} to {}", self.name))
    }

    /// Waits until it has ended.
    pub fn wait(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let ended = eventually(deadline, "its end", || {
            self.child
                .try_wait()
                .context("state of a child")?
                .context("still running")
        });
        ended.with_context(|| format!("{}, whose output ends with:\n{}", self.name, self.tail()))
    }

    /// Sends SIGTERM and waits until the process has ended.
    pub fn terminate(mut self, deadline: Duration) -> Result<ExitStatus> {
        if let Some(status) = self.child.try_wait().context("state of a child")? {
            bail!("{} had ended with {status} already:\n{}", self.name, self.tail());
        }
        self.signal(Signal::SIGTERM)?;
        self.wait(deadline)
    }

    fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the process has ended and was waited for, which is the intended state.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn runs_to_the_end_and_quotes_failures() {
        assert_eq!(Launch::new("echo").args(["a", "b"]).text(SOON).unwrap(), "a b\n");
        let error = Launch::new("sh")
            .args(["-c", "echo why >&2; exit 3"])
            .text(SOON)
            .unwrap_err();
        assert!(error.to_string().contains("exit status: 3: why"), "{error}");
        Launch::new("/nowhere/at-all").text(SOON).unwrap_err();
    }

    #[test]
    fn finds_a_line_stops_and_kills() {
        let folder = tempfile::tempdir().unwrap();
        let script = "trap 'exit 7' TERM; echo ready on 1; while :; do sleep 0.05; done";
        let mut process = Launch::new("sh")
            .args(["-c", script])
            .start(folder.path())
            .unwrap();
        assert_eq!(process.wait_for_line("ready", SOON).unwrap(), "ready on 1");
        assert_eq!(process.terminate(SOON).unwrap().code(), Some(7));

        let process = Launch::new("sleep").arg("600").start(folder.path()).unwrap();
        let id = process.id();
        drop(process);
        assert!(!Path::new(&format!("/proc/{id}")).exists());
    }

    #[test]
    fn a_tied_process_outlives_the_thread_that_asked_for_it_and_keeps_its_id() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let start = move || Launch::new("sleep").arg("600").tied().start(&path).unwrap();
        let mut process = thread::spawn(start).join().unwrap();
        let comm = format!("/proc/{}/comm", process.id());
        eventually(SOON, "sleep in setpriv's place", || {
            let name = fs::read_to_string(&comm)?;
            ensure!(name == "sleep\n", "{name}");
            Ok(())
        })
        .unwrap();
        assert!(process.ended().unwrap().is_none());
    }

    #[test]
    fn an_early_end_is_said_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Launch::new("sh")
            .args(["-c", "echo no such option; exit 2"])
            .start(folder.path())
            .unwrap();
        let error = process
            .wait_for_line("ready", Duration::from_mins(10))
            .unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.contains("no such option") && text.contains("exit status: 2"),
            "{text}"
        );
    }
}
