-- Why tenant pools must not use the role `role`; empty: no reason. `tenant_role`: the role with their privileges.
-- No parameters.
SELECT CASE
  WHEN r.rolsuper THEN 'is a superuser, which row-level security does not bind'
  WHEN r.rolbypassrls THEN 'bypasses row-level security (BYPASSRLS)'
  WHEN EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace
      AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND pg_has_role(r.oid, c.relowner, 'MEMBER'))
    THEN 'owns tables, and row-level security does not bind the owner of a table'
  WHEN EXISTS (SELECT FROM pg_database d WHERE d.datname = current_database()
      AND pg_has_role(r.oid, d.datdba, 'MEMBER')) THEN 'owns the database'
  WHEN EXISTS (SELECT FROM pg_roles m WHERE pg_has_role(r.oid, m.oid, 'MEMBER') AND (m.rolsuper
      OR m.rolbypassrls OR m.rolcreaterole OR m.rolreplication OR m.rolname IN
        ('pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files')))
    THEN 'has, or can assume, rights that pass row-level security (CREATEROLE, REPLICATION, BYPASSRLS, '
      || 'superuser, programs or files of the server)'
  WHEN NOT EXISTS (SELECT FROM pg_roles t WHERE t.rolname = '{tenant_role}'
      AND pg_has_role(r.oid, t.oid, 'USAGE'))
    THEN 'does not have the privileges of {tenant_role}; run recado migrate with TENANT_DATABASE_URL'
  ELSE '' END AS text
FROM pg_roles r WHERE r.rolname = {role}
