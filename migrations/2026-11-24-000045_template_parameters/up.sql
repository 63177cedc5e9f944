-- Named placeholders, and components of a synchronised template that Recado cannot send.

ALTER TABLE message_templates
  -- `positional` or `named`.
  ADD COLUMN parameter_format text NOT NULL DEFAULT 'positional',
  -- Values of the published `reasons`, for components of WhatsApp's template that no column stores.
  ADD COLUMN unsupported jsonb NOT NULL DEFAULT '[]';
