//! Limited-time offers that end while their run lasts.

use time::Duration;

use super::fixture::{Fixture, accepted};
use super::over;
use crate::campaigns::CampaignStatus;
use crate::campaigns::service::tests::NOW;
use crate::templates::OFFER_ENDED;
use crate::templates::outbound_tests::offer_template;

#[tokio::test]
async fn offer_that_ends_within_a_minute_fails_its_sends() {
    for (seconds, sent) in [(59, 0), (60, 3)] {
        let fixture = Fixture::new(3, |to, _| accepted(to));
        fixture.runs.tables().run_mut().template = Some(offer_template(true));
        let expires_at = Some(NOW + Duration::seconds(seconds));
        fixture.runs.tables().run_mut().campaign.offer_expires_at = expires_at;
        let status = if sent == 0 {
            CampaignStatus::Partial
        } else {
            CampaignStatus::Completed
        };
        assert_eq!(fixture.run().await, over(3, sent, status), "{seconds}");
        assert_eq!(fixture.called_phones().len(), usize::try_from(sent).unwrap());
        if sent == 0 {
            assert_eq!(fixture.row(0).error, Some((None, OFFER_ENDED.into())));
        }
    }
}
