//! The rates of rate cards, and the price that a message has by them.

use time::OffsetDateTime;

use crate::messaging::{Pricing, PricingSource};
use crate::shared::{Amount, RateCardId};

/// A row of a rate card, with what orders the cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    pub card: RateCardId,
    pub card_created_at: OffsetDateTime,
    /// Whether an amount was taken from the card before.
    pub card_is_used: bool,
    pub market: String,
    /// The ISO codes of the market's countries.
    pub countries: Vec<String>,
    pub currency: String,
    /// WhatsApp's name of the category.
    pub category: String,
    pub rate: Amount,
    /// The first instant at which the rate applies.
    pub effective_at: OffsetDateTime,
}

/// The rates that may apply to some messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateTable(pub Vec<Rate>);

impl RateTable {
    fn in_force<'a>(&'a self, country: &str, at: OffsetDateTime) -> impl Iterator<Item = &'a Rate> {
        let covers = move |rate: &&Rate| rate.countries.iter().any(|covered| covered == country);
        self.0.iter().filter(covers).filter(move |rate| rate.effective_at <= at)
    }

    /// The rate of a message in a country at a time: of the newest card with a row in force in `currency`. Without
    /// `currency`: of the newest card with a row in force, in its alphabetically first currency.
    pub fn rate(&self, country: &str, category: &str, currency: Option<&str>, at: OffsetDateTime) -> Option<&Rate> {
        let of_category = self.in_force(country, at).filter(|rate| rate.category == category);
        let matching = of_category.filter(|rate| currency.is_none_or(|currency| rate.currency == currency));
        matching.max_by(|a, b| newest(a, b).then(a.effective_at.cmp(&b.effective_at)))
    }

    /// A row that covers a country, of any category: of the newest card in `currency`, else of the newest card.
    fn coverage(&self, country: &str, currency: Option<&str>, at: OffsetDateTime) -> Option<&Rate> {
        let rows = || self.in_force(country, at);
        let preferred = rows().filter(|rate| Some(rate.currency.as_str()) == currency);
        preferred
            .max_by(|a, b| newest(a, b))
            .or_else(|| rows().max_by(|a, b| newest(a, b)))
    }

    /// The market of a country: as the newest card groups it, else the country itself.
    pub fn market(&self, country: &str, at: OffsetDateTime) -> String {
        let covering = self.coverage(country, None, at);
        covering.map_or_else(|| country.to_owned(), |rate| rate.market.clone())
    }

    /// The creation time of the newest card with a row in force in a country.
    pub fn newest_card_at(&self, country: &str, at: OffsetDateTime) -> Option<OffsetDateTime> {
        self.in_force(country, at).map(|rate| rate.card_created_at).max()
    }

    /// Sets what a card knows about a price: the market, and the amount where WhatsApp did not report one. `at` is the
    /// time of the first status update with a price. Returns the row from which the amount was taken.
    pub fn price(
        &self,
        pricing: &mut Pricing,
        country: Option<&str>,
        currency: Option<&str>,
        at: OffsetDateTime,
    ) -> Option<&Rate> {
        let category = pricing.category.as_deref().unwrap_or_default().to_lowercase();
        let rate = country.and_then(|country| {
            let preferred = self.rate(country, &category, currency, at);
            preferred.or_else(|| self.rate(country, &category, None, at))
        });
        let covering = rate.or_else(|| self.coverage(country?, currency, at));
        pricing.market = covering.map(|rate| rate.market.clone());
        if pricing.source == PricingSource::Platform {
            return None;
        }
        pricing.source = PricingSource::None;
        if !pricing.billable {
            pricing.amount = Some(Amount::ZERO);
            pricing.currency = covering.map(|rate| rate.currency.clone());
            return None;
        }
        pricing.amount = rate.map(|rate| rate.rate);
        pricing.currency = rate.map(|rate| rate.currency.clone());
        if rate.is_some() {
            pricing.source = PricingSource::RateCard;
        }
        rate
    }
}

/// Orders rates by their card, then by currency, the first in the alphabet last.
fn newest(a: &Rate, b: &Rate) -> std::cmp::Ordering {
    let card = |rate: &Rate| (rate.card_created_at, rate.card.0);
    card(a).cmp(&card(b)).then_with(|| b.currency.cmp(&a.currency))
}

