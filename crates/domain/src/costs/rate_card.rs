//! Rate cards: the prices of messages by market, category and date, as a platform administrator uploads them.

use time::{Date, OffsetDateTime};

use crate::shared::{Amount, FieldErrors, RateCardId, text};

/// The most characters of a card's name.
const NAME_CHARS: usize = 100;

/// A rate card without its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateCard {
    pub id: RateCardId,
    pub name: String,
    /// The number of rows.
    pub rows: i64,
    /// The currencies of the rows, sorted.
    pub currencies: Vec<String>,
    /// The earliest date of the rows.
    pub effective_from: Date,
    pub created_at: OffsetDateTime,
}

/// A row of a rate card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateRow {
    pub market: String,
    /// The ISO codes of the market's countries. Never empty.
    pub countries: Vec<String>,
    /// An ISO 4217 code.
    pub currency: String,
    /// WhatsApp's name of the category, in lower case.
    pub category: String,
    /// The price of one message.
    pub rate: Amount,
    pub effective_from: Date,
    /// The IANA name of the time zone in which `effective_from` begins.
    pub zone: String,
    /// The first instant of `effective_from` in `zone`.
    pub effective_at: OffsetDateTime,
    /// The messages of a number that are free in a month. It is reported, and lowers no amount.
    pub free_per_number_month: Option<i64>,
}

/// A rate card and its rows, not stored yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateCardDraft {
    pub card: RateCard,
    /// In the order of the file.
    pub rows: Vec<RateRow>,
}

/// Builds a card of checked rows. `rows` is not empty.
pub(super) fn rate_card(
    id: RateCardId,
    name: Option<&str>,
    rows: Vec<RateRow>,
    created_at: OffsetDateTime,
) -> Result<RateCardDraft, FieldErrors> {
    let name = text::sanitize(name.unwrap_or_default());
    if name.is_empty() || name.chars().count() > NAME_CHARS {
        return Err(FieldErrors::one("name", "must have 1 to 100 characters"));
    }
    let mut currencies: Vec<String> = rows.iter().map(|row| row.currency.clone()).collect();
    currencies.sort_unstable();
    currencies.dedup();
    let effective_from = rows.iter().map(|row| row.effective_from).min().unwrap_or(Date::MIN);
    Ok(RateCardDraft {
        card: RateCard {
            id,
            name,
            rows: i64::try_from(rows.len()).unwrap_or(i64::MAX),
            currencies,
            effective_from,
            created_at,
        },
        rows,
    })
}
