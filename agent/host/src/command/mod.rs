//! The one runner of external commands.
//!
//! Each runs with a cleared environment, nothing on standard input, in a process group of its own that is killed when the
//! command's deadline has passed, when the caller unwinds, and when the command itself has ended (what it left behind in its
//! group goes with it; what made a session of its own stays). What it prints is read all along and kept up to a bound.

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

/// Where programs that are named without a slash are looked for.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The most bytes of standard output, and of standard error, that are kept; the rest is read and dropped.
const KEPT: usize = 1 << 20;
/// How long a command may take when nothing else was said.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long a killed command may take to go. One that hangs in the kernel (a dead disk) does not go.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A command: program, arguments, and how long it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// A path, or a name to be found in the usual directories (the caller's `PATH` is not asked).
    pub program: PathBuf,
    /// The arguments after the program's name.
    pub args: Vec<OsString>,
    /// How long it may take; then it is killed.
    pub deadline: Duration,
}

impl Tool {
    /// The program without arguments, with a deadline of 30 s.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            deadline: DEADLINE,
        }
    }
    /// With one more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }
    /// With more arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }
    /// With this deadline.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }
}

/// As a person would type it, for messages. It is not quoted for a shell.
impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.program.display())?;
        self.args
            .iter()
            .try_for_each(|arg| write!(f, " {}", Path::new(arg).display()))
    }
}

/// What a command that ended by itself left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Done {
    /// Its exit code.
    pub code: i32,
    /// The first MiB of its standard output; what is not UTF-8 is replaced.
    pub stdout: String,
    /// The first MiB of its standard error; what is not UTF-8 is replaced.
    pub stderr: String,
}

impl Done {
    /// Whether the exit code is 0.
    pub fn success(&self) -> bool {
        self.code == 0
    }
}

/// Why a command did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// There is no such program.
    #[error("`{0}`: there is no such program; install the package that has it (looked in {SEARCH_PATH})")]
    Missing(Tool),
    /// It is there and cannot be started, or cannot be waited for.
    #[error("`{tool}`: cannot {step}")]
    System {
        /// What was to be run.
        tool: Tool,
        /// What was being done.
        step: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
    /// It was killed, because its time was over.
    #[error("`{tool}`: killed, because it took longer than {} s{}", tool.deadline.as_secs_f32(), said(stderr))]
    Late {
        /// What was run.
        tool: Tool,
        /// What it said until then.
        stderr: String,
    },
    /// Its time is over, and it does not even go when it is killed: it hangs in the kernel.
    #[error(
        "`{0}`: hangs in the kernel and cannot be killed; look at `dmesg` for a device that does not answer"
    )]
    Stuck(Tool),
    /// A signal ended it that did not come from here.
    #[error("`{tool}`: ended by signal {signal}{}", said(stderr))]
    Signalled {
        /// What was run.
        tool: Tool,
        /// The signal's number.
        signal: i32,
        /// What it said until then.
        stderr: String,
    },
    /// Its exit code is not 0 ([`Commands::check`] only).
    #[error("`{tool}`: exit code {}{}", done.code, said(if done.stderr.trim().is_empty() { &done.stdout } else { &done.stderr }))]
    Failed {
        /// What was run.
        tool: Tool,
        /// Code and output.
        done: Done,
    },
}

