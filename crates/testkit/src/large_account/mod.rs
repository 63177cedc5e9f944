//! A large account: a year of analytics data, written by COPY. Its rollups are rebuilt at the end.
//!
//! Every row is a function of its number, so that each run creates the same data.

mod table;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::services::postgres::connect;
use table::Table;

/// Default number of messages.
pub const MESSAGES: u64 = 10_000_000;

/// Of ten messages, this many belong to campaigns, the others to conversations.
const OF_CAMPAIGNS: u64 = 6;

/// Messages per row of each of these tables.
const MESSAGES_OF_CONTACT: u64 = 50;
const MESSAGES_OF_CAMPAIGN: u64 = 10_000;
/// Minimum number of campaigns, so that a report by campaign is as long for a small account.
const FEWEST_CAMPAIGNS: u64 = 1_000;
const MESSAGES_OF_ORDER: u64 = 50;
const MESSAGES_OF_EVENT: u64 = 10;
const MESSAGES_OF_CART: u64 = 100;
const MESSAGES_OF_EXECUTION: u64 = 100;

const MINUTES_OF_YEAR: u64 = 365 * 24 * 60;
const DAYS: u64 = 365;
const METRICS: u64 = 12;
const PRODUCTS: u64 = 200;
const AUTOMATIONS: u64 = 25;
const LINKS: u64 = 30;

/// An account to fill, and its number of messages.
pub struct LargeAccount<'a> {
    pub database: &'a str,
    pub account: &'a str,
    pub messages: u64,
    /// The server's binary, which rebuilds the rollups.
    pub recado: PathBuf,
}

/// The kind of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Contact,
    Campaign,
    Message,
    Order,
    Event,
    Cart,
    Automation,
    Execution,
    Link,
    Template,
}

impl Kind {
    /// The part of an id that identifies its kind.
    fn mark(self) -> &'static str {
        match self {
            Self::Contact => "0001",
            Self::Campaign => "0002",
            Self::Message => "0004",
            Self::Order => "0005",
            Self::Event => "0006",
            Self::Cart => "0007",
            Self::Automation => "0008",
            Self::Execution => "0009",
            Self::Link => "000a",
            Self::Template => "000b",
        }
    }
}

fn id(kind: Kind, number: u64) -> String {
    format!("0193a6e2-{}-7000-8000-{number:012x}", kind.mark())
}

/// Deterministic pseudo-random number below `below`.
fn scattered(number: u64, below: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)).checked_rem(below).unwrap_or_default()
}

/// The campaign to which an order is attributed: one of the campaigns of the week before it, by its number.
fn attributed_campaign(minutes: u64, number: u64, campaigns: u64) -> u64 {
    let last = MINUTES_OF_YEAR.saturating_sub(minutes) * campaigns / MINUTES_OF_YEAR;
    last.min(campaigns.saturating_sub(1))
        .saturating_sub(scattered(number, campaigns.div_ceil(52)))
}

/// Formats times relative to now for PostgreSQL: Julian day and time.
struct Year {
    now: u64,
}

impl Year {
    fn ago(&self, minutes: u64) -> String {
        let second = self.now.saturating_sub(minutes * 60);
        let (day, rest) = (second / 86_400 + 2_440_588, second % 86_400);
        format!("J{day} {:02}:{:02}:{:02}+00", rest / 3600, rest / 60 % 60, rest % 60)
    }

    /// An id of that time, as sends have: the milliseconds since 1970 come first.
    fn id(&self, minutes: u64, number: u64) -> String {
        let milliseconds = self.now.saturating_sub(minutes * 60) * 1000;
        let (high, low) = (milliseconds >> 16, milliseconds & 0xffff);
        format!("{high:08x}-{low:04x}-8000-8000-{number:012x}")
    }

    /// A deterministic time within the year.
    fn sometime(&self, number: u64) -> String {
        self.ago(scattered(number, MINUTES_OF_YEAR))
    }
}

