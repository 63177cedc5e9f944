//! Sets what rate cards know about the prices of locked messages.

use std::collections::{BTreeMap, BTreeSet};

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Nullable, Text, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::costs::{RateTable, country_of};
use recado_domain::messaging::{PriceChange, StatusPricing};
use recado_domain::shared::AccountId;
use time::OffsetDateTime;
use uuid::Uuid;

use super::rates::{RatePeriod, rates};
use crate::errors::DbResult;
use crate::sql::{NumberRow, key_rows, sql};

/// A locked message whose price may have changed.
pub(crate) trait Priced {
    /// What changed in the price.
    fn price_change(&self) -> PriceChange;

    fn contact(&self) -> Uuid;

    fn price(&self) -> Option<&StatusPricing>;

    /// The price, and the currency of the campaign's budget.
    fn price_mut(&mut self) -> Option<(&mut StatusPricing, Option<&str>)>;
}

#[derive(QueryableByName)]
struct AddressRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Nullable<Text>)]
    phone: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    wa_user_id: Option<String>,
}

/// Which cards may set the rate of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cards {
    All,
    /// Those up to this creation time: the price has a rate of them already, and only its time changed.
    Until(OffsetDateTime),
}

/// The cards that may set the rate of a message. None: its rate stays. A price to which no card applied gets no rate
/// only because an earlier status update arrived late.
fn cards<M: Priced>(message: &M) -> Option<Cards> {
    match message.price_change() {
        PriceChange::Price => Some(Cards::All),
        PriceChange::RateTime => message.price()?.newest_card_at.map(Cards::Until),
        PriceChange::Nothing | PriceChange::Times => None,
    }
}

/// Sets market and amount of the prices that changed. Without such a price it executes nothing, and without a rate card
/// one index probe.
pub(crate) async fn set_rates<M: Priced>(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    messages: &mut [M],
) -> DbResult<()> {
    let rated = messages.iter().filter(|message| cards(*message).is_some());
    let contacts: BTreeSet<Uuid> = rated.map(Priced::contact).collect();
    if contacts.is_empty() {
        return Ok(());
    }
    let countries = countries(conn, account, contacts).await?;
    let Some(countries) = countries else { return Ok(()) };
    let mut groups: Vec<Cards> = Vec::new();
    for group in messages.iter().filter_map(cards) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    for group in groups {
        let mut rated: Vec<&mut M> = messages
            .iter_mut()
            .filter(|message| cards(&**message) == Some(group))
            .collect();
        set_rates_of(conn, &countries, &mut rated, group).await?;
    }
    Ok(())
}

/// Sets the rates of messages to which the same cards apply.
async fn set_rates_of<M: Priced>(
    conn: &mut AsyncPgConnection,
    countries: &BTreeMap<Uuid, String>,
    messages: &mut [&mut M],
    cards: Cards,
) -> DbResult<()> {
    let distinct: BTreeSet<&String> = messages
        .iter()
        .filter_map(|message| countries.get(&message.contact()))
        .collect();
    let distinct: Vec<String> = distinct.into_iter().cloned().collect();
    let times = || {
        messages
            .iter()
            .filter_map(|message| message.price())
            .map(StatusPricing::rate_time)
    };
    let (Some(from), Some(until)) = (times().min(), times().max()) else {
        return Ok(());
    };
    let newest_card_at = match cards {
        Cards::All => None,
        Cards::Until(at) => Some(at),
    };
    let period = RatePeriod {
        from,
        until,
        newest_card_at,
    };
    loop {
        let table = rates(conn, distinct.clone(), period).await?;
        let unused = price(&table, countries, messages);
        // A card may have been deleted after it was read.
        if mark_used(conn, unused).await? {
            return Ok(());
        }
    }
}

/// Prices the messages, and returns the cards from which an amount was taken for the first time.
fn price<M: Priced>(table: &RateTable, countries: &BTreeMap<Uuid, String>, messages: &mut [&mut M]) -> BTreeSet<Uuid> {
    let mut unused = BTreeSet::new();
    for message in messages.iter_mut() {
        let country = countries.get(&message.contact()).map(String::as_str);
        let is_new = message.price_change() == PriceChange::Price;
        let Some((price, currency)) = message.price_mut() else {
            continue;
        };
        let at = price.rate_time();
        let rate = table.price(&mut price.pricing, country, currency, at);
        unused.extend(rate.filter(|rate| !rate.card_is_used).map(|rate| rate.card.0));
        if is_new {
            price.newest_card_at = country.and_then(|country| table.newest_card_at(country, at));
        }
    }
    unused
}

/// The countries of contacts. None: there is no rate card.
async fn countries(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    contacts: BTreeSet<Uuid>,
) -> DbResult<Option<BTreeMap<Uuid, String>>> {
    let rows: Vec<AddressRow> = sql(format!(
        "SELECT c.id, c.phone, c.wa_user_id FROM {keys} k JOIN contacts c ON c.account_id = $1 AND c.id = k.id
         WHERE EXISTS (SELECT 1 FROM rate_cards)",
        keys = key_rows("$2", "id"),
    ))
    .bind(account)
    .bind(contacts.into_iter().collect::<Vec<_>>())
    .load(conn)
    .await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let known = rows
        .into_iter()
        .filter_map(|row| Some((row.id, country_of(row.phone.as_deref(), row.wa_user_id.as_deref())?)));
    Ok(Some(known.collect()))
}

/// Marks cards as used: they can no longer be deleted. Returns false if one of them was deleted.
async fn mark_used(conn: &mut AsyncPgConnection, cards: BTreeSet<Uuid>) -> DbResult<bool> {
    if cards.is_empty() {
        return Ok(true);
    }
    let ids: Vec<Uuid> = cards.iter().copied().collect();
    sql("UPDATE rate_cards SET used_at = now() WHERE id = ANY ($1) AND used_at IS NULL")
        .bind(ids.clone())
        .execute(&mut *conn)
        .await?;
    let left: NumberRow = sql("SELECT count(*) AS n FROM rate_cards WHERE id = ANY ($1)")
        .bind(ids)
        .get_result(conn)
        .await?;
    Ok(usize::try_from(left.n).is_ok_and(|left| left == cards.len()))
}