/// The last lines, shortened, for a message of one line.
fn said(text: &str) -> String {
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
            // What a program prints must not speak to the terminal.
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

/// The path of this program, also when its file was replaced meanwhile; empty when it is not known.
pub fn own_program() -> String {
    let path = std::env::current_exe().unwrap_or_default().display().to_string();
    path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned()
}

/// Where a program is that is named without a slash, in the guest.
pub fn find_program(roots: &Roots, name: &str) -> Option<PathBuf> {
    let mut folders = SEARCH_PATH.split(':');
    folders.find_map(|folder| Some(roots.root(folder).join(name)).filter(|path| path.is_file()))
}

/// Runs commands. The call blocks until the command has ended or its deadline has passed.
pub trait Commands: Sync {
    /// Runs it to its end, whatever its exit code.
    fn run(&self, tool: &Tool) -> Result<Done, CommandError>;

    /// Runs it to its end with `lock` as its standard input, so that a flock(2) on that open file
    /// lasts until the command ends, whatever becomes of this process.
    fn run_with_lock(&self, tool: &Tool, lock: &File) -> Result<Done, CommandError> {
        let _ = lock;
        self.run(tool)
    }

    /// As [`Self::run_with_lock`]; an exit code other than 0 is an error.
    fn check_with_lock(&self, tool: &Tool, lock: &File) -> Result<Done, CommandError> {
        let done = self.run_with_lock(tool, lock)?;
        if done.success() {
            Ok(done)
        } else {
            let tool = tool.clone();
            Err(CommandError::Failed { tool, done })
        }
    }

    /// How much time there is for all that is still to be run; none where there is no limit.
    fn left(&self) -> Option<Duration> {
        None
    }

    /// Runs it to its end; an exit code other than 0 is an error.
    fn check(&self, tool: &Tool) -> Result<Done, CommandError> {
        let done = self.run(tool)?;
        if done.success() {
            Ok(done)
        } else {
            let tool = tool.clone();
            Err(CommandError::Failed { tool, done })
        }
    }
}

/// The commands of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemCommands;

impl Commands for SystemCommands {
    fn run(&self, tool: &Tool) -> Result<Done, CommandError> {
        Self::run_reading(tool, None)
    }

    fn run_with_lock(&self, tool: &Tool, lock: &File) -> Result<Done, CommandError> {
        Self::run_reading(tool, Some(lock))
    }
}

impl SystemCommands {
    /// Runs it with `input` as its standard input, or nothing.
    fn run_reading(tool: &Tool, input: Option<&File>) -> Result<Done, CommandError> {
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
        let mut stdout = Kept::new(running.child.stdout.take().map(OwnedFd::from)).map_err(at("read it"))?;
        let mut stderr = Kept::new(running.child.stderr.take().map(OwnedFd::from)).map_err(at("read it"))?;
        let ended = running.ended().map_err(at("wait for it"))?;

        let in_time =
            follow(&ended, &mut [&mut stdout, &mut stderr], tool.deadline).map_err(at("wait for it"))?;
        running.kill();
        if !in_time
            && !follow(&ended, &mut [&mut stdout, &mut stderr], LAST_WORDS).map_err(at("wait for it"))?
        {
            running.abandon();
            return Err(CommandError::Stuck(tool.clone()));
        }
        let status = running.child.wait().map_err(at("wait for it"))?;
        running.abandon();
        // What was printed right before the end is in the pipes still.
        for kept in [&mut stdout, &mut stderr] {
            kept.read().map_err(at("read it"))?;
        }
        let (stdout, stderr) = (stdout.text(), stderr.text());
        let tool = || tool.clone();
        match (in_time, status.code(), status.signal()) {
            (false, ..) => Err(CommandError::Late { tool: tool(), stderr }),
            (true, Some(code), _) => Ok(Done { code, stdout, stderr }),
            (true, None, signal) => Err(CommandError::Signalled {
                tool: tool(),
                signal: signal.unwrap_or(0),
                stderr,
            }),
        }
    }
}

/// A started command, whose group is killed when this is dropped.
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

    /// A pipe that is closed when the command has ended. It is not reaped by that, so its process id stays its own until
    /// `child.wait()`, and [`Running::kill`] meets nobody else.
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

    /// Kills whatever is left of the group.
    fn kill(&self) {
        if let Some(group) = self.group {
            // That nobody is left (ESRCH) is what is wanted.
            killpg(group, Signal::SIGKILL).ok();
        }
    }

    /// Takes the kill out of the drop: it is over, or cannot be ended.
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

/// Reads what comes until `ended` says that the command has ended; false when `limit` has passed before that.
fn follow(ended: &File, outputs: &mut [&mut Kept; 2], limit: Duration) -> io::Result<bool> {
    let start = Instant::now();
    loop {
        let left = limit.saturating_sub(start.elapsed());
        // Rounded up, so that the last round does not spin.
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

/// One output of a command, as far as it is kept.
struct Kept {
    pipe: Option<File>,
    bytes: Vec<u8>,
}

impl Kept {
    fn new(pipe: Option<OwnedFd>) -> io::Result<Self> {
        if let Some(pipe) = &pipe {
            // Our end only: the command's end is another open file.
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

    /// Takes what is there, without waiting.
    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; 8192];
        // Bounded, so that one that prints for ever does not keep us from looking at the clock.
        for _ in 0..64 {
            let Some(pipe) = &mut self.pipe else { break };
            match pipe.read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    let room = KEPT.saturating_sub(self.bytes.len());
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
