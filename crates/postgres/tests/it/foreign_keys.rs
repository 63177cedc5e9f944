//! Foreign keys in the database's catalog.

use crate::support::DbFixture;

/// Foreign keys that need no index on their columns: the referenced row is deleted only with its account, and an
/// account has few rows of the referencing table.
const WITHOUT_INDEX: [&str; 3] = [
    // Templates and segments are soft-deleted. Deleting them with the account scans its campaigns.
    "campaigns_segment_id_fkey",
    "campaigns_template_id_fkey",
    // One row per payment of the account.
    "billing_history_subscription_id_fkey",
];

/// Foreign keys without an index that begins with their columns, in any order. A partial index may exclude NULL keys.
const UNINDEXED: &str = "SELECT string_agg(f.conname, ',' ORDER BY f.conname) FROM pg_constraint f
  WHERE f.contype = 'f' AND f.connamespace = 'public'::regnamespace AND NOT EXISTS (
    SELECT FROM pg_index i WHERE i.indrelid = f.conrelid AND i.indisvalid
      AND (i.indpred IS NULL OR EXISTS (SELECT FROM pg_attribute a
        WHERE a.attrelid = f.conrelid AND a.attnum = ANY (f.conkey)
          AND pg_get_expr(i.indpred, i.indrelid) = format('(%I IS NOT NULL)', a.attname)))
      AND (SELECT array_agg(k ORDER BY k) FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS x (k, n)
          WHERE n <= cardinality(f.conkey))
        = (SELECT array_agg(k ORDER BY k) FROM unnest(f.conkey) AS k))";

#[tokio::test]
async fn every_foreign_key_has_an_index_on_its_own_columns() {
    let fixture = DbFixture::new().await;
    let all = fixture
        .number("SELECT count(*) FROM pg_constraint WHERE contype = 'f'")
        .await;
    assert!(all > 40, "{all}");
    let found = fixture.text(&format!("({UNINDEXED})")).await.unwrap_or_default();
    let mut expected = WITHOUT_INDEX;
    expected.sort_unstable();
    assert_eq!(found.split(',').collect::<Vec<_>>(), expected);
}
