//! Verbs that read disks work in a child process.
//!
//! A thread that waits for a disk that does not answer hangs in the kernel, where no signal reaches it, and its process cannot end before
//! it: whoever waits for that process, as systemd and so the boot do, would wait for the disk. So the child says with which
//! code it ends, and this process ends with that, whatever becomes of the child. Its locks on files are given back by then.

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

use super::print;

/// Set for the child to its parent's process id. Its standard input is then a socket to this process: these verbs read nothing from there.
const CHILD: &str = "VIRTFLEET_CHILD";

/// Does `verb` in a child, and there does it.
pub(super) fn run(verb: impl FnOnce() -> Code) -> Code {
    if let Some(parent) = env::var_os(CHILD) {
        return as_child(&parent, verb);
    }
    match in_child() {
        Ok(code) => code,
        Err(error) => {
            print::complain(&format!("goes on without a child process: {error}"));
            verb()
        }
    }
}

fn as_child(parent: &OsStr, verb: impl FnOnce() -> Code) -> Code {
    // Who ends the parent means this; and it is to be found by its name, not as `exe`.
    set_pdeathsig(Signal::SIGTERM).ok();
    set_name(c"virtfleet-agent").ok();
    if parent.to_str() != Some(&getppid().to_string()) {
        print::complain(&format!(
            "the process that began this has ended, or {CHILD} was set by hand: nothing is done"
        ));
        return Code::Failure;
    }
    // Whatever happens, the code is told: threads that hang would keep the socket open.
    let code = catch_unwind(AssertUnwindSafe(verb)).unwrap_or(Code::Failure);
    // A thread that hangs keeps what is open: who reads our output must not wait for it either.
    if let Ok(nowhere) = File::options().read(true).write(true).open("/dev/null") {
        io::stdout().flush().ok();
        dup2_stdout(&nowhere).and_then(|()| dup2_stderr(&nowhere)).ok();
    }
    let told = io::stdin().as_fd().try_clone_to_owned().and_then(|socket| {
        let mut socket = UnixStream::from(socket);
        socket.write_all(&[code.number()])?;
        socket.shutdown(Shutdown::Both)
    });
    // Without a parent nobody asks for the code.
    drop(told);
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
        // It ended without a word.
        Err(_) => child
            .wait()
            .ok()
            .and_then(|status| u8::try_from(status.code()?).ok())
            .map_or(Code::Failure, Code::of),
    })
}
