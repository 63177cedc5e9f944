//! In-memory rows of the files of messages: the reference that the store in PostgreSQL is compared with, and the store
//! of the simulation.

use std::collections::BTreeMap;

use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::{ClaimedFile, FETCH_FOR, FetchDecision, FileClaim, FileState, MAX_FAILED_REQUESTS, MessageFile, is_over};
use crate::shared::{AccountId, Event, MediaId};

/// A bug of a store that tests must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedFileBug {
    /// A file can be claimed while another worker's lease lasts.
    ClaimIgnoresLease,
    /// A worker that lost its claim records how its attempt ended.
    RecordIgnoresClaim,
    /// A worker that lost its claim can renew it.
    RenewIgnoresClaim,
    /// The requests of workers that still wait for a response do not count.
    OpenRequestIgnored,
    /// The request of a worker whose lease has expired does not count until another worker takes its file.
    ExpiredRequestIgnored,
    /// Failed requests do not count.
    FailureNotCounted,
    /// The request of a worker that died does not count.
    AbandonedRequestIgnored,
    /// The bytes of a worker that died are not deleted.
    AbandonedBytesForgotten,
    /// The bytes of a worker that died are not deleted, if its file has to wait.
    WaitingBytesForgotten,
    /// The content with a wrong hash does not count.
    MismatchNotCounted,
    /// A file that waits for its number is never due again.
    PostponedForever,
    /// A file becomes ready without its event.
    EventLost,
}

/// The row of a file that contacts or the business's own app sent.
#[derive(Clone, Debug)]
pub struct InMemoryFile {
    /// What a claim of the file returns. Its claims and `facts` are the current ones.
    pub file: ClaimedFile,
    /// WhatsApp's id of the number that received the message.
    pub number: String,
    pub due_at: Option<OffsetDateTime>,
    /// The worker that has the file until `due_at`.
    pub claim: Option<Uuid>,
    /// The key of the stored bytes.
    pub key: Option<Uuid>,
    pub reported_at: Option<OffsetDateTime>,
}

impl InMemoryFile {
    pub fn is_pending(&self) -> bool {
        self.file.file.state == FileState::Pending
    }

    fn is_due(&self, now: OffsetDateTime) -> bool {
        self.is_pending() && self.due_at.is_some_and(|at| at <= now)
    }

    fn is_held_by(&self, claim: Uuid) -> bool {
        self.is_pending() && self.claim == Some(claim)
    }

    fn is_lost(&self) -> bool {
        let is_over = matches!(self.file.file.state, FileState::Failed | FileState::Expired);
        is_over && self.reported_at.is_none()
    }
}

/// The tables, with the rules that every store of files follows.
#[derive(Clone, Debug)]
pub struct FileTables {
    /// The store's clock.
    pub now: OffsetDateTime,
    pub files: BTreeMap<MediaId, InMemoryFile>,
    /// When requests of each number failed.
    pub failures: BTreeMap<String, Vec<OffsetDateTime>>,
    /// The events that were appended, with their accounts.
    pub events: Vec<(AccountId, Event)>,
    pub bug: Option<PlantedFileBug>,
}

impl FileTables {
    pub fn new(now: OffsetDateTime) -> Self {
        Self {
            now,
            files: BTreeMap::new(),
            failures: BTreeMap::new(),
            events: vec![],
            bug: None,
        }
    }

    fn has_bug(&self, bug: PlantedFileBug) -> bool {
        self.bug == Some(bug)
    }

    /// The failed requests of a number within the last hour.
    pub fn recent_failures(&self, number: &str) -> Vec<OffsetDateTime> {
        let failures = self.failures.get(number).into_iter().flatten().copied();
        failures.filter(|at| *at > self.now - Duration::HOUR).collect()
    }

    /// The file that the next claim takes.
    pub fn first_due(&self) -> Option<MediaId> {
        let ignores_lease = self.has_bug(PlantedFileBug::ClaimIgnoresLease);
        let is_due = |row: &InMemoryFile| row.is_due(self.now) || ignores_lease && row.claim.is_some();
        let due = self.files.iter().filter(|(_, row)| is_due(row));
        due.min_by_key(|(id, row)| (row.due_at, **id)).map(|(id, _)| *id)
    }

    pub fn claim(&mut self, claim: Uuid, lease: Duration) -> FileClaim {
        let Some(id) = self.first_due() else {
            return FileClaim::Idle;
        };
        self.abandon(id, false);
        let Some(row) = self.files.get(&id) else {
            return FileClaim::Idle;
        };
        let (number, written_at) = (row.number.clone(), row.file.facts.written_at);
        if !is_over(written_at, self.now) && !self.may_request(&number) {
            return FileClaim::Postponed;
        }
        let due_at = self.now.saturating_add(lease);
        let row = self.files.get_mut(&id);
        row.map_or(FileClaim::Idle, |row| {
            (row.claim, row.due_at) = (Some(claim), Some(due_at));
            let file = ClaimedFile {
                claim,
                ..row.file.clone()
            };
            FileClaim::Claimed(Box::new(file))
        })
    }

