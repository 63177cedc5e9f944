//! The clock of the model tests. It shadows PostgreSQL's, so that time passes only by steps.

use time::OffsetDateTime;

use crate::support::DbFixture;

/// Shadows `pg_catalog.now()`. The defaults of columns still are PostgreSQL's time.
const CLOCK: &str = "CREATE TABLE model_clock (at timestamptz NOT NULL);
     INSERT INTO model_clock VALUES ('2099-01-01');
     GRANT SELECT ON model_clock TO recado_tenant;
     CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT at FROM public.model_clock';
     SET search_path = public, pg_catalog";

/// Replaces the clock of the fixture's database, also for its pools.
pub(crate) async fn replace_clock(fixture: &mut DbFixture) {
    fixture.sql(CLOCK).await;
    let name = fixture.text("current_database()").await.unwrap();
    let path = format!("ALTER DATABASE \"{name}\" SET search_path = public, pg_catalog");
    fixture.sql(&path).await;
    // Open connections keep the old path.
    (fixture.tenants, fixture.owner) = (fixture.db.tenant_pool(), fixture.db.owner_pool());
}

pub(crate) async fn set_clock(fixture: &DbFixture, now: OffsetDateTime) {
    fixture.sql(&format!("UPDATE model_clock SET at = '{now}'")).await;
}
