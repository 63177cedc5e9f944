//! Direct messages of random accounts whose settings hold messages, beside campaigns that write to the same contacts.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use time::macros::{datetime, time};
use time::{Duration, OffsetDateTime, Time};
use uuid::Uuid;

use super::*;
use crate::direct_messages::in_memory::{InMemoryMessage, MessageTables};
use crate::holds::{HoldCause, HoldPolicy, contact_zone, held_too_long, shows_quiet};
use crate::messaging::Category;
use crate::settings::{AccountSettings, HeldCategory, MarketingCap, QuietHours, QuietZone};
use crate::shared::{ContactId, MessageId};

const ACCOUNT: AccountId = AccountId(Uuid::from_u128(9));
const WORKER: Uuid = Uuid::from_u128(7);

/// Contacts in countries whose clocks change on different days.
const PHONES: [&str; 3] = ["+447911123456", "+12425550100", "+56912345678"];

fn person(number: usize) -> ContactId {
    Uuid::from_u128(20 + u128::try_from(number).unwrap()).into()
}

fn number_of(contact: ContactId) -> usize {
    usize::try_from(contact.0.as_u128() - 20).unwrap()
}

fn contact_of(number: usize) -> ContactFacts {
    let mut contact = contact();
    contact.id = person(number);
    contact.recipient.phone = PHONES[number].to_owned();
    contact
}

/// A message of the scenario: its contact, when it is due and for how long, and whether WhatsApp refuses it.
#[derive(Clone, Debug)]
struct Planned {
    contact: usize,
    due_in_minutes: i64,
    lives_hours: i64,
    is_refused: bool,
}

struct Scenario {
    settings: AccountSettings,
    tables: MessageTables,
    /// When campaigns started marketing messages to each contact.
    of_campaigns: BTreeMap<ContactId, Vec<OffsetDateTime>>,
    refused: HashMap<MessageId, bool>,
    /// The contact and time of each start, with the counted starts in the window before it.
    starts: Vec<(ContactId, OffsetDateTime, usize)>,
}

impl Scenario {
    fn new(settings: AccountSettings, begin: OffsetDateTime, planned: &[Planned], campaigns: &[(usize, i64)]) -> Self {
        let mut scenario = Self {
            settings,
            tables: MessageTables::new(begin),
            of_campaigns: BTreeMap::new(),
            refused: HashMap::new(),
            starts: vec![],
        };
        for (number, minutes) in campaigns {
            let starts = scenario.of_campaigns.entry(person(*number)).or_default();
            starts.push(begin + Duration::minutes(*minutes));
        }
        let message = |(planned, id): (&Planned, u128)| {
            let send_at = begin + Duration::minutes(planned.due_in_minutes);
            let request = request(template_input());
            NewDirectMessage {
                message: DirectMessage {
                    id: Uuid::from_u128(id).into(),
                    contact_id: person(planned.contact),
                    profile_id: Some(Uuid::from_u128(4).into()),
                    ..DirectMessage::pending(begin, send_at, send_at + Duration::hours(planned.lives_hours))
                },
                request: request.canonical(),
                template_id: None,
                media_id: None,
                quota_month: None,
            }
        };
        let messages: Vec<_> = planned.iter().zip(100..).map(message).collect();
        for (new, planned) in messages.iter().zip(planned) {
            scenario.refused.insert(new.message.id, planned.is_refused);
        }
        let plan = CreationPlan {
            contacts: vec![],
            messages,
            quota: BTreeMap::new(),
            monthly_limit: 0,
            now: begin,
        };
        assert_eq!(scenario.tables.insert(ACCOUNT, &plan, |_| 0), CreationOutcome::Inserted);
        scenario
    }

    /// The starts that count now, by contact.
    fn counted(&self) -> BTreeMap<ContactId, Vec<OffsetDateTime>> {
        let mut starts: BTreeMap<ContactId, Vec<OffsetDateTime>> = BTreeMap::new();
        for (contact, of_campaigns) in &self.of_campaigns {
            let past = of_campaigns.iter().filter(|at| **at <= self.tables.now);
            starts.entry(*contact).or_default().extend(past);
        }
        for row in self.tables.messages.values() {
            let counts = row.message.status != DirectStatus::Failed;
            let of_contact = starts.entry(row.message.contact_id).or_default();
            of_contact.extend(row.message.started_at.filter(|_| counts));
        }
        starts
    }

    fn facts(now: OffsetDateTime, row: &InMemoryMessage) -> DepartureFacts {
        let mut marketing = template();
        marketing.category = Category::Marketing;
        let held_by = match row
            .message
            .hold_reason
            .filter(|_| row.due_at >= Some(row.message.expires_at))
        {
            Some(HoldReason::QuietHours) => Some(HoldCause::QuietHours),
            Some(HoldReason::Cap) => Some(HoldCause::Cap),
            _ => None,
        };
        DepartureFacts {
            id: row.message.id,
            content: row.content.clone(),
            contact: Some(contact_of(number_of(row.message.contact_id))),
            template: Some(marketing),
            has_plan: true,
            number: row.message.profile_id,
            is_number_removed: false,
            expires_at: row.message.expires_at,
            send_at: row.message.send_at,
            held_by,
            time_zone: None,
            person: row.message.contact_id,
            attempts: row.attempts,
            now,
        }
    }

