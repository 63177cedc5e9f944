//! The state of the process for the metrics.

use recado_postgres::{DatabaseTls, PoolRegistry};
use secrecy::SecretString;

use super::Shared;
use crate::telemetry::{ProcessStats, ProcessStatsSource};

impl ProcessStatsSource for Shared {
    fn process_stats(&self) -> ProcessStats {
        ProcessStats {
            pools: self.pool_registry.stats(),
            gateway_events: self.payment_event_buffer.stats(),
            streams: self.streams.open(),
            tls: self.config.tls.targets.clone(),
        }
    }

    fn database(&self) -> (SecretString, DatabaseTls, PoolRegistry) {
        let config = &self.config;
        (
            config.database_url.clone(),
            config.tls.database.clone(),
            self.pool_registry.clone(),
        )
    }

    fn sealing_marker(&self) -> Vec<u8> {
        self.sealing_marker.clone()
    }
}
