-- Without this index, deleting an account scans the rows of all accounts.
CREATE INDEX CONCURRENTLY whatsapp_numbers_account_id_idx ON whatsapp_numbers (account_id);
