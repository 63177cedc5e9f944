//! Memberships with their users. Support memberships belong to platform administrators, not to the team.

use async_trait::async_trait;
use diesel::dsl::not;
use diesel::pg::Pg;
use diesel::prelude::{ExpressionMethods, QueryDsl, QueryableByName};
use diesel::sql_types::{Bool, Nullable, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{AccountId, CursorPage, CursorQuery, GuardOutcome, Role, StoreError, TimeCursor, UserId};
use recado_domain::team::{Member, MemberFacts, MemberStep, MemberStore, MemberWrite};
use time::OffsetDateTime;
use uuid::Uuid;

use super::lock_team;
use crate::errors::{DbResult, parse_enum};
use crate::outbox;
use crate::pool::OwnerPool;
use crate::schema::account_users;
use crate::sql::sql;
use crate::transactions::{in_owner, on_owner};

#[derive(Clone, Debug)]
pub struct PgMembers(OwnerPool);

impl PgMembers {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }
}

#[derive(QueryableByName)]
#[diesel(table_name = account_users, check_for_backend(Pg))]
pub(crate) struct MemberRow {
    user_id: Uuid,
    #[diesel(sql_type = Text)]
    email: String,
    #[diesel(sql_type = Nullable<Text>)]
    name: Option<String>,
    role: String,
    last_active_at: Option<OffsetDateTime>,
    created_at: OffsetDateTime,
}

impl TryFrom<MemberRow> for Member {
    type Error = StoreError;

    fn try_from(row: MemberRow) -> Result<Self, StoreError> {
        Ok(Self {
            user_id: row.user_id.into(),
            email: row.email,
            name: row.name,
            role: parse_enum(&row.role)?,
            last_active_at: row.last_active_at,
            created_at: row.created_at,
        })
    }
}

#[derive(QueryableByName)]
struct FactsRow {
    #[diesel(sql_type = Nullable<Text>)]
    actor: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    target: Option<String>,
    #[diesel(sql_type = Bool)]
    other_owners: bool,
}

async fn facts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    actor: UserId,
    target: UserId,
) -> DbResult<MemberFacts> {
    let row: FactsRow = sql(
        "SELECT max(role) FILTER (WHERE user_id = $2 AND (expires_at IS NULL OR expires_at > now())) AS actor,
           max(role) FILTER (WHERE user_id = $3 AND NOT is_support) AS target,
           coalesce(bool_or(role = 'owner' AND user_id <> $3), false) AS other_owners
         FROM account_users WHERE account_id = $1",
    )
    .bind(account)
    .bind(actor)
    .bind(target)
    .get_result(conn)
    .await?;
    let role = |stored: Option<String>| stored.as_deref().map(parse_enum::<Role>).transpose();
    Ok(MemberFacts {
        actor: role(row.actor)?,
        target: role(row.target)?,
        other_owners: row.other_owners,
    })
}

#[async_trait]
impl MemberStore for PgMembers {
    async fn members(
        &self,
        account: AccountId,
        query: &CursorQuery<TimeCursor>,
    ) -> Result<CursorPage<Member>, StoreError> {
        let statement = sql(
            "SELECT m.user_id, u.email, u.name, m.role, m.last_active_at, m.created_at
             FROM account_users m JOIN users u ON u.id = m.user_id
             WHERE m.account_id = $1 AND NOT m.is_support AND ($2 IS NULL OR (m.created_at, m.user_id) > ($2, $3))
             ORDER BY m.created_at, m.user_id LIMIT $4",
        )
        .bind(account)
        .bind(query.cursor.map(|after| after.at))
        .bind(query.cursor.map(|after| after.id))
        .bind(query.limit.saturating_add(1));
        let rows = self.0.rows::<MemberRow>(statement).await?;
        let members = rows.into_iter().map(Member::try_from).collect::<Result<Vec<_>, _>>()?;
        let to_cursor = |member: &Member| TimeCursor {
            at: member.created_at,
            id: member.user_id.0,
        };
        Ok(CursorPage::cut(members, query.limit, to_cursor))
    }

    async fn member(&self, account: AccountId, user: UserId) -> Result<Option<Member>, StoreError> {
        let statement = sql(
            "SELECT m.user_id, u.email, u.name, m.role, m.last_active_at, m.created_at
             FROM account_users m JOIN users u ON u.id = m.user_id
             WHERE m.account_id = $1 AND m.user_id = $2 AND NOT m.is_support",
        )
        .bind(account)
        .bind(user);
        self.0
            .row_if_any::<MemberRow>(statement)
            .await?
            .map(Member::try_from)
            .transpose()
    }

    async fn facts(&self, account: AccountId, actor: UserId, target: UserId) -> Result<MemberFacts, StoreError> {
        on_owner!(self.0, |conn| facts(conn, account, actor, target))
    }

    async fn write(&self, write: &MemberWrite) -> Result<GuardOutcome, StoreError> {
        in_owner!(self.0, |conn| apply_write(conn, write)).map(GuardOutcome::of)
    }
}

async fn apply_write(conn: &mut AsyncPgConnection, write: &MemberWrite) -> DbResult<bool> {
    lock_team(conn, write.account_id).await?;
    if facts(conn, write.account_id, write.actor, write.target).await? != write.facts {
        return Ok(false);
    }
    let member = account_users::table
        .find((write.account_id.0, write.target.0))
        .filter(not(account_users::is_support));
    let written = match write.step {
        MemberStep::Nothing => return Ok(true),
        MemberStep::SetRole { from, to } => {
            diesel::update(member.filter(account_users::role.eq(from.as_str())))
                .set(account_users::role.eq(to.as_str()))
                .execute(&mut *conn)
                .await?
        }
        MemberStep::Remove { from } => {
            diesel::delete(member.filter(account_users::role.eq(from.as_str())))
                .execute(&mut *conn)
                .await?
        }
    };
    if written == 0 {
        return Ok(false);
    }
    outbox::append(conn, write.account_id, &write.events).await?;
    Ok(true)
}
