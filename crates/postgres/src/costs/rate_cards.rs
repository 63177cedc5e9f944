//! The store of rate cards, which belong to no account: it uses the owner pool.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Date as SqlDate, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::administration::PlatformEntry;
use recado_domain::costs::{CardDeletion, RateCard, RateCardDraft, RateCardStore, RateRow};
use recado_domain::shared::{CursorPage, CursorQuery, RateCardId, StoreError};
use time::{Date, OffsetDateTime};
use uuid::Uuid;

use crate::administration::insert_platform_entry;
use crate::errors::DbResult;
use crate::ingestion::amount;
use crate::pool::OwnerPool;
use crate::sql::{FlagRow, collect_column, sql};
use crate::transactions::in_owner;

/// The rows of a card that one statement inserts.
const INSERT_ROWS: usize = 5000;

#[derive(Clone, Debug)]
pub struct PgRateCards(OwnerPool);

impl PgRateCards {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }
}

const CARD: &str = "SELECT id, name, row_count, currencies, effective_from, created_at FROM rate_cards";

#[derive(QueryableByName)]
struct CardRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = BigInt)]
    row_count: i64,
    #[diesel(sql_type = Array<Text>)]
    currencies: Vec<String>,
    #[diesel(sql_type = SqlDate)]
    effective_from: Date,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
}

impl From<CardRow> for RateCard {
    fn from(row: CardRow) -> Self {
        Self {
            id: row.id.into(),
            name: row.name,
            rows: row.row_count,
            currencies: row.currencies,
            effective_from: row.effective_from,
            created_at: row.created_at,
        }
    }
}

#[derive(QueryableByName)]
struct RowRow {
    #[diesel(sql_type = Text)]
    market: String,
    #[diesel(sql_type = Array<Text>)]
    countries: Vec<String>,
    #[diesel(sql_type = Text)]
    currency: String,
    #[diesel(sql_type = Text)]
    category: String,
    #[diesel(sql_type = Text)]
    rate: String,
    #[diesel(sql_type = SqlDate)]
    effective_from: Date,
    #[diesel(sql_type = Text)]
    zone: String,
    #[diesel(sql_type = Timestamptz)]
    effective_at: OffsetDateTime,
    #[diesel(sql_type = Nullable<BigInt>)]
    free_per_number_month: Option<i64>,
}

fn rate_row(row: RowRow) -> DbResult<RateRow> {
    Ok(RateRow {
        market: row.market,
        countries: row.countries,
        currency: row.currency,
        category: row.category,
        rate: amount(&row.rate)?,
        effective_from: row.effective_from,
        zone: row.zone,
        effective_at: row.effective_at,
        free_per_number_month: row.free_per_number_month,
    })
}

