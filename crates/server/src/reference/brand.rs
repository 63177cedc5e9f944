//! OpenAPI documentation of the brand context.

use recado_domain::brand::BrandContext;
use serde_json::json;

use super::operation::{Body, Operation, data};
use super::{ErrorCode, OpenApiTag};
use crate::routes::brand::{BrandBody, Website};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Brand context",
    description: "A description of the account's business, entered by hand or read from its website.",
};

pub(crate) fn get() -> Operation {
    Operation::new(
        "Get the brand context",
        "Returns the description of the account's business, or null if none is stored.",
    )
    .responds(data::<Option<BrandContext>>("The brand context, or null."))
}

pub(crate) fn update() -> Operation {
    let description = "Updates the given fields, and creates the brand context if none is stored. Absent fields are \
                kept; null clears a field.";
    let example = json!({ "tone_of_voice": "Warm and direct, without jargon.", "brand_values": null });
    Operation::new("Update the brand context", description)
        .body(Body::json::<BrandBody>().example(example))
        .responds(data::<BrandContext>("The updated brand context."))
}

pub(crate) fn scrape() -> Operation {
    let description = "Fetches a page of the account's website and extracts the brand context with an AI model. All \
                fields are replaced: a fact that the page does not contain becomes null, and `website_url` becomes the \
                given address. The call takes some seconds. It follows at most three redirects and never connects to \
                private networks.";
    Operation::new("Extract the brand context from a website", description)
        .body(Body::json::<Website>())
        .responds(data::<BrandContext>("The extracted brand context."))
        .refuses(
            ErrorCode::Invalid,
            "The address is not http or https, or its host does not resolve or is private. Or the page does not \
             respond within 10 seconds, returns an error, is larger than 1 MiB, or is neither HTML nor plain text.",
        )
        .refuses(ErrorCode::Extraction, "Nothing is stored.")
}
