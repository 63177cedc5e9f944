//! What the checks share: the options, the configuration as far as it is valid, and the database pools.

use std::time::Duration;

use recado_postgres::{OwnerPool, PoolConfig, TenantPool};

use super::diagnosis::Diagnosis;
use super::options::DoctorOptions;
use crate::config::{Config, ConfigError, Source};

/// Time limits of the database. They end before the time limit of an area, so that its line has the reason.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(8);

/// Owner connections for all areas together.
const OWNER_CONNECTIONS: usize = 4;

/// Values that stand in for invalid ones, so that the other variables are read too. Nothing is ever called with them.
const NO_DATABASE: &str = "postgres://127.0.0.1:1/none";
const NO_APP_SECRET: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
const NO_SESSION_SECRET: &str = "stands in for an invalid session secret";

/// The variable without which an area cannot be checked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotChecked(pub(super) &'static str);

/// The checks of an area: one or more lines, or the variable without which they are not possible.
pub(super) type AreaOutcome = Result<Vec<Diagnosis>, NotChecked>;

pub(super) struct DoctorContext {
    pub(super) options: DoctorOptions,
    /// The invalid variables.
    pub(super) config_errors: Vec<ConfigError>,
    /// None: the configuration cannot be read even without the invalid variables.
    config: Option<Config>,
    owner: Option<OwnerPool>,
    tenant: Option<TenantPool>,
}

impl DoctorContext {
    /// Opens no connection. The pools belong to the current runtime.
    pub(super) fn new(options: &DoctorOptions, source: Source<'_>) -> Self {
        let (config, config_errors) = read_config(source);
        let pool = |config: &Config, size| PoolConfig {
            connect_timeout: CONNECT_TIMEOUT,
            wait_timeout: STATEMENT_TIMEOUT,
            statement_timeout: STATEMENT_TIMEOUT,
            ..PoolConfig::new(config.database_url.clone(), size)
                .tls(config.tls.database.clone())
                .tenant_login(config.tenant_database_url.clone())
        };
        let owner = config
            .as_ref()
            .and_then(|config| OwnerPool::new(&pool(config, OWNER_CONNECTIONS)).ok());
        let tenant = config
            .as_ref()
            .and_then(|config| TenantPool::new(&pool(config, 1)).ok());
        Self {
            options: *options,
            config_errors,
            config,
            owner,
            tenant,
        }
    }

    /// Makes every client trust the configured authorities.
    pub(super) fn install_authorities(&self) {
        if let Some(config) = &self.config {
            recado_gateways::tls::install(config.tls.authorities.clone());
        }
    }

    /// The configuration, if these variables are valid.
    pub(super) fn config(&self, variables: &[&'static str]) -> Result<&Config, NotChecked> {
        let is_invalid = |variable: &str| self.config_errors.iter().any(|error| error.variable == variable);
        match variables.iter().find(|variable| is_invalid(variable)) {
            Some(variable) => Err(NotChecked(variable)),
            None => self.config.as_ref().ok_or(NotChecked("the configuration")),
        }
    }

    /// The database, as its owner.
    pub(super) fn owner(&self) -> Result<&OwnerPool, NotChecked> {
        self.config(&["DATABASE_URL"])?;
        self.owner.as_ref().ok_or(NotChecked("DATABASE_URL"))
    }

    /// The database, as tenant transactions use it.
    pub(super) fn tenant(&self) -> Result<&TenantPool, NotChecked> {
        self.config(&["DATABASE_URL"])?;
        self.tenant.as_ref().ok_or(NotChecked("DATABASE_URL"))
    }
}

/// Reads the configuration, and again without each invalid variable, so that all of them are found.
fn read_config(source: Source<'_>) -> (Option<Config>, Vec<ConfigError>) {
    let mut errors: Vec<ConfigError> = Vec::new();
    loop {
        let valid = |name: &str| {
            let replaced = errors.iter().find_map(|error| replacement(error.variable, name));
            replaced.map_or_else(|| source(name), |value| value.map(str::to_owned))
        };
        match Config::read(&valid) {
            Ok(config) => return (Some(config), errors),
            Err(error) => {
                let is_known = errors.iter().any(|known| known.variable == error.variable);
                errors.push(error);
                if is_known {
                    return (None, errors);
                }
            }
        }
    }
}

/// What replaces the variable `name` if `invalid` is not valid: a value, or none to unset it. None: it stays.
fn replacement(invalid: &str, name: &str) -> Option<Option<&'static str>> {
    match (invalid, name) {
        ("DATABASE_URL", "DATABASE_URL") => Some(Some(NO_DATABASE)),
        ("APP_SECRET", "APP_SECRET") => Some(Some(NO_APP_SECRET)),
        // One of the two is required, and both are refused.
        ("SESSION_JWT_SECRET" | "SESSION_JWKS_URL", "SESSION_JWT_SECRET") => Some(Some(NO_SESSION_SECRET)),
        ("SESSION_JWT_SECRET" | "SESSION_JWKS_URL", "SESSION_JWKS_URL") => Some(None),
        (invalid, name) if invalid == name => Some(None),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid_variables(variables: &[(&str, &str)]) -> (bool, Vec<&'static str>) {
        let source = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let (config, errors) = read_config(&source);
        (
            config.is_some(),
            errors.into_iter().map(|error| error.variable).collect(),
        )
    }

    #[test]
    fn every_invalid_variable_is_found() {
        let (read, invalid) = invalid_variables(&[]);
        assert!(read);
        assert_eq!(invalid, ["DATABASE_URL", "APP_SECRET", "SESSION_JWT_SECRET"]);
        let required = [
            ("DATABASE_URL", "postgres://u@h/db"),
            ("APP_SECRET", NO_APP_SECRET),
            ("SESSION_JWT_SECRET", NO_SESSION_SECRET),
        ];
        assert_eq!(invalid_variables(&required), (true, vec![]));
        let more = [
            ("SESSION_JWKS_URL", "not a url"),
            ("COOKIE_SECURE", "perhaps"),
            ("SMTP_URL", "mail"),
            ("WHATSAPP_API_URL", "ftp://h"),
        ];
        let variables: Vec<_> = required.into_iter().take(2).chain(more).collect();
        let (read, invalid) = invalid_variables(&variables);
        assert!(read);
        assert_eq!(
            invalid,
            ["SESSION_JWKS_URL", "COOKIE_SECURE", "SMTP_URL", "WHATSAPP_API_URL"]
        );
    }
}
