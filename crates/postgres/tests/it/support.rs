//! Test fixture: a database of its own, an account with its owner, and helpers that insert rows.

use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use recado_domain::accounts::{Account, AccountStatus, AccountStore, Session};
use recado_domain::administration::{PlatformEntity, PlatformEntry};
use recado_domain::campaigns::{
    Campaign, CampaignStatus, CampaignStore, ClaimOutcome, QueuedRun, RunContent, RunStart, RunStartStore as _,
    SendStore as _, StartOutcome, Trigger,
};
use recado_domain::messaging::{Category, HeaderType, MetaStatus, ParameterFormat};
use recado_domain::shared::{AccountId, Actor, Audit, AuditAction, Event, EventKind, SendId, TemplateId, UserId};
use recado_domain::templates::{Template, TemplateStore, TemplateType};
use recado_postgres::testing::TestDatabase;
use recado_postgres::{
    OwnerPool, PgAccounts, PgAudit, PgCampaigns, PgContacts, PgOutbox, PgRuns, PgStatusUpdates, PgTemplates, TenantPool,
};
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::error_codes::ERROR_CODES;

pub(crate) const NOW: OffsetDateTime = datetime!(2026-03-01 12:00:00.123456 UTC);
pub(crate) const LEASE: Duration = Duration::seconds(60);

pub(crate) struct DbFixture {
    pub(crate) tenants: TenantPool,
    pub(crate) owner: OwnerPool,
    pub(crate) client: Client,
    pub(crate) account: AccountId,
    pub(crate) user: UserId,
    // The last field: dropped after the pools and the client that use it.
    pub(crate) db: TestDatabase,
}

/// Ascending ids: rows that are created later sort after earlier ones.
pub(crate) fn id() -> Uuid {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Uuid::from_u128(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)) << 64 | 0x7000_8000_0000_0000)
}

/// An id that begins with a time, as the product's ids do. Replies and their status updates are looked up by it.
pub(crate) fn id_at(at: OffsetDateTime) -> Uuid {
    let milliseconds = u128::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap();
    Uuid::from_u128(milliseconds << 80 | 0x7000 << 64 | 0x8000_0000_0000_0000 | id().as_u128() >> 64)
}

pub(crate) fn session(user: UserId) -> Session {
    Session {
        email: format!("{user}@example.com"),
        name: Some("Ana".into()),
        email_verified: Some(true),
        ..Session::for_tests(user, NOW)
    }
}

/// An entry of the platform audit log about an account, with a new id.
pub(crate) fn platform_entry(account: AccountId) -> PlatformEntry {
    PlatformEntry {
        id: id().into(),
        user_id: id().into(),
        email: "root@example.com".into(),
        action: AuditAction::Update,
        entity: PlatformEntity::Account,
        entity_id: account.0,
        account_id: Some(account),
        changes: None,
        ip_address: Some("203.0.113.7".into()),
        request_id: Some("r1".into()),
    }
}

pub(crate) fn account(slug: &str) -> Account {
    Account {
        id: id().into(),
        name: "Loja da Ana".into(),
        slug: slug.into(),
        logo_url: None,
        plan: "free".into(),
        status: AccountStatus::Active,
        created_at: NOW,
    }
}

pub(crate) fn event(entity: Uuid) -> Event {
    Event::Audit(Audit {
        user_id: None,
        action: AuditAction::Update,
        entity_type: "campaign".into(),
        entity_id: Some(entity),
        changes: None,
        ip_address: None,
        support_admin: None,
    })
}

/// Parses a cursor like the HTTP layer.
pub(crate) fn position<C: FromStr>(cursor: Option<String>) -> Option<C> {
    cursor.map(|text| text.parse().ok().expect("the cursor comes from an earlier page"))
}

impl DbFixture {
    /// Counters are written to one of four random slots, so that every test has sharded counters.
    pub(crate) async fn new() -> Self {
        let fixture = Self::with_production_counter_slots().await;
        fixture
            .sql(
                "CREATE OR REPLACE FUNCTION counter_slot(messages bigint) RETURNS smallint LANGUAGE sql VOLATILE
                 AS 'SELECT floor(random() * 4)::smallint'",
            )
            .await;
        fixture
    }

    /// Keeps the production version of `counter_slot()`, which derives the slot from the time.
    pub(crate) async fn with_production_counter_slots() -> Self {
        let db = TestDatabase::new().await;
        let (tenants, owner) = (db.tenant_pool(), db.owner_pool());
        let client = db.client().await;
        let user = UserId(id());
        let accounts = PgAccounts::new(owner.clone());
        accounts.record_user(&session(user)).await.unwrap();
        let account = accounts.create(&account("loja"), user, 1000).await.unwrap().unwrap().id;
        Self {
            tenants,
            owner,
            client,
            account,
            user,
            db,
        }
    }

