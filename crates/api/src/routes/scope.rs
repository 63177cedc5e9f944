//! The API key scope of a route, derived from its path and access when the route table is compiled. A route of an
//! unknown area does not compile.

#![allow(
    clippy::panic,
    reason = "evaluated while the table is compiled, where a panic is a compile error"
)]

use recado_domain::shared::{RouteScope, ScopeArea, ScopeVerb};

use crate::web::route::Access;

/// The scope that an API key needs for a route, beside the role. `None`: no API key opens the route.
pub(super) const fn of(path: &str, access: Access) -> Option<RouteScope> {
    let verb = match access {
        Access::Read => ScopeVerb::Read,
        Access::Write => ScopeVerb::Write,
        Access::Public | Access::Session | Access::Manage | Access::Administrator => return None,
    };
    match RouteScope::new(area(first_segment(path)), verb) {
        Some(scope) => Some(scope),
        None => panic!("the area of this route has no scope for its access level"),
    }
}

/// The first segment of a path below `/api/`.
const fn first_segment(path: &str) -> &[u8] {
    let Some((prefix, rest)) = path.as_bytes().split_at_checked("/api/".len()) else {
        panic!("the path of a route of an account begins with /api/")
    };
    assert!(
        matches!(prefix, b"/api/"),
        "the path of a route of an account begins with /api/"
    );
    let mut length = 0;
    let mut tail = rest;
    while let [byte, after @ ..] = tail {
        if *byte == b'/' {
            break;
        }
        length += 1;
        tail = after;
    }
    let (segment, _) = rest.split_at(length);
    segment
}

const fn area(segment: &[u8]) -> ScopeArea {
    match segment {
        b"contacts" | b"tags" | b"folders" => ScopeArea::Contacts,
        b"segments" => ScopeArea::Segments,
        b"campaigns" => ScopeArea::Campaigns,
        b"messages" => ScopeArea::Messages,
        b"conversations" | b"media" => ScopeArea::Conversations,
        b"templates" => ScopeArea::Templates,
        b"whatsapp" => ScopeArea::Whatsapp,
        b"webhooks" => ScopeArea::Webhooks,
        b"events" | b"orders" | b"carts" | b"ad-spend" => ScopeArea::Ingest,
        b"automations" => ScopeArea::Automations,
        b"links" => ScopeArea::Links,
        b"analytics" => ScopeArea::Analytics,
        b"brand-context" => ScopeArea::Brand,
        b"notifications" => ScopeArea::Notifications,
        b"team" | b"api-keys" | b"audit-logs" | b"billing" | b"settings" | b"retention" => ScopeArea::Account,
        _ => panic!("the first path segment of this route belongs to no scope area"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::TABLE;

    #[test]
    fn scope_follows_from_first_segment_and_access() {
        let scope = |path, access| of(path, access).map(|scope| scope.to_string());
        for (path, access, expected) in [
            ("/api/contacts/{id}/tags", Access::Write, Some("contacts:write")),
            ("/api/folders", Access::Read, Some("contacts:read")),
            ("/api/campaigns/{id}/preview", Access::Read, Some("campaigns:read")),
            ("/api/media/{id}", Access::Read, Some("conversations:read")),
            ("/api/ad-spend", Access::Write, Some("ingest:write")),
            ("/api/brand-context", Access::Read, Some("brand:read")),
            ("/api/audit-logs", Access::Read, Some("account:read")),
            ("/api/team/invites", Access::Manage, None),
            ("/api/accounts", Access::Session, None),
            ("/api/admin/stats", Access::Administrator, None),
            ("/healthz", Access::Public, None),
        ] {
            assert_eq!(scope(path, access).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn every_route_for_keys_has_a_scope() {
        for spec in TABLE {
            let is_for_keys = matches!(spec.access, Access::Read | Access::Write);
            assert_eq!(spec.scope.is_some(), is_for_keys, "{} {}", spec.method, spec.path);
        }
        let sends = TABLE
            .iter()
            .filter(|spec| spec.scope == Some(RouteScope::CAMPAIGNS_SEND));
        assert_eq!(sends.count(), 6);
    }
}
