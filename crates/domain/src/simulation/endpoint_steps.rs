//! Steps of members who change webhook endpoints.

use super::steps::{Simulation, tenant};
use crate::shared::{AccountId, WebhookId};
use crate::webhooks::WebhookInput;

impl Simulation {
    pub(super) fn create_endpoint(&mut self, account: AccountId) {
        let kinds = ["*", "campaign.started", "campaign.finished", "subscription.changed"];
        let kind = self.scheduler.pick(&kinds).unwrap();
        let input = WebhookInput {
            name: Some("CI".into()),
            url: Some(Some("https://e.example/".into())),
            events: Some(vec![kind.to_owned()]),
            ..WebhookInput::default()
        };
        let (webhooks, tenant) = (self.use_cases.webhooks.clone(), tenant(account));
        self.command(async move { drop(webhooks.create(&tenant, input).await) });
    }

    pub(super) fn endpoint_command(&mut self) -> String {
        let account = self.scheduler.pick(&self.accounts).unwrap();
        let tables = self.stores.webhooks.tables();
        let endpoints = tables.endpoints.iter().filter(|(_, row)| row.account_id == account);
        let endpoints: Vec<(WebhookId, bool)> =
            endpoints.map(|(id, row)| (*id, row.stored.webhook.is_active)).collect();
        drop(tables);
        let (webhooks, tenant) = (self.use_cases.webhooks.clone(), tenant(account));
        match (self.scheduler.below(8), self.scheduler.pick(&endpoints)) {
            (0..2, Some((id, _))) => {
                self.command(async move { drop(webhooks.delete(&tenant, id).await) });
                format!("delete endpoint {id}")
            }
            (2..6, Some((id, is_active))) => {
                let input = WebhookInput {
                    is_active: Some(!is_active),
                    ..WebhookInput::default()
                };
                self.command(async move { drop(webhooks.update(&tenant, id, input).await) });
                format!("set endpoint {id} active: {}", !is_active)
            }
            _ => {
                self.create_endpoint(account);
                format!("create an endpoint of account {account}")
            }
        }
    }
}
