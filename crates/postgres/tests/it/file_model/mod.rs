//! Contract test of the store of message files. The store on a real database and the in-memory store execute the same
//! random steps. After each step the outcomes, all rows and all appended events must be equal.
//!
//! The steps are those of workers that die, stall and lose their claim. Time passes only by steps.
//!
//! Not covered: uploads, expiry, reads, and concurrent claims.
//!
//! Every failure is reproducible: `RECADO_SEED=7 RECADO_RUNS=40 cargo test -p recado-postgres --test it file_model`.

mod state;
mod system;

use recado_domain::media::in_memory::PlantedFileBug;

use self::state::State;
use self::system::{System, with_bug, with_database};
use crate::histories::{self, falsify, seed_and_cases};

/// The number of steps of a history.
const STEPS: std::ops::Range<usize> = 10..60;

#[test]
fn file_store_matches_the_in_memory_store() {
    let played = with_database("", || {
        histories::play::<System>(seed_and_cases(), STEPS, |_: &State| String::new())
    });
    if let Err(failure) = played {
        panic!("{failure}");
    }
}

#[test]
fn falsified_files_are_found() {
    for change in [
        // The lease of a claim ends at once.
        "IF NEW.claim_id IS NOT NULL THEN NEW.due_at := OLD.due_at; END IF;",
        // The claim of a worker that died is forgotten.
        "NEW.abandoned := OLD.abandoned;",
        // An attempt is not counted.
        "NEW.attempts := OLD.attempts;",
        // The key of the bytes is lost.
        "NEW.file_id := NULL;",
        // A lost file is reported again.
        "NEW.lost_reported_at := NULL;",
    ] {
        with_database(&falsify("message_media", "UPDATE", change), || {
            histories::assert_found::<System>(change, 1, STEPS);
        });
    }
}

/// The bugs that the simulation plants.
#[test]
fn bugs_of_the_in_memory_file_store_are_found() {
    use PlantedFileBug::*;
    with_database("", || {
        for (quick_seed, bug) in [
            (1, ClaimIgnoresLease),
            (1, RecordIgnoresClaim),
            (1, RenewIgnoresClaim),
            (1, OpenRequestIgnored),
            (1, ExpiredRequestIgnored),
            (1, FailureNotCounted),
            (1, AbandonedRequestIgnored),
            (1, AbandonedBytesForgotten),
            (1, WaitingBytesForgotten),
            (1, MismatchNotCounted),
            (1, PostponedForever),
            (1, EventLost),
        ] {
            with_bug(bug, || {
                histories::assert_found::<System>(&format!("{bug:?}"), quick_seed, STEPS);
            });
        }
    });
}
