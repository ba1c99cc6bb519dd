//! Commands that were written down instead of run.

use std::sync::{Mutex, PoisonError};

use super::{CommandError, Commands, Done, Tool};

type Answer = dyn Fn(&str) -> Option<Done> + Send + Sync;

/// Notes each command as its line, and answers with what the test says; `None` is a program that is not there.
pub struct FakeCommands {
    answer: Box<Answer>,
    lines: Mutex<Vec<String>>,
}

impl FakeCommands {
    /// Answers by the command's line, e.g. `systemctl daemon-reload`.
    pub fn new(answer: impl Fn(&str) -> Option<Done> + Send + Sync + 'static) -> Self {
        Self {
            answer: Box::new(answer),
            lines: Mutex::new(Vec::new()),
        }
    }
    /// Every command succeeds and says nothing.
    pub fn content() -> Self {
        Self::new(|_| Some(Done::default()))
    }
    /// The lines so far, in their order; they are forgotten by that.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Commands for FakeCommands {
    fn run(&self, tool: &Tool) -> Result<Done, CommandError> {
        let line = tool.to_string();
        let answer = (self.answer)(&line);
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line);
        answer.ok_or_else(|| CommandError::Missing(tool.clone()))
    }
}
