//! Routes of short links and their redirect.

use actix_web::http::{Method, header};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use garde::Validate;
use recado_domain::links::{Link, Links};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{CampaignId, ContactId, CursorPage, LinkId, timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use time::OffsetDateTime;

use crate::error::{ApiError, ErrorCode};
use crate::web::body::Json;
use crate::web::extractors::{Authenticated, PathName, TenantContext};
use crate::web::operation::{Body, OpenApiTag, Operation, created, cursor_page, data, empty, text};
use crate::web::query::CursorParams;
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Links",
    description: "Short links that count clicks and to which orders can be attributed.",
};

/// A new link.
#[derive(Deserialize, Validate, JsonSchema)]
struct NewLink {
    /// The target of the link: an `http` or `https` URL of at most 2000 characters.
    #[schemars(
        required,
        length(min = 1, max = 2000),
        example = "https://loja.example/bolos?de=whatsapp"
    )]
    #[garde(required)]
    original_url: Option<String>,
    /// The id of the link's campaign. Orders that are attributed to the link are also attributed to this campaign.
    #[garde(skip)]
    campaign_id: Option<CampaignId>,
    /// The id of the contact to whom the link is given. Its clicks are the contact's, in the filters of segments.
    #[garde(skip)]
    contact_id: Option<ContactId>,
}

response_type! {
    /// A short link that counts its clicks.
    #[schemars(rename = "Link")]
    struct LinkResponse from link: Link {
        /// The link's id.
        id: LinkId,
        /// The code in the link's URL.
        #[schemars(example = &"Ab3dE9x_2")]
        short_code: String,
        /// The short URL, for use in messages.
        #[schemars(example = "https://api.recado.example/r/Ab3dE9x_2")]
        short_url: String,
        /// The URL to which the link redirects.
        #[schemars(example = "https://loja.example/bolos?de=whatsapp")]
        original_url: String,
        /// The campaign of the link, which orders through the link are also credited to. Null if it has none.
        campaign_id: Option<CampaignId>,
        /// The contact to whom the link was given. Null for a link of everyone.
        contact_id: Option<ContactId>,
        /// The number of clicks. A click is counted within about a second.
        #[schemars(example = 212)]
        clicks: i64,
        /// When the link was created.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
    }
}

/// `GET /api/links`
async fn list(
    links: Data<Links>,
    Authenticated(tenant): TenantContext,
    CursorParams(page): CursorParams,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(links.list(&tenant, &page).await?.map(LinkResponse::from)))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    Operation::new("List links", "Returns the account's links, newest first.")
        .takes_all(cursor_page())
        .responds(data::<CursorPage<LinkResponse>>(
            "A page of links and its `nextCursor`.",
        ))
});

/// `POST /api/links`
async fn create(
    links: Data<Links>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<NewLink>,
) -> Result<HttpResponse, ApiError> {
    let url = input.original_url.unwrap_or_default();
    let link = links.create(&tenant, &url, input.campaign_id, input.contact_id).await?;
    Ok(responses::created(LinkResponse::from(link)))
}

pub(super) const CREATE: Endpoint = endpoint!(create, {
    Operation::new("Create a link", "Creates a short link to a web page.")
        .body(Body::json::<NewLink>())
        .responds(created::<LinkResponse>("The new link.").example(json!({ "clicks": 0 })))
        .refuses(ErrorCode::Invalid, "The campaign or the contact does not exist.")
});

/// `GET /r/<code>`: not cacheable, so that every click is counted. HEAD is no click: link previews use it.
async fn follow(links: Data<Links>, PathName(code): PathName, request: HttpRequest) -> Result<HttpResponse, ApiError> {
    let target = match *request.method() == Method::HEAD {
        true => links.target_url(&code).await?,
        false => links.follow(&code).await?,
    };
    Ok(HttpResponse::Found()
        .insert_header((header::LOCATION, target))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .finish())
}

pub(super) const FOLLOW: Endpoint = endpoint!(follow, {
    let description = "Redirects to the target of a short link and counts the click. HEAD redirects without a click.";
    Operation::new("Follow a link", description)
        .takes(text("code", "The link's `short_code`.").in_path().example("Ab3dE9x_2"))
        .responds(
            empty(302, "Redirect to the target.")
                .header(
                    "Location",
                    "The target of the link.",
                    json!({ "type": "string", "format": "uri" }),
                )
                .header(
                    "Cache-Control",
                    "Prevents caching, so that every click is counted.",
                    json!({ "type": "string", "const": "no-store" }),
                ),
        )
        .refuses(ErrorCode::Invalid, "")
});
