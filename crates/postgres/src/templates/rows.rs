//! The columns of a template.

use diesel::pg::Pg;
use diesel::prelude::{AsChangeset, Insertable, Queryable, Selectable};
use recado_domain::messaging::Category;
use recado_domain::shared::{StoreError, timestamp};
use recado_domain::templates::Template;
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::{corrupt, parse_enum};
use crate::schema::message_templates;

#[derive(Queryable, Selectable)]
#[diesel(table_name = message_templates, check_for_backend(Pg))]
pub(super) struct TemplateRow {
    account_id: Uuid,
    id: Uuid,
    name: String,
    category: String,
    category_change: Option<Value>,
    correct_category: Option<String>,
    language: String,
    template_type: String,
    parameter_format: String,
    header_type: String,
    header_text: Option<String>,
    header_media_url: Option<String>,
    body_text: Option<String>,
    footer_text: Option<String>,
    buttons: Value,
    limited_time_offer: Option<Value>,
    message_send_ttl_seconds: Option<i64>,
    variables: Value,
    carousel_cards: Value,
    folder_id: Option<Uuid>,
    profile_id: Option<Uuid>,
    meta_template_id: Option<String>,
    meta_status: String,
    rejection_reason: Option<String>,
    rejection_recommendation: Option<String>,
    quality_score: Option<String>,
    unsupported: Value,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
    version: i64,
}

impl TryFrom<TemplateRow> for Template {
    type Error = StoreError;

    fn try_from(row: TemplateRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.into(),
            account_id: row.account_id.into(),
            name: row.name,
            category: parse_enum(&row.category)?,
            category_change: row
                .category_change
                .map(serde_json::from_value)
                .transpose()
                .map_err(corrupt)?,
            correct_category: row.correct_category.as_deref().map(parse_enum).transpose()?,
            language: row.language,
            template_type: parse_enum(&row.template_type)?,
            parameter_format: parse_enum(&row.parameter_format)?,
            header_type: parse_enum(&row.header_type)?,
            header_text: row.header_text,
            header_media_url: row.header_media_url,
            body_text: row.body_text,
            footer_text: row.footer_text,
            buttons: serde_json::from_value(row.buttons).map_err(corrupt)?,
            limited_time_offer: row
                .limited_time_offer
                .map(serde_json::from_value)
                .transpose()
                .map_err(corrupt)?,
            message_send_ttl_seconds: row.message_send_ttl_seconds,
            variables: serde_json::from_value(row.variables).map_err(corrupt)?,
            carousel_cards: serde_json::from_value(row.carousel_cards).map_err(corrupt)?,
            folder_id: row.folder_id.map(Into::into),
            profile_id: row.profile_id.map(Into::into),
            meta_template_id: row.meta_template_id,
            meta_status: parse_enum(&row.meta_status)?,
            rejection_reason: row.rejection_reason,
            rejection_recommendation: row.rejection_recommendation,
            quality_score: row.quality_score,
            unsupported: serde_json::from_value(row.unsupported).map_err(corrupt)?,
            created_at: row.created_at,
            updated_at: row.updated_at,
            version: row.version,
        })
    }
}

/// The columns that an update replaces.
#[derive(Insertable, AsChangeset, Serialize)]
#[diesel(table_name = message_templates, treat_none_as_null = true)]
pub(super) struct Content<'a> {
    name: &'a str,
    category: &'a str,
    category_change: Option<Value>,
    correct_category: Option<&'static str>,
    language: &'a str,
    template_type: &'a str,
    parameter_format: &'a str,
    header_type: &'a str,
    header_text: Option<&'a str>,
    header_media_url: Option<&'a str>,
    body_text: Option<&'a str>,
    footer_text: Option<&'a str>,
    buttons: Value,
    limited_time_offer: Option<Value>,
    message_send_ttl_seconds: Option<i64>,
    variables: Value,
    carousel_cards: Value,
    folder_id: Option<Uuid>,
    profile_id: Option<Uuid>,
    meta_template_id: Option<&'a str>,
    meta_status: &'a str,
    rejection_reason: Option<&'a str>,
    rejection_recommendation: Option<&'a str>,
    quality_score: Option<&'a str>,
    unsupported: Value,
    #[serde(with = "timestamp")]
    updated_at: OffsetDateTime,
}

impl<'a> From<&'a Template> for Content<'a> {
    fn from(template: &'a Template) -> Self {
        Self {
            name: &template.name,
            category: template.category.as_str(),
            category_change: template.category_change.as_ref().map(|change| json!(change)),
            correct_category: template.correct_category.map(Category::as_str),
            language: &template.language,
            template_type: template.template_type.as_str(),
            parameter_format: template.parameter_format.as_str(),
            header_type: template.header_type.as_str(),
            header_text: template.header_text.as_deref(),
            header_media_url: template.header_media_url.as_deref(),
            body_text: template.body_text.as_deref(),
            footer_text: template.footer_text.as_deref(),
            buttons: json!(template.buttons),
            limited_time_offer: template.limited_time_offer.as_ref().map(|offer| json!(offer)),
            message_send_ttl_seconds: template.message_send_ttl_seconds,
            variables: template.variables.iter().map(String::as_str).collect(),
            carousel_cards: json!(template.carousel_cards),
            folder_id: template.folder_id.map(Uuid::from),
            profile_id: template.profile_id.map(Uuid::from),
            meta_template_id: template.meta_template_id.as_deref(),
            meta_status: template.meta_status.as_str(),
            rejection_reason: template.rejection_reason.as_deref(),
            rejection_recommendation: template.rejection_recommendation.as_deref(),
            quality_score: template.quality_score.as_deref(),
            unsupported: template.unsupported.iter().map(String::as_str).collect(),
            updated_at: template.updated_at,
        }
    }
}
