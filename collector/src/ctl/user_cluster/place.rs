//! Reads and writes objects of any kind in one cluster, and reports each.

use serde_json::Value;

use crate::{
    ctl::{console::Console, fail::Fail},
    user_account::{ObjectError, ObjectWriter, PutResult, title},
};

/// A cluster in which objects are placed.
#[derive(Clone)]
pub(super) struct Place {
    /// `user cluster` or `infra cluster`.
    pub(super) name: &'static str,
    pub(super) writer: ObjectWriter,
}

impl Place {
    pub(super) fn client(&self) -> kube::Client {
        self.writer.client.clone()
    }

    /// Nothing is written.
    pub(super) fn dry_run(&self) -> bool {
        self.writer.dry_run
    }

    /// The live object with the kind and name of `object`.
    pub(super) async fn read(&self, object: &Value) -> Result<Option<Value>, Fail> {
        self.writer.read(object).await.map_err(|error| self.fail(error))
    }

    /// Creates or changes an object, and prints what was done. Returns whether it differed.
    pub(super) async fn put(&self, object: &Value, console: &mut Console<'_>) -> Result<bool, Fail> {
        let done = self.writer.put(object).await.map_err(|error| self.fail(error))?;
        let word = match done {
            PutResult::Unchanged => "unchanged",
            PutResult::Created => "created",
            PutResult::Changed => "changed",
        };
        self.report(word, object, console)?;
        Ok(done != PutResult::Unchanged)
    }

    /// Deletes an object if it exists, and prints what was done.
    pub(super) async fn delete(&self, object: &Value, console: &mut Console<'_>) -> Result<bool, Fail> {
        let existed = self
            .writer
            .delete(object)
            .await
            .map_err(|error| self.fail(error))?;
        if existed {
            self.report("deleted", object, console)?;
        }
        Ok(existed)
    }

    fn report(&self, word: &str, object: &Value, console: &mut Console<'_>) -> Result<(), Fail> {
        let line = format!("{word:<9}  {:<13}  {}", self.name, title(object));
        if self.dry_run() {
            let would = match word {
                "unchanged" => line,
                _ => format!("{line} (dry run)"),
            };
            console.note(&would);
            return Ok(());
        }
        Ok(console.print(&format!("{line}\n"))?)
    }

    /// An error of a request about an object, with what to do about it.
    pub(super) fn fail(&self, error: ObjectError) -> Fail {
        match error {
            ObjectError::Request { verb, title, error } => self.failed(verb, &title, &error),
            ObjectError::Answer(what) => Fail::Access(what),
        }
    }

    /// An error of a request about an object.
    pub(super) fn failed(&self, verb: &str, title: &str, error: &kube::Error) -> Fail {
        let place = self.name;
        let next = match error {
            kube::Error::Api(status) if status.code == 401 => {
                ": the kubeconfig's credentials are not accepted"
            }
            kube::Error::Api(status) if status.code == 403 => ": use a kubeconfig of a cluster admin",
            kube::Error::Api(_) => "",
            _ => ": check that its API server can be reached from here",
        };
        Fail::Access(format!("cannot {verb} {title} in the {place}: {error}{next}"))
    }
}
