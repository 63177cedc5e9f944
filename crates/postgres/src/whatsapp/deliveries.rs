//! Delivery news, applied to campaign sends.

use async_trait::async_trait;
use diesel_async::AsyncPgConnection;
use recado_domain::shared::{AccountId, StoreError};
use recado_domain::whatsapp::{DeliveryNews, DeliveryStore};
use uuid::Uuid;

use crate::campaigns::{Settlement, lock_sends};
use crate::errors::{Attempt, retry};
use crate::pool::TenantPool;

/// Delivery news, applied to campaign sends.
#[derive(Clone, Debug)]
pub struct PgDeliveries(TenantPool);

impl PgDeliveries {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool)
    }
}

#[async_trait]
impl DeliveryStore for PgDeliveries {
    async fn apply(&self, account: AccountId, news: &[DeliveryNews]) -> Result<Vec<usize>, StoreError> {
        if news.is_empty() {
            return Ok(vec![]);
        }
        retry(|| async {
            let mut tx = self.0.begin(account).await?;
            let applied = apply(tx.conn()?, account, news).await;
            tx.end(applied).await
        })
        .await
    }
}

async fn apply(conn: &mut AsyncPgConnection, account: AccountId, news: &[DeliveryNews]) -> Attempt<Vec<usize>> {
    let ids: Vec<Uuid> = news.iter().filter_map(|item| item.send_id).map(Uuid::from).collect();
    let messages: Vec<String> = news.iter().map(|item| item.message_id.clone()).collect();
    let mut sends = lock_sends(conn, account, ids, messages).await?;
    let mut unmatched = Vec::new();
    for (position, item) in news.iter().enumerate() {
        match sends.find(item.send_id, &item.message_id) {
            None => unmatched.push(position),
            Some(send) => {
                send.learn_message(&item.message_id);
                send.advance(item.status, item.at, item.error_code, item.error_message.as_deref());
            }
        }
    }
    Settlement::of(sends).write(conn, account).await?;
    Ok(unmatched)
}
