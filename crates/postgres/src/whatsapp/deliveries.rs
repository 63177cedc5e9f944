//! Delivery news, applied to campaign sends and to replies.

use async_trait::async_trait;
use diesel_async::AsyncPgConnection;
use recado_domain::shared::{AccountId, StoreError};
use recado_domain::whatsapp::{DeliveryNews, DeliveryStore, STOPPED_MARKETING};
use uuid::Uuid;

use crate::campaigns::{Settlement, lock_sends};
use crate::contacts::withdraw;
use crate::conversations::{find_message, lock_messages, write_messages};
use crate::errors::DbResult;
use crate::pool::TenantPool;
use crate::transactions::in_transaction;

/// Delivery news, applied to campaign sends and to replies.
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
        // Its callback is kept until this is done, and news that is told twice changes nothing.
        in_transaction!(self.0.begin_async_commit(account), |conn| apply(conn, account, news))
    }
}

/// A fixed number of statements, one more for each campaign and month.
async fn apply(conn: &mut AsyncPgConnection, account: AccountId, news: &[DeliveryNews]) -> DbResult<Vec<usize>> {
    let ids: Vec<Uuid> = news.iter().filter_map(|item| item.send_id).map(Uuid::from).collect();
    let messages: Vec<String> = news.iter().map(|item| item.message_id.clone()).collect();
    let mut sends = lock_sends(conn, account, ids, messages).await?;
    let (mut others, mut refusals) = (Vec::new(), Vec::new());
    for (position, item) in news.iter().enumerate() {
        match sends.find(item.send_id, &item.message_id) {
            None => others.push((position, item)),
            Some(send) => {
                send.learn_message(&item.message_id);
                send.advance(item.status, item.at, item.error_code, item.error_message.as_deref());
                send.price(item.status_pricing());
                if item.error_code == Some(STOPPED_MARKETING) {
                    refusals.push((send.contact(), item.at));
                }
            }
        }
    }
    withdraw(conn, account, &refusals).await?;
    Settlement::of(sends).write(conn, account).await?;
    apply_to_replies(conn, account, others).await
}

/// The positions of what is of no reply either.
async fn apply_to_replies(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    news: Vec<(usize, &DeliveryNews)>,
) -> DbResult<Vec<usize>> {
    if news.is_empty() {
        return Ok(vec![]);
    }
    let ids = news.iter().filter_map(|(_, item)| item.send_id).map(Uuid::from);
    let messages = news.iter().map(|(_, item)| item.message_id.clone());
    let mut replies = lock_messages(conn, account, ids.collect(), messages.collect()).await?;
    let mut unmatched = Vec::new();
    for (position, item) in news {
        match find_message(&mut replies, item.send_id.map(Uuid::from), &item.message_id) {
            None => unmatched.push(position),
            Some(reply) => {
                reply.learn(&item.message_id);
                reply.advance(item.status, item.error_message.as_deref());
                reply.price(item.status_pricing());
            }
        }
    }
    write_messages(conn, account, &replies).await?;
    Ok(unmatched)
}
