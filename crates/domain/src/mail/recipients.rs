//! Limits on mail to one address, so that accounts cannot use the operator's mail server to harass anyone.

use time::Duration;

/// Minimum interval between two mails from one account to one address.
pub const ACCOUNT_INTERVAL: Duration = Duration::hours(1);

/// Maximum number of mails from all accounts to one address within [`DAY`].
pub const MAX_PER_DAY: i64 = 5;

/// How long a mail counts.
pub const DAY: Duration = Duration::hours(24);

/// Keyed hash of an e-mail address. Addresses that differ only in case have the same hash. Without the server's key, no
/// address can be guessed from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecipientHash(pub Vec<u8>);

/// Port to the keyed hash.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait RecipientHasher: Send + Sync {
    /// Hashes an address. MUST return the same hash in every process of the installation.
    fn hash(&self, address: &str) -> RecipientHash;
}

/// Whether an address may be sent another mail.
///
/// `from_account` is the number of mails of the sending account within [`ACCOUNT_INTERVAL`], `from_all` the number of
/// mails of all accounts within [`DAY`].
pub fn may_be_mailed(from_account: i64, from_all: i64) -> bool {
    from_account == 0 && from_all < MAX_PER_DAY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_gets_one_mail_of_an_account_and_five_a_day() {
        for (from_account, from_all, expected) in [
            (0, 0, true),
            (0, 4, true),
            (1, 1, false),
            (0, 5, false),
            (0, 6, false),
            (1, 4, false),
        ] {
            assert_eq!(
                may_be_mailed(from_account, from_all),
                expected,
                "{from_account} {from_all}"
            );
        }
    }
}
