//! Campaigns of one account. Each campaign is a key.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::checker::Model;
use super::sends::Observation;
use super::transport::{Client, KeyHistory, Outcome};
use crate::harness::client::{Reply, Request};
use crate::harness::text;

/// A time that no history reaches.
const FAR_FUTURE: &str = "2099-01-01T12:00:00.000Z";

/// The campaigns on which the clients work at the same time.
const CONCURRENT: usize = 2;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Campaign {
    pub(super) status: String,
    pub(super) paused: bool,
    pub(super) name: String,
}

/// `None`: the campaign does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct CampaignState(pub(super) Option<Campaign>);

#[derive(Clone, Debug)]
pub(super) enum Call {
    Create(String),
    Get,
    Rename(String),
    Schedule,
    Unschedule,
    Send,
    /// The start of a run by `execute`, which responds when the run has ended.
    Execute,
    /// The end of that run, which the same response reports.
    Report,
    Pause,
    Resume,
    Cancel,
    Delete,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Response {
    One(Campaign),
    Executed,
    /// The status at the end of a run, and whether the run is paused.
    Ended(String, bool),
    Cancelled,
    Deleted,
    Missing,
    /// This status does not allow the command.
    Refused(String),
}

impl Model for CampaignState {
    type Call = Call;
    type Response = Response;

    fn after(&self, call: &Call, response: Option<&Response>) -> Vec<Self> {
        let (after, outcome) = self.outcome(call);
        let is_allowed = response.is_none_or(|response| *response == outcome);
        is_allowed.then_some(after).into_iter().collect()
    }

    /// A run that is not paused ends.
    fn after_background(&self) -> Vec<Self> {
        let Some(campaign) = self.0.as_ref().filter(|run| run.status == "sending" && !run.paused) else {
            return Vec::new();
        };
        let ended = ["completed", "partial"].map(|status| {
            let status = status.to_owned();
            Self(Some(Campaign {
                status,
                ..campaign.clone()
            }))
        });
        ended.to_vec()
    }

    fn is_read(call: &Call) -> bool {
        matches!(call, Call::Get | Call::Report)
    }
}

impl CampaignState {
    fn outcome(&self, call: &Call) -> (Self, Response) {
        if let Call::Create(name) = call {
            let (status, name) = ("draft".to_owned(), name.clone());
            let campaign = Campaign {
                status,
                paused: false,
                name,
            };
            return (Self(Some(campaign.clone())), Response::One(campaign));
        }
        let Some(mut campaign) = self.0.clone() else {
            return (self.clone(), Response::Missing);
        };
        match (call, campaign.status.as_str()) {
            (Call::Get | Call::Create(_), _) => {}
            (Call::Rename(name), "draft" | "scheduled") => campaign.name.clone_from(name),
            (Call::Schedule, "draft" | "scheduled") => campaign.status = "scheduled".to_owned(),
            (Call::Unschedule, "scheduled") => campaign.status = "draft".to_owned(),
            (Call::Send | Call::Execute, "draft" | "scheduled") => campaign.status = "sending".to_owned(),
            (Call::Pause, "sending") => campaign.paused = true,
            (Call::Resume, "sending") => campaign.paused = false,
            (Call::Cancel, "sending" | "scheduled") => {
                (campaign.status, campaign.paused) = ("cancelled".to_owned(), false);
            }
            (Call::Delete, status) if status != "sending" => return (Self(None), Response::Deleted),
            (Call::Report, status) => return (self.clone(), Response::Ended(status.to_owned(), campaign.paused)),
            (_, status) => return (self.clone(), Response::Refused(status.to_owned())),
        }
        let response = match call {
            Call::Execute => Response::Executed,
            Call::Cancel => Response::Cancelled,
            _ => Response::One(campaign.clone()),
        };
        (Self(Some(campaign)), response)
    }
}

fn campaign(json: &Value) -> Campaign {
    Campaign {
        status: text(&json["status"]),
        paused: !json["paused_at"].is_null(),
        name: text(&json["name"]),
    }
}

fn read(call: &Call, reply: &Reply) -> Outcome<Response> {
    Outcome::Known(match (reply.status, call) {
        (204, _) => Response::Deleted,
        // The campaign was missing at the start, or it was deleted after the run.
        (404, Call::Execute) => return Outcome::Unknown,
        (404, _) => Response::Missing,
        (400, _) => {
            let error = reply.clone().refused(400, "VALIDATION_ERROR");
            match error["details"]["reason"].as_str() {
                // Too many concurrent changes.
                Some("contended") => return Outcome::NotDone,
                reason => assert_eq!(reason, Some("status"), "{error}"),
            }
            let message = text(&error["message"]);
            let status = message
                .split_once("in status ")
                .and_then(|(_, rest)| rest.split(' ').next());
            Response::Refused(status.unwrap_or_else(|| panic!("{message}")).to_owned())
        }
        (_, Call::Cancel) => {
            assert_eq!(reply.clone().ok()["status"], "cancelled");
            Response::Cancelled
        }
        (_, Call::Execute) => {
            reply.clone().ok();
            Response::Executed
        }
        _ => Response::One(campaign(&reply.clone().expect(200)["data"])),
    })
}

/// The end of a run in a response to `execute`. None: the response shows none.
fn read_report(reply: &Reply) -> Option<Response> {
    match reply.status {
        404 => Some(Response::Missing),
        200 => {
            let report = reply.clone().ok();
            let [total, sent, failed] = ["total", "sent", "failed"].map(|field| report[field].as_i64().unwrap());
            let status = text(&report["status"]);
            let adds_up = match status.as_str() {
                "completed" => (sent, failed) == (total, 0),
                "partial" => failed > 0 && sent + failed == total,
                _ => sent + failed <= total,
            };
            // No state has the status of a wrong report.
            let status = if adds_up { status } else { report.to_string() };
            Some(Response::Ended(status, report["paused"] == true))
        }
        _ => None,
    }
}

/// A campaign and its history.
pub(super) struct CampaignKey {
    pub(super) id: String,
    pub(super) history: KeyHistory<CampaignState>,
}

/// The campaigns of an account.
pub(super) struct Campaigns {
    /// A request of the account's owner.
    pub(super) request: Request,
    /// An approved template.
    template: String,
    /// The tags of the recipients. Each campaign has the next one.
    audiences: Vec<String>,
    created: AtomicUsize,
    /// The `phone_number_id` of the account's number.
    pub(super) number: String,
    pub(super) keys: Mutex<Vec<Arc<CampaignKey>>>,
    pub(super) observations: Mutex<Vec<Observation>>,
}

impl Campaigns {
    pub(super) fn new(request: Request, template: String, audiences: Vec<String>, number: String) -> Self {
        let (created, keys, observations) = Default::default();
        Self {
            request,
            template,
            audiences,
            created,
            number,
            keys,
            observations,
        }
    }

