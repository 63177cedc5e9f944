//! Reads `APP_SECRET` and `APP_SECRET_PREVIOUS`.

use recado_api::app_secret::{AppSecret, AppSecrets};

use super::values::{ConfigError, Source, invalid, required};

/// The maximum number of secrets in `APP_SECRET_PREVIOUS`.
const MAX_PREVIOUS: usize = 3;

pub fn app_secrets(source: Source<'_>) -> Result<AppSecrets, ConfigError> {
    let current = AppSecret::parse(&required(source, "APP_SECRET")?).ok_or_else(|| {
        invalid(
            "APP_SECRET",
            "must be 32 bytes in base64, for example from: head -c 32 /dev/urandom | base64",
        )
    })?;
    Ok(AppSecrets {
        current,
        previous: previous(source)?,
    })
}

fn previous(source: Source<'_>) -> Result<Vec<AppSecret>, ConfigError> {
    let name = "APP_SECRET_PREVIOUS";
    let text = source(name).unwrap_or_default();
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    let secrets: Option<Vec<AppSecret>> = items.map(AppSecret::parse).collect();
    secrets.filter(|secrets| secrets.len() <= MAX_PREVIOUS).ok_or_else(|| {
        let accepted = format!("must be up to {MAX_PREVIOUS} secrets of 32 bytes in base64, separated by commas");
        invalid(name, accepted)
    })
}
