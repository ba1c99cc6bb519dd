//! A bus connection that is kept between scrapes and reestablished after a failure.

use std::{path::PathBuf, sync::Arc};

use virtfleet_agent_core::dbus::Call;

use super::{Answer, Bus, BusError};
use crate::ServiceCalls;

/// The system bus, connected at the first call.
pub struct KeptBus {
    services: Arc<dyn ServiceCalls>,
    socket: PathBuf,
    bus: Option<Box<dyn Bus>>,
}

impl KeptBus {
    /// Does not connect before the first call. `socket` is the path of the bus's socket.
    pub fn new(services: Arc<dyn ServiceCalls>, socket: PathBuf) -> Self {
        Self {
            services,
            socket,
            bus: None,
        }
    }

    /// Makes all calls; the answers are in their order. After a restart of the bus it reconnects
    /// once.
    ///
    /// # Errors
    /// The bus is unavailable or does not answer in time.
    pub fn call_all(&mut self, calls: &[Call<'_>]) -> Result<Vec<Answer>, BusError> {
        if let Some(mut bus) = self.bus.take() {
            match bus.call_all(calls) {
                Ok(answers) => {
                    self.bus = Some(bus);
                    return Ok(answers);
                }
                // A second attempt would take another two seconds.
                Err(BusError::TimedOut) => return Err(BusError::TimedOut),
                Err(_) => {}
            }
        }
        let mut bus = self.services.bus(&self.socket)?;
        let answers = bus.call_all(calls)?;
        self.bus = Some(bus);
        Ok(answers)
    }
}
