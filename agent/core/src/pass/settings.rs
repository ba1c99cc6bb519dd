//! Decides whether the running agent must be restarted to apply the settings on disk.
//!
//! The agent publishes the digest of its settings in the status line of its service
//! ([`status_line`]). The comparison therefore uses the settings in effect, no matter who started
//! the agent or when, and needs no file.

/// Precedes the digest in the status line.
const MARK: &str = "settings ";

/// Returns the status line of an agent that runs with the settings of this digest.
pub fn status_line(digest: &str) -> String {
    format!("serving, {MARK}{digest}")
}

/// Returns the digest in a status line, or `None` if it has none, as with another agent version.
pub fn served_digest(status: &str) -> Option<&str> {
    let (_, digest) = status.rsplit_once(MARK)?;
    let sane = digest.len() == 16 && digest.bytes().all(|b| b.is_ascii_hexdigit());
    sane.then_some(digest)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentState {
    /// Not running, and not expected to run: stopped, never started, or not installed.
    Off,
    /// Starting, or ended and waiting for a restart by systemd. It reads the settings when it
    /// starts.
    Starting,
    /// Ended with exit code 78 because its settings are invalid.
    GaveUp,
    /// Running with the settings of this digest; `None` if its status line has no digest.
    Runs(Option<String>),
}

/// Input of the decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsSeen {
    /// Digest of the settings on disk.
    pub on_disk: String,
    /// Number of problems in the settings on disk.
    pub problems: usize,
    pub agent: AgentState,
    /// Digest for which the agent was last restarted in this boot.
    pub restarted_for: Option<String>,
}

/// Result of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingsPlan {
    /// Nothing to do: the settings are applied already.
    Applied,
    /// Nothing to do: the agent does not run, or reads the settings at its next start.
    AtItsStart,
    Restart,
    /// Start the agent, which had ended with exit code 78.
    Start,
    /// The settings changed and are invalid: the agent keeps running with the old ones.
    Wrong,
    /// The agent was restarted for these settings and still runs with others: it cannot read the
    /// files that root can read.
    Unreadable,
}

/// Decides what to do with the agent's service.
pub fn plan_settings(seen: &SettingsSeen) -> SettingsPlan {
    let valid = seen.problems == 0;
    let tried = seen.restarted_for.as_ref() == Some(&seen.on_disk);
    match &seen.agent {
        AgentState::Runs(Some(serves)) if *serves == seen.on_disk => SettingsPlan::Applied,
        AgentState::Off | AgentState::Starting => SettingsPlan::AtItsStart,
        AgentState::Runs(_) | AgentState::GaveUp if !valid => SettingsPlan::Wrong,
        // The agent was restarted and publishes no digest: another version, or it has not done so
        // yet.
        AgentState::Runs(None) if tried => SettingsPlan::Applied,
        AgentState::Runs(Some(_)) | AgentState::GaveUp if tried => SettingsPlan::Unreadable,
        AgentState::Runs(_) => SettingsPlan::Restart,
        AgentState::GaveUp => SettingsPlan::Start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "00000000000000aa";
    const OLD: &str = "00000000000000bb";

    #[test]
    fn digest_is_parsed_from_the_status_line() {
        assert_eq!(served_digest(&status_line(NEW)), Some(NEW));
        for other in [
            "",
            "serving",
            "serving, settings ",
            "settings xx",
            "settings 00000000000000a\u{e9}",
        ] {
            assert_eq!(served_digest(other), None, "{other}");
        }
    }

    #[test]
    fn agent_is_restarted_once_for_new_valid_settings() {
        use SettingsPlan::{Applied, AtItsStart, Restart, Start, Unreadable, Wrong};
        let runs = |digest: &str| AgentState::Runs(Some(digest.to_owned()));
        for (agent, problems, tried, plan) in [
            (runs(NEW), 0, None, Applied),
            (runs(NEW), 3, None, Applied),
            (runs(OLD), 0, None, Restart),
            (runs(OLD), 0, Some(OLD), Restart),
            (runs(OLD), 1, None, Wrong),
            (runs(OLD), 0, Some(NEW), Unreadable),
            (AgentState::Runs(None), 0, None, Restart),
            (AgentState::Runs(None), 0, Some(NEW), Applied),
            (AgentState::Runs(None), 1, None, Wrong),
            (AgentState::Off, 0, None, AtItsStart),
            (AgentState::Off, 1, None, AtItsStart),
            (AgentState::Starting, 0, None, AtItsStart),
            (AgentState::GaveUp, 1, None, Wrong),
            (AgentState::GaveUp, 0, None, Start),
            (AgentState::GaveUp, 0, Some(NEW), Unreadable),
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
