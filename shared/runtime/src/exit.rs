//! The one place for exit codes.

use std::process::{ExitCode, Termination};

/// How a program of ours ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// All went well.
    Ok,
    /// Something failed; standard error says what.
    Failure,
    /// The command line is wrong (clap's own code).
    Usage,
    /// Something would be changed (`plan --detailed-exitcode`, where a wrong command line is told by standard error).
    Changes,
    /// Something is refused.
    Refused,
    /// What was asked for does not exist.
    NotFound,
    /// The settings are wrong: `EX_CONFIG` of sysexits.h, which systemd prints as `CONFIG`.
    Config,
}

impl Code {
    /// As the shell sees it.
    pub fn number(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::Changes => 2,
            Self::Refused => 3,
            Self::NotFound => 4,
            Self::Config => 78,
        }
    }
}

impl Termination for Code {
    fn report(self) -> ExitCode {
        ExitCode::from(self.number())
    }
}
