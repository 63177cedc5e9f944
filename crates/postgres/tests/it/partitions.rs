//! Partitions: which exist, what a retention term removes, and that the frequent statements read one of them.

use recado_domain::callbacks::StatusUpdateStore as _;
use recado_domain::campaigns::{
    Campaign, CampaignStatus, CampaignStore as _, ClaimOutcome, QueuedRun, RunQueue as _, RunRetryStore as _,
    RunStore as _, SendResult, SendStore as _,
};
use recado_domain::messaging::SendStatus;
use recado_domain::rollups::RollupStore as _;
use recado_domain::shared::{PageQuery, SendId};
use recado_postgres::{Interval, PARTITIONED, PartitionedTable, PgPartitions, PgRollups, RetentionDays, RetentionTerm};
use time::macros::datetime;
use time::{Duration, OffsetDateTime};

use crate::holds::set_cap;
use crate::retries::{retry_of, tried};
use crate::status_updates::status_update;
use crate::support::{DbFixture, LEASE, id};

const PARTITIONS: &str = "SELECT string_agg(c.relname, ' ' ORDER BY c.relname) FROM pg_inherits i
  JOIN pg_class c ON c.oid = i.inhrelid AND c.relkind = 'r' WHERE i.inhparent = ";

fn table(name: &str) -> &'static PartitionedTable {
    PARTITIONED.iter().find(|table| table.name == name).unwrap()
}

fn accepted(send: SendId) -> (SendId, SendResult) {
    let sent = SendResult::Sent {
        message_id: Some(send.to_string()),
        wa_id: None,
    };
    (send, sent)
}

impl DbFixture {
    fn partitions(&self) -> PgPartitions {
        PgPartitions::new(self.owner.clone())
    }

    async fn partitions_of(&self, table: &str) -> String {
        let query = format!("({PARTITIONS} '{table}'::regclass)");
        self.text(&query).await.unwrap_or_default()
    }

    /// Removes the partitions of `campaign_sends` and creates those of a server that started at `first` and runs since.
    async fn partitioned_since(&self, first: OffsetDateTime) {
        let drop = "(SELECT string_agg('DROP TABLE ' || inhrelid::regclass, ';') FROM pg_inherits
          WHERE inhparent = 'campaign_sends'::regclass)";
        let drop = self.text(drop).await.unwrap();
        self.sql(&drop).await;
        let now = self.partitions().now().await.unwrap();
        let mut at = first;
        while at < now {
            self.partitions().ensure(at).await.unwrap();
            at += Duration::days(28);
        }
        self.partitions().ensure(now).await.unwrap();
    }

    /// The partitions of `campaign_sends` with rows or index entries that were read since the last call.
    async fn read_partitions(&mut self) -> Vec<String> {
        self.close().await;
        self.sql("SELECT pg_stat_force_next_flush()").await;
        let read = "SELECT relname::text FROM pg_stat_user_tables WHERE relname LIKE 'campaign\\_sends\\_%'
          AND coalesce(seq_scan, 0) + coalesce(idx_scan, 0) > 0 ORDER BY 1";
        let rows = self.client.query(read, &[]).await.unwrap();
        let read = rows.iter().map(|row| row.get(0)).collect();
        self.sql("SELECT pg_stat_reset()").await;
        read
    }

    /// Those of them before `current`, which was read. In tables of forty rows the planner may also look into the empty
    /// partitions of the next months.
    async fn read_before(&mut self, current: &str) -> Vec<String> {
        let mut read = self.read_partitions().await;
        assert!(read.iter().any(|partition| partition == current), "{read:?}");
        read.retain(|partition| partition.as_str() < current);
        read
    }
}

