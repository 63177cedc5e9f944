UPDATE webhook_endpoints SET url = NULL WHERE direction = 'inbound';
ALTER TABLE webhook_endpoints DROP CONSTRAINT webhook_endpoints_url_check,
  ADD CONSTRAINT webhook_endpoints_url_check CHECK ((direction = 'outbound') = (url IS NOT NULL));
