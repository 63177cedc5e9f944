//! Message templates.

use recado_domain::campaigns::{CampaignStatus, CampaignStore as _, RunStore as _};
use recado_domain::messaging::{Category, HeaderType, LimitedTimeOffer, MetaStatus};
use recado_domain::shared::{CursorQuery, FolderId, PageQuery, StoreError, WriteOutcome};
use recado_domain::templates::{
    CategoryChange, SyncReport, SyncedTemplate, Template, TemplateFilter, TemplateKey, TemplateSort, TemplateStore,
    TemplateType,
};
use serde_json::json;
use time::Duration;

use crate::support::{DbFixture, NOW, event, id};

fn filter() -> TemplateFilter {
    TemplateFilter {
        search: None,
        category: None,
        meta_status: None,
        folder_id: None,
        sort: TemplateSort::CreatedAt,
        descending: true,
    }
}

async fn page(fixture: &DbFixture, filter: TemplateFilter) -> Vec<String> {
    let page = PageQuery::new(None, None, 20, 100);
    let page = fixture.templates().page(fixture.account, &filter, page).await.unwrap();
    page.data.into_iter().map(|template| template.name).collect()
}

#[tokio::test]
async fn a_template_is_stored_as_written() {
    let fixture = DbFixture::new().await;
    let folder = FolderId(id());
    let account = fixture.account;
    fixture
        .sql(&format!(
            "INSERT INTO folders (account_id, id, name, kind) VALUES ('{account}', '{folder}', 'f', 'template')"
        ))
        .await;
    let full = Template {
        category: Category::Utility,
        template_type: TemplateType::Carousel,
        header_type: HeaderType::Text,
        header_text: Some("Oi".into()),
        header_media_url: Some("https://example.com/a.png".into()),
        footer_text: Some("Loja".into()),
        carousel_cards: vec![json!({ "body": "a" }).into(), json!({ "body": "b" }).into()],
        folder_id: Some(folder),
        meta_template_id: Some("123".into()),
        meta_status: MetaStatus::Rejected,
        rejection_reason: Some("no".into()),
        rejection_recommendation: Some("Change it".into()),
        quality_score: Some("GREEN".into()),
        limited_time_offer: Some(LimitedTimeOffer {
            text: "Só hoje".into(),
            has_expiration: true,
        }),
        message_send_ttl_seconds: Some(43_200),
        correct_category: Some(Category::Marketing),
        category_change: Some(CategoryChange {
            to: Category::Marketing,
            // Published and stored with millisecond precision.
            at: NOW.replace_millisecond(NOW.millisecond()).unwrap(),
        }),
        ..fixture.template("full")
    };
    fixture.templates().insert(&full).await.unwrap();
    assert_eq!(
        fixture.templates().find(account, full.id).await.unwrap(),
        Some(full.clone())
    );
    assert_eq!(
        fixture.templates().find_by_meta_id(account, "123").await.unwrap(),
        Some(full.clone())
    );
    assert_eq!(fixture.templates().find_by_meta_id(account, "124").await.unwrap(), None);
    let other_account = fixture.another_account().await;
    assert_eq!(fixture.templates().find(other_account, full.id).await.unwrap(), None);
    assert_eq!(
        fixture.templates().find_by_meta_id(other_account, "123").await.unwrap(),
        None
    );
}

#[tokio::test]
async fn template_names_are_unique_by_language() {
    let fixture = DbFixture::new().await;
    let templates = fixture.templates();
    templates.insert(&fixture.template("promo")).await.unwrap();
    templates
        .insert(&Template {
            language: "en_US".into(),
            ..fixture.template("promo")
        })
        .await
        .unwrap();
    let twice = templates.insert(&fixture.template("promo")).await;
    assert!(
        matches!(twice, Err(StoreError::Duplicate { field: "name" })),
        "{twice:?}"
    );
    let unknown_folder = templates
        .insert(&Template {
            folder_id: Some(FolderId(id())),
            ..fixture.template("lost")
        })
        .await;
    assert!(
        matches!(unknown_folder, Err(StoreError::UnknownReference { field: "folder_id" })),
        "{unknown_folder:?}"
    );
    let second = fixture.template("second");
    templates.insert(&second).await.unwrap();
    let renamed = Template {
        name: "promo".into(),
        ..second.clone()
    };
    let taken = templates.update(&renamed, &second, &[event(id())]).await;
    assert!(
        matches!(taken, Err(StoreError::Duplicate { field: "name" })),
        "{taken:?}"
    );
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 0);
    assert!(
        templates
            .delete(fixture.account, second.id, NOW, &[])
            .await
            .unwrap()
            .is_done()
    );
    templates.insert(&fixture.template("second")).await.unwrap();
}

