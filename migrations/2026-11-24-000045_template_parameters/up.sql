-- Templates with named placeholders, and parts of a synchronised template that no message can be made of.

ALTER TABLE message_templates
  -- positional or named.
  ADD COLUMN parameter_format text NOT NULL DEFAULT 'positional',
  -- Words of the published `reasons`, for the parts of WhatsApp's template that no column holds.
  ADD COLUMN unsupported jsonb NOT NULL DEFAULT '[]';
