//! The contacts of an account with few phone numbers. All of them are one key, because phone numbers are unique.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::checker::Model;
use super::transport::{Client, KeyHistory, Outcome};
use crate::harness::client::{Reply, Request};
use crate::harness::users::phone;

/// The phone numbers for which the clients compete.
const PHONES: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Contact {
    /// `None` while no response has shown the id.
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) email: Option<String>,
    pub(super) phone: String,
}

#[derive(Clone, Debug)]
pub(super) enum Call {
    Create {
        name: String,
        phone: String,
    },
    Get(String),
    /// Finds the contact with this phone number.
    Find(String),
    Update {
        id: String,
        change: Change,
    },
    Delete(String),
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    Name(String),
    Email(String),
    Phone(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Response {
    One(Contact),
    All(Vec<Contact>),
    Deleted,
    Missing,
    /// Another contact has the phone number.
    Taken,
}

/// The contacts that exist, by phone number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Directory(BTreeMap<String, Contact>);

impl Model for Directory {
    type Call = Call;
    type Response = Response;

    fn after(&self, call: &Call, response: Option<&Response>) -> Vec<Self> {
        let mut outcomes = Vec::new();
        match call {
            Call::Create { name, phone } => {
                let id = match response {
                    Some(Response::One(contact)) => contact.id.clone(),
                    _ => None,
                };
                let (name, phone) = (name.clone(), phone.clone());
                outcomes.push(self.inserted(Contact {
                    id,
                    name,
                    email: None,
                    phone,
                }));
            }
            Call::Find(phone) => {
                let id = match response {
                    Some(Response::All(found)) => found.first().and_then(|contact| contact.id.clone()),
                    _ => None,
                };
                let mut after = self.clone();
                let found = after.0.get_mut(phone);
                let found = found.map(|contact| {
                    contact.id = contact.id.take().or(id);
                    contact.clone()
                });
                let found = Response::All(found.into_iter().collect());
                outcomes.push((after, found));
            }
            Call::Get(id) | Call::Update { id, .. } | Call::Delete(id) => {
                let resolved = self.resolve(id).into_iter();
                outcomes.extend(resolved.map(|(state, contact)| state.with(call, contact)));
            }
        }
        let is_allowed = |(_, outcome): &(Self, Response)| response.is_none_or(|response| response == outcome);
        outcomes
            .into_iter()
            .filter(is_allowed)
            .map(|(state, _)| state)
            .collect()
    }

    fn is_read(call: &Call) -> bool {
        matches!(call, Call::Get(_) | Call::Find(_))
    }
}

impl Directory {
    fn inserted(&self, contact: Contact) -> (Self, Response) {
        let mut after = self.clone();
        if after.0.contains_key(&contact.phone) {
            return (after, Response::Taken);
        }
        after.0.insert(contact.phone.clone(), contact.clone());
        (after, Response::One(contact))
    }

    /// The contact with this id. It may be one whose id no response has shown.
    fn resolve(&self, id: &str) -> Vec<(Self, Option<Contact>)> {
        if let Some(contact) = self.0.values().find(|contact| contact.id.as_deref() == Some(id)) {
            return vec![(self.clone(), Some(contact.clone()))];
        }
        let unnamed = self.0.values().filter(|contact| contact.id.is_none());
        let named = unnamed.map(|contact| {
            let contact = Contact {
                id: Some(id.to_owned()),
                ..contact.clone()
            };
            let mut after = self.clone();
            after.0.insert(contact.phone.clone(), contact.clone());
            (after, Some(contact))
        });
        named.chain([(self.clone(), None)]).collect()
    }

    /// A call on this contact.
    fn with(mut self, call: &Call, contact: Option<Contact>) -> (Self, Response) {
        let Some(mut contact) = contact else {
            return (self, Response::Missing);
        };
        match call {
            Call::Delete(_) => {
                self.0.remove(&contact.phone);
                return (self, Response::Deleted);
            }
            Call::Update {
                change: Change::Phone(phone),
                ..
            } if *phone != contact.phone => {
                if self.0.contains_key(phone) {
                    return (self, Response::Taken);
                }
                self.0.remove(&contact.phone);
                contact.phone.clone_from(phone);
            }
            Call::Update {
                change: Change::Name(name),
                ..
            } => contact.name.clone_from(name),
            Call::Update {
                change: Change::Email(email),
                ..
            } => contact.email = Some(email.clone()),
            _ => {}
        }
        self.0.insert(contact.phone.clone(), contact.clone());
        (self, Response::One(contact))
    }
}

fn contact(json: &Value) -> Contact {
    let text = |field: &str| json[field].as_str().map(str::to_owned);
    Contact {
        id: text("id"),
        name: text("name").unwrap(),
        email: text("email"),
        phone: text("phone").unwrap(),
    }
}

fn read(reply: &Reply) -> Outcome<Response> {
    let known = match reply.status {
        200 | 201 => {
            let data = &reply.json()["data"];
            match data["data"].as_array() {
                Some(found) => Response::All(found.iter().map(contact).collect()),
                None => Response::One(contact(data)),
            }
        }
        204 => Response::Deleted,
        404 => Response::Missing,
        // Too many concurrent changes.
        409 => return Outcome::NotDone,
        _ => {
            assert_eq!(reply.clone().invalid(), ["phone"]);
            Response::Taken
        }
    };
    Outcome::Known(known)
}

/// An account and the history of its contacts.
pub(super) struct ContactKey {
    /// A request of the account's owner.
    pub(super) request: Request,
    pub(super) history: KeyHistory<Directory>,
    /// The ids that responses have shown, oldest first.
    ids: Mutex<Vec<String>>,
}

impl ContactKey {
    pub(super) fn new(request: Request) -> Self {
        Self {
            request,
            history: KeyHistory::default(),
            ids: Mutex::default(),
        }
    }

    fn random_phone(client: &mut Client<'_>) -> String {
        phone(usize::try_from(client.rng.below(u64::try_from(PHONES).unwrap())).unwrap())
    }

    /// Makes one random call.
    pub(super) fn make_random_call(&self, client: &mut Client<'_>) {
        let latest: Vec<String> = self
            .ids
            .lock()
            .unwrap()
            .iter()
            .rev()
            .take(PHONES + 1)
            .cloned()
            .collect();
        let id = client.pick(&latest).cloned();
        let call = match (id, client.rng.below(16)) {
            (None, _) | (_, 0..3) => Call::Create {
                name: client.new_value(),
                phone: Self::random_phone(client),
            },
            (_, 3..5) => Call::Find(Self::random_phone(client)),
            (Some(id), 5..8) => Call::Get(id),
            (Some(id), 8..10) => Call::Delete(id),
            (Some(id), kind) => {
                let change = match kind {
                    10..12 => Change::Name(client.new_value()),
                    12..14 => Change::Email(format!("{}@example.com", client.new_value())),
                    _ => Change::Phone(Self::random_phone(client)),
                };
                Call::Update { id, change }
            }
        };
        self.call(client, call);
    }

    /// Reads every phone number.
    pub(super) fn read_all(&self, client: &mut Client<'_>) {
        for number in 0..PHONES {
            self.call(client, Call::Find(phone(number)));
        }
    }

    fn call(&self, client: &mut Client<'_>, call: Call) {
        let to = |method: &str, path: &str| self.request.clone().method(method).path(path);
        let by_id = |method: &str, id: &str| to(method, &format!("/api/contacts/{id}"));
        let request = match &call {
            Call::Create { name, phone } => to("POST", "/api/contacts").json(&json!({ "name": name, "phone": phone })),
            Call::Get(id) => by_id("GET", id),
            Call::Find(phone) => to("GET", &format!("/api/contacts?search=%2B{}", &phone[1..])),
            Call::Update { id, change } => by_id("PUT", id).json(&match change {
                Change::Name(name) => json!({ "name": name }),
                Change::Email(email) => json!({ "email": email }),
                Change::Phone(phone) => json!({ "phone": phone }),
            }),
            Call::Delete(id) => by_id("DELETE", id),
        };
        let shown = match client.call(&self.history, call, request, read) {
            Some(Response::One(contact)) => contact.id,
            Some(Response::All(found)) => found.into_iter().next().and_then(|contact| contact.id),
            _ => None,
        };
        let mut ids = self.ids.lock().unwrap();
        if let Some(id) = shown.filter(|id| !ids.contains(id)) {
            ids.push(id);
        }
    }
}
