//! Groups counted recipients by country, and reads the rates of these countries.

use std::collections::BTreeMap;

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel_async::AsyncPgConnection;
use recado_domain::costs::{CostFacts, CountryRecipients, country_of, country_of_phone};
use time::OffsetDateTime;

use super::rates::{RatePeriod, rates};
use crate::errors::DbResult;

/// The recipients that share the beginning of their phone number, or the country of their user id.
#[derive(QueryableByName)]
pub(crate) struct CountryRow {
    /// The first characters of the phone number that decide on its country.
    #[diesel(sql_type = Nullable<Text>)]
    prefix: Option<String>,
    /// The first three characters of the user id of a recipient without a phone number, such as `BR.`.
    #[diesel(sql_type = Nullable<Text>)]
    user_country: Option<String>,
    #[diesel(sql_type = BigInt)]
    recipients: i64,
    #[diesel(sql_type = BigInt)]
    in_window: i64,
}

impl CountryRow {
    fn country(&self) -> Option<String> {
        match self.prefix.as_deref() {
            Some(prefix) => country_of_phone(prefix).map(str::to_owned),
            None => country_of(None, self.user_country.as_deref()),
        }
    }
}

/// The facts of an estimate at a time, of recipients that the caller counted.
pub(crate) async fn country_recipients(
    conn: &mut AsyncPgConnection,
    rows: Vec<CountryRow>,
    has_card: bool,
    at: OffsetDateTime,
) -> DbResult<CostFacts> {
    let mut counts: BTreeMap<Option<String>, (i64, i64)> = BTreeMap::new();
    for row in rows {
        let (recipients, in_window) = counts.entry(row.country()).or_default();
        *recipients += row.recipients;
        *in_window += row.in_window;
    }
    let countries = counts.keys().flatten().cloned().collect();
    Ok(CostFacts {
        has_card,
        rates: rates(conn, countries, RatePeriod::at(at)).await?,
        recipients: counts
            .into_iter()
            .map(|(country, (recipients, in_window))| CountryRecipients {
                country,
                recipients,
                in_window,
            })
            .collect(),
    })
}