    /// Takes a file from a worker whose lease has expired.
    fn abandon(&mut self, id: MediaId, waits: bool) {
        let forgets_bytes = self.has_bug(PlantedFileBug::AbandonedBytesForgotten)
            || waits && self.has_bug(PlantedFileBug::WaitingBytesForgotten);
        let Some(row) = self.files.get_mut(&id) else { return };
        let Some(claim) = row.claim.take() else { return };
        let number = row.number.clone();
        if !forgets_bytes {
            row.file.abandoned.push(claim);
        }
        if !self.has_bug(PlantedFileBug::AbandonedRequestIgnored) {
            self.failures.entry(number).or_default().push(self.now);
        }
    }

    /// Whether the number may make a request. If not, its due files wait.
    fn may_request(&mut self, number: &str) -> bool {
        let failures = self.recent_failures(number);
        let now = self.now;
        let of_number = self.files.values().filter(|row| row.number == number);
        // A claim whose lease has expired counts, too, until it is abandoned.
        let is_open = |row: &&InMemoryFile| match self.bug {
            Some(PlantedFileBug::OpenRequestIgnored) => false,
            Some(PlantedFileBug::ExpiredRequestIgnored) => row.claim.is_some() && row.due_at > Some(now),
            _ => row.claim.is_some(),
        };
        let open = of_number.filter(is_open).count();
        let max = usize::try_from(MAX_FAILED_REQUESTS).unwrap_or(usize::MAX);
        if failures.len() + open < max {
            return true;
        }
        let first_failure = failures.iter().min().filter(|_| failures.len() >= max);
        let free_at = first_failure.map_or(now + Duration::SECOND, |at| *at + Duration::HOUR);
        let due = self.files.iter();
        let due = due.filter(|(_, row)| row.number == number && row.is_due(now));
        let due: Vec<MediaId> = due.map(|(id, _)| *id).collect();
        let is_forever = self.has_bug(PlantedFileBug::PostponedForever);
        for id in due {
            self.abandon(id, true);
            if let Some(row) = self.files.get_mut(&id) {
                let after = free_at + Duration::seconds(row.file.facts.attempts.into());
                let end = row.file.facts.written_at + FETCH_FOR;
                row.due_at = Some(after.min(end.max(now + Duration::SECOND))).filter(|_| !is_forever);
            }
        }
        false
    }

    pub fn renew(&mut self, file: &ClaimedFile, lease: Duration) -> bool {
        if self.has_bug(PlantedFileBug::RenewIgnoresClaim) {
            return true;
        }
        let due_at = self.now.saturating_add(lease);
        let row = self.files.get_mut(&file.file.id);
        let held = row.filter(|row| row.is_held_by(file.claim));
        held.is_some_and(|row| {
            row.due_at = Some(due_at);
            true
        })
    }

    pub fn record(
        &mut self,
        file: &ClaimedFile,
        decision: &FetchDecision,
        failed_requests: u16,
        events: &[Event],
    ) -> bool {
        let (now, bug) = (self.now, self.bug);
        let Some(row) = self.files.get_mut(&file.file.id) else {
            return false;
        };
        if failed_requests > 0 && bug != Some(PlantedFileBug::FailureNotCounted) {
            let failures = self.failures.entry(row.number.clone()).or_default();
            failures.extend((0..failed_requests).map(|_| now));
        }
        if !row.is_held_by(file.claim) && bug != Some(PlantedFileBug::RecordIgnoresClaim) {
            return false;
        }
        (row.claim, row.due_at) = (None, None);
        row.file.abandoned.clone_from(&file.abandoned);
        let published = &mut row.file.file;
        match decision {
            FetchDecision::Ready(content) => {
                row.key = Some(file.claim);
                let mime_type = || content.content_type.map(|kind| kind.to_string());
                *published = MessageFile {
                    state: FileState::Ready,
                    size: Some(content.size),
                    sha256: Some(hex::encode(content.sha256)),
                    mime_type: published.mime_type.take().or_else(mime_type),
                    ..published.clone()
                };
            }
            FetchDecision::Retry {
                due_at,
                attempts,
                mismatches,
            } => {
                row.due_at = Some(*due_at);
                row.file.facts.attempts = *attempts;
                if bug != Some(PlantedFileBug::MismatchNotCounted) {
                    row.file.facts.mismatches = *mismatches;
                }
            }
            FetchDecision::Failed(reason) => {
                (published.state, published.reason) = (FileState::Failed, Some(*reason));
            }
            FetchDecision::Expired => published.state = FileState::Expired,
        }
        if bug != Some(PlantedFileBug::EventLost) {
            self.events
                .extend(events.iter().map(|event| (file.account_id, event.clone())));
        }
        true
    }

    pub fn report_lost(&mut self, interval: Duration, event: fn(u64) -> Event) -> bool {
        let mut lost: BTreeMap<AccountId, u64> = BTreeMap::new();
        for row in self.files.values().filter(|row| row.is_lost()) {
            *lost.entry(row.file.account_id).or_default() += 1;
        }
        let since = self.now - interval;
        let reported = self.files.values().filter(|row| row.reported_at > Some(since));
        for account in reported.map(|row| row.file.account_id) {
            lost.remove(&account);
        }
        let rows = self.files.values_mut();
        let rows = rows.filter(|row| row.is_lost() && lost.contains_key(&row.file.account_id));
        rows.for_each(|row| row.reported_at = Some(self.now));
        self.events
            .extend(lost.iter().map(|(account, count)| (*account, event(*count))));
        !lost.is_empty()
    }
}
