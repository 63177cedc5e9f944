DROP POLICY tenant_isolation ON link_codes;
ALTER TABLE link_codes DISABLE ROW LEVEL SECURITY;
