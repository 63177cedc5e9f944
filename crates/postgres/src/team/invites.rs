//! Invites, and the directory that maps token hashes to invites.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::dsl::{self, exists, not};
use diesel::pg::Pg;
use diesel::prelude::{ExpressionMethods, QueryDsl, Queryable, QueryableByName, Selectable, SelectableHelper};
use diesel::sql_types::{Bool, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{
    AccountId, CursorPage, CursorQuery, GuardOutcome, InviteId, StoreError, UserId, WriteOutcome,
};
use recado_domain::team::{
    Acceptance, InvitationFacts, Invite, InviteInsert, InviteOutcome, InviteStatus, InviteStore, PresentedInvite,
};
use time::OffsetDateTime;
use uuid::Uuid;

use super::lock_team;
use crate::errors::{DbResult, parse_enum};
use crate::pool::OwnerPool;
use crate::schema::{account_users, invite_tokens, team_invites};
use crate::sql::{FlagRow, sql};
use crate::transactions::in_owner;
use crate::{mail_recipients, outbox};

#[derive(Clone, Debug)]
pub struct PgInvites(OwnerPool);

impl PgInvites {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }
}

#[derive(Queryable, Selectable, QueryableByName)]
#[diesel(table_name = team_invites, check_for_backend(Pg))]
struct InviteRow {
    id: Uuid,
    email: String,
    role: String,
    status: String,
    expires_at: OffsetDateTime,
    created_at: OffsetDateTime,
}

impl TryFrom<InviteRow> for Invite {
    type Error = StoreError;

    fn try_from(row: InviteRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.into(),
            email: row.email,
            role: parse_enum(&row.role)?,
            status: parse_enum(&row.status)?,
            expires_at: row.expires_at,
            created_at: row.created_at,
        })
    }
}

#[derive(QueryableByName)]
struct FactsRow {
    #[diesel(sql_type = Timestamptz)]
    now: OffsetDateTime,
    #[diesel(sql_type = Text)]
    account: String,
    #[diesel(sql_type = Text)]
    inviter: String,
}

#[derive(QueryableByName)]
#[diesel(table_name = team_invites, check_for_backend(Pg))]
struct PresentedRow {
    #[diesel(embed)]
    invite: InviteRow,
    account_id: Uuid,
    #[diesel(sql_type = Text)]
    account: String,
    invited_by: Uuid,
    #[diesel(sql_type = Nullable<Text>)]
    inviter_email: Option<String>,
    #[diesel(sql_type = Timestamptz)]
    now: OffsetDateTime,
    #[diesel(sql_type = Bool)]
    is_member: bool,
}

impl TryFrom<PresentedRow> for PresentedInvite {
    type Error = StoreError;

    fn try_from(row: PresentedRow) -> Result<Self, StoreError> {
        Ok(Self {
            account_id: row.account_id.into(),
            account: row.account,
            invite: row.invite.try_into()?,
            invited_by: row.invited_by.into(),
            inviter_email: row.inviter_email,
            now: row.now,
            is_member: row.is_member,
        })
    }
}

