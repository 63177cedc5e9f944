//! What happened to files, and the checks of every change.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};
use time::{Duration, OffsetDateTime};

use super::MAX_BYTES;
use super::ports::FileWorld;
use crate::media::in_memory::{FileTables, InMemoryFile};
use crate::media::{FETCH_FOR, FileState, MAX_FAILED_REQUESTS};
use crate::shared::{Clock as _, Event, MediaId};
use crate::simulation::executor::Scheduler;

/// A fetcher that was stalled so shortly ago may have lost its claim without noticing.
const LATE: Duration = Duration::MINUTE;

/// So many contents with a wrong hash end the fetch.
const MAX_MISMATCHES: usize = 3;

#[derive(Default)]
pub(super) struct FileLedger {
    states: BTreeMap<MediaId, FileState>,
    /// When requests of each number failed.
    failed: BTreeMap<String, Vec<OffsetDateTime>>,
    /// How often WhatsApp sent each content.
    sent: BTreeMap<String, usize>,
    violations: Vec<String>,
}

impl FileLedger {
    pub(super) fn first_violation(&self) -> Result<(), String> {
        self.violations
            .first()
            .map_or(Ok(()), |violation| Err(violation.clone()))
    }

    /// A request of a stalled fetcher comes after its lease: nothing can count it in time.
    pub(super) fn request_failed(&mut self, scheduler: &Scheduler, number: &str) {
        if scheduler.is_late(LATE) {
            return;
        }
        let now = scheduler.now();
        let failed = self.failed.entry(number.to_owned()).or_default();
        failed.push(now);
        failed.retain(|at| *at > now - Duration::HOUR);
        if i64::try_from(failed.len()).unwrap() > MAX_FAILED_REQUESTS {
            let violation = format!("{} requests of {number} failed within an hour", failed.len());
            self.violations.push(violation);
        }
    }

    pub(super) fn content_sent(&mut self, media_id: &str) {
        *self.sent.entry(media_id.to_owned()).or_default() += 1;
    }

    /// Compares the rows with those before, and takes the events.
    pub(super) fn committed(&mut self, world: &FileWorld, tables: &mut FileTables) {
        let mut ready: Vec<MediaId> = vec![];
        for (id, row) in &tables.files {
            let state = row.file.file.state;
            let before = self.states.insert(*id, state).unwrap_or(FileState::Pending);
            if before == state {
                continue;
            }
            if before != FileState::Pending {
                self.violations
                    .push(format!("file {} was {before} and is {state}", id.0));
            }
            if state == FileState::Ready {
                ready.push(*id);
            }
            if let Err(violation) = check_ended(world, row) {
                self.violations.push(violation);
            }
        }
        let published: Vec<String> = tables.events.drain(..).map(|(_, event)| media_id(&event)).collect();
        let ready: Vec<String> = ready.iter().map(|id| id.0.to_string()).collect();
        if published != ready {
            self.violations
                .push(format!("{ready:?} became ready, and the events name {published:?}"));
        }
        self.check_claims(tables);
    }

    /// The requests that are open or failed never exceed the maximum, as far as the store can know.
    fn check_claims(&mut self, tables: &FileTables) {
        for number in ["1065", "1066"] {
            let of_number = tables.files.values().filter(|row| row.number == number);
            let open = of_number.filter(|row| row.claim.is_some() && row.due_at > Some(tables.now));
            let count = open.count();
            if i64::try_from(count).unwrap() > MAX_FAILED_REQUESTS {
                self.violations.push(format!("{count} files of {number} are claimed"));
            }
        }
    }

    /// Checks the result after a time without failures.
    pub(super) fn check_end(world: &FileWorld, tables: &FileTables, healed_at: OffsetDateTime) -> Result<(), String> {
        for (id, row) in &tables.files {
            let offered = world.offer(row);
            let fits = offered.content.len() <= usize::try_from(MAX_BYTES).unwrap();
            let is_whole = fits && !offered.is_hash_wrong && !offered.is_foreign;
            // An hour of requests that failed may come first, and the files before this one.
            let in_time = row.file.facts.written_at + FETCH_FOR > healed_at + Duration::DAY;
            let state = row.file.file.state;
            if state == FileState::Pending || is_whole && in_time && state != FileState::Ready {
                return Err(format!("file {} is {state} in the end", id.0));
            }
            if state == FileState::Ready {
                check_ended(world, row)?;
            }
            let sent = world.ledger().sent.get(&row.file.wa_media_id).copied();
            if offered.is_hash_wrong
                && state == FileState::Failed
                && sent.unwrap_or_default() < MAX_MISMATCHES
                && fits
                && !offered.is_foreign
            {
                return Err(format!("file {} failed after {sent:?} contents", id.0));
            }
            if offered.is_hash_wrong && state == FileState::Expired && in_time {
                return Err(format!("file {} was never given up", id.0));
            }
        }
        let stored = world.stored();
        let is_named = |key| tables.files.values().any(|row| row.key == Some(key));
        match stored.iter().find(|(key, bytes)| !is_named(**key) && !bytes.is_late) {
            Some((key, _)) => Err(format!("no row names the stored bytes {key}")),
            None => Ok(()),
        }
    }
}

/// The id of the file that an event names.
fn media_id(event: &Event) -> String {
    match event {
        Event::Webhook(event) => event.items[0]["media"]["id"].as_str().unwrap().to_owned(),
        _ => "another event".to_owned(),
    }
}

/// A ready file has all bytes of the content, and the file store has them.
fn check_ended(world: &FileWorld, row: &InMemoryFile) -> Result<(), String> {
    let file = &row.file.file;
    if file.state != FileState::Ready {
        return Ok(());
    }
    let offered = world.offer(row);
    let stored = world.stored();
    let bytes = row.key.and_then(|key| stored.get(&key));
    let is_same = bytes.is_some_and(|stored| stored.bytes == offered.content);
    let sha256 = hex::encode(Sha256::digest(&offered.content));
    if !is_same || file.sha256.as_deref() != Some(&*sha256) {
        return Err(format!("file {} is ready without its bytes", file.id.0));
    }
    Ok(())
}
