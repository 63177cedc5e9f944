//! The ledger of sends: what WhatsApp received, compared with the stored sends, their counters, and every status that a
//! client has read.

use std::collections::BTreeMap;

use serde_json::Value;

use super::campaigns::Campaigns;
use crate::harness::Server;

/// A response to the list of a campaign's sends: the status of each send.
pub(super) struct Observation {
    pub(super) called_at: u64,
    pub(super) responded_at: u64,
    pub(super) statuses: BTreeMap<String, String>,
}

/// A send at the end of the history.
#[derive(Clone)]
pub(super) struct StoredSend {
    pub(super) id: String,
    pub(super) campaign: String,
    pub(super) contact: String,
    pub(super) status: String,
    pub(super) error: String,
}

/// A campaign at the end of the history.
pub(super) struct EndedCampaign {
    pub(super) id: String,
    pub(super) status: String,
    /// The published counters, unless the campaign is deleted.
    pub(super) stats: Option<Value>,
}

/// Everything about the sends of an account, after the last worker has finished.
pub(super) struct SendLedger {
    /// The number of calls that WhatsApp received for each send.
    pub(super) calls: BTreeMap<String, usize>,
    pub(super) sends: Vec<StoredSend>,
    pub(super) campaigns: Vec<EndedCampaign>,
    pub(super) recipients: usize,
    /// Whether outcomes may have been unknown.
    pub(super) had_faults: bool,
    pub(super) observations: Vec<Observation>,
}

