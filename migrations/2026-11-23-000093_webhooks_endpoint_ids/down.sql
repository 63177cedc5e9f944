DROP TABLE webhook_endpoint_ids;
