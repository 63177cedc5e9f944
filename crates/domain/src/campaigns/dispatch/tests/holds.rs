//! Runs of accounts whose settings hold messages.

use proptest::prelude::*;
use time::macros::{datetime, time};
use time::{Duration, OffsetDateTime, Time};
use uuid::Uuid;

use super::fixture::{Fixture, RUN, SECOND, THIRD, accepted};
use super::{all_phones, over};
use crate::campaigns::HeldSends;
use crate::campaigns::in_memory::PlantedBug;
use crate::campaigns::{CampaignStatus, RunEnd, RunReport};
use crate::holds::{HoldCause, contact_zone, shows_quiet};
use crate::messaging::SendStatus;
use crate::settings::{AccountSettings, HeldCategory, QuietHours, QuietZone};

/// When it is 11:00 in Sao Paulo, where the contacts are. The runs begin an hour before.
const ELEVEN: OffsetDateTime = datetime!(2026-03-01 14:00 UTC);

fn quiet(from: Time, to: Time) -> AccountSettings {
    AccountSettings {
        quiet_hours: Some(QuietHours {
            from,
            to,
            zone: QuietZone::Contact,
            categories: vec![HeldCategory::Marketing],
            days: (0..7).collect(),
        }),
        ..AccountSettings::default()
    }
}

fn set(fixture: &Fixture, settings: AccountSettings) {
    let mut tables = fixture.runs.tables();
    tables.accounts.get_mut(&RUN.account_id).unwrap().settings = settings;
}

fn waiting(total: i64, held: i64, until: OffsetDateTime) -> RunEnd {
    RunEnd::Over(RunReport {
        total,
        sent: total - held,
        failed: 0,
        simulated: false,
        status: CampaignStatus::Sending,
        waiting: held,
        waiting_until: Some(until),
        paused: false,
    })
}

#[tokio::test]
async fn run_whose_sends_are_held_waits_and_goes_on_by_itself() {
    let fixture = Fixture::new(1200, |to, _| accepted(to)).per_second(1000);
    set(&fixture, quiet(time!(9:00), time!(11:00)));
    assert_eq!(fixture.run().await, waiting(1200, 1200, ELEVEN));
    assert_eq!((fixture.called_phones().len(), fixture.reserved_bursts().len()), (0, 0));
    let row = fixture.row(3);
    assert_eq!(
        (row.status, row.hold, row.retry_at),
        (SendStatus::Pending, Some(HoldCause::QuietHours), Some(ELEVEN))
    );
    fixture.runs.tables().check_sums().unwrap();
    fixture.runs.tables().now = ELEVEN - Duration::SECOND;
    assert_eq!(fixture.take_over(SECOND).await, None);
    fixture.runs.tables().now = ELEVEN;
    assert_eq!(
        fixture.take_over(SECOND).await,
        Some(over(1200, 1200, CampaignStatus::Completed))
    );
    assert_eq!(fixture.called_phones().len(), 1200);
    fixture.runs.tables().check_sums().unwrap();
}

#[tokio::test]
async fn changed_settings_are_checked_again_at_once() {
    let fixture = Fixture::new(3, |to, _| accepted(to));
    set(&fixture, quiet(time!(9:00), time!(11:00)));
    fixture.run().await;
    set(&fixture, quiet(time!(9:00), time!(12:00)));
    let noon = ELEVEN + Duration::HOUR;
    assert_eq!(fixture.take_over(SECOND).await, Some(waiting(3, 3, noon)));
    set(&fixture, AccountSettings::default());
    assert_eq!(
        fixture.take_over(THIRD).await,
        Some(over(3, 3, CampaignStatus::Completed))
    );
}

#[tokio::test]
async fn send_is_checked_again_when_it_starts() {
    for (bug, calls) in [(None, 1), (Some(PlantedBug::CheckedAtClaim), 3)] {
        let fixture = Fixture::new(3, |to, _| accepted(to));
        set(&fixture, quiet(time!(10:30), time!(11:00)));
        fixture.runs.tables().bug = bug;
        let runs = fixture.runs.clone();
        fixture.during_call(0, move || runs.tables().now = ELEVEN - Duration::minutes(30));
        fixture.run().await;
        // The planted bug calls in quiet hours.
        assert_eq!(fixture.called_phones(), all_phones(calls), "{bug:?}");
    }
}

#[tokio::test]
async fn send_that_was_held_too_long_fails() {
    let fixture = Fixture::new(2, |to, _| accepted(to));
    let settings = AccountSettings {
        hold_at_most_hours: 2,
        ..quiet(time!(9:00), time!(18:00))
    };
    set(&fixture, settings);
    let end = ELEVEN + Duration::HOUR;
    assert_eq!(fixture.run().await, waiting(2, 2, end));
    fixture.runs.tables().now = end;
    assert_eq!(
        fixture.take_over(SECOND).await,
        Some(over(2, 0, CampaignStatus::Partial))
    );
    let error = Some((None, "held too long: quiet_hours".to_owned()));
    assert_eq!((fixture.row(0).error, fixture.called_phones().len()), (error, 0));
    fixture.runs.tables().check_sums().unwrap();
}

