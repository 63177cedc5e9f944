//! Lists and audiences that a tag, a segment, an RFM segment or a period narrows to a few contacts.

use recado_domain::campaigns::{
    Audience, Campaign, CampaignStore, Field, RequiredPlaceholder, RunStart, RunStartStore as _, SegmentConfig,
    StartOutcome,
};
use recado_domain::contacts::{ContactFilter, ContactQuery, ContactStore};
use recado_domain::segments::{AudienceFilters, Segment, SegmentStore};
use recado_domain::shared::{AccountId, CursorQuery, SegmentId, TagId};
use recado_postgres::PgSegments;
use time::macros::datetime;
use tokio_postgres::SimpleQueryMessage;
use uuid::Uuid;

use super::fixture::{FIRST_PAGE, PART, ROWS};
use crate::support::{DbFixture, LEASE, id};

/// The largest number of pages, in times of those of the direct join.
const MAX_RATIO: i64 = 3;

/// The sources of an account. Each has `PART` contacts, and none is in the planner's statistics.
struct Sources {
    account: AccountId,
    rows: usize,
    tag: TagId,
    members: SegmentId,
    period: SegmentId,
}

impl Sources {
    async fn add(fixture: &DbFixture, account: AccountId, rows: usize) -> Self {
        let key = async |i: i32| -> Uuid {
            let key = fixture.text(&format!("key('{account}', {i})")).await.unwrap();
            key.parse().unwrap()
        };
        let sources = Self {
            account,
            rows,
            tag: TagId(key(50_000).await),
            members: SegmentId(key(50_001).await),
            period: SegmentId(key(50_002).await),
        };
        let Self {
            tag, members, period, ..
        } = &sources;
        let part = format!("generate_series(1, {ROWS}, {}) i", ROWS / PART);
        fixture
            .sql(&format!(
                "INSERT INTO tags (account_id, id, name) VALUES ('{account}', '{tag}', 'rare');
                 INSERT INTO contact_tags SELECT '{account}', key('{account}', i), '{tag}' FROM {part};
                 INSERT INTO segments (account_id, id, name, filters) VALUES ('{account}', '{members}', 'rare', NULL),
                   ('{account}', '{period}', 'old', '{{\"created_before\":\"2021-01-01T00:00:00Z\"}}');
                 INSERT INTO segment_members SELECT '{account}', '{members}', key('{account}', i) FROM {part};
                 INSERT INTO contact_rfm SELECT '{account}', key('{account}', i), 1, 1, 1,
                   CASE WHEN i <= {ROWS} AND i % {every} = 1 THEN 'champions' ELSE 'lost' END
                 FROM generate_series(1, {rows}) i;
                 UPDATE contacts c SET created_at = '2020-01-01' FROM {part}
                 WHERE c.account_id = '{account}' AND c.id = key('{account}', i)",
                every = ROWS / PART,
            ))
            .await;
        sources
    }

    fn audiences(&self) -> [Audience; 4] {
        let before = AudienceFilters {
            created_before: Some(datetime!(2021-01-01 0:00 UTC)),
            ..AudienceFilters::default()
        };
        [
            Audience {
                tag_ids: vec![self.tag],
                ..Audience::default()
            },
            Audience {
                tag_ids: vec![self.tag],
                rfm_segments: vec!["champions".to_owned()],
                segment_id: Some(self.members),
                ..Audience::default()
            },
            Audience {
                segment_id: Some(self.period),
                ..Audience::default()
            },
            Audience {
                filters: before,
                ..Audience::default()
            },
        ]
    }

    fn campaign(&self, fixture: &DbFixture, audience: Audience) -> Campaign {
        Campaign {
            account_id: self.account,
            segment_id: audience.segment_id,
            segment_config: Some(SegmentConfig {
                tag_ids: Some(audience.tag_ids),
                filters: Some(audience.filters),
            }),
            rfm_segments: audience.rfm_segments,
            ..fixture.draft()
        }
    }

    /// The pages that a join of the tag with its contacts reads.
    async fn pages_of_direct_join(&self, fixture: &DbFixture) -> i64 {
        let join = format!(
            "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, FORMAT JSON) SELECT c.*
             FROM contact_tags l CROSS JOIN LATERAL (
               SELECT * FROM contacts c WHERE c.account_id = l.account_id AND c.id = l.contact_id OFFSET 0) c
             WHERE l.account_id = '{}' AND l.tag_id = '{}'",
            self.account, self.tag
        );
        // Read twice: the first read also reads visibility maps.
        let mut pages = 0;
        for _ in 0..2 {
            let rows = fixture.client.simple_query(&join).await.unwrap();
            let plan = rows.iter().find_map(|row| match row {
                SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            });
            let plan: serde_json::Value = serde_json::from_str(plan.unwrap()).unwrap();
            let plan = &plan[0]["Plan"];
            pages = plan["Shared Hit Blocks"].as_i64().unwrap() + plan["Shared Read Blocks"].as_i64().unwrap();
        }
        pages
    }
}

/// The pages that were read of the tables of contacts since the counters were reset.
async fn pages_read(fixture: &mut DbFixture) -> i64 {
    fixture.close().await;
    fixture
        .number(
            "SELECT sum(coalesce(heap_blks_read, 0) + coalesce(heap_blks_hit, 0) + coalesce(idx_blks_read, 0)
               + coalesce(idx_blks_hit, 0)) FROM pg_statio_user_tables
             WHERE relname IN ('contacts', 'contact_tags', 'contact_rfm', 'segment_members', 'segments')",
        )
        .await
}