impl LargeAccount<'_> {
    fn contacts(&self) -> u64 {
        (self.messages / MESSAGES_OF_CONTACT).clamp(100, 200_000)
    }

    fn campaigns(&self) -> u64 {
        (self.messages / MESSAGES_OF_CAMPAIGN).max(FEWEST_CAMPAIGNS)
    }

    /// The number of recipients per campaign.
    fn recipients(&self) -> u64 {
        (self.messages * OF_CAMPAIGNS / 10 / self.campaigns()).min(self.contacts())
    }

    /// Whether an earlier run filled the account.
    pub fn is_filled(&self) -> Result<bool> {
        let query = "SELECT EXISTS (SELECT FROM contacts WHERE account_id = $1::text::uuid)";
        let row = connect(self.database)?.query_one(query, &[&self.account]);
        let row = row.context("cannot read the account")?;
        row.try_get(0).context("cannot read the account")
    }

    /// Fills the account, which must exist and be empty.
    pub fn fill(&self) -> Result<()> {
        let mut client = connect(self.database)?;
        let now = client
            .query_one("SELECT extract(epoch FROM now())::bigint", &[])
            .context("cannot read the clock")?;
        let now: i64 = now.try_get(0).context("cannot read the clock")?;
        let year = Year {
            now: u64::try_from(now).unwrap_or_default(),
        };
        let tables = self.tables(&year);
        for table in &tables {
            table.copy(&mut client)?;
        }
        client
            .batch_execute(&format!(
                "INSERT INTO order_keys (account_id, platform, external_id, order_id)
                   SELECT account_id, platform, external_id, id FROM orders WHERE account_id = '{0}';
                 INSERT INTO metric_event_keys (account_id, id, occurred_at)
                   SELECT account_id, id, occurred_at FROM metric_events WHERE account_id = '{0}'",
                self.account
            ))
            .context("cannot fill the keys")?;
        println!("seed: statistics");
        client.batch_execute("VACUUM ANALYZE").context("cannot vacuum")?;
        println!("seed: sums");
        self.rollups("rebuild")?;
        client.batch_execute("VACUUM ANALYZE").context("cannot vacuum")?;
        println!("seed: verification");
        self.rollups("verify")
    }

    /// Runs a rollup command of the server for the account.
    fn rollups(&self, task: &str) -> Result<()> {
        if !self.recado.is_file() {
            bail!("{} is missing: build it first", self.recado.display());
        }
        let mut command = Command::new(&self.recado);
        command
            .args(["rollups", task, "--account", self.account])
            .env("DATABASE_URL", self.database);
        process::quietly(&mut command, "recado rollups").map(drop)
    }

    fn tables<'y>(&self, year: &'y Year) -> Vec<Table<'y>> {
        let mut tables = self.contact_tables(year);
        tables.extend(self.message_tables(year));
        tables.extend(self.sales_tables(year));
        tables.extend(self.activity_tables(year));
        tables
    }

    fn contact_tables<'y>(&self, year: &'y Year) -> Vec<Table<'y>> {
        let (account, contacts, campaigns) = (self.account.to_owned(), self.contacts(), self.campaigns());
        let recipients = self.recipients();
        let (of_contact, of_campaign) = (account.clone(), account.clone());
        vec![
            Table::new(
                "contacts (account_id, id, name, phone, created_at, updated_at)",
                contacts,
                move |n| {
                    let created_at = year.ago(MINUTES_OF_YEAR * (contacts - n) / contacts);
                    let id = id(Kind::Contact, n);
                    format!(
                        "{of_contact}\t{id}\tCliente {n}\t+55119{:08}\t{created_at}\t{created_at}",
                        10_000_000 + n
                    )
                },
            ),
            Table::new(
                "message_templates (account_id, id, name, category, language, template_type, body_text)",
                1,
                {
                    let account = account.clone();
                    move |n| {
                        format!(
                            "{account}\t{}\tgrande\tMARKETING\tpt_BR\tstandard\tOi {{{{1}}}}",
                            id(Kind::Template, n)
                        )
                    }
                },
            ),
            Table::new(
                "campaigns (account_id, id, name, template_id, status, total_recipients, executed_at, frozen_at, quota_month, created_at)",
                campaigns,
                move |n| {
                    let at = year.ago(MINUTES_OF_YEAR * (campaigns - n) / campaigns);
                    let (id, template) = (id(Kind::Campaign, n), id(Kind::Template, 0));
                    let month = at.split(' ').next().unwrap_or_default().to_owned();
                    format!(
                        "{of_campaign}\t{id}\tOferta {n}\t{template}\tcompleted\t{recipients}\t{at}\t{at}\t{month}\t{at}"
                    )
                },
            ),
            Table::new(
                "conversations (account_id, id, contact_id, status, last_message_at, last_inbound_at)",
                contacts,
                {
                    let account = account.clone();
                    move |n| {
                        let (contact, at) = (id(Kind::Contact, n), year.sometime(n));
                        let status = if n % 3 == 0 { "open" } else { "closed" };
                        format!("{account}\t{contact}\t{contact}\t{status}\t{at}\t{at}")
                    }
                },
            ),
        ]
    }

    fn message_tables<'y>(&self, year: &'y Year) -> Vec<Table<'y>> {
        let (account, contacts, campaigns) = (self.account.to_owned(), self.contacts(), self.campaigns());
        let recipients = self.recipients();
        let sends = recipients * campaigns;
        let from_message = account.clone();
        vec![
            Table::new(
                "campaign_sends (account_id, id, campaign_id, contact_id, status, created_at)",
                sends,
                move |n| {
                    let (campaign, position) = (n / recipients, n % recipients);
                    let minutes = MINUTES_OF_YEAR * (campaigns - campaign) / campaigns;
                    let (at, send) = (year.ago(minutes), year.id(minutes, n));
                    let contact = id(Kind::Contact, (campaign * 7919 + position) % contacts);
                    let status = match scattered(n, 100) {
                        0..60 => "read",
                        60..90 => "delivered",
                        90..97 => "sent",
                        _ => "failed",
                    };
                    let campaign = id(Kind::Campaign, campaign);
                    format!("{account}\t{send}\t{campaign}\t{contact}\t{status}\t{at}")
                },
            ),
            Table::new(
                "messages (account_id, id, conversation_id, direction, type, text, status, created_at, recorded_at)",
                self.messages.saturating_sub(sends),
                move |n| {
                    let (message, contact) = (id(Kind::Message, n), id(Kind::Contact, scattered(n, contacts)));
                    let at = year.sometime(n ^ 0x5555);
                    let (direction, status) = match scattered(n, 10) {
                        0..6 => ("inbound", "received"),
                        6..9 => ("outbound", "read"),
                        _ => ("outbound", "delivered"),
                    };
                    format!(
                        "{from_message}\t{message}\t{contact}\t{direction}\ttext\tMensagem {n}\t{status}\t{at}\t{at}"
                    )
                },
            ),
        ]
    }

    fn sales_tables<'y>(&self, year: &'y Year) -> Vec<Table<'y>> {
        let (contacts, campaigns) = (self.contacts(), self.campaigns());
        let (orders, carts) = (self.messages / MESSAGES_OF_ORDER, self.messages / MESSAGES_OF_CART);
        let account = || self.account.to_owned();
        let (of_link, of_product, of_order, of_item) = (account(), account(), account(), account());
        let (of_cart, of_spend) = (account(), account());
        vec![
            Table::new("links (account_id, id, short_code, original_url)", LINKS, move |n| {
                format!("{of_link}\t{}\tg{n}\thttps://loja.example/{n}", id(Kind::Link, n))
            }),
            Table::new("product_names (account_id, product_id, name)", PRODUCTS, move |n| {
                format!("{of_product}\tp{n}\tProduto {n}")
            }),
            Table::new(
                "orders (account_id, id, platform, external_id, contact_id, status, total, gateway_fee, campaign_id, placed_at,
                   paid_at)",
                orders,
                move |n| {
                    let minutes = scattered(n ^ 0xaaaa, MINUTES_OF_YEAR);
                    let at = year.ago(minutes);
                    let (status, paid) = match scattered(n, 10) {
                        0..7 => ("paid", at.as_str()),
                        7 => ("pending", "\\N"),
                        8 => ("cancelled", "\\N"),
                        _ => ("refunded", at.as_str()),
                    };
                    let (order, contact) = (id(Kind::Order, n), id(Kind::Contact, scattered(n ^ 0x77, contacts)));
                    let origin = if n % 3 == 0 { id(Kind::Campaign, attributed_campaign(minutes, n, campaigns)) } else { "\\N".to_owned() };
                    let platform = if n % 4 == 0 { "outra" } else { "loja" };
                    let total = 10 + scattered(n, 990);
                    format!("{of_order}\t{order}\t{platform}\t{n}\t{contact}\t{status}\t{total}.5\t1.25\t{origin}\t{at}\t{paid}")
                },
            ),
            Table::new(
                "order_items (account_id, order_id, position, product_id, name, quantity, price, cost)",
                orders,
                move |n| {
                    let product = scattered(n, PRODUCTS);
                    let (order, price) = (id(Kind::Order, n), 10 + scattered(n, 990));
                    format!("{of_item}\t{order}\t0\tp{product}\tProduto {product}\t1\t{price}.5\t{}", price / 2)
                },
            ),
            Table::new("carts (account_id, id, platform, external_id, total, status, created_at)", carts, move |n| {
                let (cart, at) = (id(Kind::Cart, n), year.sometime(n ^ 0x3333));
                let status = if n % 3 == 0 { "recovered" } else { "abandoned" };
                format!("{of_cart}\t{cart}\tloja\t{n}\t99.9\t{status}\t{at}")
            }),
            Table::new("ad_spend (account_id, date, source, amount)", DAYS, move |n| {
                let at = year.ago(n * 24 * 60);
                let day = at.split(' ').next().unwrap_or_default();
                format!("{of_spend}\t{day}\tmeta\t{}.75", 50 + scattered(n, 100))
            }),
        ]
    }

    fn activity_tables<'y>(&self, year: &'y Year) -> Vec<Table<'y>> {
        let (contacts, events) = (self.contacts(), self.messages / MESSAGES_OF_EVENT);
        let account = || self.account.to_owned();
        let (of_automation, of_execution, of_metric) = (account(), account(), account());
        let (of_source, of_event, of_click) = (account(), account(), account());
        vec![
            Table::new("automations (account_id, id, name, status)", AUTOMATIONS, move |n| {
                format!("{of_automation}\t{}\tAutomação {n}\tactive", id(Kind::Automation, n))
            }),
            Table::new(
                "automation_executions (account_id, id, automation_id, status, started_at, finished_at)",
                self.messages / MESSAGES_OF_EXECUTION,
                move |n| {
                    let automation = id(Kind::Automation, scattered(n, AUTOMATIONS));
                    let minutes = 1 + scattered(n ^ 0x1111, MINUTES_OF_YEAR);
                    let (began, ended) = (year.ago(minutes), year.ago(minutes - 1));
                    let status = if n % 20 == 0 { "failed" } else { "completed" };
                    format!(
                        "{of_execution}\t{}\t{automation}\t{status}\t{began}\t{ended}",
                        id(Kind::Execution, n)
                    )
                },
            ),
            Table::new("metrics (account_id, metric_name, display_name)", METRICS, move |n| {
                format!("{of_metric}\tmetrica_{n}\tMétrica {n}")
            }),
            Table::new("metric_sources (account_id, metric_name, source)", METRICS, move |n| {
                format!("{of_source}\tmetrica_{n}\tsite")
            }),
            Table::new(
                "metric_events (account_id, id, metric_name, contact_id, value, currency, source, occurred_at)",
                events,
                move |n| {
                    let (event, contact) = (id(Kind::Event, n), id(Kind::Contact, scattered(n ^ 0x99, contacts)));
                    let (metric, at) = (scattered(n, METRICS), year.sometime(n ^ 0x2222));
                    let value = scattered(n, 500);
                    format!("{of_event}\t{event}\tmetrica_{metric}\t{contact}\t{value}.25\tBRL\tsite\t{at}")
                },
            ),
            // Clicks are stored only as rollups.
            Table::new(
                "link_rollups (account_id, bucket_minutes, bucket_start, link_id, clicks)",
                LINKS * DAYS,
                move |n| {
                    let day = n / LINKS;
                    let second = year.now / 900 * 900;
                    let at = Year { now: second }.ago(day * 24 * 60);
                    format!(
                        "{of_click}\t15\t{at}\t{}\t{}",
                        id(Kind::Link, n % LINKS),
                        1 + scattered(n, 50)
                    )
                },
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_times_are_julian_days() {
        let year = Year {
            now: 86_400 * 20_000 + 3_661,
        };
        assert_eq!(year.ago(0), "J2460588 01:01:01+00");
        assert_eq!(year.ago(61), "J2460588 00:00:01+00");
        assert_eq!(year.ago(62), "J2460587 23:59:01+00");
    }

    #[test]
    fn seed_sizes_derive_from_the_number_of_messages() {
        let large = |messages| LargeAccount {
            database: "",
            account: "",
            messages,
            recado: PathBuf::new(),
        };
        let all = large(MESSAGES);
        assert_eq!(
            (all.contacts(), all.campaigns(), all.recipients()),
            (200_000, 1000, 6000)
        );
        let few = large(10_000);
        assert_eq!((few.contacts(), few.campaigns(), few.recipients()), (200, 1_000, 6));
    }

    #[test]
    fn seed_orders_are_attributed_to_recent_campaigns() {
        assert_eq!(attributed_campaign(0, 1, 1), 0);
        for number in 0..1000 {
            let campaign = attributed_campaign(MINUTES_OF_YEAR / 2, number, 1000);
            assert!((480..=500).contains(&campaign), "{campaign}");
        }
        assert_eq!(attributed_campaign(MINUTES_OF_YEAR, 7, 1000), 0);
    }

    #[test]
    fn seed_scattered_numbers_cover_the_range() {
        let mut seen: Vec<u64> = (0..1000).map(|n| scattered(n, 12)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 12);
        assert_eq!(scattered(7, 0), 0);
    }
}
