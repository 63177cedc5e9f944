//! Foreign keys, as the catalogue holds them.

use crate::support::DbFixture;

/// Foreign keys without an index on their own columns, and why none is needed: what they refer to is removed with its
/// account alone, and the account has few rows of the table.
const WITHOUT_INDEX: [&str; 3] = [
    // A template and a segment are marked as deleted. Their removal, with the account, passes over its campaigns.
    "campaigns_segment_id_fkey",
    "campaigns_template_id_fkey",
    // One row a payment of the account.
    "billing_history_subscription_id_fkey",
];

/// The first columns of an index are those of the key, in any order. It may leave out rows that refer to nothing.
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
