//! The steps of a history, and the state that they change: the in-memory store, and the claims of its workers.

use proptest::prelude::*;
use proptest::sample::select;
use recado_domain::media::in_memory::{FileTables, InMemoryFile, PlantedFileBug};
use recado_domain::media::{
    ClaimedFile, FETCH_LEASE, FetchDecision, FetchFacts, FileClaim, FileFailure, FileKind, FileState, MessageFile,
    MessageFileType, StoredContent, lost_files_event,
};
use recado_domain::shared::AccountId;
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::histories::number;

pub(super) const START: OffsetDateTime = datetime!(2099-03-31 23:00 UTC);

/// The duration of a step. It makes the time of every step unique.
const STEP_TIME: Duration = Duration::microseconds(1_000_001);

/// WhatsApp's ids of the numbers.
const NUMBERS: [&str; 2] = ["1065", "1066"];

pub(super) fn accounts() -> [AccountId; 2] {
    [1, 2].map(|number| AccountId(Uuid::from_u128(number << 64)))
}

/// The conversation of an account, and its contact.
pub(super) fn conversation(account: AccountId) -> Uuid {
    Uuid::from_u128(account.0.as_u128() + 1)
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    Ready,
    Retry { after: Duration, is_mismatch: bool },
    Failed,
    Expired,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A file of an account and a number arrives. `age` is that of its message.
    Add {
        account: usize,
        number: usize,
        age: Duration,
    },
    Claim,
    /// The worker of a claim renews it.
    Renew(usize),
    /// The worker of a claim records an outcome.
    Record {
        claim: usize,
        outcome: Outcome,
        has_failed: bool,
        /// The file store has deleted the bytes of abandoned claims.
        has_deleted: bool,
    },
    ReportLost,
    PassTime(Duration),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum StepOutcome {
    Nothing,
    Claimed(FileClaim),
    Is(bool),
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) tables: FileTables,
    /// What each worker has claimed.
    pub(super) claims: Vec<ClaimedFile>,
    pub(super) outcome: StepOutcome,
}

pub(super) const REPORT_INTERVAL: Duration = Duration::HOUR;

impl State {
    pub(super) fn new(bug: Option<PlantedFileBug>) -> Self {
        let mut tables = FileTables::new(START);
        tables.bug = bug;
        Self {
            tables,
            claims: vec![],
            outcome: StepOutcome::Nothing,
        }
    }

    pub(super) fn new_file(&self, account: usize, at: usize, age: Duration) -> InMemoryFile {
        let account = accounts()[account];
        let id = number(self.tables.files.len());
        InMemoryFile {
            file: ClaimedFile {
                account_id: account,
                message_id: id.into(),
                conversation_id: conversation(account).into(),
                contact_id: conversation(account),
                profile_id: number(500).into(),
                wa_media_id: format!("media {id}"),
                expected_sha256: None,
                facts: FetchFacts {
                    attempts: 0,
                    mismatches: 0,
                    written_at: self.tables.now - age,
                },
                file: MessageFile {
                    id: id.into(),
                    kind: FileKind::Image,
                    mime_type: None,
                    file_name: None,
                    size: None,
                    sha256: None,
                    state: FileState::Pending,
                    reason: None,
                    expires_at: None,
                },
                claim: Uuid::nil(),
                abandoned: vec![],
            },
            number: NUMBERS[at].to_owned(),
            due_at: Some(self.tables.now),
            claim: None,
            key: None,
            reported_at: None,
        }
    }

    /// The id of the next claim.
    pub(super) fn next_claim(&self) -> Uuid {
        number(1000 + self.claims.len())
    }

    /// The claim and the decision that a step records.
    pub(super) fn recorded(&self, step: &Step) -> Option<(ClaimedFile, FetchDecision, u16)> {
        let Step::Record {
            claim,
            outcome,
            has_failed,
            has_deleted,
        } = step
        else {
            return None;
        };
        let mut file = self.claims.get(*claim)?.clone();
        if *has_deleted {
            file.abandoned.clear();
        }
        let facts = file.facts;
        let decision = match outcome {
            Outcome::Ready => FetchDecision::Ready(StoredContent {
                size: 3,
                sha256: [7; 32],
                content_type: Some(MessageFileType::Jpeg),
            }),
            Outcome::Retry { after, is_mismatch } => FetchDecision::Retry {
                due_at: self.tables.now + *after,
                attempts: facts.attempts + 1,
                mismatches: facts.mismatches + u16::from(*is_mismatch),
            },
            Outcome::Failed => FetchDecision::Failed(FileFailure::Host),
            Outcome::Expired => FetchDecision::Expired,
        };
        Some((file, decision, u16::from(*has_failed)))
    }

