//! Use cases of verification: the checks after a profile was entered, on request and by schedule, and the health.

use std::sync::Arc;

use futures_util::future::join_all;
use secrecy::SecretString;
use serde_json::{Map, Value, json};
use time::{Duration, OffsetDateTime};

use super::asking::{Answers, Asking};
use super::changes::change_events;
use super::{Check, NumberHealth, VerificationGateway, VerificationStore, VerificationUpdate};
use crate::messaging::ProfileKey;
use crate::shared::{
    AccountId, AuditAction, Cipher, Clock, Conflict, Event, ProfileId, StoreError, Tenant, Timer, retry_on_conflict,
};
use crate::whatsapp::service::{AUDITED, check_pin};
use crate::whatsapp::{Profile, ProfileError, ProfileStore, StoredProfile};

/// How long a request waits for WhatsApp's answers, all together.
const REQUEST_LIMIT: Duration = Duration::seconds(8);

/// How long a worker waits for WhatsApp's answers about one profile. Well below [`LEASE`].
const WORKER_LIMIT: Duration = Duration::seconds(30);

/// How long a worker has claimed a due profile.
const LEASE: Duration = Duration::minutes(2);

pub struct VerificationPorts {
    pub profiles: Arc<dyn ProfileStore>,
    pub store: Arc<dyn VerificationStore>,
    pub gateway: Arc<dyn VerificationGateway>,
    pub cipher: Arc<dyn Cipher>,
    pub clock: Arc<dyn Clock>,
    pub timer: Arc<dyn Timer>,
}

/// Verifies profiles.
pub struct Verifications {
    ports: VerificationPorts,
}

/// How the recording of answers ended.
enum Recorded {
    Done(Profile),
    /// The ids, the token or the PIN were entered again meanwhile: the answers concern the earlier ones.
    Outdated(Profile),
}

impl Verifications {
    pub fn new(ports: VerificationPorts) -> Self {
        Self { ports }
    }

    /// Checks a profile whose ids, token or PIN were just stored, and returns it as it is then. If WhatsApp does not
    /// answer in time, the profile stays pending, and a worker checks it.
    pub async fn check_entered(
        &self,
        account: AccountId,
        id: ProfileId,
        pin: Option<&SecretString>,
    ) -> Result<Profile, ProfileError> {
        let stored = self.find(account, id).await?;
        let answers = self.ask(account, &stored, pin, REQUEST_LIMIT).await;
        match self.record(account, stored, &answers, None).await? {
            Recorded::Done(profile) | Recorded::Outdated(profile) => Ok(profile),
        }
    }

    /// Checks a profile on request. If WhatsApp cannot be asked, nothing changes.
    pub async fn verify(
        &self,
        tenant: &Tenant,
        id: ProfileId,
        pin: Option<&SecretString>,
    ) -> Result<Profile, ProfileError> {
        check_pin(pin)?;
        let stored = self.find(tenant.account_id, id).await?;
        let answers = self.ask(tenant.account_id, &stored, pin, REQUEST_LIMIT).await;
        if answers.has_unknown() {
            return Err(ProfileError::Unanswered(answers.checks));
        }
        let mut changes = Map::from_iter([("verified".to_owned(), json!(true))]);
        changes.extend(pin.map(|_| ("pin".to_owned(), json!("given"))));
        let audit = tenant.audit(AuditAction::Update, AUDITED, id);
        let audit = Event::Audit(audit.with_changes(Value::Object(changes)));
        match self.record(tenant.account_id, stored, &answers, Some(audit)).await? {
            Recorded::Done(profile) => Ok(profile),
            Recorded::Outdated(_) => Err(Conflict.into()),
        }
    }

    /// Checks at most `limit` profiles whose check is due. Returns whether there were any.
    pub async fn check_due(&self, limit: i64) -> Result<bool, StoreError> {
        let due = self.ports.store.claim_due(limit, LEASE).await?;
        let checks = join_all(due.iter().map(|key| self.check_claimed(*key))).await;
        checks.into_iter().collect::<Result<(), StoreError>>()?;
        Ok(!due.is_empty())
    }

