//! The removal of an account: decided in one transaction, carried out piece by piece, by whoever is there.
//!
//! The account is gone for everybody the moment the removal is written down. What follows takes as long as the account
//! is large and can be begun anew at any point: its rows, its files, its subscription at the payment gateway. The
//! gateway is not asked first, since its silence must not keep an account alive; it is asked until it has answered.

use std::sync::Arc;

use time::Duration;

use super::{AdministrationError, DeletionStore, GatewayCancellation};
use crate::billing::{PaymentGateway, PaymentGatewayError};
use crate::media::{MediaStore, MediaStoreError};
use crate::shared::{AccountId, Clock, ErrorReport, SideStep};

/// How long the next piece of a removal may take before somebody else goes on with it.
pub const DELETION_LEASE: Duration = Duration::minutes(2);

/// How long the gateway is left alone before it is asked again.
pub const CANCELLATION_PAUSE: Duration = Duration::minutes(5);

/// How long a subscription whose creation has an unknown outcome is looked for at the gateway. Equals billing's
/// `ABANDONED_FOR`.
pub const CANCELLATION_WATCH_TIME: Duration = Duration::days(1);

/// The use case of removals, and the work that is left of them.
pub struct Deletions {
    store: Arc<dyn DeletionStore>,
    media: Arc<dyn MediaStore>,
    gateway: Arc<dyn PaymentGateway>,
    report: Arc<dyn ErrorReport>,
    clock: Arc<dyn Clock>,
}

impl Deletions {
    pub fn new(
        store: Arc<dyn DeletionStore>,
        media: Arc<dyn MediaStore>,
        gateway: Arc<dyn PaymentGateway>,
        report: Arc<dyn ErrorReport>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            store,
            media,
            gateway,
            report,
            clock,
        }
    }

    /// Removes an account for good. Where this fails half-way, the account is gone all the same, and a worker finishes.
    pub async fn delete(&self, account: AccountId) -> Result<(), AdministrationError> {
        let watched_until = self.clock.now() + CANCELLATION_WATCH_TIME;
        if !self.store.begin(account, DELETION_LEASE, watched_until).await? {
            return Err(AdministrationError::NotFound);
        }
        for cancellation in self.store.cancellations(account).await? {
            // What fails now is tried again by the worker.
            if let Err(error) = self.cancel(&cancellation).await {
                self.report.swallowed(SideStep::CancelSubscription, &error);
            }
        }
        self.finish(account).await
    }

    /// Goes on with one removal that nobody is at; false when there is none.
    pub async fn finish_next(&self) -> Result<bool, AdministrationError> {
        let Some(account) = self.store.claim(DELETION_LEASE).await? else {
            return Ok(false);
        };
        self.finish(account).await?;
        Ok(true)
    }

    /// Ends one subscription of a removed account at the gateway; false when none is due.
    pub async fn cancel_next(&self) -> Result<bool, AdministrationError> {
        let Some(cancellation) = self.store.claim_cancellation(CANCELLATION_PAUSE).await? else {
            return Ok(false);
        };
        self.cancel(&cancellation).await?;
        Ok(true)
    }

    /// Rows first: they are what callbacks, runs and readers might still meet.
    async fn finish(&self, account: AccountId) -> Result<(), AdministrationError> {
        while self.store.purge(account, DELETION_LEASE).await? {}
        match self.media.delete_account(account).await {
            // Where files cannot be kept there is none.
            Ok(()) | Err(MediaStoreError::NotConfigured) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.store.end(account).await?)
    }

    async fn cancel(&self, cancellation: &GatewayCancellation) -> Result<(), AdministrationError> {
        match self.cancel_at_gateway(cancellation).await {
            Ok(true) | Err(PaymentGatewayError::Missing) => {
                Ok(self.store.delete_cancellation(cancellation.subscription_id).await?)
            }
            // It may turn up yet; or nobody will answer before a gateway is configured again.
            Ok(false) | Err(PaymentGatewayError::NotConfigured) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Cancels the subscription at the gateway. Returns whether the cancellation is complete.
    async fn cancel_at_gateway(&self, cancellation: &GatewayCancellation) -> Result<bool, PaymentGatewayError> {
        if let Some(id) = &cancellation.gateway_subscription_id {
            return self.gateway.cancel(id).await.map(|()| true);
        }
        match self.gateway.find(cancellation.subscription_id).await? {
            Some(found) => self.gateway.cancel(&found.id).await.map(|()| true),
            None => Ok(cancellation.until <= self.clock.now()),
        }
    }
}
