//! Errors of requests about objects.

use crate::inventory::cluster::explain;

/// A request to a cluster that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObjectError {
    /// The API server refused a request, or did not answer.
    #[error("cannot {verb} {title}")]
    Request {
        verb: &'static str,
        /// Kind, namespace and name of the object.
        title: String,
        #[source]
        error: kube::Error,
    },
    /// The API server's answer cannot be used.
    #[error("{0}")]
    Answer(String),
}

impl ObjectError {
    /// What failed and why, without any text of the user cluster's API server.
    pub(crate) fn of_user_cluster(&self) -> String {
        match self {
            Self::Request { verb, title, error } => {
                let why = explain(error, true).1;
                format!("cannot {verb} {title} in the user cluster: {why}")
            }
            Self::Answer(why) => why.clone(),
        }
    }

    /// Makes the error of a request, for `map_err`.
    pub(super) fn of(verb: &'static str, title: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let title = title.into();
        move |error| Self::Request { verb, title, error }
    }
}
