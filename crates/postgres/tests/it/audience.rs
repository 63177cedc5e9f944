//! The recipients of a run, and placeholders without a value.

use recado_domain::campaigns::{
    AudienceFilters, Campaign, CampaignRefusal, CampaignStore, Field, Reach, RequiredPlaceholder, RunStart,
    RunStartStore as _, SegmentConfig, StartOutcome,
};
use recado_domain::shared::{SegmentId, TagId};
use serde_json::{Value, json};
use time::Duration;

use crate::support::{DbFixture, LEASE, NOW, id};

/// Eight contacts: `out`, `gone` and `mute` are never recipients.
async fn audience_contacts() -> (DbFixture, TagId, SegmentId) {
    let fixture = DbFixture::new().await;
    let (account, tag, segment) = (fixture.account, TagId(id()), SegmentId(id()));
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name, phone, email, attributes, created_at, opted_out_at, deleted_at)
               SELECT '{account}', md5(name)::uuid, name, phone, email, attributes, created_at, opted_out_at, deleted_at
               FROM (VALUES
                 ('old', '+1', NULL, '{{}}'::jsonb, timestamptz '2020-01-01Z', NULL::timestamptz, NULL::timestamptz),
                 ('mail', '+2', 'm@example.com', '{{}}', '2026-01-01Z', NULL, NULL),
                 ('city', '+3', NULL, '{{\"city\":\"SP\",\"n\":12}}', '2026-01-01Z', NULL, NULL),
                 ('tagged', '+4', '', '{{}}', '2026-01-01Z', NULL, NULL),
                 ('rfm', '+5', NULL, '{{}}', '2026-01-01Z', NULL, NULL),
                 ('out', '+6', NULL, '{{}}', '2026-01-01Z', now(), NULL),
                 ('gone', '+7', NULL, '{{}}', '2026-01-01Z', NULL, now()),
                 ('mute', NULL, NULL, '{{}}', '2026-01-01Z', NULL, NULL)
               ) AS v (name, phone, email, attributes, created_at, opted_out_at, deleted_at);
             INSERT INTO tags (account_id, id, name) VALUES ('{account}', '{tag}', 'vip');
             INSERT INTO contact_tags SELECT account_id, id, '{tag}' FROM contacts WHERE name IN ('tagged', 'out', 'mute');
             INSERT INTO contact_rfm SELECT account_id, id, 1, 1, 1, 'champions' FROM contacts WHERE name = 'rfm';
             INSERT INTO segments (account_id, id, name) VALUES ('{account}', '{segment}', 's');
             INSERT INTO segment_members SELECT account_id, '{segment}', id FROM contacts WHERE name IN ('old', 'gone')"
        ))
        .await;
    // Contacts of another account are never recipients.
    fixture.add_contacts_to(fixture.another_account().await, 5).await;
    (fixture, tag, segment)
}

/// Starts the campaign and returns the names of its recipients. The preview must return the same.
async fn recipient_names(fixture: &DbFixture, campaign: Campaign) -> String {
    let campaign = Campaign {
        template_id: Some(fixture.stored_template().await),
        ..campaign
    };
    fixture.campaigns().insert(&campaign, &[]).await.unwrap();
    let campaign = fixture
        .campaigns()
        .find(fixture.account, campaign.id)
        .await
        .unwrap()
        .unwrap();
    let preview_facts = fixture
        .campaigns()
        .preview_facts(fixture.account, campaign.id, 100)
        .await;
    let preview_facts = preview_facts.unwrap().unwrap();
    let outcome = fixture
        .runs()
        .start(&fixture.start_of(&campaign), None, LEASE)
        .await
        .unwrap();
    let query = format!(
        "SELECT string_agg(c.name, ' ' ORDER BY c.name) FROM campaign_sends s
         JOIN contacts c ON c.account_id = s.account_id AND c.id = s.contact_id WHERE s.campaign_id = '{}'",
        campaign.id
    );
    let names = fixture.text(&query).await.unwrap_or_default();
    // The preview names the same recipients.
    let mut previewed: Vec<_> = preview_facts.first.iter().map(|c| c.recipient.name.as_str()).collect();
    previewed.sort_unstable();
    assert_eq!(
        (previewed.join(" "), previewed.len()),
        (
            names.clone(),
            usize::try_from(preview_facts.recipients_by.total()).unwrap()
        )
    );
    match outcome {
        StartOutcome::Started { recipients } => {
            assert_eq!(usize::try_from(recipients).unwrap(), names.split(' ').count());
        }
        outcome => assert_eq!(
            (outcome, names.as_str()),
            (StartOutcome::Refused(CampaignRefusal::NoRecipients), "")
        ),
    }
    names
}

