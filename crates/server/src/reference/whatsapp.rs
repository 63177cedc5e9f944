//! What the reference says of connected numbers, and of WhatsApp's callback.

use recado_domain::shared::CursorPage;
use recado_domain::whatsapp::Profile;
use serde_json::json;

use super::operation::{Body, Operation, created, cursor_page, data, empty, id_of, no_content, shaped, text, written};
use super::{ErrorCode, OpenApiTag};
use crate::routes::whatsapp::ProfileBody;

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "WhatsApp",
    description: "The numbers that an account sends from, and what WhatsApp tells.",
};

const ID: &str = "The profile's id.";

const TAKEN: &str = "The number is connected already.";

pub(crate) fn list() -> Operation {
    Operation::new(
        "List WhatsApp numbers",
        "The connected numbers, newest first; never their tokens.",
    )
    .takes_all(cursor_page())
    .answers(data::<CursorPage<Profile>>("Numbers, and where the next ones begin."))
}

pub(crate) fn create() -> Operation {
    let description = "Connects a number. The one that was connected first is the account's default.";
    Operation::new("Connect a WhatsApp number", description)
        .body(Body::json_with::<ProfileBody>(&[
            "name",
            "phone_number_id",
            "waba_id",
            "access_token",
        ]))
        .answers(created::<Profile>("The connected number."))
        .refuses(ErrorCode::Invalid, TAKEN)
}

pub(crate) fn update() -> Operation {
    let description = "Changes a connected number: absent fields are kept; null clears `messages_per_second`.";
    Operation::new("Change a WhatsApp number", description)
        .takes(id_of(ID))
        .body(Body::change::<ProfileBody>().example(json!({ "name": "Loja Centro", "messages_per_second": null })))
        .answers(
            data::<Profile>("The number as it is now.")
                .example(json!({ "name": "Loja Centro", "messages_per_second": null })),
        )
        .refuses(ErrorCode::Invalid, "The number is connected already.")
        .refuses(ErrorCode::Conflict, "It is being changed by other requests.")
}

pub(crate) fn delete() -> Operation {
    let description = "Disconnects a number, and forgets its token. Runs that send from it pause.";
    Operation::new("Disconnect a WhatsApp number", description)
        .takes(id_of(ID))
        .answers(no_content("The number is disconnected."))
}

pub(crate) fn handshake() -> Operation {
    let description = "For WhatsApp: proves that the callback's address is ours, by the configured token.";
    Operation::new("Prove the callback's address", description)
        .takes(text("hub.mode", "`subscribe`.").example("subscribe"))
        .takes(text("hub.verify_token", "The token that both sides know.").example("verify-me"))
        .takes(text("hub.challenge", "What is to be answered.").example("1158201444"))
        .answers(written("text/plain", "The challenge.", json!({ "type": "string" })).example(json!("1158201444")))
        .refuses(
            ErrorCode::Forbidden,
            "The token is wrong or not configured, or a parameter is missing.",
        )
}

pub(crate) fn callback() -> Operation {
    let description = "For WhatsApp: statuses of messages, messages of contacts, verdicts on templates. It is kept \
                before it is answered, and applied once, however often it comes.";
    let body = json!({ "type": "object", "additionalProperties": true });
    let example = json!({ "object": "whatsapp_business_account", "entry": [] });
    let signature = "`sha256=` and the HMAC-SHA256 of the body with the app's secret, in hexadecimal.";
    let shown = "sha256=b7f44c1d0c5b1fbd1ae1e4b0b0b8f3f8f0a8e4b3d2c1b0a99887766554433221";
    Operation::new("Take a callback", description)
        .takes(
            shaped("X-Hub-Signature-256", signature, json!({ "type": "string" }))
                .in_header()
                .example(shown),
        )
        .body(
            Body::written("application/json", body)
                .example(example)
                .described("As WhatsApp's Cloud API documents it; at most 4 MiB."),
        )
        .answers(empty(200, "It is kept."))
        .never(ErrorCode::MediaType)
        .never(ErrorCode::Invalid)
        .refuses(
            ErrorCode::Auth,
            "The signature is missing or wrong, or the app's secret is not configured.",
        )
}
