//! Runner of external commands; no other code starts programs.
//!
//! A command runs with a cleared environment and an empty standard input, in its own process group.
//! The group is killed when the deadline passes, when the caller unwinds, and when the command
//! itself has ended, so that no children are left behind. A child that started its own session
//! survives. Output is read while the command runs and kept up to a bound.

pub(crate) mod outlive;

use std::{
    ffi::OsString,
    fmt,
    fs::File,
    io::{self, Read, pipe},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::{CommandExt as _, ExitStatusExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};

use crate::Roots;

/// Search path for programs that are named without a slash.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Maximum number of bytes kept of standard output and of standard error each. The rest is read and
/// dropped.
const MAX_OUTPUT_BYTES: usize = 1 << 20;
/// Deadline of a command that sets none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for a killed command to exit. A command that hangs in the kernel (dead disk) does
/// not exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// A command: program, arguments and deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// A path, or a name that is searched in the usual directories (not in the caller's `PATH`).
    pub program: PathBuf,
    /// The arguments after the program's name.
    pub args: Vec<OsString>,
    /// Maximum run time; then the command is killed.
    pub deadline: Duration,
}

impl Tool {
    /// A command without arguments and with a deadline of 30 s.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            deadline: DEFAULT_TIMEOUT,
        }
    }
    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }
    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }
}

/// The command line for messages. It is not quoted for a shell.
impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.program.display())?;
        self.args
            .iter()
            .try_for_each(|arg| write!(f, " {}", Path::new(arg).display()))
    }
}

/// Result of a command that exited by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandOutput {
    pub code: i32,
    /// The first MiB of its standard output. Bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// The first MiB of its standard error. Bytes that are not UTF-8 are replaced.
    pub stderr: String,
}

impl CommandOutput {
    /// True if the exit code is 0.
    pub fn success(&self) -> bool {
        self.code == 0
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("`{0}`: there is no such program; install the package that has it (looked in {SEARCH_PATH})")]
    Missing(Tool),
    /// The program exists but cannot be started or waited for.
    #[error("`{tool}`: cannot {step}")]
    System {
        tool: Tool,
        step: &'static str,
        source: io::Error,
    },
    #[error("`{tool}`: killed, because it took longer than {} s{}", tool.deadline.as_secs_f32(), last_lines(stderr))]
    Late {
        tool: Tool,
        /// Its standard error until then.
        stderr: String,
    },
    /// The deadline passed and the command did not exit after SIGKILL: it hangs in the kernel.
    #[error(
        "`{0}`: hangs in the kernel and cannot be killed; check `dmesg` for a device that does not respond"
    )]
    Stuck(Tool),
    /// A signal that was not sent by this runner ended it.
    #[error("`{tool}`: ended by signal {signal}{}", last_lines(stderr))]
    Signalled {
        tool: Tool,
        signal: i32,
        /// Its standard error until then.
        stderr: String,
    },
    /// The exit code is not 0 ([`Commands::check`] only).
    #[error("`{tool}`: exit code {}{}", done.code, last_lines(if done.stderr.trim().is_empty() { &done.stdout } else { &done.stderr }))]
    Failed {
        tool: Tool,
        /// Exit code and output.
        done: CommandOutput,
    },
}