    pub(crate) async fn another_account(&self) -> AccountId {
        PgAccounts::new(self.owner.clone())
            .create(&account("loja"), self.user, 1000)
            .await
            .unwrap()
            .unwrap()
            .id
    }

    pub(crate) fn contacts(&self) -> PgContacts {
        PgContacts::new(self.tenants.clone())
    }

    pub(crate) fn templates(&self) -> PgTemplates {
        PgTemplates::new(self.tenants.clone())
    }

    /// The campaign that a guarded write expects: the stored row, with `status` instead of its stored status.
    pub(crate) async fn expected(&self, campaign: &Campaign, status: CampaignStatus) -> Campaign {
        let stored = self.campaigns().find(campaign.account_id, campaign.id).await.unwrap();
        Campaign {
            status,
            ..stored.unwrap_or_else(|| campaign.clone())
        }
    }

    pub(crate) fn campaigns(&self) -> PgCampaigns {
        PgCampaigns::new(self.tenants.clone(), ERROR_CODES)
    }

    pub(crate) fn runs(&self) -> PgRuns {
        PgRuns::new(self.tenants.clone(), self.owner.clone(), ERROR_CODES)
    }

    pub(crate) fn status_updates(&self) -> PgStatusUpdates {
        PgStatusUpdates::new(self.tenants.clone(), ERROR_CODES)
    }

    pub(crate) fn outbox(&self) -> PgOutbox {
        PgOutbox::new(self.owner.clone())
    }

    pub(crate) fn audit(&self) -> PgAudit {
        PgAudit::new(self.owner.clone())
    }

    /// Relays one batch of every event kind and returns the number of events that left the outbox.
    pub(crate) async fn relay(&self) -> usize {
        let mut moved = 0;
        for &kind in EventKind::ALL {
            moved += self.outbox().relay(kind, 100).await.unwrap();
        }
        moved
    }

    /// Inserts outbox events of the account.
    pub(crate) async fn append_events(&self, account: AccountId, events: &[Event]) {
        for event in events {
            let payload = serde_json::to_string(event).unwrap().replace('\'', "''");
            self.sql(&format!(
                "INSERT INTO outbox_events (account_id, payload) VALUES ('{account}', '{payload}')"
            ))
            .await;
        }
    }

