//! Does row-level security bind tenant transactions, and does every table have it?

use recado_domain::shared::StoreError;
use recado_postgres::{PgDiagnostics, TenantRole, tenant_role};

use super::context::{AreaOutcome, DoctorContext};
use super::database::unavailable;
use super::diagnosis::Diagnosis;
use recado_api::error_chain::chain;

/// A role of the database must neither bypass row-level security nor be able to become one that does.
pub(super) async fn check_roles(context: &DoctorContext) -> AreaOutcome {
    let role = match tenant_role(context.tenant()?).await {
        Ok(role) => role,
        // The owner's connection works, so the tenant's role or its settings are wrong.
        Err(error) if recado_postgres::pending(context.owner()?).await.is_ok() => return Ok(vec![refused(&error)]),
        Err(error) => return Ok(vec![unavailable("roles", &error)]),
    };
    Ok(diagnose_role(&role))
}

fn refused(error: &StoreError) -> Diagnosis {
    Diagnosis::fail(
        "roles",
        format!("no connection as the tenant role: {}", chain(error)),
        "run recado migrate, which creates the role recado_tenant; a connection proxy must keep the start-up options",
    )
}

fn diagnose_role(role: &TenantRole) -> Vec<Diagnosis> {
    let name = &role.name;
    let mut checks = Vec::new();
    let mut fail = |found: String, remedy: String| checks.push(Diagnosis::fail("roles", found, remedy));
    if role.superuser {
        fail(
            format!("the tenant role {name} is a superuser, whom row-level security does not bind"),
            format!("ALTER ROLE {name} NOSUPERUSER"),
        );
    }
    if role.bypasses_row_security {
        fail(
            format!("the tenant role {name} has BYPASSRLS"),
            format!("ALTER ROLE {name} NOBYPASSRLS"),
        );
    }
    if !role.owned_tables.is_empty() {
        fail(
            format!("the tenant role {name} owns tables: {}", role.owned_tables.join(", ")),
            "give the tables to the role of DATABASE_URL with ALTER TABLE ... OWNER TO".to_owned(),
        );
    }
    if !role.inherited.is_empty() {
        fail(
            format!("the tenant role {name} is a member of {}", role.inherited.join(", ")),
            format!("revoke these roles from {name} with REVOKE"),
        );
    }
    if checks.is_empty() {
        let found = format!("the tenant role {name} is neither superuser nor owner, and row-level security binds it");
        checks.push(Diagnosis::ok("roles", found));
    }
    checks
}

pub(super) async fn check_row_security(context: &DoctorContext) -> AreaOutcome {
    let database = PgDiagnostics::new(context.owner()?.clone());
    let check = match database.unprotected_tables().await {
        Ok(tables) if tables.is_empty() => {
            Diagnosis::ok("row_security", "row-level security protects every table of tenants")
        }
        Ok(tables) => Diagnosis::fail(
            "row_security",
            format!("row-level security or its policy is missing on: {}", tables.join(", ")),
            "ALTER TABLE ... ENABLE ROW LEVEL SECURITY; restore a dropped policy from the migrations",
        ),
        Err(error) => unavailable("row_security", &error),
    };
    Ok(vec![check])
}

#[cfg(test)]
mod tests {
    use super::super::diagnosis::DiagnosisState;
    use super::*;

    #[test]
    fn tenant_role_must_be_bound_in_every_way() {
        let bound = TenantRole {
            name: "recado_tenant".into(),
            superuser: false,
            bypasses_row_security: false,
            owned_tables: Vec::new(),
            inherited: Vec::new(),
        };
        let ok = diagnose_role(&bound);
        assert_eq!((ok.len(), ok[0].state), (1, DiagnosisState::Ok));
        let cases = [
            (
                TenantRole {
                    superuser: true,
                    ..bound.clone()
                },
                "superuser",
            ),
            (
                TenantRole {
                    bypasses_row_security: true,
                    ..bound.clone()
                },
                "BYPASSRLS",
            ),
            (
                TenantRole {
                    owned_tables: vec!["contacts".into()],
                    ..bound.clone()
                },
                "contacts",
            ),
            (
                TenantRole {
                    inherited: vec!["postgres".into()],
                    ..bound.clone()
                },
                "postgres",
            ),
        ];
        for (role, word) in cases {
            let checks = diagnose_role(&role);
            assert_eq!((checks.len(), checks[0].state), (1, DiagnosisState::Fail), "{word}");
            assert!(checks[0].found.contains(word), "{checks:?}");
        }
        let all = TenantRole {
            superuser: true,
            bypasses_row_security: true,
            ..bound
        };
        assert_eq!(diagnose_role(&all).len(), 2);
    }
}
