//! The facts of a campaign preview.

use recado_domain::campaigns::{
    Campaign, CampaignRefusal, CampaignStore, PreviewFacts, RunContent, RunStartStore as _, StartOutcome, Variables,
    required_placeholders,
};
use recado_domain::shared::SegmentId;
use recado_domain::templates::{Placeholder, Template, TemplateStore};
use recado_postgres::PgCampaigns;

use crate::error_codes::ERROR_CODES;
use crate::support::{DbFixture, LEASE, id};
use crate::wire::Wire;

async fn preview_facts(fixture: &DbFixture, campaign: &Campaign) -> PreviewFacts {
    let preview_facts = fixture.campaigns().preview_facts(fixture.account, campaign.id, 3).await;
    preview_facts.unwrap().unwrap()
}

/// Stores a draft whose template has one placeholder per mapping.
async fn draft_with_mappings(fixture: &DbFixture, mappings: &[&str]) -> Campaign {
    let placeholders: Vec<String> = (1..=mappings.len()).map(|number| number.to_string()).collect();
    let template = Template {
        body_text: Some(placeholders.iter().map(|number| format!("{{{{{number}}}}} ")).collect()),
        variables: placeholders.clone(),
        ..fixture.template(&format!("promo_{}", id().simple()))
    };
    fixture.templates().insert(&template).await.unwrap();
    let mappings = mappings.iter().map(|&mapping| mapping.to_owned());
    let campaign = Campaign {
        template_id: Some(template.id),
        variables: Some(Variables(placeholders.into_iter().zip(mappings).collect())),
        ..fixture.draft()
    };
    fixture.campaigns().insert(&campaign, &[]).await.unwrap();
    campaign
}

#[tokio::test]
async fn preview_facts_hold_count_and_first_recipients_by_id() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(20).await;
    fixture.add_contacts_to(fixture.another_account().await, 5).await;
    fixture
        .sql(r#"UPDATE contacts SET email = 'x@example.com', attributes = '{"city":"SP"}'"#)
        .await;
    let campaign = fixture.stored_draft().await;
    let preview = preview_facts(&fixture, &campaign).await;
    let facts = fixture
        .runs()
        .facts(fixture.account, campaign.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (&preview.facts.campaign, &preview.facts.template),
        (&campaign, &facts.template)
    );
    assert_eq!(
        (preview.recipients_by.total(), preview.used, preview.first.len()),
        (20, 0, 3)
    );
    assert_eq!((preview.deleted_segment, preview.empty), (None, vec![]));
    let account = fixture.account;
    let query = format!(
        "SELECT string_agg(id::text, ' ' ORDER BY id)
         FROM (SELECT id FROM contacts WHERE account_id = '{account}' ORDER BY id LIMIT 3) c"
    );
    let ids: Vec<String> = preview.first.iter().map(|contact| contact.id.to_string()).collect();
    assert_eq!(fixture.text(&query).await.unwrap(), ids.join(" "));
    let first = &preview.first[0].recipient;
    assert_eq!(
        (first.email.as_deref(), &first.attributes["city"]),
        (Some("x@example.com"), &"SP".into())
    );
}

#[tokio::test]
async fn foreign_and_deleted_campaigns_have_no_preview_facts() {
    let fixture = DbFixture::new().await;
    let campaign = fixture.stored_draft().await;
    let other_account = fixture.another_account().await;
    assert_eq!(
        fixture
            .campaigns()
            .preview_facts(other_account, campaign.id, 3)
            .await
            .unwrap(),
        None
    );
    fixture
        .campaigns()
        .delete(&campaign, campaign.status, &[])
        .await
        .unwrap();
    assert_eq!(
        fixture
            .campaigns()
            .preview_facts(fixture.account, campaign.id, 3)
            .await
            .unwrap(),
        None
    );
}

