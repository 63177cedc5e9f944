//! Does the AI service accept our key, and does it have the model?

use recado_gateways::ai::{AiAccessTest, AiApi};
use recado_gateways::http::Http;

use super::context::{AreaOutcome, DoctorContext};
use super::diagnosis::Diagnosis;
use crate::config::AiAccess;

const NAME: &str = "ai_service";

pub(super) async fn check(context: &DoctorContext) -> AreaOutcome {
    let ai = &context.config(&["AI_API_URL", "AI_API_KEY", "AI_MODEL"])?.ai;
    Ok(vec![match (&ai.url, &ai.model) {
        (None, None) => Diagnosis::ok(NAME, "AI_API_URL is not set: no website can be read by the AI service"),
        (Some(_), None) => half_configured("AI_API_URL", "AI_MODEL"),
        (None, Some(_)) => half_configured("AI_MODEL", "AI_API_URL"),
        (Some(_), Some(model)) => diagnose(test(ai).await, model),
    }])
}

fn half_configured(set: &str, unset: &str) -> Diagnosis {
    Diagnosis::fail(
        NAME,
        format!("{set} is set and {unset} is not: the AI service is not used"),
        format!("set {unset}, or unset {set}"),
    )
}

fn diagnose(tested: Result<AiAccessTest, String>, model: &str) -> Diagnosis {
    match tested {
        Ok(AiAccessTest::ModelFound) => Diagnosis::ok(NAME, format!("the AI service has the model {model}")),
        Ok(AiAccessTest::Reachable) => Diagnosis::ok(NAME, "the AI service answers, without a list of its models"),
        Ok(AiAccessTest::ModelMissing) => Diagnosis::warn(
            NAME,
            format!("the AI service does not list the model {model}"),
            "check AI_MODEL",
        ),
        Err(error) => Diagnosis::fail(
            NAME,
            format!("the AI service cannot be used: {error}"),
            "check AI_API_URL with its version, and AI_API_KEY",
        ),
    }
}

async fn test(ai: &AiAccess) -> Result<AiAccessTest, String> {
    let api = AiApi::new(Http::new()?, ai.url.as_deref(), ai.key.as_ref(), ai.model.as_deref());
    api.test_access().await.map_err(|error| error.to_string())
}
