-- A worker continues after the last claimed callback, so the order of the queue is total.
DROP INDEX whatsapp_callbacks_due_at_idx;
CREATE INDEX whatsapp_callbacks_due_at_idx ON whatsapp_callbacks (due_at, id);
