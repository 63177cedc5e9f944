//! A scenario of people of whom many hide their phone: they write to numbers of three portfolios, their ids move, and
//! phones and parent ids appear late. A campaign writes to each of them once. The test knows the people, because it
//! makes them: contacts are the same person if WhatsApp has named their ids in one event.

use std::collections::{BTreeMap, BTreeSet};

use recado_domain::campaigns::{Campaign, CampaignStore as _, ClaimOutcome, Reach, RunStart, SendStore as _};
use recado_domain::campaigns::{RunStartStore as _, StartOutcome};
use recado_domain::conversations::{InboundEvent, InboxStore as _, ReceiveOutcome, Sender};
use recado_domain::shared::ProfileId;
use recado_domain::whatsapp::ProfileStore as _;
use recado_postgres::PgProfiles;
use uuid::Uuid;

use crate::conversations::{connected, inbound_items, inbox, message};
use crate::histories::env_value;
use crate::support::{DbFixture, LEASE, id};
use crate::whatsapp::profile;

/// The people of a scenario.
const PEOPLE: usize = 150;

/// The number of worlds, unless `RECADO_RUNS` is set.
const WORLDS: u64 = 2;

/// The rounds in which people write. Late ones show more than the id of a number from `LATE` on.
const ROUNDS: i64 = 20;
const LATE: i64 = 8;

/// The numbers and their portfolios. The campaigns use the first one.
const NUMBERS: [(&str, &str); 3] = [("111", "900"), ("222", "901"), ("333", "902")];

/// Deterministic random numbers (SplitMix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(bound).unwrap()).unwrap()
    }

    fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

#[derive(Clone, Default)]
struct Person {
    hides_phone: bool,
    is_late: bool,
    /// How often the id for each number changed. None: the number has not seen it.
    generations: [Option<usize>; 3],
    history: Vec<String>,
}

struct Scenario {
    rng: Rng,
    people: Vec<Person>,
    /// Union-find: the phones and ids that WhatsApp has named together.
    same: BTreeMap<String, String>,
}

fn phone_of(person: usize) -> String {
    format!("55119{person:08}")
}

fn parent_of(person: usize) -> String {
    format!("BR.ENT.{person}")
}

impl Scenario {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let people = (0..PEOPLE).map(|_| Person {
            hides_phone: rng.percent(30),
            is_late: rng.percent(60),
            ..Person::default()
        });
        Self {
            people: people.collect(),
            rng,
            same: BTreeMap::new(),
        }
    }

    fn user_id(&self, person: usize, number: usize) -> String {
        let generation = self.people[person].generations[number].unwrap_or(0);
        format!("BR.{person}x{number}x{generation}")
    }

    fn root(&self, key: &str) -> String {
        match self.same.get(key) {
            Some(next) if next != key => self.root(next),
            _ => key.to_owned(),
        }
    }

    /// WhatsApp names these together.
    fn join(&mut self, keys: &[&String]) {
        let first = self.root(keys[0]);
        for key in keys {
            let root = self.root(key);
            self.same.insert(root, first.clone());
        }
    }

    /// The contacts that the account makes itself: some with the phone, some with an id.
    fn own_contacts(&mut self) -> Vec<(usize, Option<String>, Option<String>)> {
        let mut contacts = vec![];
        for person in 0..PEOPLE {
            if self.rng.percent(50) {
                contacts.push((person, Some(format!("+{}", phone_of(person))), None));
            }
            if self.rng.percent(40) {
                let number = self.rng.below(4);
                let user_id = if number < 3 {
                    self.user_id(person, number)
                } else {
                    parent_of(person)
                };
                contacts.push((person, None, Some(user_id)));
            }
        }
        for (person, phone, user_id) in &contacts {
            self.people[*person]
                .history
                .push(format!("contact {phone:?} {user_id:?}"));
        }
        contacts
    }

    /// What a person does in a round, and the number that gets it.
    fn event(&mut self, person: usize, round: i64) -> Option<(usize, InboundEvent)> {
        if !self.rng.percent(75) {
            return None;
        }
        let number = self.rng.below(NUMBERS.len());
        if self.people[person].generations[number].is_some() && self.rng.percent(10) {
            return Some((number, self.move_id(person, number)));
        }
        let Person {
            hides_phone, is_late, ..
        } = self.people[person].clone();
        let shows_more = round >= LATE || !is_late;
        let shows_phone = shows_more && !hides_phone && self.rng.percent(50);
        let shows_id = !shows_phone || self.rng.percent(75);
        let shows_parent = shows_more && shows_id && person.is_multiple_of(2) && self.rng.percent(50);
        let sender = Sender {
            wa_id: shows_phone.then(|| phone_of(person)),
            user_id: shows_id.then(|| self.user_id(person, number)),
            parent_user_id: shows_parent.then(|| parent_of(person)),
            name: Some(format!("p{person}")),
            ..Sender::default()
        };
        let keys = [&sender.wa_id, &sender.user_id, &sender.parent_user_id];
        let keys: Vec<&String> = keys.into_iter().flatten().collect();
        self.join(&keys);
        let row = &mut self.people[person];
        row.history.push(format!(
            "{} gets {}",
            NUMBERS[number].0,
            keys.iter().map(|key| key.as_str()).collect::<Vec<_>>().join(" ")
        ));
        if shows_id {
            row.generations[number].get_or_insert(0);
        }
        Some((number, message(&format!("m{round}x{person}"), sender, "oi", round)))
    }

    fn move_id(&mut self, person: usize, number: usize) -> InboundEvent {
        let with_id = |user_id: String| Sender {
            user_id: Some(user_id),
            ..Sender::default()
        };
        let before = self.user_id(person, number);
        *self.people[person].generations[number].as_mut().unwrap() += 1;
        let after = self.user_id(person, number);
        self.join(&[&before, &after]);
        self.people[person]
            .history
            .push(format!("{} gets {before} -> {after}", NUMBERS[number].0));
        InboundEvent::NumberChanged {
            sender: with_id(before),
            now: with_id(after),
        }
    }
}