#[tokio::test]
async fn every_partitioned_table_has_its_partitions() {
    let fixture = DbFixture::new().await;
    for (table, ahead) in fixture.partitions().ahead().await.unwrap() {
        let expected = match PARTITIONED.iter().find(|known| known.name == table).unwrap().interval {
            Interval::Month => 2,
            Interval::Day => 3,
        };
        assert_eq!(ahead, expected, "{table}");
        let partitions = fixture.partitions_of(table).await;
        assert!(
            partitions.starts_with(&format!("{table}_earlier {table}_y2")),
            "{partitions}"
        );
    }
    let listed: Vec<&str> = PARTITIONED.iter().map(|table| table.name).collect();
    let partitioned = "(SELECT string_agg(relname, ' ') FROM pg_class WHERE relkind = 'p')";
    for name in fixture.text(partitioned).await.unwrap().split(' ') {
        assert!(listed.contains(&name), "{name} is missing in PARTITIONED");
    }
    assert_eq!(
        fixture
            .partitions()
            .ensure(fixture.partitions().now().await.unwrap())
            .await
            .unwrap(),
        0
    );
}

#[tokio::test]
async fn partitions_are_made_ahead_by_several_processes_at_once() {
    let fixture = DbFixture::new().await;
    let now = fixture.partitions().now().await.unwrap();
    let later = now + Duration::days(100);
    let (a, b) = (fixture.partitions(), PgPartitions::new(fixture.db.owner_pool()));
    let (a, b) = tokio::join!(a.ensure(later), b.ensure(later));
    let created = a.unwrap() + b.unwrap();
    assert!(created >= 3 * PARTITIONED.len(), "{created}");
    assert_eq!(fixture.partitions().ensure(later).await.unwrap(), 0);
    // Months of a server that did not run for long are not left out.
    let gaps = "(SELECT count(*) FROM campaign_sends WHERE id = first_id(now() + interval '70 days'))";
    assert_eq!(fixture.number(gaps).await, 0);
    fixture
        .sql(&format!(
            "INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id)
             SELECT '{}', first_id(now() + n * interval '1 day'), '{1}', '{1}' FROM generate_series(-1000, 120) n",
            fixture.account,
            id()
        ))
        .await;
}

#[tokio::test]
async fn only_months_whose_sends_change_have_free_space() {
    let fixture = DbFixture::new().await;
    fixture.partitioned_since(datetime!(2026-01-15 12:00 UTC)).await;
    let options =
        |name: &str| format!("(SELECT array_to_string(reloptions, ' ') FROM pg_class WHERE relname = '{name}')");
    let now = fixture.partitions().now().await.unwrap();
    let suffix = |at: OffsetDateTime| format!("y{}m{:02}", at.year(), u8::from(at.month()));
    let current = fixture
        .text(&options(&format!("campaign_sends_{}", suffix(now))))
        .await
        .unwrap();
    assert!(current.contains("fillfactor=35"), "{current}");
    let old = fixture.text(&options("campaign_sends_y2026m01")).await.unwrap();
    assert!(!old.contains("fillfactor") && old.contains("autovacuum"), "{old}");
    // Two months later the current month is settled.
    fixture.partitions().ensure(now + Duration::days(65)).await.unwrap();
    let settled = fixture
        .text(&options(&format!("campaign_sends_{}", suffix(now))))
        .await
        .unwrap();
    assert!(!settled.contains("fillfactor"), "{settled}");
}

