DROP INDEX whatsapp_callbacks_due_at_idx;
CREATE INDEX whatsapp_callbacks_due_at_idx ON whatsapp_callbacks (due_at);
