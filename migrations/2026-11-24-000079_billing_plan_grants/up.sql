-- The plan that a platform administrator granted, beside the paid one. `plan` stays the plan that the account shows.
ALTER TABLE accounts ADD COLUMN granted_plan text;
-- A plan without a subscription that could have brought it was granted.
-- safe: one row per account, in one pass over a small table.
UPDATE accounts a SET granted_plan = a.plan
WHERE a.plan <> 'free' AND NOT EXISTS (SELECT FROM subscriptions s
  WHERE s.account_id = a.id AND NOT s.attempt AND s.lapsed_at IS NULL);
-- If an administrator changes a paid plan, the transaction of the subscription withdraws the grant.
GRANT UPDATE (granted_plan) ON accounts TO recado_tenant;