    async fn check_claimed(&self, ProfileKey { account_id, profile_id }: ProfileKey) -> Result<(), StoreError> {
        let Some(stored) = self.ports.profiles.find(account_id, profile_id).await? else {
            return Ok(());
        };
        let answers = self.ask(account_id, &stored, None, WORKER_LIMIT).await;
        match self.record(account_id, stored, &answers, None).await {
            Err(ProfileError::Store(error)) => Err(error),
            // Others changed or removed the profile. If its check is still due, it is claimed again.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Asks the checks of a profile, without a registration, and records nothing. None: the profile does not exist.
    pub async fn probe(&self, key: ProfileKey) -> Result<Option<Vec<Check>>, StoreError> {
        let Some(stored) = self.ports.profiles.find(key.account_id, key.profile_id).await? else {
            return Ok(None);
        };
        let answers = self.ask(key.account_id, &stored, None, WORKER_LIMIT).await;
        Ok(Some(answers.checks))
    }

    /// The health of a number. WhatsApp is asked at most once a minute for each profile.
    pub async fn health(&self, tenant: &Tenant, id: ProfileId) -> Result<NumberHealth, ProfileError> {
        let account = tenant.account_id;
        let stored = self.find(account, id).await?;
        let activity = self.ports.store.activity(account, id).await?;
        let activity = activity.ok_or(ProfileError::NotFound)?;
        if activity.is_fresh() {
            return Ok(NumberHealth::new(stored.profile, activity, None));
        }
        let report = match self.asking(account, &stored, REQUEST_LIMIT) {
            Some(asking) => asking.health().await.ok(),
            None => None,
        };
        let Some(report) = report else {
            return Ok(NumberHealth::new(stored.profile, activity, None));
        };
        let version = stored.credentials_version;
        self.ports.store.record_health(account, id, version, &report).await?;
        // Read again: the database says when the answer was stored. It is not stored if the credentials have changed.
        let recorded = self.ports.store.activity(account, id).await?;
        let recorded = recorded.ok_or(ProfileError::NotFound)?;
        let report = (!recorded.is_fresh()).then_some(report);
        Ok(NumberHealth::new(stored.profile, recorded, report))
    }

    async fn find(&self, account: AccountId, id: ProfileId) -> Result<StoredProfile, ProfileError> {
        let stored = self.ports.profiles.find(account, id).await?;
        stored.ok_or(ProfileError::NotFound)
    }

    /// None if the stored token cannot be decrypted.
    fn asking(&self, account: AccountId, stored: &StoredProfile, limit: Duration) -> Option<Asking<'_>> {
        let ports = &self.ports;
        let credentials = stored.credentials(account, &*ports.cipher)?;
        Some(Asking::new(
            &*ports.gateway,
            &*ports.timer,
            &*ports.clock,
            credentials,
            limit,
        ))
    }

    async fn ask(
        &self,
        account: AccountId,
        stored: &StoredProfile,
        pin: Option<&SecretString>,
        limit: Duration,
    ) -> Answers {
        match self.asking(account, stored, limit) {
            Some(asking) => asking.checks(pin, stored.profile.messages_per_second).await,
            None => Answers::unreadable_token(),
        }
    }

    /// Records answers about the credentials of `stored`. A concurrent check or update of the number does not discard
    /// them: they are applied to the newer state.
    async fn record(
        &self,
        account: AccountId,
        stored: StoredProfile,
        answers: &Answers,
        audit: Option<Event>,
    ) -> Result<Recorded, ProfileError> {
        let (version, id) = (stored.credentials_version, stored.profile.id);
        let asked_when_due = stored.profile.verification.next_check_at;
        let mut first = Some(stored);
        retry_on_conflict(|| {
            let first = first.take();
            let audit = audit.clone();
            async move {
                let current = match first {
                    Some(stored) => stored,
                    None => self.find(account, id).await?,
                };
                if current.credentials_version != version {
                    return Ok(Some(Recorded::Outdated(current.profile)));
                }
                let update = self.update(&current, answers, asked_when_due);
                let (verification, number) = (&update.record.verification, &update.number);
                let mut events = change_events(&current.profile, verification, number, None);
                events.extend(audit);
                let outcome = self.ports.store.record(account, id, &update, &events).await?;
                Ok(outcome.or_missing(ProfileError::NotFound)?.map(|()| {
                    Recorded::Done(Profile {
                        verification: update.record.verification,
                        number: update.number,
                        ..current.profile
                    })
                }))
            }
        })
        .await
    }

    fn update(
        &self,
        current: &StoredProfile,
        answers: &Answers,
        asked_when_due: Option<OffsetDateTime>,
    ) -> VerificationUpdate {
        let profile = &current.profile;
        let now = self.ports.clock.now();
        let mut record = current
            .verification_record()
            .after(answers.checks.clone(), profile.id, now);
        let due = profile.verification.next_check_at;
        // An update of the number that came while WhatsApp was asked waits for a check of its own.
        if due != asked_when_due {
            let next = record.verification.next_check_at;
            record.verification.next_check_at = [due, next].into_iter().flatten().min();
        }
        let number = profile.number.clone();
        VerificationUpdate {
            credentials_version: current.credentials_version,
            verification_version: current.verification_version,
            record,
            number: match &answers.number {
                Some(read) => number.updated(read.clone()),
                None => number,
            },
        }
    }
}

#[cfg(test)]
mod tests;