#[tokio::test]
async fn waiting_run_is_cancelled_at_once() {
    let fixture = Fixture::new(2, |to, _| accepted(to));
    set(&fixture, quiet(time!(9:00), time!(11:00)));
    fixture.run().await;
    fixture.runs.cancel();
    fixture.runs.tables().now = ELEVEN;
    assert_eq!(fixture.take_over(SECOND).await, None);
    assert_eq!(fixture.row(1).status, SendStatus::Pending);
    assert_eq!(fixture.runs.tables().usage(), (0, 0));
    fixture.runs.tables().check_sums().unwrap();
}

#[tokio::test]
async fn held_send_does_not_stop_the_others() {
    let fixture = Fixture::new(3, |to, _| accepted(to));
    set(&fixture, quiet(time!(9:00), time!(11:00)));
    // Portugal has several zones, so the account's clock counts: 13:00.
    fixture.runs.tables().contact_mut(1).recipient.phone = "+351912345678".into();
    assert_eq!(fixture.run().await, waiting(3, 2, ELEVEN));
    assert_eq!(fixture.called_phones(), ["+351912345678"]);
}

/// Phones of countries whose clocks change on different days, and of one whose clocks do not change.
const PHONES: [&str; 7] = [
    "+447911123456",
    "+302101234567",
    "+96171123456",
    "+201001234567",
    "+12425550100",
    "+56912345678",
    "+5511961234567",
];

/// A run of the account at a time, with these settings. Returns the fixture after the end of the run.
async fn run_of_world(begin: OffsetDateTime, settings: &AccountSettings, delays: &[i64]) -> Fixture {
    let fixture = Fixture::new(PHONES.len(), |to, _| accepted(to));
    set(&fixture, settings.clone());
    {
        let mut tables = fixture.runs.tables();
        for (at, phone) in PHONES.iter().enumerate() {
            tables.contact_mut(at).recipient.phone = (*phone).to_owned();
        }
        tables.now = begin;
        let entry = tables.entry_mut(RUN.campaign_id).unwrap();
        entry.leased_until = begin + Duration::HOUR;
    }
    let mut end = fixture.run().await;
    for (number, delay) in (100_u128..).zip(delays.iter().cycle().take(50)) {
        let RunEnd::Over(RunReport {
            waiting_until: Some(until),
            ..
        }) = end
        else {
            break;
        };
        fixture.runs.tables().check_sums().unwrap();
        fixture.runs.tables().now = until + Duration::minutes(*delay);
        end = fixture.take_over(Uuid::from_u128(number)).await.unwrap();
    }
    fixture
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// In random worlds over both changes of the clock no message starts in quiet hours, and every send ends.
    #[test]
    fn no_message_of_a_random_world_starts_in_quiet_hours(
        is_autumn in any::<bool>(),
        start in 0_i64..45 * 1440,
        from in 0_u16..1440,
        length in 1_u16..1440,
        days in prop::collection::btree_set(0_u8..7, 1..=7),
        of_account in any::<bool>(),
        hold_at_most_hours in 1_u16..=168,
        delays in prop::collection::vec(0_i64..180, 1..4),
    ) {
        let minute = |minute: u16| Time::from_hms((minute / 60 % 24).try_into().unwrap(), (minute % 60).try_into().unwrap(), 0).unwrap();
        let mut settings = quiet(minute(from), minute((from + length) % 1440));
        settings.timezone = "America/New_York".parse().unwrap();
        settings.hold_at_most_hours = hold_at_most_hours;
        let hours = settings.quiet_hours.as_mut().unwrap();
        hours.days = days.into_iter().collect();
        hours.zone = if of_account { QuietZone::Account } else { QuietZone::Contact };
        let hours = hours.clone();
        let season = if is_autumn { datetime!(2026-10-01 00:00 UTC) } else { datetime!(2026-03-05 00:00 UTC) };
        let begin = season + Duration::minutes(start);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let fixture = runtime.block_on(run_of_world(begin, &settings, &delays));
        fixture.runs.tables().check_sums().unwrap();
        for (at, phone) in PHONES.iter().enumerate() {
            let zone = match hours.zone {
                QuietZone::Account => settings.timezone.zone(),
                QuietZone::Contact => contact_zone(None, Some(*phone), &settings.timezone),
            };
            let row = fixture.row(at);
            match row.started_at {
                Some(started_at) => prop_assert!(!shows_quiet(&hours, &zone, started_at), "{phone} at {started_at}"),
                None => {
                    let held = row.failed_at.unwrap() - begin;
                    prop_assert!(held >= Duration::hours(hold_at_most_hours.into()), "{phone} failed after {held}");
                    prop_assert!(shows_quiet(&hours, &zone, row.failed_at.unwrap()));
                }
            }
            prop_assert!(row.status != SendStatus::Pending);
        }
    }
}

/// Another worker may take the run between its wait and its report.
#[test]
fn end_of_a_waiting_run_is_never_read_as_a_pause() {
    let held = HeldSends {
        count: 2,
        until: ELEVEN,
    };
    let report = |status, paused| RunReport {
        total: 3,
        sent: 1,
        failed: 0,
        simulated: false,
        status,
        waiting: 0,
        waiting_until: None,
        paused,
    };
    let taken = RunEnd::Over(report(CampaignStatus::Sending, false));
    assert_eq!(taken.of_waiting(held), waiting(3, 2, ELEVEN));
    for other in [
        RunEnd::Over(report(CampaignStatus::Sending, true)),
        RunEnd::Over(report(CampaignStatus::Cancelled, false)),
        RunEnd::Gone,
    ] {
        assert_eq!(other.clone().of_waiting(held), other);
    }
}
