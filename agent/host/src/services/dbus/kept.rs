//! A connection that is kept from scrape to scrape, and made anew when it broke.

use std::{path::PathBuf, sync::Arc};

use virtfleet_agent_core::dbus::Call;

use super::{Answer, Bus, BusError};
use crate::ServiceCalls;

/// The system bus, connected when it is asked first.
pub struct KeptBus {
    services: Arc<dyn ServiceCalls>,
    socket: PathBuf,
    bus: Option<Box<dyn Bus>>,
}

impl KeptBus {
    /// The bus whose socket is `socket`.
    pub fn new(services: Arc<dyn ServiceCalls>, socket: PathBuf) -> Self {
        Self {
            services,
            socket,
            bus: None,
        }
    }

    /// Asks all of `calls`; the answers are in their order. A bus that was restarted is connected anew, once.
    pub fn ask(&mut self, calls: &[Call<'_>]) -> Result<Vec<Answer>, BusError> {
        if let Some(mut bus) = self.bus.take() {
            match bus.ask(calls) {
                Ok(answers) => {
                    self.bus = Some(bus);
                    return Ok(answers);
                }
                // Another two seconds would be no better.
                Err(BusError::TimedOut) => return Err(BusError::TimedOut),
                Err(_) => {}
            }
        }
        let mut bus = self.services.bus(&self.socket)?;
        let answers = bus.ask(calls)?;
        self.bus = Some(bus);
        Ok(answers)
    }
}