fn narrowed(fixture: &DbFixture, filters: AudienceFilters) -> Campaign {
    Campaign {
        segment_config: Some(SegmentConfig {
            tag_ids: Some(vec![]),
            filters: Some(filters),
        }),
        ..fixture.draft()
    }
}

#[tokio::test]
async fn audience_without_a_source_is_every_reachable_contact() {
    let (fixture, ..) = audience_contacts().await;
    assert_eq!(
        recipient_names(&fixture, fixture.draft()).await,
        "city mail old rfm tagged"
    );
}

#[tokio::test]
async fn audience_sources_add_up() {
    let (fixture, tag, segment) = audience_contacts().await;
    let tags = Some(SegmentConfig {
        tag_ids: Some(vec![tag, TagId(id())]),
        ..SegmentConfig::default()
    });
    let champions = vec!["champions".to_owned()];
    let by_tag = Campaign {
        segment_config: tags.clone(),
        ..fixture.draft()
    };
    assert_eq!(recipient_names(&fixture, by_tag).await, "tagged");
    assert_eq!(
        recipient_names(
            &fixture,
            Campaign {
                rfm_segments: champions.clone(),
                ..fixture.draft()
            }
        )
        .await,
        "rfm"
    );
    assert_eq!(
        recipient_names(
            &fixture,
            Campaign {
                segment_id: Some(segment),
                ..fixture.draft()
            }
        )
        .await,
        "old"
    );
    let all = Campaign {
        segment_config: tags,
        rfm_segments: champions,
        segment_id: Some(segment),
        ..fixture.draft()
    };
    assert_eq!(recipient_names(&fixture, all).await, "old rfm tagged");
}

#[tokio::test]
async fn audience_segment_holds_members_and_filter_matches() {
    let (fixture, _, segment) = audience_contacts().await;
    fixture
        .sql(r#"UPDATE segments SET filters = '{"attributes":{"city":"SP"},"has_email":false}'"#)
        .await;
    assert_eq!(
        recipient_names(
            &fixture,
            Campaign {
                segment_id: Some(segment),
                ..fixture.draft()
            }
        )
        .await,
        "city old"
    );
    for no_filters in ["'{}'", "'null'", "NULL"] {
        fixture
            .sql(&format!("UPDATE segments SET filters = {no_filters}"))
            .await;
        assert_eq!(
            recipient_names(
                &fixture,
                Campaign {
                    segment_id: Some(segment),
                    ..fixture.draft()
                }
            )
            .await,
            "old"
        );
    }
}

/// With `reach` any, the one with the phone stands for a contact of the same person, whichever is in the audience.
#[tokio::test]
async fn person_is_a_recipient_if_any_contact_of_it_is_selected() {
    let (fixture, tag, segment) = audience_contacts().await;
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name, phone, wa_user_id, attributes)
               SELECT '{account}', md5(name)::uuid, name, phone, user_id, attributes FROM (VALUES
                 ('zoe', '+91', NULL, '{{}}'::jsonb), ('zoe-id', NULL, 'BR.1', '{{\"city\":\"SP\"}}'),
                 ('yan', '+92', NULL, '{{}}'), ('yan-id', NULL, 'BR.2', '{{\"city\":\"SP\"}}'), ('yan-id2', NULL, 'BR.3', '{{}}'),
                 ('lia-id', NULL, 'BR.4', '{{}}'))
               AS v (name, phone, user_id, attributes);
             UPDATE contacts c SET same_person_as = o.id FROM contacts o WHERE (c.name, o.name) IN
               (('zoe', 'zoe-id'), ('zoe-id', 'zoe'), ('yan', 'yan-id'), ('yan-id', 'yan'), ('yan-id2', 'yan'));
             UPDATE contacts SET opted_out_at = now() WHERE name = 'yan-id2';
             DELETE FROM contact_tags;
             INSERT INTO contact_tags SELECT account_id, id, '{tag}' FROM contacts WHERE name LIKE '%-id'",
            account = fixture.account,
        ))
        .await;
    let tags = Some(SegmentConfig {
        tag_ids: Some(vec![tag]),
        ..SegmentConfig::default()
    });
    let by_tag = |reach| Campaign {
        segment_config: tags.clone(),
        reach,
        ..fixture.draft()
    };
    assert_eq!(recipient_names(&fixture, by_tag(Reach::Any)).await, "lia-id zoe");
    assert_eq!(recipient_names(&fixture, by_tag(Reach::Phone)).await, "");
    // A segment of filters is selected in one pass over all contacts.
    fixture
        .sql(r#"UPDATE segments SET filters = '{"attributes":{"city":"SP"}}'"#)
        .await;
    let by_filter = |reach| Campaign {
        segment_id: Some(segment),
        reach,
        ..fixture.draft()
    };
    assert_eq!(recipient_names(&fixture, by_filter(Reach::Any)).await, "city old zoe");
    assert_eq!(recipient_names(&fixture, by_filter(Reach::Phone)).await, "city old");
    let all = Campaign {
        reach: Reach::Any,
        ..fixture.draft()
    };
    assert_eq!(
        recipient_names(&fixture, all).await,
        "city lia-id mail old rfm tagged zoe"
    );
}