    /// Asserts that `audit_counts` equals a recount of `audit_logs`.
    pub(crate) async fn assert_audit_counts(&self) {
        let wrong = self
            .text(
                "SELECT json_agg(t) FROM (
                   (SELECT account_id, month, entity_type, action, n FROM audit_counts)
                   EXCEPT ALL
                   (SELECT account_id, date_trunc('month', created_at AT TIME ZONE 'UTC')::date, entity_type, action,
                      count(*)
                    FROM audit_logs GROUP BY 1, 2, 3, 4)) t",
            )
            .await;
        assert_eq!(wrong, None, "counts that differ from the entries");
        let complete = "SELECT coalesce(sum(n), 0) = (SELECT count(*) FROM audit_logs) FROM audit_counts";
        assert_eq!(
            self.text(complete).await.as_deref(),
            Some("true"),
            "an entry is not counted"
        );
    }

    pub(crate) async fn sql(&self, statement: &str) {
        self.client
            .batch_execute(statement)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }

    /// Returns the number that a scalar subquery yields.
    pub(crate) async fn number(&self, query: &str) -> i64 {
        let row = self.client.query_one(&format!("SELECT ({query})::bigint"), &[]).await;
        row.unwrap_or_else(|error| panic!("{query}: {error:?}")).get(0)
    }

    /// Returns the text that a scalar subquery yields.
    pub(crate) async fn text(&self, query: &str) -> Option<String> {
        let row = self.client.query_one(&format!("SELECT ({query})::text"), &[]).await;
        row.unwrap_or_else(|error| panic!("{query}: {error:?}")).get(0)
    }

    /// Records the `synchronous_commit` setting of later commits that change these tables, for
    /// [`Self::recorded_commits`]. The default of the database is set to `on`.
    pub(crate) async fn record_commits(&mut self, tables: &[(&str, &str)]) {
        let database = self.text("current_database()").await.unwrap();
        // Overrides the default of the test server. Open connections keep the old value, so the pools are replaced.
        self.sql(&format!("ALTER DATABASE \"{database}\" SET synchronous_commit = on"))
            .await;
        (self.tenants, self.owner) = (self.db.tenant_pool(), self.db.owner_pool());
        self.sql(
            "CREATE TABLE seen (of text, commit text);
             GRANT INSERT ON seen TO PUBLIC;
             CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               INSERT INTO public.seen VALUES (regexp_replace(TG_TABLE_NAME, '_y[0-9md]+$', ''), current_setting('synchronous_commit'));
               RETURN NULL;
             END $$",
        )
        .await;
        for (table, change) in tables {
            self.sql(&format!(
                "CREATE CONSTRAINT TRIGGER at_commit AFTER {change} ON {table}
                   DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see()"
            ))
            .await;
        }
    }

    /// The distinct pairs of table and `synchronous_commit` setting.
    pub(crate) async fn recorded_commits(&self) -> String {
        let commits = "SELECT string_agg(DISTINCT of || ' ' || commit, ', ' ORDER BY of || ' ' || commit) FROM seen";
        self.text(commits).await.unwrap_or_default()
    }

    /// Sets the plan of the account, which is `free` by default.
    pub(crate) async fn on_plan(&self, plan: &str) {
        self.sql(&format!(
            "UPDATE accounts SET plan = '{plan}' WHERE id = '{}'",
            self.account
        ))
        .await;
    }

    /// Inserts `count` contacts with a phone number, named `Contact 1` and up.
    pub(crate) async fn add_contacts(&self, count: usize) {
        self.add_contacts_to(self.account, count).await;
    }

    pub(crate) async fn add_contacts_to(&self, account: AccountId, count: usize) {
        self.sql(&format!(
            "INSERT INTO contacts (account_id, id, name, phone)
             SELECT '{account}', md5('{account}' || i)::uuid, 'Contact ' || i, '+55119' || lpad(i::text, 8, '0')
             FROM generate_series(1, {count}) i;
             INSERT INTO contact_counts VALUES ('{account}', (now() AT TIME ZONE 'UTC')::date, {count})
             ON CONFLICT (account_id, day) DO UPDATE SET contacts = contact_counts.contacts + excluded.contacts"
        ))
        .await;
    }

    pub(crate) fn template(&self, name: &str) -> Template {
        Template {
            id: id().into(),
            account_id: self.account,
            name: name.into(),
            category: Category::Marketing,
            language: "pt_BR".into(),
            template_type: TemplateType::Standard,
            parameter_format: ParameterFormat::Positional,
            header_type: HeaderType::None,
            header_text: None,
            header_media_url: None,
            body_text: Some("Oi {{1}}".into()),
            footer_text: None,
            limited_time_offer: None,
            message_send_ttl_seconds: None,
            rejection_recommendation: None,
            correct_category: None,
            buttons: vec![serde_json::json!({ "type": "QUICK_REPLY", "text": "Sim" }).into()],
            variables: vec!["Ana".into()],
            carousel_cards: vec![],
            folder_id: None,
            profile_id: None,
            meta_template_id: None,
            meta_status: MetaStatus::Approved,
            rejection_reason: None,
            quality_score: None,
            category_change: None,
            unsupported: vec![],
            created_at: NOW,
            updated_at: NOW,
            version: 1,
        }
    }

    /// The template that [`Self::stored_template`] stores under this id.
    pub(crate) fn template_of(&self, id: TemplateId) -> Template {
        Template {
            id,
            ..self.template(&format!("promo_{}", id.0.simple()))
        }
    }

    pub(crate) async fn stored_template(&self) -> TemplateId {
        let template = self.template_of(id().into());
        self.templates().insert(&template).await.unwrap();
        template.id
    }

    /// A draft for all contacts. It is not stored.
    pub(crate) fn draft(&self) -> Campaign {
        Campaign {
            id: id().into(),
            account_id: self.account,
            name: "Black Friday".into(),
            template_id: None,
            segment_id: None,
            segment_config: None,
            rfm_segments: vec![],
            scheduled_at: None,
            scheduled_by: None,
            variables: None,
            header_location: None,
            offer_expires_at: None,
            reach: recado_domain::campaigns::Reach::Phone,
            budget: None,
            cost: recado_domain::costs::CampaignCost::default(),
            newcomers_only: false,
            folder_id: None,
            status: CampaignStatus::Draft,
            total_recipients: 0,
            simulated: false,
            executed_at: None,
            completed_at: None,
            paused_at: None,
            pause_reason: None,
            late_policy: None,
            skipped_at: None,
            retry_scheduled_at: None,
            waiting_until: None,
            held: 0,
            archiving_at: None,
            archived_at: None,
            created_by: Some(self.user),
            created_at: NOW,
            updated_at: NOW,
            version: 1,
        }
    }

    pub(crate) async fn stored_draft(&self) -> Campaign {
        let campaign = Campaign {
            template_id: Some(self.stored_template().await),
            ..self.draft()
        };
        self.campaigns().insert(&campaign, &[]).await.unwrap();
        campaign
    }

    pub(crate) fn start_of(&self, campaign: &Campaign) -> RunStart {
        RunStart {
            campaign: Campaign {
                status: CampaignStatus::Sending,
                executed_at: Some(NOW),
                ..campaign.clone()
            },
            expected: campaign.status,
            trigger: Trigger::Execute,
            actor: Some(Actor {
                user_id: self.user,
                ip_address: Some("10.0.0.1".into()),
                support_admin: None,
            }),
            profile_id: None,
            monthly_limit: 1_000_000,
            required_placeholders: vec![],
            // A start reads the template of the stored draft.
            content: RunContent::of(campaign, &self.template_of(campaign.template_id.unwrap_or(id().into()))),
        }
    }

    /// Starts a stored draft. The worker holds the lease of the run.
    pub(crate) async fn started(&self, worker: Uuid) -> (Campaign, QueuedRun) {
        let campaign = self.stored_draft().await;
        let outcome = self
            .runs()
            .start(&self.start_of(&campaign), Some(worker), LEASE)
            .await
            .unwrap();
        assert!(matches!(outcome, StartOutcome::Started { .. }), "{outcome:?}");
        let run = QueuedRun {
            account_id: self.account,
            campaign_id: campaign.id,
        };
        (
            Campaign {
                status: CampaignStatus::Sending,
                ..campaign
            },
            run,
        )
    }

    /// Claims and starts up to `size` sends and returns the started ones.
    pub(crate) async fn in_flight(&self, run: QueuedRun, worker: Uuid, size: i64) -> Vec<SendId> {
        let ClaimOutcome::Sends(sends) = self.runs().claim(run, worker, None, size, LEASE).await.unwrap() else {
            return vec![];
        };
        let ids: Vec<SendId> = sends.iter().map(|send| send.id).collect();
        self.start_sends(run, worker, &ids).await
    }

    /// Starts sends and returns those that were started.
    pub(crate) async fn start_sends(&self, run: QueuedRun, worker: Uuid, sends: &[SendId]) -> Vec<SendId> {
        let started = self.runs().record_and_start(run, worker, &[], sends).await.unwrap();
        assert!(started.goes_on || started.sends.is_empty());
        started.sends
    }

    /// Asserts that counters, usage and the order of lists equal those of the sends.
    pub(crate) async fn assert_recount(&self) {
        let counters = "SELECT n.*, r.* FROM campaign_counters n
             CROSS JOIN LATERAL (SELECT count(*) AS a,
               count(*) FILTER (WHERE status = 'pending') AS b, count(*) FILTER (WHERE status = 'sent') AS c,
               count(*) FILTER (WHERE status = 'delivered') AS d, count(*) FILTER (WHERE status = 'read') AS e,
               count(*) FILTER (WHERE status = 'failed') AS f
               FROM campaign_sends s WHERE s.account_id = n.account_id AND s.campaign_id = n.campaign_id) r
             WHERE (n.total, n.pending, n.sent, n.delivered, n.read, n.failed) <> (a, b, c, d, e, f)";
        let usage = "SELECT u.*, r.* FROM message_usage u
             CROSS JOIN LATERAL (SELECT
               count(*) FILTER (WHERE s.status IN ('sent', 'delivered', 'read')) AS a,
               count(*) FILTER (WHERE s.status = 'pending'
                 AND (c.status = 'sending' OR s.started_at IS NOT NULL)) AS b
               FROM campaign_sends s JOIN campaigns c ON c.account_id = s.account_id AND c.id = s.campaign_id
               WHERE s.account_id = u.account_id AND coalesce(s.quota_month, c.quota_month) = u.month) r
             WHERE (u.sent, u.reserved) <> (a, b)";
        let listed = "SELECT account_id, campaign_id, sent_at, unnest(send_ids) AS id FROM campaign_send_times";
        let sent = "SELECT account_id, campaign_id, sent_at, id FROM campaign_sends WHERE sent_at IS NOT NULL";
        let lists = format!("({listed} EXCEPT ALL {sent}) UNION ALL ({sent} EXCEPT ALL {listed})");
        for (what, wrong) in [("counters", counters), ("usage", usage), ("lists", &lists)] {
            let wrong = self.text(&format!("SELECT json_agg(t) FROM ({wrong}) t")).await;
            assert_eq!(wrong, None, "{what}");
        }
    }

    /// Waits until `connections` of the database's connections are blocked by a lock.
    pub(crate) async fn blocked(&self, connections: i64) {
        let waiting = "SELECT count(*) FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event_type = 'Lock'";
        for _ in 0..200 {
            if self.number(waiting).await >= connections {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("no connection waits for a lock");
    }

    /// `sent/reserved` of the month.
    pub(crate) async fn usage(&self) -> String {
        let query = format!(
            "SELECT sent || '/' || reserved FROM message_usage WHERE account_id = '{}'",
            self.account
        );
        self.text(&query).await.unwrap_or_default()
    }
}
