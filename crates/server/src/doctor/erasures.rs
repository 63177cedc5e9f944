//! Does the database have every listed erasure?

use std::path::Path;

use super::context::{AreaOutcome, DoctorContext};
use super::diagnosis::Diagnosis;
use crate::erasures::replayer;
use recado_api::error_chain::chain;
use recado_domain::erasures::ReplayError;

const NAME: &str = "erasures";

const REMEDY: &str =
    "check MEDIA_STORE_URL, the credentials (AWS_...) and the permission to list and read, and the database";

pub(super) async fn check(context: &DoctorContext) -> AreaOutcome {
    let config = context.config(&["MEDIA_STORE_URL", "APP_SECRET", "APP_SECRET_PREVIOUS"])?;
    // The server creates the directory at its start, and the check leaves none behind.
    let directory = config
        .media_store_url
        .as_deref()
        .and_then(|url| url.strip_prefix("file://"));
    if directory.is_some_and(|directory| !Path::new(directory).exists()) {
        return Ok(vec![Diagnosis::ok(NAME, "no erasure is listed")]);
    }
    let replay = match replayer(config, context.tenant()?.clone(), context.owner()?.clone()) {
        Ok(Some(replay)) => replay,
        Ok(None) => {
            let found = "MEDIA_STORE_URL is not set: erasures are not listed outside the database";
            return Ok(vec![Diagnosis::ok(NAME, found)]);
        }
        Err(error) => return Ok(vec![Diagnosis::warn(NAME, unreadable(&format!("{error:#}")), REMEDY)]),
    };
    Ok(vec![match replay.missing().await {
        Ok(missing) if missing.is_empty() => Diagnosis::ok(NAME, "the database has every listed erasure"),
        Ok(missing) => Diagnosis::fail(
            NAME,
            format!(
                "{} erasures are missing in the database, as after the restore of a backup",
                missing.len()
            ),
            "run recado erasures replay",
        ),
        // The check of the media store has its own line.
        Err(error @ ReplayError::Files(_)) => Diagnosis::warn(NAME, unreadable(&chain(&error)), REMEDY),
        Err(error @ ReplayError::Store(_)) => Diagnosis::fail(NAME, unreadable(&chain(&error)), REMEDY),
    }])
}

fn unreadable(error: &str) -> String {
    format!("the list of erasures cannot be compared: {error}")
}
