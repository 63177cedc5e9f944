//! The services of settings.

use std::sync::Arc;

use recado_domain::settings::{Settings, SettingsStore};
use recado_postgres::PgSettings;

use super::{Shared, Stores};

impl Stores {
    pub(super) fn settings_store(&self) -> Arc<dyn SettingsStore> {
        Arc::new(PgSettings::new(self.tenant.clone()))
    }

    pub(super) fn settings(&self, shared: &Shared) -> Settings {
        Settings::new(self.settings_store(), shared.clock.clone())
    }
}