pub(super) async fn contacts_of_a_rare_source_read_few_rows(mut fixture: DbFixture) {
    for (account, rows) in fixture.both().await {
        let sources = Sources::add(&fixture, account, rows).await;
        let direct = sources.pages_of_direct_join(&fixture).await;
        let by_tag = ContactFilter {
            tag_id: Some(sources.tag),
            ..ContactFilter::default()
        };
        let by_members = ContactFilter {
            segment_id: Some(sources.members),
            ..ContactFilter::default()
        };
        let both = ContactFilter {
            search: Some("ana".into()),
            segment_id: Some(sources.members),
            ..by_tag.clone()
        };
        for (filter, max_ratio) in [(by_tag, MAX_RATIO), (by_members, MAX_RATIO), (both, 2 * MAX_RATIO)] {
            let query = ContactQuery {
                filter,
                page: FIRST_PAGE,
            };
            fixture.count_reads().await;
            let page = fixture.contacts().list(account, &query).await.unwrap();
            assert_eq!(page.data.len(), PART, "{query:?}");
            let pages = pages_read(&mut fixture).await;
            assert!(
                pages <= max_ratio * direct,
                "{pages} pages instead of {direct}: {query:?}"
            );
            fixture.assert_few_of(rows, "contacts of a source").await;
        }
    }
}

pub(super) async fn audiences_of_few_contacts_read_few_rows(mut fixture: DbFixture) {
    for (account, rows) in fixture.both().await {
        let sources = Sources::add(&fixture, account, rows).await;
        let direct = sources.pages_of_direct_join(&fixture).await;
        for audience in sources.audiences() {
            let campaign = sources.campaign(&fixture, audience);
            fixture.campaigns().insert(&campaign, &[]).await.unwrap();
            fixture.count_reads().await;
            let facts = fixture.campaigns().preview_facts(account, campaign.id, 3).await;
            assert_eq!(
                facts.unwrap().unwrap().recipients_by.total(),
                i64::try_from(PART).unwrap()
            );
            let pages = pages_read(&mut fixture).await;
            assert!(
                pages <= MAX_RATIO * direct,
                "{pages} pages instead of {direct}: {campaign:?}"
            );
            fixture.assert_few_of(rows, "the preview of a campaign").await;
        }
    }
}

pub(super) async fn run_starts_of_few_contacts_read_few_rows(mut fixture: DbFixture) {
    let sources = Sources::add(&fixture, fixture.account, ROWS).await;
    fixture.on_plan("growth").await;
    for audience in sources.audiences() {
        let template_id = Some(fixture.stored_template().await);
        let campaign = Campaign {
            id: id().into(),
            template_id,
            ..sources.campaign(&fixture, audience)
        };
        fixture.campaigns().insert(&campaign, &[]).await.unwrap();
        let start = RunStart {
            required_placeholders: vec![RequiredPlaceholder {
                placeholder: "1".to_owned(),
                fields: vec![Field::Name],
            }],
            ..fixture.start_of(&campaign)
        };
        fixture.count_reads().await;
        let outcome = fixture.runs().start(&start, None, LEASE).await.unwrap();
        let recipients = i64::try_from(PART).unwrap();
        assert_eq!(outcome, StartOutcome::Started { recipients });
        fixture.assert_few_of(sources.rows, "the start of a run").await;
    }
}

/// The counts of a large account are stored; those of a small one take one pass for all segments.
pub(super) async fn segment_pages_read_contacts_once_or_never(mut fixture: DbFixture) {
    let account = fixture.account;
    fixture
        .sql(&format!(
            "INSERT INTO segments (account_id, id, name, filters)
             SELECT '{account}', key('{account}', 60000 + i), 's', '{{\"has_email\":false}}' FROM generate_series(1, 20) i"
        ))
        .await;
    let read = "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables
                WHERE relname = 'contacts'";
    let (all, page_size) = (i64::try_from(ROWS).unwrap(), 20);
    // For the average account of the statistics, a pass may read the table instead of an index.
    let pass = fixture.number("SELECT count(*) FROM contacts").await;
    let query = CursorQuery {
        cursor: None,
        limit: page_size,
    };
    let list = async |fixture: &DbFixture| {
        let segments = PgSegments::new(fixture.tenants.clone());
        let page = segments.list(account, &query).await.unwrap().data;
        let timeless = page.into_iter().map(|segment| Segment {
            members_as_of: segment.created_at,
            ..segment
        });
        timeless.collect::<Vec<_>>()
    };
    fixture.count_reads().await;
    let page = list(&fixture).await;
    assert!(page.len() == 20 && page.iter().all(|segment| segment.members == all));
    fixture.close().await;
    let contacts = fixture.number(read).await;
    assert!(contacts <= pass, "{contacts} contacts were read");
    fixture
        .sql(&format!(
            "INSERT INTO contact_counts VALUES ('{account}', '2026-03-01', 1000000)"
        ))
        .await;
    // The first read counts, in one pass.
    fixture.count_reads().await;
    assert_eq!(list(&fixture).await, page);
    fixture.close().await;
    let contacts = fixture.number(read).await;
    assert!((all..=pass).contains(&contacts), "{contacts} contacts were read");
    fixture.count_reads().await;
    assert_eq!(list(&fixture).await, page);
    let (segment, contact) = (page[0].id, fixture.key(1).await.into());
    let segments = PgSegments::new(fixture.tenants.clone());
    segments.add_members(account, segment, &[contact]).await.unwrap();
    drop(segments);
    fixture.close().await;
    let contacts = fixture.number(read).await;
    assert!(contacts <= 10, "{contacts} contacts were read");
}
