//! OpenAPI documentation of WhatsApp numbers and of WhatsApp's callback.

use recado_domain::shared::CursorPage;
use recado_domain::whatsapp::Profile;
use recado_domain::whatsapp::verification::NumberHealth;
use serde_json::json;

use super::operation::{
    Body, Operation, created, cursor_page, custom, data, empty, no_content, path_id, text, with_schema,
};
use super::{ErrorCode, OpenApiTag};
use crate::routes::whatsapp::{ProfileBody, VERIFY, VerifyBody};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "WhatsApp",
    description: "WhatsApp numbers of an account, and the callback of WhatsApp.",
};

const ID: &str = "The profile's id.";

const TAKEN: &str = "The number is already connected.";

pub(crate) fn list() -> Operation {
    Operation::new(
        "List WhatsApp numbers",
        "Returns the connected numbers without their access tokens, newest first.",
    )
    .takes_all(cursor_page())
    .responds(data::<CursorPage<Profile>>("A page of numbers and its `nextCursor`."))
}

pub(crate) fn get() -> Operation {
    Operation::new(
        "Get a WhatsApp number",
        "Returns one connected number without its access token.",
    )
    .takes(path_id(ID))
    .responds(data::<Profile>("The number."))
}

pub(crate) fn create() -> Operation {
    let description = "Connects a number, and asks WhatsApp with its token whether the number is the account's: for at \
                most 8 seconds, and at most 30 times a minute for each account. Read `verification` of the response: a \
                wrong token is no error. If WhatsApp does not answer, the number is `pending` and is checked again. The \
                verified number that was connected first is the account's default.";
    Operation::new("Connect a WhatsApp number", description)
        .takes(&VERIFY)
        .body(Body::json_with::<ProfileBody>(&[
            "name",
            "phone_number_id",
            "waba_id",
            "access_token",
        ]))
        .responds(created::<Profile>("The connected number."))
        .refuses(ErrorCode::Invalid, TAKEN)
}

pub(crate) fn update() -> Operation {
    let description = "Updates a connected number: absent fields are kept; null clears `messages_per_second`. With \
                `phone_number_id`, `waba_id`, `access_token` or `pin` the number becomes `pending`, and WhatsApp is \
                asked as when a number is connected.";
    Operation::new("Update a WhatsApp number", description)
        .takes(path_id(ID))
        .takes(&VERIFY)
        .body(Body::change::<ProfileBody>().example(json!({ "name": "Loja Centro", "messages_per_second": null })))
        .responds(
            data::<Profile>("The updated number.")
                .example(json!({ "name": "Loja Centro", "messages_per_second": null })),
        )
        .refuses(ErrorCode::Invalid, "The number is already connected.")
        .refuses(
            ErrorCode::Conflict,
            "Other requests are changing the number. Try again.",
        )
}

pub(crate) fn delete() -> Operation {
    let description = "Disconnects a number and deletes its access token. Campaign runs that send from it pause.";
    Operation::new("Disconnect a WhatsApp number", description)
        .takes(path_id(ID))
        .responds(no_content("The number is disconnected."))
}

pub(crate) fn verify() -> Operation {
    let description = "Asks WhatsApp all checks of a number now. A PIN registers the number if it is not registered.";
    Operation::new("Verify a WhatsApp number", description)
        .takes(path_id(ID))
        .body(Body::json::<VerifyBody>().optional())
        .responds(data::<Profile>("The number with its checks."))
        .refuses(
            ErrorCode::Whatsapp,
            "WhatsApp could not be asked; nothing changed. `details.checks` lists the checks.",
        )
        .refuses(
            ErrorCode::Conflict,
            "Other requests are changing the number. Try again.",
        )
}

pub(crate) fn health() -> Operation {
    let description = "Returns whether WhatsApp lets a number send, and what it did last. WhatsApp is asked at most once \
                a minute for each number. If it cannot be asked, the last answer is returned with `stale`.";
    Operation::new("Get the health of a WhatsApp number", description)
        .takes(path_id(ID))
        .responds(data::<NumberHealth>("The health of the number."))
}

pub(crate) fn handshake() -> Operation {
    let description = "Called by WhatsApp to verify the callback URL. Returns the challenge if the token matches \
                `WHATSAPP_VERIFY_TOKEN`.";
    Operation::new("Verify the callback URL", description)
        .takes(text("hub.mode", "Always `subscribe`.").example("subscribe"))
        .takes(
            text(
                "hub.verify_token",
                "The verify token that is configured at WhatsApp and on this server.",
            )
            .example("verify-me"),
        )
        .takes(text("hub.challenge", "The text to return.").example("1158201444"))
        .responds(custom("text/plain", "The challenge.", json!({ "type": "string" })).example(json!("1158201444")))
        .refuses(
            ErrorCode::Forbidden,
            "The token is wrong or not configured, or a parameter is missing.",
        )
}

pub(crate) fn callback() -> Operation {
    let description = "Called by WhatsApp with message statuses, messages of contacts, and news of templates, numbers \
                and business accounts. It is genuine if any of the app secrets signed it. The \
                callback is stored before the response and applied once, even if WhatsApp repeats it.";
    let body = json!({ "type": "object", "additionalProperties": true });
    let example = json!({ "object": "whatsapp_business_account", "entry": [] });
    let signature = "`sha256=` and the HMAC-SHA256 of the body with the app's secret, in hexadecimal.";
    let example_signature = "sha256=b7f44c1d0c5b1fbd1ae1e4b0b0b8f3f8f0a8e4b3d2c1b0a99887766554433221";
    Operation::new("Receive a WhatsApp callback", description)
        .takes(
            with_schema("X-Hub-Signature-256", signature, json!({ "type": "string" }))
                .in_header()
                .example(example_signature),
        )
        .body(
            Body::custom("application/json", body)
                .example(example)
                .described("A payload of the WhatsApp Cloud API, at most 4 MiB."),
        )
        .responds(empty(200, "The callback is stored."))
        .never(ErrorCode::MediaType)
        .never(ErrorCode::Invalid)
        .refuses(
            ErrorCode::Auth,
            "The signature is missing or wrong, or the app secret is not configured.",
        )
}
