//! From a VM to the collector: connects to the one configured address.

use std::time::Duration;

use tokio::{net::TcpStream, time::timeout};
use virtfleet_collector_core::host_port::HostPort;

use super::{connect::Refused, metrics::RelayResult};

/// Connects to the collector. Its name is resolved each time: a Service or its pods may have moved.
pub(super) async fn connect(collector: &HostPort, connect_timeout: Duration) -> Result<TcpStream, Refused> {
    let dial = TcpStream::connect((collector.host(), collector.port()));
    match timeout(connect_timeout, dial).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(Refused {
            result: RelayResult::Unreachable,
            reason: format!("cannot connect to {collector}: {error}"),
        }),
        Err(_) => Err(Refused {
            result: RelayResult::Timeout,
            reason: format!("{collector} did not answer within {connect_timeout:?}"),
        }),
    }
}
