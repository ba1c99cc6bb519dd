//! Exit codes of all programs.

use std::process::{ExitCode, Termination};

/// Exit code of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray)]
pub enum Code {
    Ok,
    /// Failure; standard error has the error.
    Failure,
    /// Invalid command line (clap's own code).
    Usage,
    /// Changes are pending (`plan --detailed-exitcode`; an invalid command line then differs by its
    /// error on standard error).
    Changes,
    /// A change is rejected.
    Refused,
    /// The named object does not exist.
    NotFound,
    /// `virtfleetctl status`: the health of a VM is unknown.
    HealthUnknown,
    /// `virtfleetctl status`: a VM is degraded; `drain`: VMs stop; `placement`: a rule is violated.
    HealthDegraded,
    /// `virtfleetctl status`: the state of a VM is critical; `drain`: VMs block, or lack room.
    HealthCritical,
    /// Invalid settings: `EX_CONFIG` of sysexits.h, which systemd prints as `CONFIG`.
    Config,
}

impl Code {
    pub fn number(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::Changes => 2,
            Self::Refused => 3,
            Self::NotFound => 4,
            Self::HealthUnknown => 5,
            Self::HealthDegraded => 6,
            Self::HealthCritical => 7,
            Self::Config => 78,
        }
    }

    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The code with this number; `Failed` for an unknown number.
    pub fn of(number: u8) -> Self {
        let code = Self::ALL.iter().copied().find(|code| code.number() == number);
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
    fn numbers_round_trip() {
        for number in [0, 1, 2, 3, 4, 5, 6, 7, 78] {
            assert_eq!(Code::of(number).number(), number);
        }
        assert_eq!(Code::of(101), Code::Failure);
    }

    /// The documented table is complete, for all programs.
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
