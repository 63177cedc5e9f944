-- A tenant reserves codes only for its own account.
SELECT make_tenant_table('link_codes');