#[tokio::test]
async fn template_update_is_guarded_by_status_and_version() {
    let fixture = DbFixture::new().await;
    let templates = fixture.templates();
    let template = fixture.template("promo");
    templates.insert(&template).await.unwrap();
    let changed = Template {
        meta_status: MetaStatus::Draft,
        body_text: None,
        updated_at: NOW + Duration::SECOND,
        ..template.clone()
    };
    let pending = Template {
        meta_status: MetaStatus::Pending,
        ..template.clone()
    };
    let older = Template {
        version: template.version - 1,
        ..template.clone()
    };
    for outdated in [pending, older] {
        let stale = templates.update(&changed, &outdated, &[event(id())]).await.unwrap();
        assert_eq!(stale, WriteOutcome::Stale(MetaStatus::Approved));
    }
    let missing = Template {
        id: id().into(),
        ..changed.clone()
    };
    assert_eq!(
        templates.update(&missing, &template, &[event(id())]).await.unwrap(),
        WriteOutcome::Missing
    );
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 0);
    assert_eq!(
        templates.update(&changed, &template, &[event(id())]).await.unwrap(),
        WriteOutcome::Done
    );
    let stored = Template {
        version: template.version + 1,
        ..changed
    };
    assert_eq!(
        templates.find(fixture.account, template.id).await.unwrap(),
        Some(stored)
    );
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 1);
}

#[tokio::test]
async fn deleted_template_is_not_found() {
    let fixture = DbFixture::new().await;
    let templates = fixture.templates();
    let template = Template {
        meta_template_id: Some("1".into()),
        ..fixture.template("promo")
    };
    templates.insert(&template).await.unwrap();
    let other_account = fixture.another_account().await;
    assert!(
        !templates
            .delete(other_account, template.id, NOW, &[event(id())])
            .await
            .unwrap()
            .is_done()
    );
    assert!(
        templates
            .delete(fixture.account, template.id, NOW, &[event(id())])
            .await
            .unwrap()
            .is_done()
    );
    assert!(
        !templates
            .delete(fixture.account, template.id, NOW, &[event(id())])
            .await
            .unwrap()
            .is_done()
    );
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 1);
    assert_eq!(templates.find(fixture.account, template.id).await.unwrap(), None);
    assert_eq!(templates.find_by_meta_id(fixture.account, "1").await.unwrap(), None);
    assert_eq!(
        templates.update(&template, &template, &[]).await.unwrap(),
        WriteOutcome::Missing
    );
    assert_eq!(page(&fixture, filter()).await, Vec::<String>::new());
}

/// Three templates, created in the order `b_promo`, `c_notice`, `a_promo` and updated in reverse order.
async fn three_templates() -> DbFixture {
    let fixture = DbFixture::new().await;
    let utility = Category::Utility;
    let marketing = Category::Marketing;
    for (name, body, category, minutes) in [
        ("b_promo", Some("50% off"), marketing, 1),
        ("c_notice", None, utility, 2),
        ("a_promo", Some("Oi"), marketing, 3),
    ] {
        let template = Template {
            body_text: body.map(str::to_owned),
            created_at: NOW + Duration::minutes(minutes),
            updated_at: NOW - Duration::minutes(minutes),
            category,
            ..fixture.template(name)
        };
        fixture.templates().insert(&template).await.unwrap();
    }
    fixture
}