/// The last lines, shortened to one line for a message.
fn last_lines(text: &str) -> String {
    let mut lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let last = lines.split_off(lines.len().saturating_sub(3)).join("; ");
    let short: String = last
        .chars()
        .take(400)
        .flat_map(|c| {
            // Escaped, because the output could contain terminal control sequences.
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = (!c.is_control()).then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect();
    if short.is_empty() {
        short
    } else {
        format!(": {short}")
    }
}

/// Path of the running program, also after its file was replaced. Empty if unknown.
pub fn own_program() -> String {
    let path = std::env::current_exe().unwrap_or_default().display().to_string();
    path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned()
}

/// Path in the guest of a program that is named without a slash.
pub fn find_program(roots: &Roots, name: &str) -> Option<PathBuf> {
    let mut folders = SEARCH_PATH.split(':');
    folders.find_map(|folder| Some(roots.root(folder).join(name)).filter(|path| path.is_file()))
}

/// Runs commands. The call blocks until the command has ended or its deadline has passed.
pub trait Commands: Sync {
    /// Runs the command to its end. Any exit code is a success.
    ///
    /// # Errors
    /// The command cannot be started, passes its deadline, or is ended by a signal.
    fn run(&self, tool: &Tool) -> Result<CommandOutput, CommandError>;

    /// Runs the command with `lock` as its standard input, so that a flock(2) on that open file
    /// lasts until the command ends, even if this process is killed.
    ///
    /// # Errors
    /// As [`Self::run`].
    fn run_with_lock(&self, tool: &Tool, lock: &File) -> Result<CommandOutput, CommandError> {
        let _ = lock;
        self.run(tool)
    }

    /// Like [`Self::run_with_lock`], but an exit code other than 0 is an error.
    ///
    /// # Errors
    /// As [`Self::run`]; or the exit code is not 0.
    fn check_with_lock(&self, tool: &Tool, lock: &File) -> Result<CommandOutput, CommandError> {
        let done = self.run_with_lock(tool, lock)?;
        if done.success() {
            Ok(done)
        } else {
            let tool = tool.clone();
            Err(CommandError::Failed { tool, done })
        }
    }

    /// Remaining time for further commands. `None` if there is no limit.
    fn left(&self) -> Option<Duration> {
        None
    }

    /// Runs the command to its end. An exit code other than 0 is an error.
    ///
    /// # Errors
    /// As [`Self::run`]; or the exit code is not 0.
    fn check(&self, tool: &Tool) -> Result<CommandOutput, CommandError> {
        let done = self.run(tool)?;
        if done.success() {
            Ok(done)
        } else {
            let tool = tool.clone();
            Err(CommandError::Failed { tool, done })
        }
    }
}

/// Runs commands on this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemCommands;

impl Commands for SystemCommands {
    fn run(&self, tool: &Tool) -> Result<CommandOutput, CommandError> {
        Self::run_reading(tool, None)
    }

    fn run_with_lock(&self, tool: &Tool, lock: &File) -> Result<CommandOutput, CommandError> {
        Self::run_reading(tool, Some(lock))
    }
}

impl SystemCommands {
    /// Runs the command with `input` as its standard input, or with an empty one.
    fn run_reading(tool: &Tool, input: Option<&File>) -> Result<CommandOutput, CommandError> {
        let at = |step: &'static str| {
            move |source: io::Error| CommandError::System {
                tool: tool.clone(),
                step,
                source,
            }
        };
        let mut running = Running::start(tool, input).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => CommandError::Missing(tool.clone()),
            _ => at("start it")(error),
        })?;
        let mut stdout =
            CapturedOutput::new(running.child.stdout.take().map(OwnedFd::from)).map_err(at("read it"))?;
        let mut stderr =
            CapturedOutput::new(running.child.stderr.take().map(OwnedFd::from)).map_err(at("read it"))?;
        let ended = running.ended().map_err(at("wait for it"))?;

        let in_time =
            follow(&ended, &mut [&mut stdout, &mut stderr], tool.deadline).map_err(at("wait for it"))?;
        running.kill();
        if !in_time
            && !follow(&ended, &mut [&mut stdout, &mut stderr], KILL_TIMEOUT).map_err(at("wait for it"))?
        {
            running.abandon();
            return Err(CommandError::Stuck(tool.clone()));
        }
        let status = running.child.wait().map_err(at("wait for it"))?;
        running.abandon();
        // Output that was written right before the exit is still in the pipes.
        for kept in [&mut stdout, &mut stderr] {
            kept.read().map_err(at("read it"))?;
        }
        let (stdout, stderr) = (stdout.text(), stderr.text());
        let tool = || tool.clone();
        match (in_time, status.code(), status.signal()) {
            (false, ..) => Err(CommandError::Late { tool: tool(), stderr }),
            (true, Some(code), _) => Ok(CommandOutput { code, stdout, stderr }),
            (true, None, signal) => Err(CommandError::Signalled {
                tool: tool(),
                signal: signal.unwrap_or(0),
                stderr,
            }),
        }
    }
}

