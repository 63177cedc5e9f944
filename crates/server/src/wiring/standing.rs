//! How the process stands, for whoever asks.

use recado_postgres::Census;
use secrecy::SecretString;

use super::Shared;
use crate::telemetry::{Standing, Standings};

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