async fn insert(conn: &mut AsyncPgConnection, draft: &RateCardDraft, entry: &PlatformEntry) -> DbResult<()> {
    let card = &draft.card;
    sql(
        "INSERT INTO rate_cards (id, name, row_count, currencies, effective_from, created_at)
         VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(card.id)
    .bind(card.name.as_str())
    .bind(card.rows)
    .bind(card.currencies.clone())
    .bind(card.effective_from)
    .bind(card.created_at)
    .execute(&mut *conn)
    .await?;
    for (chunk_no, rows) in draft.rows.chunks(INSERT_ROWS).enumerate() {
        insert_rows(conn, card.id, chunk_no * INSERT_ROWS, rows).await?;
    }
    insert_platform_entry(conn, entry).await
}

async fn insert_rows(conn: &mut AsyncPgConnection, card: RateCardId, first: usize, rows: &[RateRow]) -> DbResult<()> {
    sql("INSERT INTO rate_card_rows (card_id, row_no, market, countries, currency, category, rate, effective_from, zone,
           effective_at, free_per_number_month)
         SELECT $1, $2 + r.position, r.market, string_to_array(r.countries, ';'), r.currency, r.category,
           r.rate::numeric, r.effective_from, r.zone, r.effective_at, r.free_per_number_month
         FROM unnest($3, $4, $5, $6, $7, $8, $9, $10, $11) WITH ORDINALITY
           AS r (market, countries, currency, category, rate, effective_from, zone, effective_at,
             free_per_number_month, position)")
    .bind(card)
    .bind(i32::try_from(first).unwrap_or(i32::MAX))
    .bind(collect_column(rows, |row| row.market.clone()))
    .bind(collect_column(rows, |row| row.countries.join(";")))
    .bind(collect_column(rows, |row| row.currency.clone()))
    .bind(collect_column(rows, |row| row.category.clone()))
    .bind(collect_column(rows, |row| row.rate))
    .bind(collect_column(rows, |row| row.effective_from))
    .bind(collect_column(rows, |row| row.zone.clone()))
    .bind(collect_column(rows, |row| row.effective_at))
    .bind(collect_column(rows, |row| row.free_per_number_month))
    .execute(conn)
    .await?;
    Ok(())
}

async fn rows_of(conn: &mut AsyncPgConnection, id: RateCardId) -> DbResult<Option<Vec<RateRow>>> {
    let rows: Vec<RowRow> = sql(
        "SELECT market, countries, currency, category, rate::text AS rate, effective_from, zone, effective_at,
           free_per_number_month
         FROM rate_card_rows WHERE card_id = $1 ORDER BY row_no",
    )
    .bind(id)
    .load(conn)
    .await?;
    // A card has at least one row.
    if rows.is_empty() {
        return Ok(None);
    }
    rows.into_iter().map(rate_row).collect::<DbResult<_>>().map(Some)
}

/// The row lock waits for a transaction that marks the card as used.
async fn delete(conn: &mut AsyncPgConnection, id: RateCardId, entry: &PlatformEntry) -> DbResult<CardDeletion> {
    let used: Option<FlagRow> = sql("SELECT used_at IS NOT NULL AS yes FROM rate_cards WHERE id = $1 FOR UPDATE")
        .bind(id)
        .get_result(&mut *conn)
        .await
        .optional()?;
    match used {
        None => return Ok(CardDeletion::Missing),
        Some(FlagRow { yes: true }) => return Ok(CardDeletion::InUse),
        Some(_) => {}
    }
    sql("DELETE FROM rate_cards WHERE id = $1")
        .bind(id)
        .execute(&mut *conn)
        .await?;
    insert_platform_entry(conn, entry).await?;
    Ok(CardDeletion::Done)
}

#[async_trait]
impl RateCardStore for PgRateCards {
    async fn insert(&self, draft: &RateCardDraft, entry: PlatformEntry) -> Result<(), StoreError> {
        in_owner!(self.0, |conn| insert(conn, draft, &entry))
    }

    async fn list(&self, query: &CursorQuery) -> Result<CursorPage<RateCard>, StoreError> {
        let listed = sql(format!("{CARD} WHERE id < $1 ORDER BY id DESC LIMIT $2"))
            .bind(query.cursor.unwrap_or(Uuid::max()))
            .bind(query.limit + 1);
        let rows: Vec<CardRow> = self.0.rows(listed).await?;
        let cards = rows.into_iter().map(RateCard::from).collect();
        Ok(CursorPage::cut(cards, query.limit, |card: &RateCard| card.id))
    }

    async fn find(&self, id: RateCardId) -> Result<Option<RateCard>, StoreError> {
        let row: Option<CardRow> = self.0.row_if_any(sql(format!("{CARD} WHERE id = $1")).bind(id)).await?;
        Ok(row.map(Into::into))
    }

    async fn rows(&self, id: RateCardId) -> Result<Option<Vec<RateRow>>, StoreError> {
        in_owner!(self.0, |conn| rows_of(conn, id))
    }

    async fn delete(&self, id: RateCardId, entry: PlatformEntry) -> Result<CardDeletion, StoreError> {
        in_owner!(self.0, |conn| delete(conn, id, &entry))
    }
}