#[tokio::test]
async fn template_list_filters_and_searches() {
    let fixture = three_templates().await;
    let none: [String; 0] = [];
    let search = |text: &str| TemplateFilter {
        search: Some(text.into()),
        ..filter()
    };
    assert_eq!(page(&fixture, search("PROMO")).await, ["a_promo", "b_promo"]);
    assert_eq!(page(&fixture, search("0%")).await, ["b_promo"]);
    assert_eq!(page(&fixture, search("%z")).await, none);
    let category = TemplateFilter {
        category: Some(Category::Utility),
        ..filter()
    };
    assert_eq!(page(&fixture, category).await, ["c_notice"]);
    let draft = TemplateFilter {
        meta_status: Some(MetaStatus::Draft),
        ..filter()
    };
    assert_eq!(page(&fixture, draft).await, none);
    let folder = TemplateFilter {
        folder_id: Some(FolderId(id())),
        ..filter()
    };
    assert_eq!(page(&fixture, folder).await, none);
}

#[tokio::test]
async fn template_list_sorts_and_returns_the_total() {
    let fixture = three_templates().await;
    let by = |sort, descending| TemplateFilter {
        sort,
        descending,
        ..filter()
    };
    let by_name = page(&fixture, by(TemplateSort::Name, false)).await;
    assert_eq!(by_name, ["a_promo", "b_promo", "c_notice"]);
    let by_change = page(&fixture, by(TemplateSort::UpdatedAt, false)).await;
    assert_eq!(by_change, ["a_promo", "c_notice", "b_promo"]);
    assert_eq!(page(&fixture, filter()).await, ["a_promo", "c_notice", "b_promo"]);
    let numbered = async |number| {
        let page = PageQuery::new(Some(number), Some(2), 20, 100);
        fixture
            .templates()
            .page(fixture.account, &filter(), page)
            .await
            .unwrap()
    };
    let last = numbered(2).await;
    assert_eq!((last.data.len(), last.total, last.total_pages), (1, 3, 2));
    let beyond = numbered(9).await;
    assert_eq!((beyond.data.len(), beyond.total), (0, 3));
}