#[tokio::test]
async fn run_start_with_deleted_segment_is_refused_by_name() {
    let (fixture, tag, segment) = audience_contacts().await;
    fixture
        .sql("UPDATE segments SET deleted_at = now(), name = 'Frios'")
        .await;
    // Also with a second source: the audience would differ from the one that the member chose.
    let tags = SegmentConfig {
        tag_ids: Some(vec![tag]),
        ..SegmentConfig::default()
    };
    for segment_config in [None, Some(tags)] {
        let campaign = Campaign {
            template_id: Some(fixture.stored_template().await),
            segment_id: Some(segment),
            segment_config,
            ..fixture.draft()
        };
        fixture.campaigns().insert(&campaign, &[]).await.unwrap();
        let refused = fixture
            .runs()
            .start(&fixture.start_of(&campaign), None, LEASE)
            .await
            .unwrap();
        let deleted = CampaignRefusal::SegmentDeleted {
            segment: "Frios".into(),
        };
        assert!(deleted.to_string().contains("\"Frios\""));
        assert_eq!(refused, StartOutcome::Refused(deleted));
    }
    assert_eq!(fixture.number("SELECT count(*) FROM campaign_sends").await, 0);
}

#[tokio::test]
async fn audience_filters_narrow_every_source() {
    let (fixture, _, segment) = audience_contacts().await;
    let none = AudienceFilters::default();
    let attributes = |value: Value| AudienceFilters {
        attributes: value.as_object().cloned(),
        ..none.clone()
    };
    let with = async |filters| recipient_names(&fixture, narrowed(&fixture, filters)).await;
    assert_eq!(
        with(AudienceFilters {
            has_email: Some(true),
            ..none.clone()
        })
        .await,
        "mail"
    );
    assert_eq!(
        with(AudienceFilters {
            has_email: Some(false),
            ..none.clone()
        })
        .await,
        "city old rfm tagged"
    );
    let recent = Some(NOW - Duration::days(100));
    assert_eq!(
        with(AudienceFilters {
            created_after: recent,
            ..none.clone()
        })
        .await,
        "city mail rfm tagged"
    );
    assert_eq!(
        with(AudienceFilters {
            created_before: recent,
            ..none.clone()
        })
        .await,
        "old"
    );
    assert_eq!(with(attributes(json!({ "city": "SP", "n": 12 }))).await, "city");
    assert_eq!(with(attributes(json!({ "city": "SP", "n": 13 }))).await, "");
    let narrowed_segment = Campaign {
        segment_id: Some(segment),
        ..narrowed(
            &fixture,
            AudienceFilters {
                has_email: Some(true),
                ..none.clone()
            },
        )
    };
    assert_eq!(recipient_names(&fixture, narrowed_segment).await, "");
    // A segment whose filters are a period.
    fixture
        .sql("UPDATE segments SET filters = '{\"created_after\":\"2025-12-31T00:00:00Z\",\"has_email\":true}'")
        .await;
    let by_period = Campaign {
        segment_id: Some(segment),
        ..fixture.draft()
    };
    assert_eq!(recipient_names(&fixture, by_period).await, "mail old");
}

