//! Account deletion: begins in one transaction, then continues in resumable batches under a lease.
//!
//! The account is invisible as soon as the first transaction commits. Deleting its rows and files and cancelling its
//! subscription at the payment gateway takes longer for larger accounts and can be resumed at any point. An unavailable
//! gateway does not delay the deletion: the cancellation is retried until the gateway responds.

use std::sync::Arc;

use time::Duration;

use super::{Admin, AdministrationError, DeletionStore, GatewayCancellation, PlatformEntity};
use crate::billing::{PaymentGateway, PaymentGatewayError};
use crate::media::{MediaStore, MediaStoreError};
use crate::shared::{AccountId, AuditAction, Clock, ErrorReport, SideStep};

/// Lease of a deletion, renewed by every batch. After it another worker continues the deletion.
pub const DELETION_LEASE: Duration = Duration::minutes(2);

/// Retry delay of a gateway cancellation.
pub const CANCELLATION_PAUSE: Duration = Duration::minutes(5);

/// How long a subscription whose creation has an unknown outcome is looked for at the gateway. Equals billing's
/// `ABANDONED_FOR`.
pub const CANCELLATION_WATCH_TIME: Duration = Duration::days(1);

/// Use cases of account deletion: the request, and the workers that complete it.
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

    /// Deletes an account permanently. If it fails after its first step, the account stays invisible and a worker
    /// completes the deletion.
    pub async fn delete(&self, admin: &Admin, account: AccountId) -> Result<(), AdministrationError> {
        let watched_until = self.clock.now() + CANCELLATION_WATCH_TIME;
        let entry = admin.platform_entry(AuditAction::Delete, PlatformEntity::Account, account);
        let begun = self.store.begin(account, DELETION_LEASE, watched_until, entry);
        begun.await?.or_missing(AdministrationError::NotFound)?;
        for cancellation in self.store.cancellations(account).await? {
            // A worker retries a failed cancellation.
            if let Err(error) = self.cancel(&cancellation).await {
                self.report.swallowed(SideStep::CancelSubscription, &error);
            }
        }
        self.finish(account).await
    }

    /// Continues one deletion whose lease has expired. Returns false if there is none.
    pub async fn finish_next(&self) -> Result<bool, AdministrationError> {
        let Some(account) = self.store.claim(DELETION_LEASE).await? else {
            return Ok(false);
        };
        self.finish(account).await?;
        Ok(true)
    }

    /// Runs one due gateway cancellation of a deleted account. Returns false if none is due.
    pub async fn cancel_next(&self) -> Result<bool, AdministrationError> {
        let Some(cancellation) = self.store.claim_cancellation(CANCELLATION_PAUSE).await? else {
            return Ok(false);
        };
        self.cancel(&cancellation).await?;
        Ok(true)
    }

    /// Deletes the rows, then the files. Rows go first, because callbacks, runs and readers may still use them.
    async fn finish(&self, account: AccountId) -> Result<(), AdministrationError> {
        while self.store.purge(account, DELETION_LEASE).await?.has_more() {}
        match self.media.delete_account(account).await {
            // Without a media store the account has no files.
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
            // The subscription may still appear, or no gateway is configured: the cancellation stays queued.
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
