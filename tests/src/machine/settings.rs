//! Settings files of the agent.

/// A settings file with this body.
pub(super) fn settings(body: &str) -> String {
    format!("apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\n{body}\n")
}
