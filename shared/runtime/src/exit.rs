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

    /// Every code.
    pub const ALL: [Self; 7] = [
        Self::Ok,
        Self::Failure,
        Self::Usage,
        Self::Changes,
        Self::Refused,
        Self::NotFound,
        Self::Config,
    ];

    /// The code with this number; a failure when there is none.
    pub fn of(number: u8) -> Self {
        let code = Self::ALL.into_iter().find(|code| code.number() == number);
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
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_number_comes_back_as_its_code() {
        for number in [0, 1, 2, 3, 4, 78] {
            assert_eq!(Code::of(number).number(), number);
        }
        assert_eq!(Code::of(101), Code::Failure);
    }

    /// One table for all programs, and it is complete.
    #[test]
    fn the_documented_table_has_every_code() {
        let page = include_str!("../../../docs/cli.md");
        let (_, page) = page.split_once("## Exit codes\n").unwrap();
        let rows = page
            .lines()
            .skip_while(|line| !line.starts_with('|'))
            .take_while(|line| line.starts_with('|'));
        let documented: BTreeSet<u8> = rows
            .filter_map(|row| row.split('|').nth(1)?.trim().parse().ok())
            .collect();
        let known: BTreeSet<u8> = Code::ALL.iter().map(|code| code.number()).collect();
        assert_eq!(documented, known);
    }
}
