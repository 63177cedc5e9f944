//! What `recado doctor` reads from the database: the clock, the tenant role, row-level security, and whether WhatsApp
//! called. It changes nothing.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, Bool, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use recado_domain::messaging::ProfileKey;
use recado_domain::shared::{AccountId, StoreError};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::pool::{OwnerPool, TenantPool};
use crate::sql::{FlagRow, TextRow, sql};
use crate::transactions::in_tenant;

/// The role of a tenant transaction. `inherited` are roles that it may become and that row-level security does not
/// bind: superusers, roles with BYPASSRLS and owners of tables.
const TENANT_ROLE: &str = "WITH tables AS (
       SELECT oid, relowner FROM pg_class
       WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm'))
     SELECT r.rolname::text AS name, r.rolsuper AS superuser, r.rolbypassrls AS bypasses_row_security,
       ARRAY(SELECT t.oid::regclass::text FROM tables t WHERE t.relowner = r.oid ORDER BY 1 LIMIT 10) AS owned_tables,
       ARRAY(SELECT o.rolname::text FROM pg_roles o
         WHERE o.oid <> r.oid AND NOT r.rolsuper AND pg_has_role(r.oid, o.oid, 'MEMBER')
           AND (o.rolsuper OR o.rolbypassrls OR EXISTS (SELECT FROM tables t WHERE t.relowner = o.oid))
         ORDER BY 1 LIMIT 10) AS inherited
     FROM pg_roles r WHERE r.rolname = current_user";

/// Tables and views that a tenant transaction may use without row-level security, or whose rows no policy selects. A
/// tenant role that may become the owner may use all tables; [`TENANT_ROLE`] reports that.
const UNPROTECTED: &str = "SELECT c.relname::text AS text FROM pg_class c
       JOIN pg_roles t ON t.rolname = 'recado_tenant'
     WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
       AND CASE WHEN c.relrowsecurity THEN NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid)
         ELSE (t.oid = c.relowner OR NOT pg_has_role(t.oid, c.relowner, 'MEMBER'))
           AND has_table_privilege(t.oid, c.oid, 'SELECT, UPDATE, DELETE, TRUNCATE')
           AND NOT (c.relkind = 'v' AND 'security_invoker=true' = ANY (coalesce(c.reloptions, '{}'))) END
     ORDER BY 1 LIMIT 20";

/// Whether a callback was stored, an inbound message was received, or a reply or a campaign message was delivered.
/// Every part reads by an index with the account and the time.
const CALLBACK_WITHIN_A_DAY: &str = "SELECT
       EXISTS (SELECT FROM whatsapp_callbacks WHERE received_at > now() - interval '24 hours')
       OR EXISTS (SELECT FROM accounts a JOIN message_rollups m ON m.account_id = a.id
         WHERE m.bucket_minutes = 15 AND m.bucket_start > now() - interval '24 hours'
           AND m.received + m.delivered + m.read > 0)
       OR EXISTS (SELECT FROM accounts a JOIN campaign_counter_slots c ON c.account_id = a.id
         WHERE c.created_at > now() - interval '24 hours' AND c.delivered + c.read > 0) AS yes";

/// The role under which tenant statements run.
#[derive(Clone, Debug, PartialEq, Eq, QueryableByName)]
pub struct TenantRole {
    #[diesel(sql_type = Text)]
    pub name: String,
    #[diesel(sql_type = Bool)]
    pub superuser: bool,
    #[diesel(sql_type = Bool)]
    pub bypasses_row_security: bool,
    /// Tables that the role owns, at most ten.
    #[diesel(sql_type = Array<Text>)]
    pub owned_tables: Vec<String>,
    /// Roles of which it is a member and that row-level security does not bind, at most ten.
    #[diesel(sql_type = Array<Text>)]
    pub inherited: Vec<String>,
}

#[derive(QueryableByName)]
struct ProfileRow {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
}

#[derive(QueryableByName)]
struct TimeRow {
    #[diesel(sql_type = Timestamptz)]
    time: OffsetDateTime,
}

#[derive(Clone, Debug)]
pub struct PgDiagnostics(OwnerPool);

impl PgDiagnostics {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }

    /// The clock of the database.
    pub async fn time(&self) -> Result<OffsetDateTime, StoreError> {
        let query = sql("SELECT clock_timestamp() AS time");
        Ok(self.0.row::<TimeRow>(query).await?.time)
    }

    /// Names of tables that row-level security does not protect, at most twenty.
    pub async fn unprotected_tables(&self) -> Result<Vec<String>, StoreError> {
        let rows = self.0.rows::<TextRow>(sql(UNPROTECTED)).await?;
        Ok(rows.into_iter().map(|row| row.text).collect())
    }

    /// Whether a callback of WhatsApp was received within the last 24 hours, as far as the database still shows it.
    pub async fn has_recent_callback(&self) -> Result<bool, StoreError> {
        Ok(self.0.row::<FlagRow>(sql(CALLBACK_WITHIN_A_DAY)).await?.yes)
    }

    /// The profiles of an account, or of all active accounts: at most `limit`, oldest first.
    pub async fn profiles(&self, account: Option<AccountId>, limit: i64) -> Result<Vec<ProfileKey>, StoreError> {
        let query = sql(
            "SELECT p.account_id, p.id FROM whatsapp_profiles p JOIN accounts a ON a.id = p.account_id
             WHERE a.status = 'active' AND ($1 IS NULL OR p.account_id = $1)
             ORDER BY p.created_at, p.account_id, p.id LIMIT $2",
        )
        .bind(account.map(|account| account.0))
        .bind(limit);
        let rows = self.0.rows::<ProfileRow>(query).await?;
        let keys = rows.into_iter().map(|row| ProfileKey {
            account_id: row.account_id.into(),
            profile_id: row.id.into(),
        });
        Ok(keys.collect())
    }

    /// The status of an account. None: there is no such account.
    pub async fn account_status(&self, account: AccountId) -> Result<Option<String>, StoreError> {
        let query = sql("SELECT status AS text FROM accounts WHERE id = $1").bind(account);
        let row = self.0.row_if_any::<TextRow>(query).await?;
        Ok(row.map(|row| row.text))
    }
}

/// The role of a transaction of this pool.
pub async fn tenant_role(pool: &TenantPool) -> Result<TenantRole, StoreError> {
    // No account has this id: the transaction sees no row of a tenant.
    let no_account = AccountId(Uuid::nil());
    let query = || sql(TENANT_ROLE);
    in_tenant!(pool, no_account, |conn| query().get_result::<TenantRole>(conn))
}