#[cfg(test)]
pub(crate) mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::*;

    pub(crate) const JANUARY: OffsetDateTime = datetime!(2026-01-01 3:00 UTC);
    const APRIL: OffsetDateTime = datetime!(2026-04-01 3:00 UTC);

    pub(crate) fn rate(card: u8, market: &str, currency: &str, category: &str, amount: &str) -> Rate {
        Rate {
            card: RateCardId(Uuid::from_u128(card.into())),
            card_created_at: datetime!(2026-01-01 0:00 UTC) + time::Duration::days(card.into()),
            card_is_used: false,
            market: market.to_owned(),
            countries: match market {
                "Europe" => vec!["PT".to_owned(), "ES".to_owned()],
                country => vec![country.to_owned()],
            },
            currency: currency.to_owned(),
            category: category.to_owned(),
            rate: Amount::parse(amount).unwrap(),
            effective_at: JANUARY,
        }
    }

    fn pricing(category: &str, billable: bool) -> Pricing {
        Pricing {
            billable,
            model: None,
            kind: None,
            category: Some(category.to_owned()),
            market: None,
            amount: None,
            currency: None,
            source: PricingSource::None,
            priced_at: APRIL,
        }
    }

    fn found(table: &RateTable, country: &str, currency: Option<&str>, at: OffsetDateTime) -> Option<String> {
        let rate = table.rate(country, "marketing", currency, at)?;
        Some(format!("{} {}", rate.rate, rate.currency))
    }

    #[test]
    fn newest_card_with_a_row_in_force_wins_row_by_row() {
        let later = Rate {
            effective_at: APRIL,
            ..rate(2, "BR", "USD", "marketing", "0.07")
        };
        let table = RateTable(vec![
            rate(1, "BR", "USD", "marketing", "0.06"),
            rate(1, "BR", "USD", "utility", "0.01"),
            later,
            rate(2, "Europe", "USD", "marketing", "0.1"),
        ]);
        let at = |at| found(&table, "BR", None, at);
        assert_eq!(at(JANUARY).as_deref(), Some("0.06 USD"));
        assert_eq!(at(APRIL - time::Duration::SECOND).as_deref(), Some("0.06 USD"));
        assert_eq!(at(APRIL).as_deref(), Some("0.07 USD"));
        assert_eq!(at(JANUARY - time::Duration::SECOND), None);
        assert_eq!(found(&table, "PT", None, APRIL).as_deref(), Some("0.1 USD"));
        assert_eq!(table.market("ES", APRIL), "Europe");
        assert_eq!(table.market("FR", APRIL), "FR");
        let utility = table.rate("BR", "utility", None, APRIL).unwrap();
        assert_eq!(utility.rate, Amount::parse("0.01").unwrap());
    }

    #[test]
    fn requested_currency_goes_before_the_alphabet() {
        let table = RateTable(vec![
            rate(1, "BR", "USD", "marketing", "0.06"),
            rate(1, "BR", "BRL", "marketing", "0.3"),
        ]);
        assert_eq!(found(&table, "BR", None, APRIL).as_deref(), Some("0.3 BRL"));
        assert_eq!(found(&table, "BR", Some("USD"), APRIL).as_deref(), Some("0.06 USD"));
        assert_eq!(found(&table, "BR", Some("EUR"), APRIL), None);
    }

    #[test]
    fn price_takes_the_rate_only_where_whatsapp_reports_none() {
        let table = RateTable(vec![rate(1, "BR", "USD", "marketing", "0.06")]);
        let mut by_card = pricing("MARKETING", true);
        assert!(table.price(&mut by_card, Some("BR"), None, APRIL).is_some());
        assert_eq!(by_card.source, PricingSource::RateCard);
        assert_eq!(
            (by_card.amount, by_card.market.as_deref()),
            (Amount::parse("0.06"), Some("BR"))
        );

        let mut reported = Pricing {
            amount: Amount::parse("0.05"),
            currency: Some("EUR".into()),
            source: PricingSource::Platform,
            ..pricing("marketing", true)
        };
        assert!(table.price(&mut reported, Some("BR"), None, APRIL).is_none());
        assert_eq!(
            (reported.amount, reported.currency.as_deref()),
            (Amount::parse("0.05"), Some("EUR"))
        );
        assert_eq!(reported.market.as_deref(), Some("BR"));

        let mut free = pricing("service", false);
        assert!(table.price(&mut free, Some("BR"), None, APRIL).is_none());
        assert_eq!(
            (free.amount, free.currency.as_deref()),
            (Some(Amount::ZERO), Some("USD"))
        );
        assert_eq!(free.source, PricingSource::None);

        let mut unknown = pricing("utility", true);
        assert!(table.price(&mut unknown, Some("BR"), None, APRIL).is_none());
        assert_eq!(
            (unknown.amount, unknown.currency, unknown.source),
            (None, None, PricingSource::None)
        );
        let mut no_country = pricing("marketing", true);
        assert!(table.price(&mut no_country, None, None, APRIL).is_none());
        assert_eq!((no_country.market, no_country.amount), (None, None));
    }
}
