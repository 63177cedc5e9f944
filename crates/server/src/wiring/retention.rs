//! The services of retention.

use std::sync::Arc;

use recado_domain::retention::{Archiver, Archives, Retention, RetentionWorker};
use recado_gateways::media::GzipArchives;
use recado_postgres::PgRetention;

use super::{Shared, Stores};

impl Stores {
    fn retention_store(&self) -> Arc<PgRetention> {
        Arc::new(PgRetention::new(self.tenant.clone(), self.owner.clone()))
    }

    pub fn retention(&self, shared: &Shared) -> Retention {
        let bounds = shared.config.retention_bounds;
        Retention::new(self.retention_store(), bounds, shared.clock.clone())
    }

    /// The archives of campaigns.
    pub fn archives(&self, shared: &Shared) -> Archives {
        let storage = Arc::new(GzipArchives::new(shared.clients.media.clone()));
        Archives::new(self.retention_store(), storage)
    }

    /// Without a file store no send is archived, and none leaves its table.
    pub fn retention_worker(&self, shared: &Shared) -> RetentionWorker {
        let store = self.retention_store();
        let files = shared.clients.media.clone();
        let archiver = shared.config.media_store_url.as_ref().map(|_| Archiver {
            archives: store.clone(),
            storage: Arc::new(GzipArchives::new(files.clone())),
            ids: shared.ids.clone(),
        });
        RetentionWorker {
            runs: store,
            files,
            archiver,
            bounds: shared.config.retention_bounds,
            ids: shared.ids.clone(),
        }
    }
}