    /// The state in which the step is executed.
    pub(super) fn begun(&self, step: &Step) -> Self {
        let mut state = self.clone();
        state.tables.now += match step {
            Step::PassTime(time) => *time + STEP_TIME,
            _ => STEP_TIME,
        };
        state.tables.events.clear();
        state.outcome = StepOutcome::Nothing;
        state
    }

    pub(super) fn after(self, step: &Step) -> Self {
        let mut state = self.begun(step);
        state.outcome = match step {
            Step::Add { account, number, age } => {
                let row = state.new_file(*account, *number, *age);
                state.tables.files.insert(row.file.file.id, row);
                StepOutcome::Nothing
            }
            Step::Claim => {
                let claim = state.tables.claim(self.next_claim(), FETCH_LEASE);
                if let FileClaim::Claimed(file) = &claim {
                    state.claims.push((**file).clone());
                }
                StepOutcome::Claimed(claim)
            }
            Step::Renew(claim) => match state.claims.get(*claim).cloned() {
                Some(file) => StepOutcome::Is(state.tables.renew(&file, FETCH_LEASE)),
                None => StepOutcome::Nothing,
            },
            Step::Record { .. } => match state.recorded(step) {
                Some((file, decision, failed)) => {
                    StepOutcome::Is(state.tables.record(&file, &decision, failed, &[lost_files_event(7)]))
                }
                None => StepOutcome::Nothing,
            },
            Step::ReportLost => StepOutcome::Is(state.tables.report_lost(REPORT_INTERVAL, lost_files_event)),
            Step::PassTime(_) => StepOutcome::Nothing,
        };
        state
    }

    /// Which of the files that are due at the same time comes first is open.
    pub(super) fn is_allowed(&self, step: &Step) -> bool {
        let begun = self.begun(step);
        let first = begun.tables.first_due().and_then(|id| begun.tables.files.get(&id));
        let Some(first) = first.filter(|_| matches!(step, Step::Claim)) else {
            return true;
        };
        let pending = begun.tables.files.values().filter(|row| row.is_pending());
        pending.filter(|row| row.due_at == first.due_at).count() == 1
    }

    /// Mostly a claim that is current.
    fn any_claim(&self) -> BoxedStrategy<usize> {
        let is_current = |at: &usize| {
            let file = &self.claims[*at];
            self.tables.files[&file.file.id].claim == Some(file.claim)
        };
        let current: Vec<usize> = (0..self.claims.len()).filter(is_current).collect();
        let any = 0..self.claims.len().max(1);
        match current.is_empty() {
            true => any.boxed(),
            false => prop_oneof![6 => select(current), 1 => any].boxed(),
        }
    }

    pub(super) fn any_step(&self) -> BoxedStrategy<Step> {
        let ages = select(vec![
            Duration::ZERO,
            Duration::ZERO,
            Duration::hours(167),
            Duration::days(8),
        ]);
        let times = select(vec![
            Duration::seconds(10),
            Duration::seconds(61),
            Duration::minutes(20),
            Duration::HOUR,
            Duration::DAY,
        ]);
        let after = select(vec![Duration::seconds(5), Duration::minutes(2), Duration::HOUR]);
        let outcome = prop_oneof![
            2 => Just(Outcome::Ready),
            6 => (after, any::<bool>()).prop_map(|(after, is_mismatch)| Outcome::Retry { after, is_mismatch }),
            1 => Just(Outcome::Failed),
            1 => Just(Outcome::Expired),
        ];
        let record = (self.any_claim(), outcome, any::<bool>(), prop::bool::weighted(0.8));
        prop_oneof![
            5 => (0..2_usize, 0..2_usize, ages).prop_map(|(account, number, age)| Step::Add { account, number, age }),
            8 => Just(Step::Claim),
            1 => self.any_claim().prop_map(Step::Renew),
            6 => record.prop_map(|(claim, outcome, has_failed, has_deleted)| Step::Record {
                claim,
                outcome,
                has_failed,
                has_deleted,
            }),
            1 => Just(Step::ReportLost),
            5 => times.prop_map(Step::PassTime),
        ]
        .boxed()
    }
}