/// More contacts than a start looks up one by one.
#[tokio::test]
async fn audience_of_many_contacts_obeys_the_same_rules() {
    let (fixture, tag, segment) = audience_contacts().await;
    let account = fixture.account;
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name, phone, created_at)
               SELECT '{account}', md5('many' || n)::uuid, 'many', '+55119' || lpad(n::text, 8, '0'), '2026-01-01Z'
               FROM generate_series(1, 20001) n;
             INSERT INTO contact_tags SELECT account_id, id, '{tag}' FROM contacts WHERE name = 'many'"
        ))
        .await;
    let tags = SegmentConfig {
        tag_ids: Some(vec![tag]),
        ..SegmentConfig::default()
    };
    let all = Campaign {
        segment_config: Some(tags.clone()),
        rfm_segments: vec!["champions".to_owned()],
        segment_id: Some(segment),
        ..fixture.draft()
    };
    let recipients = async |campaign: Campaign| {
        fixture.campaigns().insert(&campaign, &[]).await.unwrap();
        let facts = fixture.campaigns().preview_facts(account, campaign.id, 100).await;
        facts.unwrap().unwrap().recipients_by.total()
    };
    assert_eq!(recipients(all.clone()).await, 20_001 + 3);
    let by_tag = Campaign {
        segment_config: Some(tags),
        ..fixture.draft()
    };
    assert_eq!(recipients(by_tag).await, 20_001 + 1);
    let recent = AudienceFilters {
        created_after: Some(NOW - Duration::days(100)),
        ..AudienceFilters::default()
    };
    assert_eq!(recipients(narrowed(&fixture, recent.clone())).await, 20_001 + 4);
    let filters = Some(recent);
    let narrowed = Campaign {
        id: id().into(),
        segment_config: all
            .segment_config
            .clone()
            .map(|config| SegmentConfig { filters, ..config }),
        ..all
    };
    assert_eq!(recipients(narrowed).await, 20_001 + 2);
}

#[tokio::test]
async fn run_start_with_an_empty_placeholder_is_refused() {
    let (fixture, ..) = audience_contacts().await;
    fixture
        .sql("UPDATE contacts SET email = 'x@example.com', attributes = '{\"coupon\":\"A\"}'")
        .await;
    fixture
        .sql(r#"UPDATE contacts SET attributes = '{"coupon":" \u00a0\n"}' WHERE name = 'rfm'"#)
        .await;
    fixture
        .sql("UPDATE contacts SET email = NULL, attributes = '{\"coupon\":null}' WHERE name = 'gone'")
        .await;
    let campaign = fixture.stored_draft().await;
    let required = |fields| RequiredPlaceholder {
        placeholder: "2".into(),
        fields,
    };
    let coupon = Field::Attribute("coupon".into());
    let start = |required_placeholders| RunStart {
        required_placeholders,
        ..fixture.start_of(&campaign)
    };
    let empty = StartOutcome::Refused(CampaignRefusal::EmptyPlaceholder {
        placeholder: "2".into(),
    });
    let missing = Field::Attribute("missing".into());
    for fields in [vec![coupon.clone()], vec![missing.clone()], vec![]] {
        let refused = fixture
            .runs()
            .start(&start(vec![required(fields)]), None, LEASE)
            .await
            .unwrap();
        assert_eq!(refused, empty);
        assert_eq!(fixture.number("SELECT count(*) FROM campaign_sends").await, 0);
    }
    // A second field fills the placeholder for recipients without the first.
    let filled = vec![
        required(vec![coupon, Field::Email]),
        required(vec![missing, Field::FirstName]),
        required(vec![Field::Phone]),
        required(vec![Field::Name]),
    ];
    let started = fixture.runs().start(&start(filled), None, LEASE).await.unwrap();
    assert_eq!(started, StartOutcome::Started { recipients: 5 });
}
