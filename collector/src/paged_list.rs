//! Lists objects of an API server page by page, on demand, with limits. The caller's type has only
//! the fields that it needs.

use kube::{
    Api,
    api::ListParams,
    core::{Object, Request},
};
use serde::Deserialize;

use crate::page::{ListPage, ListPageError};

/// Objects per page of a list: a pod may have some tens of KiB, and an answer 4 MiB.
const PAGE_SIZE: u32 = 100;
/// Maximum objects of a list. A cluster of 5,000 Nodes has some thousands of volumes, of 2 KiB
/// each.
const MAX_LIST_OBJECTS: usize = 20_000;
/// Maximum bytes of a list.
const MAX_LIST_BYTES: usize = 32 << 20;

/// Why a list was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    #[error(transparent)]
    Request(#[from] kube::Error),
    /// A page cannot be used.
    #[error(transparent)]
    Page(#[from] ListPageError),
    #[error("a list has more than {MAX_LIST_OBJECTS} objects or {MAX_LIST_BYTES} bytes")]
    TooLong,
}

/// All objects of a list.
///
/// # Errors
/// A request failed, or the list exceeds a limit.
pub(crate) async fn list<P, U>(
    api: &Api<Object<P, U>>,
    params: ListParams,
) -> Result<Vec<Object<P, U>>, ListError>
where
    P: Clone + std::fmt::Debug + for<'de> Deserialize<'de>,
    U: Clone + Default + std::fmt::Debug + for<'de> Deserialize<'de>,
{
    let mut params = params.limit(PAGE_SIZE);
    let (mut all, mut pages, mut bytes) = (Vec::new(), 0, 0);
    loop {
        let request = Request::new(api.resource_url()).list(&params);
        let request = request.map_err(kube::Error::BuildRequest)?;
        let text = api.clone().into_client().request_text(request).await?;
        let page: ListPage<Object<P, U>> = ListPage::read(&text, PAGE_SIZE as usize)?;
        (pages, bytes) = (pages + 1, bytes + text.len());
        all.extend(page.items);
        if all.len().max(pages) > MAX_LIST_OBJECTS || bytes > MAX_LIST_BYTES {
            return Err(ListError::TooLong);
        }
        match page.more {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}