#[tokio::test]
async fn whole_months_before_the_horizon_are_dropped() {
    let fixture = DbFixture::new().await;
    fixture.partitioned_since(datetime!(2026-01-15 12:00 UTC)).await;
    fixture
        .sql(&format!(
            "INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id)
             SELECT '{}', first_id(timestamptz '2025-12-31 23:59:59.999+00' + n * interval '1 month'), '{1}', '{1}'
             FROM generate_series(0, 5) n",
            fixture.account,
            id()
        ))
        .await;
    let (sends, partitions) = (table("campaign_sends"), fixture.partitions());
    let count = "(SELECT count(*) FROM campaign_sends)";
    assert_eq!(
        partitions
            .drop_before(sends, datetime!(2026-01-31 12:00 UTC))
            .await
            .unwrap(),
        1,
        "late rows only"
    );
    assert_eq!(fixture.number(count).await, 5);
    assert_eq!(
        partitions
            .drop_before(sends, datetime!(2026-01-31 12:00 UTC))
            .await
            .unwrap(),
        0
    );
    assert_eq!(
        partitions
            .drop_before(sends, datetime!(2026-03-31 23:59 UTC))
            .await
            .unwrap(),
        2
    );
    let left = fixture.partitions_of("campaign_sends").await;
    assert!(
        left.starts_with("campaign_sends_earlier campaign_sends_y2026m03 "),
        "{left}"
    );
    assert_eq!(fixture.number(count).await, 3);
    // A row of a removed month is accepted, and goes with the next removal.
    let late = format!(
        "INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id)
         VALUES ('{}', first_id('2026-01-05 00:00:00+00'), '{1}', '{1}')",
        fixture.account,
        id()
    );
    fixture.sql(&late).await;
    assert_eq!(
        partitions
            .drop_before(sends, datetime!(2026-03-02 00:00 UTC))
            .await
            .unwrap(),
        1
    );
    assert_eq!(fixture.number(count).await, 3);
    let kept =
        "(SELECT (retained_from AT TIME ZONE 'UTC')::date FROM partition_horizons WHERE table_name = 'campaign_sends')";
    assert_eq!(fixture.text(kept).await.unwrap(), "2026-03-01");
    let now = partitions.now().await.unwrap();
    assert_eq!(partitions.ensure(now).await.unwrap(), 0);
}

#[tokio::test]
async fn without_terms_only_fixed_ones_remove_rows() {
    let fixture = DbFixture::new().await;
    let (partitions, now) = (fixture.partitions(), fixture.partitions().now().await.unwrap());
    let later = now + Duration::days(4000);
    assert!(partitions.drop_expired(&RetentionDays::default(), later).await.unwrap() > 0);
    for table in PARTITIONED {
        let first = table.name.to_owned() + "_earlier " + table.name + "_y" + &now.year().to_string();
        let kept = fixture.partitions_of(table.name).await.starts_with(&first);
        assert_eq!(
            kept,
            !matches!(table.retention, RetentionTerm::Days(_)),
            "{}",
            table.name
        );
    }
    let terms = RetentionDays {
        campaign_sends: Some(30),
        ..RetentionDays::default()
    };
    assert_eq!(
        partitions.drop_expired(&terms, now + Duration::days(29)).await.unwrap(),
        0
    );
    assert_eq!(
        partitions.drop_expired(&terms, now + Duration::days(61)).await.unwrap(),
        2,
        "sends and their order"
    );
    // The next month, although all partitions of a table are gone.
    partitions.ensure(later).await.unwrap();
    assert_eq!(partitions.ensure(later).await.unwrap(), 0);
}

/// The limit of an account counts sends of removed months, so they stay until no limit counts them.
#[tokio::test]
async fn sends_that_a_limit_counts_outlast_the_operators_term() {
    let fixture = DbFixture::new().await;
    let (partitions, now) = (fixture.partitions(), fixture.partitions().now().await.unwrap());
    let terms = RetentionDays {
        campaign_sends: Some(30),
        ..RetentionDays::default()
    };
    let dropped_after = async |days| {
        partitions
            .drop_expired(&terms, now + Duration::days(days))
            .await
            .unwrap()
    };
    set_cap(&fixture, 1, 90).await;
    partitions
        .drop_expired(&RetentionDays::default(), now + Duration::days(125))
        .await
        .unwrap();
    assert_eq!(dropped_after(89).await, 0);
    assert!(dropped_after(125).await > 0);
}

