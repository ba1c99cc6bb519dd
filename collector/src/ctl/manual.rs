//! `virtfleetctl completion` and `virtfleetctl man`: made from the definition of the command line.

use clap_complete::{Shell, generate};
use clap_mangen::Man;

use super::{cli::command, fail::Fail};

const PROGRAM: &str = "virtfleetctl";

/// The completion script for a shell. Those for bash, fish and zsh also complete names of VMs and
/// infra nodes, which they request from the collector.
pub fn completion(shell: Shell) -> String {
    let mut script: Vec<u8> = Vec::new();
    generate(shell, &mut command(), PROGRAM, &mut script);
    let names = match shell {
        Shell::Bash => include_str!("../../../packaging/completions/virtfleetctl.bash"),
        Shell::Fish => include_str!("../../../packaging/completions/virtfleetctl.fish"),
        Shell::Zsh => include_str!("../../../packaging/completions/_virtfleetctl"),
        _ => "",
    };
    String::from_utf8_lossy(&script).into_owned() + names
}

/// The man page, in roff, of the command that `words` name, or of the program.
///
/// # Errors
/// There is no such command.
pub(super) fn page(words: &[String]) -> Result<String, Fail> {
    let mut program = command().disable_help_subcommand(true);
    program.build();
    let mut found = &program;
    for word in words {
        let Some(next) = found.find_subcommand(word) else {
            let (name, words) = (found.get_bin_name().unwrap_or(PROGRAM), words.join(" "));
            return Err(Fail::Usage(format!(
                "there is no command {words:?}: {name} has no {word:?}; see {name} --help"
            )));
        };
        found = next;
    }
    let mut page: Vec<u8> = Vec::new();
    Man::new(found.clone()).render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(words: &str) -> Result<String, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        page(&words).map_err(|fail| fail.to_string())
    }

    #[test]
    fn each_command_has_a_page() {
        for (words, title) in [
            ("", "virtfleetctl"),
            ("vms", "virtfleetctl-vms"),
            ("vm revoke", "virtfleetctl-vm-revoke"),
        ] {
            let page = page_of(words).unwrap();
            let head = page.lines().find(|line| line.starts_with(".TH "));
            assert!(
                head.is_some_and(|head| head.split_whitespace().nth(1) == Some(title)),
                "{words}: {head:?}"
            );
        }
        let error = page_of("vm revok").unwrap_err();
        for part in ["\"vm revok\"", "has no \"revok\"", "virtfleetctl vm --help"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn completions_also_complete_names() {
        for (shell, function) in [
            (Shell::Bash, "complete -F _virtfleetctl_with_names"),
            (Shell::Zsh, "compdef _virtfleetctl_with_names virtfleetctl"),
            (Shell::Fish, "(__virtfleetctl_names vms)"),
        ] {
            let script = completion(shell);
            assert!(
                script.contains(function) && script.contains("support-bundle"),
                "{shell}"
            );
        }
        assert!(completion(Shell::PowerShell).contains("support-bundle"));
    }
}