/// A stored contact.
#[derive(Debug)]
struct Row {
    id: Uuid,
    phone: Option<String>,
    opted_out: bool,
    /// `same_person_as`.
    names: Option<String>,
    /// The ids that the first number may use.
    fitting: Vec<String>,
    /// Its phone and ids.
    keys: Vec<String>,
}

const ROWS: &str = "SELECT c.id::text, ltrim(c.phone, '+'), c.opted_out_at IS NOT NULL, c.same_person_as::text,
     coalesce(i.fitting, '{}') || array_remove(ARRAY[CASE WHEN c.wa_user_id <> ALL (coalesce(i.ids, '{}')) THEN c.wa_user_id END], NULL),
     array_remove(ARRAY[ltrim(c.phone, '+'), c.wa_id, c.wa_user_id], NULL) || coalesce(i.ids || i.parents, '{}')
   FROM contacts c LEFT JOIN LATERAL (SELECT array_agg(i.wa_user_id) AS ids,
       array_remove(array_agg(i.parent_user_id), NULL) AS parents,
       array_remove(array_agg(i.parent_user_id) || array_agg(CASE WHEN i.scope = '900' THEN i.wa_user_id END), NULL) AS fitting
     FROM contact_identities i WHERE i.account_id = c.account_id AND i.contact_id = c.id) i ON true
   WHERE c.deleted_at IS NULL ORDER BY c.id";

async fn rows(fixture: &DbFixture) -> Vec<Row> {
    let rows = fixture.client.query(ROWS, &[]).await.unwrap();
    let rows = rows.iter().map(|row| Row {
        id: row.get::<_, String>(0).parse().unwrap(),
        phone: row.get(1),
        opted_out: row.get(2),
        names: row.get(3),
        fitting: row.get(4),
        keys: row.get(5),
    });
    rows.collect()
}

/// The address of each contact that a campaign of the first number writes to.
async fn written_to(fixture: &DbFixture, number: ProfileId, reach: Reach) -> BTreeMap<Uuid, String> {
    let campaign = Campaign {
        template_id: Some(fixture.stored_template().await),
        reach,
        ..fixture.draft()
    };
    fixture.campaigns().insert(&campaign, &[]).await.unwrap();
    let start = RunStart {
        profile_id: Some(number),
        ..fixture.start_of(&campaign)
    };
    let (runs, worker) = (fixture.runs(), id());
    let started = runs.start(&start, Some(worker), LEASE).await.unwrap();
    assert!(matches!(started, StartOutcome::Started { .. }), "{started:?}");
    let run = recado_domain::campaigns::QueuedRun {
        account_id: fixture.account,
        campaign_id: campaign.id,
    };
    let ClaimOutcome::Sends(sends) = runs.claim(run, worker, None, 10_000, LEASE).await.unwrap() else {
        panic!("no sends");
    };
    let addresses = sends.into_iter().filter_map(|send| {
        let recipient = send.recipient?;
        let phone = Some(recipient.phone).filter(|phone| !phone.is_empty());
        let address = phone.map(|phone| phone.trim_start_matches('+').to_owned());
        Some((send.contact_id.0, address.or(recipient.user_id).unwrap_or_default()))
    });
    addresses.collect()
}

