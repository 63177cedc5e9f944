//! The use cases of RFM: the report, the request for a calculation, and the worker's calculations.

use std::sync::Arc;

use time::{Duration, OffsetDateTime, Time, UtcOffset};

use super::{ENOUGH_ORDERS, RfmClaim, RfmError, RfmReport, RfmSegment, RfmStore, RfmTotals, SegmentSize, grid};
use crate::shared::{AccountId, Clock, ErrorReport, Ids, LeaseOutcome, SideStep, StoreError, Tenant};

/// The lease of a claimed calculation. The worker renews it during the calculation.
const LEASE: Duration = Duration::seconds(30);

const RETRY_AFTER: Duration = Duration::minutes(5);

/// The start (in UTC) and length of the night in UTC-3, the time zone of most accounts.
const NIGHT_START: Duration = Duration::hours(3);
const NIGHT_LENGTH: Duration = Duration::hours(4);

/// The most accounts that one iteration plans.
const PLAN_BATCH: i64 = 500;

/// The use cases of the API.
pub struct Rfm {
    store: Arc<dyn RfmStore>,
}

impl Rfm {
    pub fn new(store: Arc<dyn RfmStore>) -> Self {
        Self { store }
    }

    /// Reports the sizes of the RFM segments.
    pub async fn report(&self, tenant: &Tenant) -> Result<RfmReport, StoreError> {
        Ok(report(self.store.totals(tenant.account_id).await?))
    }

    /// Requests a new calculation, which a worker runs soon. A repeated request has no further effect.
    pub async fn recalculate(&self, tenant: &Tenant) -> Result<(), RfmError> {
        if !tenant.role.manages() {
            return Err(RfmError::NotPermitted);
        }
        Ok(self.store.request(tenant.account_id).await?)
    }
}

fn report(totals: RfmTotals) -> RfmReport {
    let enabled = totals.orders >= ENOUGH_ORDERS;
    let calculated_at = totals.calculated_at.filter(|_| enabled);
    let size = |segment: &RfmSegment| {
        let (_, count) = totals.sizes.iter().find(|(sized, _)| sized == segment)?;
        Some(SegmentSize {
            segment: *segment,
            count: *count,
            last_calculated_at: calculated_at?,
        })
    };
    RfmReport {
        enabled,
        order_count: totals.orders,
        distribution: RfmSegment::ALL.iter().filter_map(size).collect(),
        last_calculated_at: calculated_at,
    }
}

