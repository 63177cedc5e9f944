//! Reads the rates that apply to messages in some countries.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, Bool, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::costs::{Rate, RateTable};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::DbResult;
use crate::ingestion::amount;
use crate::sql::{FlagRow, sql};

#[derive(QueryableByName)]
struct RateRecord {
    #[diesel(sql_type = SqlUuid)]
    card_id: Uuid,
    #[diesel(sql_type = Timestamptz)]
    card_created_at: OffsetDateTime,
    #[diesel(sql_type = Bool)]
    card_is_used: bool,
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
    #[diesel(sql_type = Timestamptz)]
    effective_at: OffsetDateTime,
}

/// Which rates apply to some messages.
#[derive(Clone, Copy)]
pub(crate) struct RatePeriod {
    /// The earliest time of a message.
    pub(crate) from: OffsetDateTime,
    /// The latest one.
    pub(crate) until: OffsetDateTime,
    /// The creation time of the newest card that applies, in whole milliseconds. None: every card applies.
    pub(crate) newest_card_at: Option<OffsetDateTime>,
}

impl RatePeriod {
    /// The rates of one time.
    pub(crate) fn at(time: OffsetDateTime) -> Self {
        Self {
            from: time,
            until: time,
            newest_card_at: None,
        }
    }
}

/// The rates in these countries that apply in the period. Rates that newer cards replace are not returned, so the result
/// does not grow with the number of cards.
pub(crate) async fn rates(
    conn: &mut AsyncPgConnection,
    countries: Vec<String>,
    period: RatePeriod,
) -> DbResult<RateTable> {
    if countries.is_empty() {
        return Ok(RateTable::default());
    }
    let rows: Vec<RateRecord> = sql(include_str!("rates.sql"))
        .bind(countries)
        .bind(period.from)
        .bind(period.until)
        .bind(period.newest_card_at)
        .load(conn)
        .await?;
    let rates = rows.into_iter().map(|row| {
        Ok(Rate {
            card: row.card_id.into(),
            card_created_at: row.card_created_at,
            card_is_used: row.card_is_used,
            market: row.market,
            countries: row.countries,
            currency: row.currency,
            category: row.category,
            rate: amount(&row.rate)?,
            effective_at: row.effective_at,
        })
    });
    Ok(RateTable(rates.collect::<DbResult<_>>()?))
}

/// Whether there is a rate card.
pub(crate) async fn has_card(conn: &mut AsyncPgConnection) -> DbResult<bool> {
    let row: FlagRow = sql("SELECT EXISTS (SELECT 1 FROM rate_cards) AS yes")
        .get_result(conn)
        .await?;
    Ok(row.yes)
}
