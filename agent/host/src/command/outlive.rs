//! Runs verbs that read disks in a child process.
//!
//! A thread that waits for a silent disk hangs in the kernel and receives no signal, so its process
//! cannot end. systemd, and with it the boot, would wait for that process. Therefore the child
//! reports its exit code to this process, which exits with it even if the child hangs. The child's
//! file locks are released by then.

use std::{
    env,
    ffi::OsStr,
    fs::File,
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::{
        fd::AsFd as _,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    panic::{AssertUnwindSafe, catch_unwind},
    process::{Command, Stdio},
};

use nix::{
    sys::{
        prctl::{set_name, set_pdeathsig},
        signal::Signal,
    },
    unistd::{dup2_stderr, dup2_stdout, getpid, getppid},
};
use virtfleet_runtime::exit::Code;

/// Environment variable of the child: its parent's process ID. The child's standard input is a
/// socket to the parent; these verbs read nothing from it.
const CHILD: &str = "VIRTFLEET_CHILD";

/// Runs `verb` in a child process that this one outlives even if the child hangs. In the child,
/// runs it directly. `complain` gets a sentence if there is no child, or its parent is gone.
pub fn outlive(verb: impl FnOnce() -> Code, complain: impl Fn(&str)) -> Code {
    if let Some(parent) = env::var_os(CHILD) {
        return as_child(&parent, verb, complain);
    }
    match in_child() {
        Ok(code) => code,
        Err(error) => {
            complain(&format!("continues without a child process: {error}"));
            verb()
        }
    }
}

fn as_child(parent: &OsStr, verb: impl FnOnce() -> Code, complain: impl Fn(&str)) -> Code {
    // End with the parent. Set the process name, which would be `exe`.
    set_pdeathsig(Signal::SIGTERM).ok();
    set_name(c"virtfleet-agent").ok();
    if parent.to_str() != Some(&getppid().to_string()) {
        complain(&format!(
            "the process that began this has ended, or {CHILD} was set by hand: nothing is done"
        ));
        return Code::Failure;
    }
    // Report the code before exiting: threads that hang would keep the socket open.
    let code = catch_unwind(AssertUnwindSafe(verb)).unwrap_or(Code::Failure);
    // A thread that hangs keeps files open. Close the output, so that its reader does not wait for
    // it.
    if let Ok(nowhere) = File::options().read(true).write(true).open("/dev/null") {
        io::stdout().flush().ok();
        dup2_stdout(&nowhere).and_then(|()| dup2_stderr(&nowhere)).ok();
    }
    let sent = io::stdin().as_fd().try_clone_to_owned().and_then(|socket| {
        let mut socket = UnixStream::from(socket);
        socket.write_all(&[code.number()])?;
        socket.shutdown(Shutdown::Both)
    });
    // Without a parent there is no reader of the code.
    drop(sent);
    code
}

#[expect(
    clippy::disallowed_methods,
    reason = "the same program again, with the same standard output and no deadline"
)]
fn in_child() -> io::Result<Code> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut words = env::args_os();
    let name = words.next().unwrap_or_else(|| "virtfleet-agent".into());
    let mut child = Command::new("/proc/self/exe")
        .arg0(name)
        .args(words)
        .env(CHILD, getpid().to_string())
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .spawn()?;
    let mut number = [0];
    Ok(match ours.read_exact(&mut number) {
        Ok(()) => Code::of(number[0]),
        // The child ended without reporting a code.
        Err(_) => child
            .wait()
            .ok()
            .and_then(|status| u8::try_from(status.code()?).ok())
            .map_or(Code::Failure, Code::of),
    })
}
