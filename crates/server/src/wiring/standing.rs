//! How the process stands, for whoever asks.

use recado_postgres::{Census, PoolConfig};
use secrecy::SecretString;

use super::Shared;
use crate::telemetry::{Standing, Standings};

impl Shared {
    /// What a pool is made of, counted with all others that are for this.
    pub(super) fn pool(&self, purpose: &'static str, size: usize) -> PoolConfig {
        PoolConfig::new(self.config.database_url.clone(), size).counted(&self.census, purpose)
    }
}

impl Standings for Shared {
    fn standing(&self) -> Standing {
        Standing {
            pools: self.census.figures(),
            gateway_events: self.spool.figures(),
            streams: self.streams.open(),
        }
    }

    fn database(&self) -> (SecretString, Census) {
        (self.config.database_url.clone(), self.census.clone())
    }
}
