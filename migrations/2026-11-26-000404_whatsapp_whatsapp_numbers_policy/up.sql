-- A tenant registers numbers only for its own account: callbacks are routed by this directory.
SELECT make_tenant_table('whatsapp_numbers');