#[tokio::test]
async fn frequent_statements_read_one_of_fifteen_partitions() {
    let mut fixture = DbFixture::new().await;
    let now = fixture.partitions().now().await.unwrap();
    fixture.partitioned_since(now - Duration::days(12 * 31)).await;
    let partitions = fixture.partitions_of("campaign_sends").await;
    assert!(partitions.split(' ').count() >= 15, "{partitions}");
    fixture.add_contacts(40).await;
    let worker = id();
    let (campaign, run) = fixture.started(worker).await;
    // As the worker of statistics does. Without statistics the planner expects no rows anywhere, and may also look into
    // the empty partitions of the next months.
    fixture.sql("ANALYZE campaign_sends").await;
    fixture.read_partitions().await;
    let current = format!("campaign_sends_y{}m{:02}", now.year(), u8::from(now.month()));

    let runs = fixture.runs();
    for _ in 0..7 {
        runs.claim(run, worker, None, 10, LEASE).await.unwrap();
    }
    drop(runs);
    assert_eq!(fixture.read_partitions().await, std::slice::from_ref(&current), "claim");

    let runs = fixture.runs();
    let ClaimOutcome::Sends(due) = runs.claim(run, worker, None, 40, LEASE).await.unwrap() else {
        panic!("nothing is due")
    };
    let ids: Vec<SendId> = due.iter().map(|send| send.id).collect();
    for pair in ids.chunks(4).take(7) {
        let started = runs.record_and_start(run, worker, &[], pair).await.unwrap();
        assert_eq!(started.sends.len(), pair.len());
        let results: Vec<_> = pair.iter().map(|send| accepted(*send)).collect();
        runs.record_and_start(run, worker, &results, &[]).await.unwrap();
    }
    drop(runs);
    assert_eq!(
        fixture.read_before(&current).await,
        Vec::<String>::new(),
        "record_and_start"
    );

    let updates = fixture.status_updates();
    for send in ids.iter().take(14) {
        let update = status_update(Some(*send), &send.to_string(), SendStatus::Read);
        assert!(updates.apply(fixture.account, &[update]).await.unwrap().is_empty());
    }
    // Without the send's id: by WhatsApp's message id.
    for send in ids.iter().skip(14).take(7) {
        let update = status_update(None, &send.to_string(), SendStatus::Read);
        assert!(updates.apply(fixture.account, &[update]).await.unwrap().is_empty());
    }
    drop(updates);
    assert_eq!(
        fixture.read_before(&current).await,
        Vec::<String>::new(),
        "status updates"
    );

    let store = fixture.campaigns();
    for _ in 0..7 {
        let page = fixture
            .sends(fixture.account, campaign.id, PageQuery::new(None, Some(20), 20, 100))
            .await;
        assert_eq!(page.unwrap().unwrap().total, 40);
        store.stats(fixture.account, campaign.id).await.unwrap().unwrap();
    }
    drop(store);
    assert_eq!(fixture.read_before(&current).await, Vec::<String>::new(), "lists");
}

#[tokio::test]
async fn end_and_retry_of_a_run_read_no_earlier_partition() {
    let mut fixture = DbFixture::new().await;
    let now = fixture.partitions().now().await.unwrap();
    fixture.partitioned_since(now - Duration::days(12 * 31)).await;
    fixture.add_contacts(12).await;
    let (campaign, _) = fixture.started(id()).await;
    fixture.sql("ANALYZE campaign_sends").await;
    fixture.read_partitions().await;
    end_and_retry(&fixture, &campaign).await;
    let current = format!("campaign_sends_y{}m{:02}", now.year(), u8::from(now.month()));
    let read = fixture.read_partitions().await;
    assert!(read.contains(&current), "{read:?}");
    // Later partitions have no rows, so the planner may read them together with the current one.
    let earlier: Vec<_> = read.iter().filter(|partition| **partition < current).collect();
    assert_eq!(earlier, Vec::<&String>::new());
}

