//! The services of retention, and of the exports and erasures of contacts.

use std::sync::Arc;

use recado_domain::contact_exports::{ContactExporter, ContactExports};
use recado_domain::erasures::{ArchiveEraser, ErasureRecords, ErasureWorker, Erasures};
use recado_domain::retention::{Archiver, Archives, Retention, RetentionWorker};
use recado_gateways::media::GzipArchives;
use recado_postgres::{ErasedOptOuts, PgContactExports, PgErasures, PgRetention};

use super::{Shared, Stores};

impl Shared {
    /// The opt-outs of erased people.
    pub(super) fn erased_opt_outs(&self) -> ErasedOptOuts {
        ErasedOptOuts::new(self.identifier_hasher.clone())
    }
}

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

    fn contact_export_store(&self) -> Arc<PgContactExports> {
        Arc::new(PgContactExports::new(self.tenant.clone(), self.owner.clone()))
    }

    pub fn contact_exports(&self, shared: &Shared) -> ContactExports {
        let storage = Arc::new(GzipArchives::new(shared.clients.media.clone()));
        let (clock, ids) = (shared.clock.clone(), shared.ids.clone());
        ContactExports::new(self.contact_export_store(), storage, clock, ids)
    }

    /// Writes the files of exports.
    pub fn contact_exporter(&self, shared: &Shared) -> ContactExporter {
        ContactExporter {
            queue: self.contact_export_store(),
            storage: Arc::new(GzipArchives::new(shared.clients.media.clone())),
            ids: shared.ids.clone(),
        }
    }

    fn erasure_store(&self, shared: &Shared) -> Arc<PgErasures> {
        let (hasher, cipher) = (shared.identifier_hasher.clone(), shared.cipher.clone());
        Arc::new(PgErasures::new(self.tenant.clone(), self.owner.clone(), hasher, cipher))
    }

    pub fn erasures(&self, shared: &Shared) -> Erasures {
        Erasures::new(self.erasure_store(shared), shared.clock.clone(), shared.ids.clone())
    }

    /// Removes what is stored of erased contacts.
    pub fn erasure_worker(&self, shared: &Shared) -> ErasureWorker {
        let media = || -> Arc<dyn ErasureRecords> { shared.clients.media.clone() };
        let listed = shared.config.media_store_url.as_ref().map(|_| media());
        let store = self.erasure_store(shared);
        ErasureWorker {
            queue: store.clone(),
            files: shared.clients.media.clone(),
            archives: ArchiveEraser {
                archives: store,
                storage: Arc::new(GzipArchives::new(shared.clients.media.clone())),
                ids: shared.ids.clone(),
            },
            records: listed,
            hasher: shared.identifier_hasher.clone(),
            ids: shared.ids.clone(),
        }
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