async fn play(scenario: &mut Scenario, fixture: &DbFixture) {
    let account = fixture.account;
    fixture.sql("UPDATE accounts SET plan = 'growth'").await;
    for (number, portfolio) in &NUMBERS[1..] {
        let mut stored = profile(number);
        stored.profile.waba_id = (*portfolio).to_owned();
        let profiles = PgProfiles::new(fixture.tenants.clone());
        profiles.insert(account, &stored, &[]).await.unwrap();
    }
    for (person, phone, user_id) in scenario.own_contacts() {
        let sql_text = |text: Option<String>| text.map_or("NULL".to_owned(), |text| format!("'{text}'"));
        fixture
            .sql(&format!(
                "INSERT INTO contacts (account_id, id, name, phone, wa_user_id)
                 VALUES ('{account}', '{}', 'p{person}', {}, {})",
                Uuid::new_v4(),
                sql_text(phone),
                sql_text(user_id)
            ))
            .await;
    }
    let inbox = inbox(fixture);
    for round in 0..ROUNDS {
        let mut events: [Vec<InboundEvent>; 3] = Default::default();
        for person in 0..PEOPLE {
            if let Some((number, event)) = scenario.event(person, round) {
                events[number].push(event);
            }
        }
        for ((number, _), events) in NUMBERS.iter().zip(events) {
            let received = inbox.receive(account, number, &inbound_items(events)).await.unwrap();
            assert_eq!(received, ReceiveOutcome::Received);
        }
    }
}

/// One contact of some people opts out.
async fn opt_out(scenario: &mut Scenario, fixture: &DbFixture) {
    for row in rows(fixture).await {
        if scenario.rng.percent(5) {
            let opt_out = format!("UPDATE contacts SET opted_out_at = now() WHERE id = '{}'", row.id);
            fixture.sql(&opt_out).await;
        }
    }
}

/// The contacts by the person that WhatsApp vouches for, by the root of their ids.
fn by_person<'a>(scenario: &Scenario, rows: &'a [Row]) -> BTreeMap<String, Vec<&'a Row>> {
    let mut people: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let roots: BTreeSet<String> = row.keys.iter().map(|key| scenario.root(key)).collect();
        assert_eq!(roots.len(), 1, "one contact is two people: {row:?}");
        people.entry(roots.into_iter().next().unwrap()).or_default().push(row);
    }
    people
}

/// What is wrong with the messages to a person, with `reach: any` and without.
fn check_person(contacts: &[&Row], any: &BTreeMap<Uuid, String>, by_phone: &BTreeMap<Uuid, String>) -> Option<String> {
    let addresses = |written: &BTreeMap<Uuid, String>| -> Vec<String> {
        contacts
            .iter()
            .filter_map(|row| written.get(&row.id).cloned())
            .collect()
    };
    if contacts.len() > 1 && contacts.iter().any(|row| row.names.is_none()) {
        return Some("a contact names no other contact of the person".to_owned());
    }
    let phones: Vec<String> = contacts.iter().filter_map(|row| row.phone.clone()).collect();
    let fitting: Vec<&String> = contacts.iter().flat_map(|row| &row.fitting).collect();
    let opted_out = contacts.iter().any(|row| row.opted_out);
    let (any, by_phone) = (addresses(any), addresses(by_phone));
    let expected = if opted_out { vec![] } else { phones.clone() };
    if by_phone != expected {
        return Some(format!("reach phone writes to {by_phone:?}, expected {expected:?}"));
    }
    let is_reachable = !opted_out && (!phones.is_empty() || !fitting.is_empty());
    if any.len() != usize::from(is_reachable) {
        return Some(format!("reach any writes to {any:?}, reachable: {is_reachable}"));
    }
    let is_fitting = |address: &String| match phones.first() {
        Some(phone) => phone == address,
        None => fitting.contains(&address),
    };
    let wrong = any.iter().find(|address| !is_fitting(address))?;
    Some(format!("reach any uses {wrong}, which does not fit the number"))
}

#[tokio::test]
async fn campaign_writes_once_to_each_person_of_a_world() {
    let first = env_value("RECADO_SEED").unwrap_or(1);
    for seed in first..first + env_value("RECADO_RUNS").unwrap_or(WORLDS) {
        let (fixture, number) = connected().await;
        let mut scenario = Scenario::new(seed);
        play(&mut scenario, &fixture).await;
        opt_out(&mut scenario, &fixture).await;
        let any = written_to(&fixture, number, Reach::Any).await;
        let by_phone = written_to(&fixture, number, Reach::Phone).await;
        let rows = rows(&fixture).await;
        let people = by_person(&scenario, &rows);
        let groups = people.values().filter(|contacts| contacts.len() >= 4).count();
        assert!(groups > 0, "no person has four contacts");
        let wrong = people.values().filter_map(|contacts| {
            let problem = check_person(contacts, &any, &by_phone)?;
            let name = contacts[0].keys[0].clone();
            Some((contacts.len(), problem, name, contacts))
        });
        let mut wrong: Vec<_> = wrong.collect();
        wrong.sort_by_key(|(contacts, ..)| *contacts);
        if let Some((_, problem, key, contacts)) = wrong.first() {
            let person = (0..PEOPLE).find(|person| {
                let keys = [phone_of(*person), parent_of(*person)];
                keys.contains(key) || key.starts_with(&format!("BR.{person}x"))
            });
            let history = person.map(|person| scenario.people[person].history.join("\n  "));
            let count = wrong.len();
            panic!(
                "RECADO_SEED={seed} RECADO_RUNS=1: {count} of {} people: {problem}\n  {}\n{contacts:#?}",
                people.len(),
                history.unwrap_or_default()
            );
        }
    }
}
