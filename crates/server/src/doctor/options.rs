//! The options of `recado doctor`.

use clap::Args;
use recado_domain::shared::AccountId;
use uuid::Uuid;

/// What to check and how to print it.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoctorOptions {
    /// Print one JSON document instead of lines.
    #[arg(long)]
    pub json: bool,
    /// Check the WhatsApp numbers of this account alone.
    #[arg(long, value_name = "ID", value_parser = parse_account_id)]
    pub account: Option<AccountId>,
}

/// Parses the id of `--account`.
pub fn parse_account_id(text: &str) -> Result<AccountId, uuid::Error> {
    Uuid::parse_str(text).map(AccountId)
}