    /// Makes one random call.
    pub(super) fn make_random_call(&self, client: &mut Client<'_>) {
        let latest: Vec<_> = self
            .keys
            .lock()
            .unwrap()
            .iter()
            .rev()
            .take(CONCURRENT)
            .cloned()
            .collect();
        let key = client.pick(&latest).cloned();
        let call = match (&key, client.rng.below(26)) {
            (None, _) | (_, 0..2) => return self.create(client),
            (Some(key), 2..5) => return self.observe_sends(client, key),
            (_, 5..9) => Call::Get,
            (_, 9..12) => Call::Rename(client.new_value()),
            (_, 12) => Call::Schedule,
            (_, 13) => Call::Unschedule,
            (_, 14..17) => Call::Send,
            (_, 17) => Call::Execute,
            (_, 18..20) => Call::Pause,
            (_, 20..22) => Call::Resume,
            (_, 22..25) => Call::Cancel,
            _ => Call::Delete,
        };
        if let Some(key) = key {
            self.call(client, &key, call);
        }
    }

    /// Reads every campaign.
    pub(super) fn read_all(&self, client: &mut Client<'_>) {
        let keys = self.keys.lock().unwrap().clone();
        for key in keys {
            self.call(client, &key, Call::Get);
            self.observe_sends(client, &key);
        }
    }

    fn to(&self, method: &str, path: &str) -> Request {
        self.request
            .clone()
            .method(method)
            .path(&format!("/api/campaigns{path}"))
    }

    /// A campaign whose creation has no response has no known id, so no other call concerns it.
    fn create(&self, client: &mut Client<'_>) {
        let name = client.new_value();
        let audience = self.created.fetch_add(1, Ordering::SeqCst) % self.audiences.len();
        let audience = &self.audiences[audience];
        let audience = json!({ "tag_ids": [audience] });
        let body = json!({ "name": name, "template_id": self.template, "segment_config": audience });
        let sent = client.send(self.to("POST", "").json(&body));
        let Outcome::Known(reply) = &sent.outcome else { return };
        let created = reply.clone().created();
        let key = CampaignKey {
            id: text(&created["id"]),
            history: KeyHistory::default(),
        };
        let response = Response::One(campaign(&created));
        client.record(&key.history, Call::Create(name), &sent, |_| Outcome::Known(response));
        self.keys.lock().unwrap().push(Arc::new(key));
    }

    fn call(&self, client: &mut Client<'_>, key: &CampaignKey, call: Call) {
        let id = &key.id;
        let command = |command: &str| self.to("POST", &format!("/{id}/{command}"));
        let request = match &call {
            Call::Create(_) | Call::Get | Call::Report => self.to("GET", &format!("/{id}")),
            Call::Rename(name) => self.to("PUT", &format!("/{id}")).json(&json!({ "name": name })),
            Call::Schedule => command("schedule").json(&json!({ "scheduled_at": FAR_FUTURE })),
            Call::Unschedule => command("unschedule"),
            Call::Send => command("send"),
            Call::Execute => command("execute"),
            Call::Pause => command("pause"),
            Call::Resume => command("resume"),
            Call::Cancel => command("cancel"),
            Call::Delete => self.to("DELETE", &format!("/{id}")),
        };
        let sent = client.send(request);
        if let (Call::Execute, Outcome::Known(reply)) = (&call, &sent.outcome)
            && let Some(report) = read_report(reply)
        {
            client.record(&key.history, Call::Report, &sent, |_| Outcome::Known(report));
        }
        client.record(&key.history, call.clone(), &sent, |reply| read(&call, reply));
    }

    /// Reads the status of every send of a campaign.
    fn observe_sends(&self, client: &mut Client<'_>, key: &CampaignKey) {
        let request = self.to("GET", &format!("/{}/sends?limit=100", key.id));
        let sent = client.send(request);
        let Outcome::Known(reply) = sent.outcome else { return };
        // The campaign may be deleted.
        if reply.status == 200 {
            let page = reply.expect(200);
            let sends = page["data"].as_array().unwrap().iter();
            let statuses = sends.map(|send| (text(&send["id"]), text(&send["status"]))).collect();
            let observation = Observation {
                called_at: sent.called_at,
                responded_at: sent.responded_at,
                statuses,
            };
            self.observations.lock().unwrap().push(observation);
        }
    }
}
