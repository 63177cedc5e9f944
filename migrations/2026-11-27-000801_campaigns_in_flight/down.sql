ALTER TABLE campaigns DROP COLUMN run_quota_month;
DROP INDEX campaign_sends_unknown_idx;
DROP TABLE campaign_claims;
