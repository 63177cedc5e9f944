//! What the reference says of the brand context.

use recado_domain::brand::BrandContext;
use serde_json::json;

use super::operation::{Body, Operation, data};
use super::{ErrorCode, OpenApiTag};
use crate::routes::brand::{BrandBody, Website};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Brand context",
    description: "What the account's business is, in its own words or read from its website.",
};

pub(crate) fn get() -> Operation {
    Operation::new(
        "Get the brand context",
        "What is known of the account's business; null before anything was written.",
    )
    .answers(data::<Option<BrandContext>>("The brand context, or null."))
}

pub(crate) fn update() -> Operation {
    let description = "Writes the given fields, creating the brand context where there is none: absent fields are \
                kept, null clears.";
    let example = json!({ "tone_of_voice": "Warm and direct, without jargon.", "brand_values": null });
    Operation::new("Write the brand context", description)
        .body(Body::json::<BrandBody>().example(example))
        .answers(data::<BrandContext>("The brand context as it is now."))
}

pub(crate) fn scrape() -> Operation {
    let description = "Reads a page of the account's website with an AI model into the brand context. What the page \
                does not tell becomes null; `website_url` becomes the address. It takes some seconds. At most three \
                redirects are followed, and addresses of private networks are never called.";
    Operation::new("Read the brand context from a website", description)
        .body(Body::json::<Website>())
        .answers(data::<BrandContext>("The brand context as it was read."))
        .refuses(
            ErrorCode::Invalid,
            "The address is not http or https, its host does not resolve or is private, the page does not answer within \
             10 seconds, answers an error, is larger than 1 MiB, or is neither HTML nor plain text.",
        )
        .refuses(ErrorCode::Extraction, "Nothing is stored.")
}
