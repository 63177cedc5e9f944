ALTER TABLE whatsapp_profiles DROP COLUMN version;