#[tokio::test]
async fn preview_of_a_deleted_segment_has_no_recipients() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(2).await;
    let (account, segment) = (fixture.account, SegmentId(id()));
    fixture
        .sql(&format!(
            "INSERT INTO segments (account_id, id, name) VALUES ('{account}', '{segment}', 'Frios');
             INSERT INTO segment_members SELECT account_id, '{segment}', id FROM contacts"
        ))
        .await;
    let campaign = Campaign {
        segment_id: Some(segment),
        template_id: Some(fixture.stored_template().await),
        ..fixture.draft()
    };
    fixture.campaigns().insert(&campaign, &[]).await.unwrap();
    let preview = preview_facts(&fixture, &campaign).await;
    assert_eq!((preview.recipients_by.total(), preview.deleted_segment), (2, None));
    fixture.sql("UPDATE segments SET deleted_at = now()").await;
    let preview = preview_facts(&fixture, &campaign).await;
    assert_eq!(
        (preview.recipients_by.total(), preview.deleted_segment.as_deref()),
        (0, Some("Frios"))
    );
}

#[tokio::test]
async fn preview_names_every_placeholder_that_may_be_empty() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(12).await;
    fixture
        .sql(
            r#"UPDATE contacts SET email = 'x@example.com', attributes = '{"coupon":"A","spaces":"B"}';
               UPDATE contacts SET attributes = '{"coupon":"A","spaces":" \u00a0\n"}' WHERE name = 'Contact 7';
               UPDATE contacts SET email = NULL WHERE name = 'Contact 9'"#,
        )
        .await;
    let mappings = [
        "{first_name}",
        "{email}",
        "{attributes.coupon}",
        "{attributes.missing}",
        "{attributes.missing|PROMO}",
        "{attributes.missing}{email}",
        "{phone}",
        "{attributes.missing}{name}",
        "{email} {attributes.spaces}",
        "{attributes.spaces}",
        "Oi",
    ];
    let campaign = draft_with_mappings(&fixture, &mappings).await;
    let expected = ["2", "4", "6", "10"];
    assert_eq!(preview_facts(&fixture, &campaign).await.empty, expected);
    // A start is refused because of the first of the same placeholders.
    let facts = fixture
        .runs()
        .facts(fixture.account, campaign.id)
        .await
        .unwrap()
        .unwrap();
    let mut start = fixture.start_of(&campaign);
    start.required_placeholders = required_placeholders(&facts);
    start.content = RunContent::of(&campaign, facts.template.as_ref().unwrap());
    for placeholder in expected {
        let refused = fixture.runs().start(&start, None, LEASE).await.unwrap();
        let empty = CampaignRefusal::EmptyPlaceholder {
            placeholder: placeholder.into(),
        };
        assert_eq!(refused, StartOutcome::Refused(empty));
        start
            .required_placeholders
            .retain(|required| required.placeholder != placeholder);
    }
    let started = fixture.runs().start(&start, None, LEASE).await.unwrap();
    assert_eq!(started, StartOutcome::Started { recipients: 12 });
    // Without recipients, no placeholder is empty.
    fixture.sql("UPDATE contacts SET opted_out_at = now()").await;
    let preview = preview_facts(&fixture, &campaign).await;
    assert_eq!(
        (preview.recipients_by.total(), preview.first.len(), preview.empty),
        (0, 0, vec![])
    );
}

