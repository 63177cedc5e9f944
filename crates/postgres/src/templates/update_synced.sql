-- Writes what WhatsApp decides of templates, and their content as WhatsApp lists it. The version guards the columns that
-- members edit. Returns the values before. `seen`: ids and versions. $1 account, $2 rows as JSON, $3 ids, $4 versions.
WITH known AS MATERIALIZED (
  SELECT t.id, t.meta_status, t.category, s.version
  FROM {seen} s JOIN message_templates t ON t.account_id = $1 AND t.id = s.id
  WHERE t.deleted_at IS NULL ORDER BY t.id FOR NO KEY UPDATE OF t)
UPDATE message_templates t SET category = w.category,
  category_change = w.category_change, profile_id = w.profile_id,
  meta_template_id = w.meta_template_id, meta_status = w.meta_status, rejection_reason = w.rejection_reason,
  quality_score = w.quality_score, unsupported = w.unsupported, parameter_format = w.parameter_format,
  correct_category = w.correct_category, rejection_recommendation = w.rejection_recommendation,
  message_send_ttl_seconds = w.message_send_ttl_seconds, limited_time_offer = w.limited_time_offer,
  template_type = w.template_type, header_type = w.header_type, header_text = w.header_text,
  header_media_url = w.header_media_url, body_text = w.body_text, footer_text = w.footer_text, buttons = w.buttons,
  variables = w.variables, carousel_cards = w.carousel_cards, updated_at = w.updated_at, version = t.version + 1
FROM known k JOIN jsonb_populate_recordset(NULL::message_templates, $2) w ON w.id = k.id
WHERE t.account_id = $1 AND t.id = k.id AND t.deleted_at IS NULL AND t.version = k.version
RETURNING t.id, k.category, k.meta_status
