//! A [`Commands`] for tests that records commands instead of running them.

use std::sync::{Mutex, PoisonError};

use super::{CommandError, CommandOutput, Commands, Tool};

type Answer = dyn Fn(&str) -> Option<CommandOutput> + Send + Sync;

/// Records each command as a line and returns the test's answer. `None` means that the program does
/// not exist.
pub struct FakeCommands {
    answer: Box<Answer>,
    lines: Mutex<Vec<String>>,
}

impl FakeCommands {
    /// `answer` receives the command as a line, e.g. `systemctl daemon-reload`.
    pub fn new(answer: impl Fn(&str) -> Option<CommandOutput> + Send + Sync + 'static) -> Self {
        Self {
            answer: Box::new(answer),
            lines: Mutex::new(Vec::new()),
        }
    }
    /// Every command succeeds without output.
    pub fn content() -> Self {
        Self::new(|_| Some(CommandOutput::default()))
    }
    /// Returns the recorded lines in order and clears the record.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Commands for FakeCommands {
    fn run(&self, tool: &Tool) -> Result<CommandOutput, CommandError> {
        let line = tool.to_string();
        let answer = (self.answer)(&line);
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line);
        answer.ok_or_else(|| CommandError::Missing(tool.clone()))
    }
}