#[tokio::test]
async fn template_cursors_page_through_ties_without_loss() {
    let fixture = DbFixture::new().await;
    for n in 0..7 {
        let created_at = NOW + Duration::microseconds(n / 3);
        let template = Template {
            name: format!("same {}", n / 3),
            language: format!("l{n}"),
            created_at,
            updated_at: created_at,
            ..fixture.template("")
        };
        fixture.templates().insert(&template).await.unwrap();
    }
    for &sort in TemplateSort::ALL {
        for descending in [false, true] {
            let filter = TemplateFilter {
                sort,
                descending,
                ..filter()
            };
            let (mut seen, mut cursor) = (Vec::new(), None);
            loop {
                let cursor_query = CursorQuery { cursor, limit: 2 };
                let page = fixture
                    .templates()
                    .cursor_page(fixture.account, &filter, &cursor_query)
                    .await
                    .unwrap();
                seen.extend(page.data.into_iter().map(|template| template.language));
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            let mut expected: Vec<String> = (0..7).map(|n| format!("l{n}")).collect();
            if descending {
                expected.reverse();
            }
            assert_eq!(seen, expected, "{sort} {descending}");
        }
    }
}

#[tokio::test]
async fn invalid_template_cursor_is_rejected() {
    let fixture = DbFixture::new().await;
    let templates = fixture.templates();
    for name in ["a", "b"] {
        templates.insert(&fixture.template(name)).await.unwrap();
    }
    let first = templates
        .cursor_page(fixture.account, &filter(), &CursorQuery { cursor: None, limit: 1 })
        .await
        .unwrap();
    let cursor_by_creation = first.next_cursor.unwrap();
    let by_name = TemplateFilter {
        sort: TemplateSort::Name,
        ..filter()
    };
    for (filter, cursor) in [
        (filter(), "x".to_owned()),
        (filter(), "00".into()),
        (by_name, cursor_by_creation),
    ] {
        let cursor_query = CursorQuery {
            cursor: Some(cursor.clone()),
            limit: 1,
        };
        let refused = templates.cursor_page(fixture.account, &filter, &cursor_query).await;
        assert!(
            matches!(refused, Err(StoreError::UnknownReference { field: "cursor" })),
            "{cursor}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn unknown_stored_enum_value_is_a_corrupt_error() {
    let fixture = DbFixture::new().await;
    let template = fixture.template("promo");
    fixture.templates().insert(&template).await.unwrap();
    fixture.sql("UPDATE message_templates SET category = 'WHATEVER'").await;
    let read = fixture.templates().find(fixture.account, template.id).await;
    assert!(matches!(read, Err(StoreError::Corrupt(_))), "{read:?}");
}

#[tokio::test]
async fn template_sync_writes_only_whatsapp_fields() {
    let fixture = DbFixture::new().await;
    let templates = fixture.templates();
    let (stored, edited) = (fixture.template("stored"), fixture.template("edited"));
    for template in [&stored, &edited] {
        templates.insert(template).await.unwrap();
    }
    let reviewed = |template: &Template| SyncedTemplate::Changed {
        template: Template {
            meta_status: MetaStatus::Paused,
            quality_score: Some("RED".into()),
            meta_template_id: Some("77".into()),
            name: "never_stored".into(),
            footer_text: Some("Loja".into()),
            buttons: vec![json!({ "type": "QUICK_REPLY", "text": "Sair" }).into()],
            updated_at: NOW + Duration::DAY,
            ..template.clone()
        },
        pause_reason: None,
    };
    // A member edits this template while the list is read from WhatsApp.
    let mut change = Template {
        updated_at: NOW + Duration::SECOND,
        ..edited.clone()
    };
    templates.update(&change, &edited, &[]).await.unwrap();
    change.version += 1;
    let new = Template {
        carousel_cards: vec![json!({ "components": [] }).into()],
        variables: vec![],
        created_at: NOW.replace_microsecond(0).unwrap(),
        updated_at: NOW.replace_microsecond(0).unwrap(),
        ..fixture.template("new")
    };
    let duplicate = SyncedTemplate::New(fixture.template("stored"));
    let batch = [
        reviewed(&stored),
        reviewed(&edited),
        SyncedTemplate::New(new.clone()),
        duplicate,
    ];
    let report = templates.sync(fixture.account, &batch).await.unwrap();
    let expected = SyncReport {
        created: 1,
        updated: 1,
        unchanged: 0,
    };
    assert_eq!(report, expected);
    let found = templates.find(fixture.account, stored.id).await.unwrap().unwrap();
    assert_eq!(
        (found.meta_status, found.quality_score.as_deref()),
        (MetaStatus::Paused, Some("RED"))
    );
    assert_eq!(
        (&found.name, found.meta_template_id.as_deref()),
        (&stored.name, Some("77"))
    );
    assert_eq!((found.footer_text.as_deref(), found.buttons.len()), (Some("Loja"), 1));
    assert_eq!(templates.find(fixture.account, edited.id).await.unwrap(), Some(change));
    assert_eq!(templates.find(fixture.account, new.id).await.unwrap(), Some(new));
    let other_account = fixture.another_account().await;
    assert_eq!(
        templates
            .sync(other_account, &[reviewed(&stored)])
            .await
            .unwrap()
            .updated,
        0
    );
}

#[tokio::test]
async fn template_sync_writes_locations_offers_and_advice() {
    let fixture = DbFixture::new().await;
    let templates = fixture.templates();
    let with_parts = |template: Template| Template {
        header_type: HeaderType::Location,
        limited_time_offer: Some(LimitedTimeOffer {
            text: "Só hoje".into(),
            has_expiration: true,
        }),
        message_send_ttl_seconds: Some(43_200),
        correct_category: Some(Category::Utility),
        created_at: NOW.replace_microsecond(0).unwrap(),
        updated_at: NOW.replace_microsecond(0).unwrap(),
        ..template
    };
    let stored = Template {
        created_at: NOW.replace_microsecond(0).unwrap(),
        ..fixture.template("stored")
    };
    templates.insert(&stored).await.unwrap();
    let new = with_parts(fixture.template("new"));
    let changed = Template {
        rejection_recommendation: Some("Change it".into()),
        ..with_parts(stored)
    };
    let batch = [
        SyncedTemplate::New(new.clone()),
        SyncedTemplate::Changed {
            template: changed.clone(),
            pause_reason: None,
        },
    ];
    templates.sync(fixture.account, &batch).await.unwrap();
    assert_eq!(templates.find(fixture.account, new.id).await.unwrap(), Some(new));
    let written = Template { version: 2, ..changed };
    assert_eq!(
        templates.find(fixture.account, written.id).await.unwrap(),
        Some(written)
    );
}

#[tokio::test]
async fn templates_are_found_by_name_and_language_together() {
    let fixture = DbFixture::new().await;
    let templates = fixture.templates();
    let (oi, tchau, hello, deleted) = (
        fixture.template("oi"),
        fixture.template("tchau"),
        Template {
            language: "en_US".into(),
            ..fixture.template("oi")
        },
        fixture.template("gone"),
    );
    for template in [&oi, &tchau, &hello, &deleted] {
        templates.insert(template).await.unwrap();
    }
    assert!(
        templates
            .delete(fixture.account, deleted.id, NOW, &[])
            .await
            .unwrap()
            .is_done()
    );
    let english_bye = Template {
        language: "en_US".into(),
        ..tchau
    };
    let keys = [&oi, &english_bye, &deleted].map(TemplateKey::from);
    assert_eq!(templates.named(fixture.account, &keys).await.unwrap(), [oi]);
    assert_eq!(templates.named(fixture.account, &[]).await.unwrap(), []);
    let other_account = fixture.another_account().await;
    assert_eq!(templates.named(other_account, &keys).await.unwrap(), []);
}

#[tokio::test]
async fn template_sync_writes_more_than_one_batch() {
    let fixture = DbFixture::new().await;
    let new = |number: usize| SyncedTemplate::New(fixture.template(&format!("t{number}")));
    let batch: Vec<SyncedTemplate> = (0..1201).map(new).collect();
    let report = fixture.templates().sync(fixture.account, &batch).await.unwrap();
    assert_eq!((report.created, report.updated), (1201, 0));
    assert_eq!(fixture.number("SELECT count(*) FROM message_templates").await, 1201);
}

#[tokio::test]
async fn stopped_template_pauses_its_sending_campaigns() {
    let fixture = DbFixture::new().await;
    let (template, active_template) = (fixture.stored_template().await, fixture.stored_template().await);
    let account = fixture.account;
    for (template, status, simulated) in [
        (template, "sending", false),
        (template, "sending", true),
        (template, "draft", false),
        (template, "cancelled", false),
        (active_template, "sending", false),
    ] {
        let id = id();
        fixture
            .sql(&format!(
                "INSERT INTO campaigns (account_id, id, name, template_id, status, simulated)
                 VALUES ('{account}', '{id}', 'c', '{template}', '{status}', {simulated})"
            ))
            .await;
    }
    for _ in 0..2 {
        fixture
            .runs()
            .pause_template(account, template, "stopped")
            .await
            .unwrap();
    }
    let paused = "SELECT count(*) FROM campaigns WHERE paused_at IS NOT NULL AND pause_reason = 'stopped'";
    assert_eq!(fixture.number(paused).await, 1);
    let notifications = "SELECT count(*) FROM outbox_events WHERE payload::text LIKE '%Campaign paused: c%'";
    assert_eq!(fixture.number(notifications).await, 1);
}

#[tokio::test]
async fn template_sync_pauses_campaigns_of_a_stopped_template() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(2).await;
    let (campaign, run) = fixture.started(id()).await;
    let templates = fixture.templates();
    let template_id = campaign.template_id.unwrap();
    let sent = templates.find(fixture.account, template_id).await.unwrap().unwrap();
    let unused = fixture.template("other");
    templates.insert(&unused).await.unwrap();
    let reason = "WhatsApp has paused the template";
    let stopped = |template: &Template| SyncedTemplate::Changed {
        template: Template {
            meta_status: MetaStatus::Paused,
            updated_at: template.updated_at + Duration::SECOND,
            ..template.clone()
        },
        pause_reason: Some(reason),
    };
    templates.sync(fixture.account, &[stopped(&unused)]).await.unwrap();
    let paused = "SELECT count(*) FROM campaigns WHERE paused_at IS NOT NULL";
    assert_eq!(fixture.number(paused).await, 0);
    templates.sync(fixture.account, &[stopped(&sent)]).await.unwrap();
    let stored = fixture
        .campaigns()
        .find(fixture.account, run.campaign_id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (stored.status, stored.pause_reason.as_deref()),
        (CampaignStatus::Sending, Some(reason))
    );
    let notifications = "SELECT count(*) FROM outbox_events WHERE payload ->> 'title' LIKE 'Campaign paused: %'";
    assert_eq!(fixture.number(notifications).await, 1);
}
