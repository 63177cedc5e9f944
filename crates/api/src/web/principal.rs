//! Who calls.

use recado_domain::accounts::Session;
use recado_domain::shared::Tenant;

/// The caller of a request.
pub(super) enum Principal {
    Anonymous,
    User(Session),
    Member(Tenant),
}