impl SendLedger {
    /// Reads the ledger of an account. No worker may be sending.
    pub(super) fn read(
        server: &Server,
        account: &str,
        campaigns: &Campaigns,
        recipients: usize,
        had_faults: bool,
    ) -> Self {
        let rows = |sql: &str| {
            let rows = server.db.rows(sql).into_iter();
            let rows = rows.map(|row| row.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>());
            rows.collect::<Vec<_>>()
        };
        let sends = rows(&format!(
            "SELECT id, campaign_id, contact_id, status, error_message FROM campaign_sends WHERE account_id = '{account}'"
        ));
        let sends: Vec<StoredSend> = sends
            .into_iter()
            .map(|row| {
                let [id, campaign, contact, status, error] = row.try_into().unwrap();
                StoredSend {
                    id,
                    campaign,
                    contact,
                    status,
                    error,
                }
            })
            .collect();
        let ended = rows(&format!(
            "SELECT id, status FROM campaigns WHERE account_id = '{account}'"
        ));
        let ended = ended.into_iter().map(|row| {
            let [id, status] = row.try_into().unwrap();
            let request = campaigns.request.clone().method("GET").at(server.port());
            let reply = request.path(&format!("/api/campaigns/{id}/stats")).send();
            let stats = (reply.status != 404).then(|| reply.ok());
            EndedCampaign { id, status, stats }
        });
        let mut calls = BTreeMap::new();
        let own = server.whatsapp.sends().into_iter().filter_map(|send| {
            let number = send.request.path.split('/').nth_back(1)?.to_owned();
            (number == campaigns.number).then_some(send.callback_data?)
        });
        for send in own {
            *calls.entry(send).or_default() += 1;
        }
        Self {
            calls,
            sends,
            campaigns: ended.collect(),
            recipients,
            had_faults,
            observations: std::mem::take(&mut *campaigns.observations.lock().unwrap()),
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.check_calls()?;
        self.check_campaigns()?;
        self.check_statuses()
    }

    /// Each send was called at most once, and each accepted one was called.
    fn check_calls(&self) -> Result<(), String> {
        if let Some((id, calls)) = self.calls.iter().find(|(_, calls)| **calls > 1) {
            return Err(format!("the send {id} was called {calls} times"));
        }
        if let Some(id) = self
            .calls
            .keys()
            .find(|id| self.sends.iter().all(|send| send.id != **id))
        {
            return Err(format!("WhatsApp received the send {id}, which is not stored"));
        }
        for (at, send) in self.sends.iter().enumerate() {
            let StoredSend {
                id,
                campaign,
                contact,
                status,
                error,
            } = send;
            let is_same = |other: &StoredSend| (&other.campaign, &other.contact) == (campaign, contact);
            if self.sends.iter().skip(at + 1).any(is_same) {
                return Err(format!("campaign {campaign} has two sends to contact {contact}"));
            }
            let is_called = self.calls.contains_key(id);
            let is_consistent = match status.as_str() {
                "pending" => !is_called,
                // The server died between its call and the result, and no status update reported the result.
                "failed" => self.had_faults && error.contains("unknown"),
                _ => is_called,
            };
            if !is_consistent {
                return Err(format!(
                    "the send {id} is {status} ({error}), and WhatsApp received it: {is_called}"
                ));
            }
        }
        Ok(())
    }

    /// The result and the counters of each campaign are those of its sends.
    fn check_campaigns(&self) -> Result<(), String> {
        for EndedCampaign { id, status, stats } in &self.campaigns {
            let sends = || self.sends.iter().filter(|send| send.campaign == *id);
            let count = |status: &str| sends().filter(|send| send.status == status).count();
            let accepted = ["sent", "delivered", "read"].into_iter().map(count).sum::<usize>();
            if sends().count() > self.recipients {
                return Err(format!("campaign {id} has {} sends", sends().count()));
            }
            let is_consistent = match status.as_str() {
                "completed" => accepted == self.recipients,
                // A run counts an unknown outcome as failed. A status update may resolve it later.
                "partial" => {
                    let has_reason = count("failed") > 0 || self.had_faults;
                    sends().count() == self.recipients && count("pending") == 0 && has_reason
                }
                "draft" | "scheduled" => sends().count() == 0,
                _ => true,
            };
            let mut counts = format!("{accepted} accepted, {} failed", count("failed"));
            if !is_consistent {
                return Err(format!(
                    "campaign {id} is {status} with {counts} of {}",
                    self.recipients
                ));
            }
            for field in ["total", "pending", "sent", "delivered", "read", "failed"] {
                let expected = if field == "total" {
                    sends().count()
                } else {
                    count(field)
                };
                let counter = stats.as_ref().map(|stats| stats[field].clone());
                if counter.is_some_and(|counter| counter != expected) {
                    counts = format!("{expected} {field}");
                    return Err(format!(
                        "the stats of campaign {id} are {stats:?}, but it has {counts} sends"
                    ));
                }
            }
        }
        Ok(())
    }

    /// No status moves back between two reads in sequence, or between a read and the end.
    fn check_statuses(&self) -> Result<(), String> {
        let last = self
            .sends
            .iter()
            .map(|send| (send.id.clone(), send.status.clone()))
            .collect();
        let last = Observation {
            called_at: u64::MAX,
            responded_at: u64::MAX,
            statuses: last,
        };
        for later in self.observations.iter().chain([&last]) {
            for earlier in self
                .observations
                .iter()
                .filter(|earlier| earlier.responded_at < later.called_at)
            {
                for (id, from) in &earlier.statuses {
                    let Some(to) = later.statuses.get(id) else { continue };
                    if !may_follow(from, to) {
                        return Err(format!(
                            "the send {id} was {from} at {} us and {to} later, at {} us",
                            earlier.responded_at, later.called_at
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether a send with the status `from` may have the status `to` later.
fn may_follow(from: &str, to: &str) -> bool {
    let rank = |status| {
        ["pending", "sent", "delivered", "read"]
            .iter()
            .position(|name| *name == status)
    };
    match (rank(from), rank(to)) {
        (Some(from), Some(to)) => from <= to,
        (from, None) => from.is_none_or(|from| from < 2),
        (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The ledger of one completed campaign to two contacts.
    fn ledger() -> SendLedger {
        let send = |id: &str, status: &str| StoredSend {
            id: id.to_owned(),
            campaign: "c".to_owned(),
            contact: format!("contact of {id}"),
            status: status.to_owned(),
            error: String::new(),
        };
        let observation = |at: u64, statuses: [&str; 2]| Observation {
            called_at: at,
            responded_at: at + 10,
            statuses: ["a", "b"]
                .into_iter()
                .zip(statuses)
                .map(|(id, status)| (id.into(), status.into()))
                .collect(),
        };
        SendLedger {
            calls: [("a".to_owned(), 1), ("b".to_owned(), 1)].into(),
            sends: vec![send("a", "read"), send("b", "sent")],
            campaigns: vec![EndedCampaign {
                id: "c".to_owned(),
                status: "completed".to_owned(),
                stats: Some(json!({ "total": 2, "pending": 0, "sent": 1, "delivered": 0, "read": 1, "failed": 0 })),
            }],
            recipients: 2,
            had_faults: false,
            observations: vec![
                observation(0, ["sent", "pending"]),
                observation(5, ["pending", "pending"]),
            ],
        }
    }

    #[test]
    fn ledger_accepts_a_completed_campaign() {
        ledger().check().unwrap();
    }

    #[test]
    fn ledger_finds_every_wrong_send() {
        type Plant = fn(&mut SendLedger);
        let plants: [(&str, Plant); 13] = [
            ("called 2 times", |ledger| ledger.calls.extend([("a".into(), 2)])),
            ("not stored", |ledger| ledger.calls.extend([("z".into(), 1)])),
            ("received it: false", |ledger| ledger.calls.retain(|id, _| id != "a")),
            ("two sends", |ledger| ledger.sends[1].contact = "contact of a".into()),
            ("received it: true", |ledger| ledger.sends[1].status = "pending".into()),
            ("is failed", |ledger| ledger.sends[1].status = "failed".into()),
            ("is failed (unknown)", |ledger| {
                (ledger.sends[1].status, ledger.sends[1].error) = ("failed".into(), "unknown".into());
            }),
            ("has 2 sends", |ledger| ledger.recipients = 1),
            ("1 accepted", |ledger| {
                ledger.sends.truncate(1);
                ledger.calls.retain(|id, _| id != "b");
            }),
            ("is partial", |ledger| ledger.campaigns[0].status = "partial".into()),
            ("is draft", |ledger| ledger.campaigns[0].status = "draft".into()),
            ("1 sent sends", |ledger| {
                ledger.campaigns[0].stats.as_mut().unwrap()["sent"] = json!(2)
            }),
            ("was sent at 10 us", |ledger| ledger.observations[1].called_at = 11),
        ];
        for (report, plant) in plants {
            let mut ledger = ledger();
            plant(&mut ledger);
            let found = ledger.check().expect_err(report);
            assert!(found.contains(report), "{report}: {found}");
        }
    }
}
