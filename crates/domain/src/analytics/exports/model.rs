//! Kinds of exports, their records and columns.

use time::OffsetDateTime;
use uuid::Uuid;

use crate::shared::{redacted_debug, string_enum, timestamp};

string_enum! {
    /// The kind of records in an export.
    ExportKind {
        /// Messages of conversations and of campaigns.
        Messages = "messages",
        /// Contacts.
        Contacts = "contacts",
        /// Campaigns.
        Campaigns = "campaigns",
    }
}

impl ExportKind {
    /// The cells of the header line.
    pub(super) fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Messages => &["Data", "Direção", "Tipo", "Status", "Conteúdo", "address"],
            Self::Contacts => &["Nome", "Telefone", "Email", "Criado em", "wa_user_id"],
            Self::Campaigns => &["Nome", "Status", "Criado em", "Agendado para"],
        }
    }
}

/// A record of an export.
#[derive(Clone, PartialEq, Eq)]
pub enum ExportRecord {
    /// A message in either direction.
    Message {
        created_at: OffsetDateTime,
        direction: String,
        kind: String,
        status: String,
        /// The text of the message; for a campaign's message, the body of its template.
        text: Option<String>,
        /// The kind of address that the message left to.
        address: Option<String>,
    },
    Contact {
        name: String,
        phone: Option<String>,
        email: Option<String>,
        created_at: OffsetDateTime,
        wa_user_id: Option<String>,
    },
    Campaign {
        name: String,
        status: String,
        created_at: OffsetDateTime,
        scheduled_at: Option<OffsetDateTime>,
    },
}

redacted_debug!(
    enum ExportRecord {
        Message,
        Contact,
        Campaign,
    }
);

impl ExportRecord {
    /// Returns the cells in the order of the columns.
    pub(super) fn into_cells(self) -> Vec<String> {
        match self {
            Self::Message {
                created_at,
                direction,
                kind,
                status,
                text,
                address,
            } => vec![
                timestamp::format(created_at),
                direction,
                kind,
                status,
                text.unwrap_or_default(),
                address.unwrap_or_default(),
            ],
            Self::Contact {
                name,
                phone,
                email,
                created_at,
                wa_user_id,
            } => vec![
                name,
                phone.unwrap_or_default(),
                email.unwrap_or_default(),
                timestamp::format(created_at),
                wa_user_id.unwrap_or_default(),
            ],
            Self::Campaign {
                name,
                status,
                created_at,
                scheduled_at,
            } => vec![
                name,
                status,
                timestamp::format(created_at),
                scheduled_at.map(timestamp::format).unwrap_or_default(),
            ],
        }
    }
}

/// The position of a record: its time, then its ids. The ids of a campaign's message are its campaign and its contact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportPosition {
    pub at: OffsetDateTime,
    pub id: Uuid,
    pub part: Uuid,
}
