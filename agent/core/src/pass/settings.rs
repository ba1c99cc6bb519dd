//! Whether the running agent must be restarted for the settings on disk.
//!
//! The agent says in its service's status line which settings it serves with ([`serving_words`]); so what is compared is what
//! really runs, whoever started it and whenever, and nothing has to be written for it.

/// Stands before the digest in the status line.
const MARK: &str = "settings ";

/// The status line of an agent that serves with the settings of this digest.
pub fn serving_words(digest: &str) -> String {
    format!("serving, {MARK}{digest}")
}

/// The digest in a status line; none when it holds none, as that of another version.
pub fn serving(status: &str) -> Option<&str> {
    let (_, digest) = status.rsplit_once(MARK)?;
    let sane = digest.len() == 16 && digest.bytes().all(|b| b.is_ascii_hexdigit());
    sane.then_some(digest)
}

/// The agent's service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Agent {
    /// It does not run, and nobody waits for it to: it was stopped, never started, or is not installed.
    Off,
    /// It starts just now, or ended and will be tried again by systemd; it reads the settings then.
    Starting,
    /// It gave up because its settings could not be used (exit code 78).
    GaveUp,
    /// It runs with the settings of this digest; none when it does not say.
    Runs(Option<String>),
}

/// All that the decision hangs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsSeen {
    /// The digest of the settings on disk.
    pub on_disk: String,
    /// How many problems they have.
    pub problems: usize,
    /// The agent's service.
    pub agent: Agent,
    /// The digest for which it was last restarted in this boot.
    pub restarted_for: Option<String>,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingsPlan {
    /// Nothing: they are applied already.
    Applied,
    /// Nothing: the agent does not run, or will read them soon.
    AtItsStart,
    /// Restart the agent.
    Restart,
    /// Start the agent, which had given up.
    Start,
    /// They changed and are wrong: the agent goes on with what it has.
    Wrong,
    /// The agent was restarted for them and still serves with others: it cannot read what root reads.
    Unreadable,
}

/// Decides.
pub fn plan_settings(seen: &SettingsSeen) -> SettingsPlan {
    let valid = seen.problems == 0;
    let tried = seen.restarted_for.as_ref() == Some(&seen.on_disk);
    match &seen.agent {
        Agent::Runs(Some(serves)) if *serves == seen.on_disk => SettingsPlan::Applied,
        Agent::Off | Agent::Starting => SettingsPlan::AtItsStart,
        Agent::Runs(_) | Agent::GaveUp if !valid => SettingsPlan::Wrong,
        // It was restarted and has not said anything: another version, which says nothing, or not yet.
        Agent::Runs(None) if tried => SettingsPlan::Applied,
        Agent::Runs(Some(_)) | Agent::GaveUp if tried => SettingsPlan::Unreadable,
        Agent::Runs(_) => SettingsPlan::Restart,
        Agent::GaveUp => SettingsPlan::Start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "00000000000000aa";
    const OLD: &str = "00000000000000bb";

    #[test]
    fn the_status_line_reads_back() {
        assert_eq!(serving(&serving_words(NEW)), Some(NEW));
        for other in [
            "",
            "serving",
            "serving, settings ",
            "settings xx",
            "settings 00000000000000a\u{e9}",
        ] {
            assert_eq!(serving(other), None, "{other}");
        }
    }

    #[test]
    fn the_agent_is_restarted_only_for_new_and_valid_settings_and_once() {
        use SettingsPlan::{Applied, AtItsStart, Restart, Start, Unreadable, Wrong};
        let runs = |digest: &str| Agent::Runs(Some(digest.to_owned()));
        for (agent, problems, tried, plan) in [
            (runs(NEW), 0, None, Applied),
            (runs(NEW), 3, None, Applied),
            (runs(OLD), 0, None, Restart),
            (runs(OLD), 0, Some(OLD), Restart),
            (runs(OLD), 1, None, Wrong),
            (runs(OLD), 0, Some(NEW), Unreadable),
            (Agent::Runs(None), 0, None, Restart),
            (Agent::Runs(None), 0, Some(NEW), Applied),
            (Agent::Runs(None), 1, None, Wrong),
            (Agent::Off, 0, None, AtItsStart),
            (Agent::Off, 1, None, AtItsStart),
            (Agent::Starting, 0, None, AtItsStart),
            (Agent::GaveUp, 1, None, Wrong),
            (Agent::GaveUp, 0, None, Start),
            (Agent::GaveUp, 0, Some(NEW), Unreadable),
        ] {
            let seen = SettingsSeen {
                on_disk: NEW.to_owned(),
                problems,
                agent,
                restarted_for: tried.map(str::to_owned),
            };
            assert_eq!(plan_settings(&seen), plan, "{seen:?}");
        }
    }
}