#[async_trait]
impl InviteStore for PgInvites {
    async fn invites(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<Invite>, StoreError> {
        let statement = team_invites::table
            .filter(team_invites::account_id.eq(account.0))
            .filter(team_invites::id.lt(query.cursor.unwrap_or(Uuid::max())))
            .order(team_invites::id.desc())
            .limit(query.limit.saturating_add(1))
            .select(InviteRow::as_select());
        let rows = self.0.rows::<InviteRow>(statement).await?;
        let invites = rows.into_iter().map(Invite::try_from).collect::<Result<Vec<_>, _>>()?;
        Ok(CursorPage::cut(invites, query.limit, |invite| invite.id))
    }

    async fn invite(&self, account: AccountId, id: InviteId) -> Result<Option<Invite>, StoreError> {
        let statement = team_invites::table
            .find((account.0, id.0))
            .select(InviteRow::as_select());
        self.0
            .row_if_any::<InviteRow>(statement)
            .await?
            .map(Invite::try_from)
            .transpose()
    }

    async fn facts(&self, account: AccountId, actor: UserId) -> Result<InvitationFacts, StoreError> {
        let statement = sql("SELECT now() AS now, a.name AS account,
               coalesce(CASE WHEN u.name_is_verified THEN nullif(u.name, '') END, u.email) AS inviter
             FROM accounts a JOIN users u ON u.id = $2 WHERE a.id = $1")
        .bind(account)
        .bind(actor);
        let row = self.0.row::<FactsRow>(statement).await?;
        Ok(InvitationFacts {
            now: row.now,
            account: row.account,
            inviter: row.inviter,
        })
    }

    async fn insert(&self, invite: &InviteInsert, at_most: i64) -> Result<InviteOutcome, StoreError> {
        in_owner!(self.0, |conn| insert_limited(conn, invite, at_most))
    }

    async fn set_status(
        &self,
        account: AccountId,
        id: InviteId,
        from: InviteStatus,
        to: InviteStatus,
    ) -> Result<WriteOutcome<InviteStatus>, StoreError> {
        in_owner!(self.0, |conn| set_status(conn, account, id, from, to))
    }

    async fn presented(&self, token_hash: &[u8], user: UserId) -> Result<Option<PresentedInvite>, StoreError> {
        let statement = sql(
            "SELECT i.id, i.email, i.role, i.status, i.expires_at, i.created_at, i.account_id, a.name AS account,
               i.invited_by, b.email AS inviter_email, now() AS now,
               EXISTS (SELECT FROM account_users m
                 WHERE m.account_id = i.account_id AND m.user_id = $2 AND NOT m.is_support) AS is_member
             FROM invite_tokens t
             JOIN team_invites i ON i.account_id = t.account_id AND i.id = t.invite_id
             JOIN accounts a ON a.id = t.account_id
             LEFT JOIN users b ON b.id = i.invited_by
             WHERE t.token_hash = $1",
        )
        .bind(token_hash)
        .bind(user);
        self.0
            .row_if_any::<PresentedRow>(statement)
            .await?
            .map(PresentedInvite::try_from)
            .transpose()
    }

    async fn expire(
        &self,
        account: AccountId,
        id: InviteId,
        from: InviteStatus,
        to: InviteStatus,
    ) -> Result<GuardOutcome, StoreError> {
        in_owner!(self.0, |conn| expire(conn, account, id, from, to)).map(GuardOutcome::of)
    }

    async fn accept(&self, acceptance: &Acceptance) -> Result<GuardOutcome, StoreError> {
        // The transaction rolls back on false: `accept` may have updated the invite before it found that the user is a
        // member.
        in_owner!(self.0, |conn| accept(conn, acceptance), unless false).map(GuardOutcome::of)
    }
}

async fn insert_limited(conn: &mut AsyncPgConnection, invite: &InviteInsert, at_most: i64) -> DbResult<InviteOutcome> {
    let account = invite.account_id;
    lock_team(conn, account).await?;
    // A pending invite to the same address is superseded, so it does not count.
    let is_full: FlagRow = sql("SELECT count(*) >= $4 AS yes FROM team_invites
         WHERE account_id = $1 AND status = $3 AND expires_at > now() AND lower(email) <> lower($2)")
    .bind(account)
    .bind(invite.invite.email.as_str())
    .bind(InviteStatus::Pending.as_str())
    .bind(at_most)
    .get_result(&mut *conn)
    .await?;
    if is_full.yes {
        return Ok(InviteOutcome::Full);
    }
    let mailed = insert(conn, invite).await?;
    Ok(InviteOutcome::Done { mailed })
}

/// Returns whether a mail was queued.
pub(crate) async fn insert(conn: &mut AsyncPgConnection, insert: &InviteInsert) -> DbResult<bool> {
    let (account, invite) = (insert.account_id, &insert.invite);
    lock_team(conn, account).await?;
    let (from, to) = insert.superseded;
    sql("WITH superseded AS (
           UPDATE team_invites SET status = $4, updated_at = now()
           WHERE account_id = $1 AND lower(email) = lower($2) AND status = $3 RETURNING id)
         DELETE FROM invite_tokens t USING superseded s WHERE t.account_id = $1 AND t.invite_id = s.id")
    .bind(account)
    .bind(invite.email.as_str())
    .bind(from.as_str())
    .bind(to.as_str())
    .execute(&mut *conn)
    .await?;
    diesel::insert_into(team_invites::table)
        .values((
            team_invites::account_id.eq(account.0),
            team_invites::id.eq(invite.id.0),
            team_invites::email.eq(&invite.email),
            team_invites::role.eq(invite.role.as_str()),
            team_invites::status.eq(invite.status.as_str()),
            team_invites::invited_by.eq(insert.invited_by.0),
            team_invites::expires_at.eq(invite.expires_at),
            team_invites::created_at.eq(invite.created_at),
            team_invites::updated_at.eq(invite.created_at),
        ))
        .execute(&mut *conn)
        .await?;
    diesel::insert_into(invite_tokens::table)
        .values((
            invite_tokens::token_hash.eq(&insert.token_hash),
            invite_tokens::account_id.eq(account.0),
            invite_tokens::invite_id.eq(invite.id.0),
        ))
        .execute(&mut *conn)
        .await?;
    match &insert.mail {
        Some(mail) => mail_recipients::append_limited(conn, account, &insert.recipient, mail).await,
        None => Ok(false),
    }
}

/// How inserting the invite of a first owner ended.
pub(crate) enum FirstOwnerOutcome {
    Done {
        mailed: bool,
    },
    /// The account has an owner.
    Owned,
    /// The user is already a member.
    Member,
}

/// Inserts the invite of an account's first owner and supersedes other owner invites. The team lock serializes it with
/// other changes of the team.
pub(crate) async fn insert_first_owner(
    conn: &mut AsyncPgConnection,
    insert: &InviteInsert,
) -> DbResult<FirstOwnerOutcome> {
    let account = insert.account_id;
    lock_team(conn, account).await?;
    let owners = account_users::table
        .filter(account_users::account_id.eq(account.0))
        .filter(account_users::role.eq("owner"))
        .filter(not(account_users::is_support));
    if diesel::select(exists(owners)).get_result(&mut *conn).await? {
        return Ok(FirstOwnerOutcome::Owned);
    }
    let is_member: FlagRow = sql(
        "SELECT EXISTS (SELECT FROM account_users m JOIN users p ON p.id = m.user_id
           WHERE m.account_id = $1 AND NOT m.is_support AND lower(trim(p.email)) = lower($2)) AS yes",
    )
    .bind(account)
    .bind(insert.invite.email.as_str())
    .get_result(&mut *conn)
    .await?;
    if is_member.yes {
        return Ok(FirstOwnerOutcome::Member);
    }
    let (from, to) = insert.superseded;
    sql("WITH superseded AS (
           UPDATE team_invites SET status = $3, updated_at = now()
           WHERE account_id = $1 AND role = 'owner' AND status = $2 RETURNING id)
         DELETE FROM invite_tokens t USING superseded s WHERE t.account_id = $1 AND t.invite_id = s.id")
    .bind(account)
    .bind(from.as_str())
    .bind(to.as_str())
    .execute(&mut *conn)
    .await?;
    let mailed = self::insert(conn, insert).await?;
    Ok(FirstOwnerOutcome::Done { mailed })
}

async fn set_status(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: InviteId,
    from: InviteStatus,
    to: InviteStatus,
) -> DbResult<WriteOutcome<InviteStatus>> {
    let invite = team_invites::table.find((account.0, id.0));
    let updated = diesel::update(invite)
        .filter(team_invites::status.eq(from.as_str()))
        .set((
            team_invites::status.eq(to.as_str()),
            team_invites::updated_at.eq(dsl::now),
        ))
        .execute(&mut *conn)
        .await?;
    if updated > 0 {
        delete_token(conn, account, id).await?;
        return Ok(WriteOutcome::Done);
    }
    let status = invite.select(team_invites::status);
    let stored: Option<String> = status.get_result(conn).await.optional()?;
    Ok(match stored {
        Some(stored) => WriteOutcome::Stale(parse_enum(&stored)?),
        None => WriteOutcome::Missing,
    })
}

async fn expire(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: InviteId,
    from: InviteStatus,
    to: InviteStatus,
) -> DbResult<bool> {
    let expired = diesel::update(team_invites::table.find((account.0, id.0)))
        .filter(team_invites::status.eq(from.as_str()))
        .filter(team_invites::expires_at.le(dsl::now))
        .set((
            team_invites::status.eq(to.as_str()),
            team_invites::updated_at.eq(dsl::now),
        ))
        .execute(&mut *conn)
        .await?;
    if expired > 0 {
        delete_token(conn, account, id).await?;
    }
    Ok(expired > 0)
}

/// Accepts an invite under the team lock: of concurrent calls the first one succeeds and the others find another
/// status. A concurrent new invite to the same address waits and then finds a member. A support membership becomes a
/// regular one.
async fn accept(conn: &mut AsyncPgConnection, acceptance: &Acceptance) -> DbResult<bool> {
    let (account, (from, to)) = (acceptance.account_id, acceptance.status);
    lock_team(conn, account).await?;
    let accepted = diesel::update(team_invites::table.find((account.0, acceptance.invite.0)))
        .filter(team_invites::status.eq(from.as_str()))
        .filter(team_invites::expires_at.gt(dsl::now))
        .set((
            team_invites::status.eq(to.as_str()),
            team_invites::updated_at.eq(dsl::now),
        ))
        .execute(&mut *conn)
        .await?;
    if accepted == 0 {
        return Ok(false);
    }
    let joined = sql(
        "INSERT INTO account_users (account_id, user_id, role) VALUES ($1, $2, $3)
         ON CONFLICT ON CONSTRAINT account_users_pkey DO UPDATE
           SET role = excluded.role, is_support = false, expires_at = NULL, created_at = excluded.created_at
           WHERE account_users.is_support",
    )
    .bind(account)
    .bind(acceptance.user)
    .bind(acceptance.role.as_str())
    .execute(&mut *conn)
    .await?;
    if joined == 0 {
        return Ok(false);
    }
    delete_token(conn, account, acceptance.invite).await?;
    outbox::append(conn, account, &acceptance.events).await?;
    Ok(true)
}

async fn delete_token(conn: &mut AsyncPgConnection, account: AccountId, invite: InviteId) -> DbResult<()> {
    diesel::delete(invite_tokens::table)
        .filter(invite_tokens::account_id.eq(account.0))
        .filter(invite_tokens::invite_id.eq(invite.0))
        .execute(conn)
        .await?;
    Ok(())
}