/// The attributes cover every white space and control character, one each, and some other characters. The statement
/// and the renderer agree on which of the values are empty.
#[tokio::test]
async fn sql_and_renderer_agree_on_empty_values() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(1).await;
    let separators = (1..=0x3000).filter_map(char::from_u32);
    let separators = separators.filter(|c| c.is_whitespace() || c.is_control());
    let non_empty = ['a', '0', '\u{ad}', '\u{200b}', '\u{2060}', '\u{feff}', '\u{e000}'];
    let values: Vec<String> = separators.chain(non_empty).map(|c| format!("{c} {c}")).collect();
    let attributes: serde_json::Map<_, _> = (0..)
        .map(|n: usize| format!("k{n}"))
        .zip(values.iter().cloned().map(Into::into))
        .collect();
    let json = serde_json::Value::from(attributes.clone()).to_string();
    fixture
        .sql(&format!("UPDATE contacts SET attributes = $json${json}$json$"))
        .await;
    let mappings: Vec<String> = (0..values.len()).map(|n| format!("{{attributes.k{n}}}")).collect();
    let mappings: Vec<&str> = mappings.iter().map(String::as_str).collect();
    let campaign = draft_with_mappings(&fixture, &mappings).await;
    let preview = preview_facts(&fixture, &campaign).await;
    let rendered = campaign.variables.unwrap().render(
        &Placeholder::numbered(&vec!["x".to_owned(); values.len()]),
        &preview.first[0].recipient,
    );
    let empty = (1..).zip(&rendered).filter(|(_, value)| value.is_empty());
    let empty: Vec<String> = empty.map(|(number, _): (usize, _)| number.to_string()).collect();
    assert!(empty.len() > 80 && empty.len() == values.len() - non_empty.len());
    assert_eq!(preview.empty, empty);
}

#[tokio::test]
async fn preview_quota_counts_runs_and_test_sends() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(4).await;
    fixture.started(id()).await;
    let campaign = fixture.stored_draft().await;
    assert_eq!(preview_facts(&fixture, &campaign).await.used, 4);
    fixture
        .sql("UPDATE message_usage_slots SET sent = 3, reserved = 1, test_sends = 2")
        .await;
    assert_eq!(preview_facts(&fixture, &campaign).await.used, 6);
    fixture
        .sql("UPDATE message_usage_slots SET month = month - interval '1 month'")
        .await;
    assert_eq!(preview_facts(&fixture, &campaign).await.used, 0);
}

#[tokio::test]
async fn preview_facts_take_a_fixed_number_of_statements() {
    let fixture = DbFixture::new().await;
    let wire = Wire::to(&fixture.db);
    let store = PgCampaigns::new(wire.tenants.clone(), ERROR_CODES);
    let plain = draft_with_mappings(&fixture, &["{email}"]).await;
    let wide = draft_with_mappings(&fixture, &["{email}{phone}"; 40]).await;
    let count_statements = async |campaign: &Campaign, first| {
        wire.take_executed();
        let preview = store
            .preview_facts(fixture.account, campaign.id, first)
            .await
            .unwrap()
            .unwrap();
        (preview.recipients_by.total(), wire.take_executed())
    };
    // The first read also sends the setup statements of a new connection.
    count_statements(&plain, 3).await;
    let (_, statements) = count_statements(&plain, 3).await;
    assert!(statements <= 10, "{statements}");
    fixture.add_contacts(300).await;
    assert_eq!(count_statements(&plain, 3).await, (300, statements));
    assert_eq!(count_statements(&wide, 100).await, (300, statements));
}

#[tokio::test(flavor = "multi_thread")]
async fn preview_facts_are_one_snapshot_despite_concurrent_writes() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(3).await;
    let campaign = fixture.stored_draft().await;
    // The preview has read the campaign and waits for the lock on the templates.
    let mut locker = fixture.db.client().await;
    let lock = locker.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE message_templates").await.unwrap();
    let (store, account, id) = (fixture.campaigns(), fixture.account, campaign.id);
    let pending_preview = tokio::spawn(async move { store.preview_facts(account, id, 3).await.unwrap().unwrap() });
    let waiting = "SELECT count(*) FROM pg_locks
        WHERE NOT granted AND relation = 'message_templates'::regclass
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    while fixture.number(waiting).await == 0 {
        assert!(!pending_preview.is_finished(), "the preview did not wait for the lock");
        tokio::task::yield_now().await;
    }
    fixture.sql("DELETE FROM contacts").await;
    lock.rollback().await.unwrap();
    let preview = pending_preview.await.unwrap();
    assert_eq!((preview.recipients_by.total(), preview.first.len()), (3, 3));
    assert_eq!(preview_facts(&fixture, &campaign).await.recipients_by.total(), 0);
}
