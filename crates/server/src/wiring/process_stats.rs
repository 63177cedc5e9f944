//! The state of the process for the metrics.

use recado_postgres::PoolRegistry;
use secrecy::SecretString;

use super::Shared;
use crate::telemetry::{ProcessStats, ProcessStatsSource};

impl ProcessStatsSource for Shared {
    fn process_stats(&self) -> ProcessStats {
        ProcessStats {
            pools: self.pool_registry.stats(),
            gateway_events: self.payment_event_buffer.stats(),
            streams: self.streams.open(),
        }
    }

    fn database(&self) -> (SecretString, PoolRegistry) {
        (self.config.database_url.clone(), self.pool_registry.clone())
    }

    fn sealing_marker(&self) -> Vec<u8> {
        self.sealing_marker.clone()
    }
}
