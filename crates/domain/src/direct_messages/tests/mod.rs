//! Tests of the decisions on new and due messages, of the use cases, and of the work on a queue.

mod decisions;
mod holds;
mod queue;
mod request;
mod use_cases;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Map;
use time::OffsetDateTime;
use time::macros::datetime;
use uuid::Uuid;

use super::*;
use crate::billing::PlanEntitlement;
use crate::campaigns::Recipient;
use crate::media::{FileState, FoundFile, MockMessageFileStorage, MockMessageFileStore};
use crate::messaging::ContentInput;
use crate::shared::{AccountId, CallingKey, KeyScopes, Role, Tenant, UserId};
use crate::templates::Template;
use crate::templates::tests::approved_template;
use crate::whatsapp::{ContentFiles, MockFileIdStore};

const NOW: OffsetDateTime = datetime!(2026-03-02 12:00 UTC);

fn text_input() -> MessageInput {
    MessageInput {
        to: Some(RecipientInput {
            phone: Some("11 96123-4567".into()),
            ..RecipientInput::default()
        }),
        content: ContentInput::text("Oi"),
        ..MessageInput::default()
    }
}

fn template_input() -> MessageInput {
    MessageInput {
        template: Some(MessageTemplateInput {
            id: Some(Uuid::from_u128(3).into()),
            ..MessageTemplateInput::default()
        }),
        content: ContentInput::default(),
        ..text_input()
    }
}

fn tenant() -> Tenant {
    Tenant::for_tests(AccountId(Uuid::from_u128(9)), UserId(Uuid::from_u128(8)), Role::Member)
}

/// A caller with an API key of this scope.
fn with_scope(scope: &str) -> Tenant {
    Tenant {
        api_key: Some(CallingKey {
            id: Uuid::from_u128(1).into(),
            scopes: Arc::new(KeyScopes::from_stored(&[scope.to_owned()])),
        }),
        ..tenant()
    }
}

fn request(input: MessageInput) -> MessageRequest {
    MessageRequest::parse(input).unwrap()
}

/// Files of which none is ready.
fn content_files() -> ContentFiles {
    let mut files = MockMessageFileStore::new();
    files
        .expect_find()
        .returning(|_, _| Ok(Some(FoundFile::Unavailable(FileState::Pending))));
    let storage = Arc::new(MockMessageFileStorage::new());
    ContentFiles::new(Arc::new(files), storage, Arc::new(MockFileIdStore::new()))
}

/// A contact who wrote an hour ago.
pub(crate) fn contact() -> ContactFacts {
    ContactFacts {
        id: Uuid::from_u128(2).into(),
        recipient: Recipient {
            name: "Ana Lima".into(),
            phone: "+5511961234567".into(),
            user_id: None,
            email: None,
            attributes: Map::new(),
        },
        wa_id: None,
        wa_user_id: Some("BR.1".into()),
        user_ids: HashMap::from([(Uuid::from_u128(4).into(), "BR.1".into())]),
        opted_out: false,
        last_inbound_at: Some(NOW - time::Duration::HOUR),
        conversation_profile: None,
    }
}

pub(crate) fn template() -> Template {
    approved_template("Oi {{1}}", &["Bia"])
}

/// The free plan, one verified number, and the contact and template of the requests.
pub(crate) fn facts() -> CreationFacts {
    let to = request(text_input()).to;
    let key = request(template_input()).content.template_key().cloned().unwrap();
    CreationFacts {
        now: NOW,
        billing: PlanEntitlement {
            plan: "free".into(),
            granted: None,
            subscriptions: vec![],
        },
        numbers: vec![NumberChoice {
            id: Uuid::from_u128(4).into(),
            is_verified: true,
        }],
        contacts: HashMap::from([(to, contact())]),
        templates: HashMap::from([(key, template())]),
        references: HashMap::new(),
        removed: HashMap::new(),
    }
}

fn at(seconds: i64) -> OffsetDateTime {
    NOW + time::Duration::seconds(seconds)
}