    /// Starts the due messages of a queue, a few at a time, and records their results.
    fn work(&mut self, queue: NumberQueue) {
        let (now, lease) = (self.tables.now, Duration::MINUTE);
        while self.tables.due(queue, 2) > 0 {
            let mut counted = self.counted();
            let mut policy = HoldPolicy::new(self.settings.clone(), now, counted.clone());
            let facts = |row: &InMemoryMessage| Self::facts(now, row);
            let leaving = self.tables.start(queue, WORKER, 2, lease, facts, &mut policy).unwrap();
            for message in &leaving {
                let contact = self.tables.messages[&message.id].message.contact_id;
                let window = self.settings.max_marketing_per_contact.unwrap().window();
                let of_contact = counted.entry(contact).or_default();
                let in_window = of_contact.iter().filter(|at| **at > now - window).count();
                self.starts.push((contact, now, in_window));
                of_contact.push(now);
            }
            let result = |id: MessageId| match self.refused[&id] {
                true => crate::campaigns::SendResult::Failed {
                    code: Some(131_026),
                    message: "no".into(),
                },
                false => crate::campaigns::SendResult::Sent {
                    message_id: None,
                    wa_id: None,
                },
            };
            let results: Vec<_> = leaving.iter().map(|message| (message.id, result(message.id))).collect();
            self.tables.record(queue, &results);
        }
        self.tables.release(queue, WORKER, None);
    }

    /// Serves the queue whenever it is due, sometimes late, until no message waits.
    fn run(&mut self, delays: &[i64]) {
        for delay in delays.iter().cycle().take(10_000) {
            let due = self.tables.queues.values().filter_map(|row| row.due_at).min();
            let Some(due) = due else { return };
            self.tables.now = self.tables.now.max(due) + Duration::minutes(*delay);
            let queue = self.tables.take(WORKER, Duration::MINUTE).unwrap();
            self.work(queue);
        }
        panic!("messages wait for ever");
    }

    fn is_quiet(&self, contact: ContactId, at: OffsetDateTime) -> bool {
        let phone = PHONES[number_of(contact)];
        let zone = contact_zone(None, Some(phone), &self.settings.timezone);
        shows_quiet(self.settings.quiet_hours.as_ref().unwrap(), &zone, at)
    }
}

fn minute_of_day(minute: u16) -> Time {
    time!(0:00) + Duration::minutes(minute.into())
}

fn planned() -> impl Strategy<Value = Vec<Planned>> {
    let message = (0..PHONES.len(), 0_i64..6 * 1440, 1_i64..300, prop::bool::weighted(0.2));
    let message = message.prop_map(|(contact, due_in_minutes, lives_hours, is_refused)| Planned {
        contact,
        due_in_minutes,
        lives_hours,
        is_refused,
    });
    prop::collection::vec(message, 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// In random worlds over both changes of the clock no message starts in quiet hours or above the limit, and every
    /// message ends.
    #[test]
    fn no_message_of_a_random_world_leaves_while_it_is_held(
        is_autumn in any::<bool>(),
        start in 0_i64..45 * 1440,
        (from, length) in (0_u16..1440, 1_u16..1400),
        days in prop::collection::btree_set(0_u8..7, 1..=7),
        (n, window) in (1_u16..4, 1_u16..4),
        hold_at_most_hours in 1_u16..=168,
        messages in planned(),
        campaigns in prop::collection::vec((0..PHONES.len(), -3 * 1440_i64..6 * 1440), 0..10),
        delays in prop::collection::vec(0_i64..180, 1..4),
    ) {
        let settings = AccountSettings {
            timezone: "America/New_York".parse().unwrap(),
            quiet_hours: Some(QuietHours {
                from: minute_of_day(from),
                to: minute_of_day((from + length) % 1440),
                zone: QuietZone::Contact,
                categories: vec![HeldCategory::Marketing],
                days: days.into_iter().collect(),
            }),
            max_marketing_per_contact: Some(MarketingCap { n, days: window }),
            hold_at_most_hours,
            ..AccountSettings::default()
        };
        let season = if is_autumn { datetime!(2026-10-01 00:00 UTC) } else { datetime!(2026-03-05 00:00 UTC) };
        let mut scenario = Scenario::new(settings, season + Duration::minutes(start), &messages, &campaigns);
        scenario.run(&delays);
        for (contact, at, counted) in &scenario.starts {
            prop_assert!(!scenario.is_quiet(*contact, *at), "{contact} at {at}");
            prop_assert!(*counted < usize::from(n), "{contact} at {at} after {counted}");
        }
        for row in scenario.tables.messages.values() {
            let message = &row.message;
            prop_assert!(message.status != DirectStatus::Pending);
            if message.started_at.is_some() {
                continue;
            }
            // It fails no earlier than its hold or its life may end.
            let latest = message.send_at + Duration::hours(hold_at_most_hours.into());
            prop_assert!(message.updated_at >= latest.min(message.expires_at), "{message:?}");
            let texts = [EXPIRED.to_owned(), held_too_long(HoldCause::Cap), held_too_long(HoldCause::QuietHours)];
            prop_assert!(message.error_message.as_ref().is_some_and(|text| texts.contains(text)), "{message:?}");
        }
    }
}
