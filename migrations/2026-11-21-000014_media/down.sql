DROP INDEX campaigns_template_id_idx;
DROP TABLE whatsapp_files;
ALTER TABLE message_templates DROP COLUMN quality_score;