/// A started command. Its process group is killed on drop.
struct Running {
    child: Child,
    group: Option<Pid>,
}

impl Running {
    #[expect(clippy::disallowed_methods, reason = "this is the one command runner")]
    fn start(tool: &Tool, input: Option<&File>) -> io::Result<Self> {
        let input = match input {
            Some(input) => Stdio::from(input.try_clone()?),
            None => Stdio::null(),
        };
        let child = Command::new(&tool.program)
            .args(&tool.args)
            .env_clear()
            .env("PATH", SEARCH_PATH)
            .env("LC_ALL", "C")
            .current_dir("/")
            .process_group(0)
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let id = i32::try_from(child.id()).map_err(io::Error::other)?;
        let group = Some(Pid::from_raw(id));
        Ok(Self { child, group })
    }

    /// A pipe that is closed when the command has exited. The command is not reaped before
    /// `child.wait()`, so its PID is not reused and [`Running::kill`] cannot hit another process.
    fn ended(&self) -> io::Result<File> {
        let (reader, writer) = pipe()?;
        let Some(id) = self.group else {
            return Ok(File::from(OwnedFd::from(reader)));
        };
        thread::Builder::new().name("command".to_owned()).spawn(move || {
            while waitid(Id::Pid(id), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(Errno::EINTR) {}
            drop(writer);
        })?;
        Ok(File::from(OwnedFd::from(reader)))
    }

    /// Kills the remaining processes of the group.
    fn kill(&self) {
        if let Some(group) = self.group {
            // ESRCH (no process left) is the intended result.
            killpg(group, Signal::SIGKILL).ok();
        }
    }

    /// Disables the kill on drop: the command has ended or cannot be killed.
    fn abandon(&mut self) {
        self.group = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        if self.group.is_some() {
            drop(self.child.wait());
        }
    }
}

/// Reads output until `ended` is closed. Returns false if `limit` passes before that.
fn follow(ended: &File, outputs: &mut [&mut CapturedOutput; 2], limit: Duration) -> io::Result<bool> {
    let start = Instant::now();
    loop {
        let left = limit.saturating_sub(start.elapsed());
        // Rounded up, so that the last iteration does not spin.
        let wait = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        let mut watched: Vec<PollFd<'_>> = [Some(ended.as_fd())]
            .into_iter()
            .chain(outputs.iter().map(|kept| kept.fd()))
            .flatten()
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        match poll(&mut watched, wait) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let over = watched
            .first()
            .and_then(PollFd::revents)
            .is_some_and(|events| !events.is_empty());
        for kept in outputs.iter_mut() {
            kept.read()?;
        }
        if over {
            return Ok(true);
        }
        if left.is_zero() {
            return Ok(false);
        }
    }
}

/// Captured output of one stream, up to the bound.
struct CapturedOutput {
    pipe: Option<File>,
    bytes: Vec<u8>,
}

impl CapturedOutput {
    fn new(pipe: Option<OwnedFd>) -> io::Result<Self> {
        if let Some(pipe) = &pipe {
            // Only this end: the command's end is another open file description.
            fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        Ok(Self {
            pipe: pipe.map(File::from),
            bytes: Vec::new(),
        })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(File::as_fd)
    }

    /// Reads the available output without blocking.
    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; 8192];
        // Bounded, so that endless output cannot delay the deadline check.
        for _ in 0..64 {
            let Some(pipe) = &mut self.pipe else { break };
            match pipe.read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    let room = MAX_OUTPUT_BYTES.saturating_sub(self.bytes.len());
                    self.bytes.extend_from_slice(&buffer[..count.min(room)]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn text(self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

#[cfg(any(test, feature = "fakes"))]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
