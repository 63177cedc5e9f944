DROP POLICY tenant_isolation ON whatsapp_numbers;
ALTER TABLE whatsapp_numbers DISABLE ROW LEVEL SECURITY;
