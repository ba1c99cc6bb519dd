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

    /// The code with this number; a failure when there is none.
    pub fn of(number: u8) -> Self {
        let codes = [
            Self::Ok,
            Self::Changes,
            Self::Refused,
            Self::NotFound,
            Self::Config,
        ];
        let code = codes.into_iter().find(|code| code.number() == number);
        code.unwrap_or(Self::Failure)
    }
}

impl Termination for Code {
    fn report(self) -> ExitCode {
        ExitCode::from(self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_comes_back_as_its_code() {
        for number in [0, 1, 2, 3, 4, 78] {
            assert_eq!(Code::of(number).number(), number);
        }
        assert_eq!(Code::of(101), Code::Failure);
    }
}