/// The use cases of the worker.
pub struct RfmWork {
    store: Arc<dyn RfmStore>,
    report: Arc<dyn ErrorReport>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

impl RfmWork {
    pub fn new(
        store: Arc<dyn RfmStore>,
        report: Arc<dyn ErrorReport>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Self {
        Self {
            store,
            report,
            clock,
            ids,
        }
    }

    /// Plans the first calculation of accounts without one. Returns true if more accounts may need it.
    pub async fn plan(&self) -> Result<bool, StoreError> {
        let accounts = self.store.unplanned(PLAN_BATCH).await?;
        let now = self.clock.now();
        let due: Vec<_> = accounts
            .iter()
            .map(|&account| (account, next_night(account, now)))
            .collect();
        if !due.is_empty() {
            self.store.plan(&due).await?;
        }
        Ok(i64::try_from(due.len()).is_ok_and(|planned| planned >= PLAN_BATCH))
    }

    /// Claims a due calculation.
    pub async fn claim(&self) -> Result<Option<RfmClaim>, StoreError> {
        let worker = self.ids.next();
        let account = self.store.claim(worker, LEASE).await?;
        Ok(account.map(|account_id| RfmClaim { account_id, worker }))
    }

    /// Renews a claim. The worker MUST call it within `LEASE`.
    pub async fn renew(&self, claim: &RfmClaim) -> Result<LeaseOutcome, StoreError> {
        self.store.renew(claim, LEASE).await
    }

    /// Releases a claim, so that another worker can take the calculation at once.
    pub async fn give_back(&self, claim: &RfmClaim) -> Result<(), StoreError> {
        self.store.postpone(claim, self.clock.now()).await
    }

    /// Runs a calculation. A failed calculation is retried after
    /// `RETRY_AFTER`, and the scores do not change.
    pub async fn calculate(&self, claim: &RfmClaim) -> Result<LeaseOutcome, StoreError> {
        let next = next_night(claim.account_id, self.clock.now());
        let calculated = self.store.calculate(claim, &grid(), ENOUGH_ORDERS, next).await;
        if calculated.is_err() {
            // If the release fails too, the lease expires.
            if let Err(error) = self.store.postpone(claim, self.clock.now() + RETRY_AFTER).await {
                self.report.swallowed(SideStep::PostponeScores, &error);
            }
        }
        calculated
    }
}

/// Returns the account's time in the next night. It is the same every night; accounts are spread over the night.
fn next_night(account: AccountId, now: OffsetDateTime) -> OffsetDateTime {
    let seconds = u128::try_from(NIGHT_LENGTH.whole_seconds()).unwrap_or(1);
    // The last bits of a UUID are random.
    let offset = (account.0.as_u128() & u128::from(u32::MAX)) % seconds;
    let offset = Duration::seconds(i64::try_from(offset).unwrap_or_default());
    let tonight = now.to_offset(UtcOffset::UTC).replace_time(Time::MIDNIGHT) + NIGHT_START + offset;
    if tonight > now {
        tonight
    } else {
        tonight + Duration::DAY
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::MockRfmStore;
    use super::*;
    use crate::shared::{MockClock, MockErrorReport, MockIds, Role, UserId};

    const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

    fn totals(orders: i64, calculated_at: Option<OffsetDateTime>) -> RfmTotals {
        RfmTotals {
            orders,
            calculated_at,
            sizes: vec![(RfmSegment::Lost, 2), (RfmSegment::Champions, 1)],
        }
    }

    #[test]
    fn rfm_report_is_empty_below_the_minimum_orders() {
        let report = json!(report(totals(19, Some(NOW))));
        let expected = json!({ "enabled": false, "orderCount": 19, "distribution": [], "lastCalculatedAt": null });
        assert_eq!(report, expected);
    }

    #[test]
    fn rfm_report_lists_segments_best_first() {
        let at = "2026-03-01T12:00:00.000Z";
        let expected = json!({ "enabled": true, "orderCount": 20, "lastCalculatedAt": at, "distribution": [
            { "segment": "champions", "count": 1, "last_calculated_at": at },
            { "segment": "lost", "count": 2, "last_calculated_at": at },
        ] });
        assert_eq!(json!(report(totals(20, Some(NOW)))), expected);
    }

    #[test]
    fn rfm_report_without_calculation_has_no_time() {
        let report = report(RfmTotals {
            sizes: vec![],
            ..totals(20, None)
        });
        assert!(report.enabled && report.distribution.is_empty() && report.last_calculated_at.is_none());
    }

    #[tokio::test]
    async fn rfm_recalculation_requires_owner_or_admin() {
        for &role in Role::ALL {
            let mut store = MockRfmStore::new();
            store
                .expect_request()
                .times(usize::from(role.manages()))
                .returning(|_| Ok(()));
            let tenant = Tenant::for_tests(AccountId(Uuid::nil()), UserId(Uuid::nil()), role);
            let requested = Rfm::new(Arc::new(store)).recalculate(&tenant).await;
            assert_eq!(requested.is_ok(), role.manages(), "{role}");
        }
    }

    #[tokio::test]
    async fn rfm_failure_is_postponed_and_reported() {
        let mut store = MockRfmStore::new();
        store
            .expect_calculate()
            .returning(|_, _, _, _| Err(StoreError::Corrupt("x".into())));
        store.expect_postpone().times(1).returning(|_, until| {
            assert_eq!(until, NOW + RETRY_AFTER);
            Err(StoreError::Corrupt("y".into()))
        });
        let mut report = MockErrorReport::new();
        report
            .expect_swallowed()
            .times(1)
            .withf(|step, _| *step == SideStep::PostponeScores)
            .returning(|_, _| ());
        let mut clock = MockClock::new();
        clock.expect_now().return_const(NOW);
        let work = RfmWork::new(
            Arc::new(store),
            Arc::new(report),
            Arc::new(clock),
            Arc::new(MockIds::new()),
        );
        let claim = RfmClaim {
            account_id: AccountId(Uuid::nil()),
            worker: Uuid::nil(),
        };
        assert!(work.calculate(&claim).await.is_err());
    }

    #[test]
    fn rfm_schedule_spreads_accounts_over_the_night() {
        let account = AccountId(Uuid::from_u128(3600));
        assert_eq!(next_night(account, NOW), datetime!(2026-03-02 4:00 UTC));
        assert_eq!(
            next_night(account, datetime!(2026-03-02 3:59:59 UTC)),
            datetime!(2026-03-02 4:00 UTC)
        );
        assert_eq!(
            next_night(account, datetime!(2026-03-02 4:00 UTC)),
            datetime!(2026-03-03 4:00 UTC)
        );
        for number in 0..1000 {
            let due = next_night(AccountId(Uuid::from_u128(number * 7_919)), NOW);
            assert!(due >= datetime!(2026-03-02 3:00 UTC) && due < datetime!(2026-03-02 7:00 UTC));
        }
    }
}
