//! Are stored secrets still sealed under an earlier `APP_SECRET`?

use recado_domain::shared::Resealer as _;
use recado_postgres::PgSealedValues;

use super::context::{AreaOutcome, DoctorContext};
use super::database::unavailable;
use super::diagnosis::Diagnosis;
use crate::sealing::AppCipher;

const NAME: &str = "sealed_values";

pub(super) async fn check(context: &DoctorContext) -> AreaOutcome {
    let config = context.config(&["APP_SECRET", "APP_SECRET_PREVIOUS"])?;
    let Ok(cipher) = AppCipher::new(&config.app_secrets) else {
        let remedy = "check APP_SECRET and APP_SECRET_PREVIOUS";
        return Ok(vec![Diagnosis::fail(
            NAME,
            "no key can be derived from APP_SECRET",
            remedy,
        )]);
    };
    let values = PgSealedValues::new(context.owner()?.clone());
    Ok(match values.under_earlier_keys(&cipher.current_marker()).await {
        Err(error) => vec![unavailable(NAME, &error)],
        Ok(counts) if counts.is_empty() => {
            vec![Diagnosis::ok(
                NAME,
                "every stored secret is under the current APP_SECRET",
            )]
        }
        Ok(counts) => counts
            .into_iter()
            .map(|(purpose, count)| {
                let found = format!("{purpose}: {count} under an earlier key");
                Diagnosis::warn(
                    NAME,
                    found,
                    "run recado secrets rotate, and keep APP_SECRET_PREVIOUS until then",
                )
            })
            .collect(),
    })
}
