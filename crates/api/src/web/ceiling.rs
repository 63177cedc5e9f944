//! `REQUESTS_PER_MINUTE`: the operator's ceiling above the published limits. It is off by default.

use recado_domain::limits::Limit;

use super::principal::Principal;
use super::route::RouteSpec;

/// Anonymous routes without a ceiling: probes of the operator's own systems, and WhatsApp's callbacks, which come signed
/// from few addresses and for all accounts.
const EXEMPT: [&str; 3] = ["/healthz", "/readyz", "/api/whatsapp/webhook"];

/// The ceiling of a request and the key under which it counts: the account, the user on routes without an account, or
/// the address on anonymous routes without a published limit.
pub(super) fn ceiling(
    spec: &RouteSpec,
    requests_per_minute: Option<u32>,
    principal: &Principal,
    address: impl FnOnce() -> String,
) -> Option<(String, Limit)> {
    let limit = Limit::per_minute(requests_per_minute?);
    let caller = match principal {
        Principal::Member(tenant) => tenant.account_id.to_string(),
        Principal::User(session) => session.user_id.to_string(),
        Principal::Anonymous if spec.rate.is_some() || is_exempt(spec) => return None,
        Principal::Anonymous => address(),
    };
    Some((format!("requests:{caller}"), limit))
}

/// Whether the route has no ceiling.
pub fn is_exempt(spec: &RouteSpec) -> bool {
    EXEMPT.contains(&spec.path)
}

#[cfg(test)]
mod tests {
    use recado_domain::shared::{AccountId, Role, Tenant, UserId};
    use uuid::Uuid;

    use super::*;
    use crate::routes::TABLE;

    fn key_of(path: &str, principal: &Principal) -> Option<String> {
        let spec = TABLE.iter().find(|spec| spec.path == path).unwrap();
        ceiling(spec, Some(10), principal, || "192.0.2.7".into()).map(|(key, _)| key)
    }

    #[test]
    fn ceiling_counts_accounts_and_addresses() {
        let account = AccountId(Uuid::from_u128(1));
        let member = Principal::Member(Tenant::for_tests(account, UserId(Uuid::from_u128(2)), Role::Viewer));
        for path in ["/api/contacts", "/api/campaigns/{id}/execute"] {
            assert_eq!(key_of(path, &member).unwrap(), format!("requests:{account}"), "{path}");
        }
        assert_eq!(
            key_of("/r/{code}", &Principal::Anonymous).unwrap(),
            "requests:192.0.2.7"
        );
        for path in ["/healthz", "/readyz", "/api/whatsapp/webhook", "/api/billing/webhook"] {
            assert_eq!(key_of(path, &Principal::Anonymous), None, "{path}");
        }
        for path in EXEMPT {
            assert!(TABLE.iter().any(|spec| spec.path == path), "{path}");
        }
        let spec = TABLE.first().unwrap();
        assert!(ceiling(spec, None, &member, String::new).is_none());
    }
}
