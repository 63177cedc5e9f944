ALTER TABLE whatsapp_callbacks DROP COLUMN claims;
