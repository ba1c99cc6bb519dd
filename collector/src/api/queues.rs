//! `GET /api/v1/queues`: streams of samples, with their queues and endpoints.

use std::collections::BTreeSet;

use virtfleet_collector_core::{mla::status::QueueStatusView, view::List};
use virtfleet_wire::ids::ClusterName;

use super::{error::ApiError, paging, reply::Reply, route::ApiRequest};

pub(super) fn list(request: &ApiRequest) -> Result<Reply, ApiError> {
    let query = &request.query;
    let selected = visible(request).into_iter().filter(|queue| {
        let cluster = queue.stream.cluster().map(ClusterName::as_str);
        query.admits("cluster", cluster) && query.admits("state", Some(queue.state.as_str()))
    });
    let named: Vec<(String, QueueStatusView)> =
        selected.map(|queue| (queue.stream.to_string(), queue)).collect();
    let page = paging::page(named, |(name, _)| [name.as_str()], query, &request.snapshot)?;
    Reply::json(&List {
        items: page.items.into_iter().map(|(_, queue)| queue).collect::<Vec<_>>(),
        revision: page.revision,
        continue_token: page.continue_token,
        partial: page.partial,
    })
}

/// The streams that the caller may see, sorted by their names as text. The operator's stream has
/// the samples of all tenants, so only callers that see the whole fleet see it.
pub(super) fn visible(request: &ApiRequest) -> Vec<QueueStatusView> {
    let mut queues = request.api.mla.queues();
    if let Some(tenant) = &request.tenant {
        let known = request.snapshot.clusters.iter().filter(|cluster| cluster.known);
        let clusters: BTreeSet<_> = known.map(|cluster| &cluster.name).collect();
        queues.retain(|queue| queue.stream.cluster().is_some_and(|name| clusters.contains(name)));
        if let Some(redactor) = tenant.redactor() {
            for queue in &mut queues {
                let texts = [&mut queue.problem, &mut queue.endpoint].into_iter().flatten();
                let error = queue.last_error.as_mut().map(|error| &mut error.message);
                for text in texts.chain(error) {
                    *text = redactor.text(text);
                }
            }
        }
    }
    queues.sort_by_cached_key(|queue| queue.stream.to_string());
    queues
}