/// Ends a run with sends that are in flight, failed and untried, retries these, and cancels the retry.
async fn end_and_retry(fixture: &DbFixture, campaign: &Campaign) {
    let run = QueuedRun {
        account_id: fixture.account,
        campaign_id: campaign.id,
    };
    let (runs, worker) = (fixture.runs(), id());
    fixture
        .sql("UPDATE campaign_queue SET leased_until = now() - interval '1 second'")
        .await;
    assert_eq!(runs.take(worker, LEASE).await.unwrap(), Some(run));
    let sends = fixture.in_flight(run, worker, 4).await;
    let failed = SendResult::Failed {
        code: None,
        message: "no".into(),
    };
    runs.record(run, &[(sends[0], failed)]).await.unwrap();
    runs.finish(run).await.unwrap();
    let retry = retry_of(fixture, campaign).await;
    assert_eq!(tried(&runs.retry(&retry).await.unwrap()), (9, 1));
    runs.take(worker, LEASE).await.unwrap();
    fixture.in_flight(run, worker, 20).await;
    runs.abandon(run, worker).await.unwrap();
    let cancelled = Campaign {
        status: CampaignStatus::Cancelled,
        ..campaign.clone()
    };
    let expected = fixture.expected(&cancelled, CampaignStatus::Sending).await;
    fixture.campaigns().update(&cancelled, &expected, &[]).await.unwrap();
}

#[tokio::test]
async fn materialized_send_ids_name_their_freeze() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(5).await;
    let (campaign, _) = fixture.started(id()).await;
    let derived = format!(
        "(SELECT count(*) FROM campaign_sends s JOIN campaigns c ON c.id = s.campaign_id
          WHERE c.id = '{}' AND s.id = send_id(c.frozen_at, c.id, s.contact_id) AND s.created_at = c.frozen_at
            AND s.id BETWEEN first_id(c.frozen_at) AND last_id(c.frozen_at)
            AND substr(s.id::text, 15, 1) = '8' AND substr(s.id::text, 20, 1) = 'a')",
        campaign.id
    );
    assert_eq!(fixture.number(&derived).await, 5);
    let freeze = "(SELECT count(*) FROM campaigns c JOIN campaign_counter_slots n ON n.campaign_id = c.id
      AND n.created_at = c.frozen_at AND date_trunc('milliseconds', c.frozen_at) = c.frozen_at)";
    assert_eq!(fixture.number(freeze).await, 1);
}

#[tokio::test]
async fn sums_stay_as_they_were_after_their_sends_were_dropped() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(3).await;
    let worker = id();
    let (campaign, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 3).await;
    let results: Vec<_> = sends.iter().map(|send| accepted(*send)).collect();
    fixture
        .runs()
        .record_and_start(run, worker, &results, &[])
        .await
        .unwrap();
    fixture.runs().finish(run).await.unwrap();
    // The campaign ended long ago.
    fixture
        .sql(
            "UPDATE campaigns SET updated_at = '2020-01-02', completed_at = '2020-01-02', frozen_at = '2020-01-01',
               quota_month = '2020-01-01';
             UPDATE campaign_counter_slots SET created_at = '2020-01-01';
             UPDATE message_usage_slots SET month = '2020-01-01';
             UPDATE campaign_sends SET id = send_id('2020-01-01', campaign_id, contact_id), created_at = '2020-01-01'",
        )
        .await;
    let rollups = PgRollups::new(fixture.owner.clone());
    assert_eq!(rollups.verify(fixture.account).await.unwrap(), []);
    let now = fixture.partitions().now().await.unwrap();
    let dropped = fixture
        .partitions()
        .drop_before(table("campaign_sends"), now)
        .await
        .unwrap();
    assert_eq!(
        (dropped, fixture.number("(SELECT count(*) FROM campaign_sends)").await),
        (1, 0)
    );

    assert_eq!(rollups.verify(fixture.account).await.unwrap(), []);
    assert_eq!(rollups.rebuild(fixture.account).await.unwrap(), 0);
    let stats = fixture
        .campaigns()
        .stats(fixture.account, campaign.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((stats.counts.total, stats.counts.sent), (3, 3));
    assert_eq!(fixture.usage().await, "3/0");
    // A wrong sum of what is kept is still found.
    fixture
        .sql("INSERT INTO message_usage_slots (account_id, month, sent) SELECT account_id, current_date, 1 FROM message_usage_slots LIMIT 1")
        .await;
    assert_eq!(rollups.verify(fixture.account).await.unwrap().len(), 1);
}
