-- The plan that an administrator granted, beside what the account pays for. `plan` stays what the account is shown with.
ALTER TABLE accounts ADD COLUMN granted_plan text;
-- A plan beside no subscription that could have brought it was granted.
-- safe: one row an account, in one pass over a small table.
UPDATE accounts a SET granted_plan = a.plan
WHERE a.plan <> 'free' AND NOT EXISTS (SELECT FROM subscriptions s
  WHERE s.account_id = a.id AND NOT s.attempt AND s.lapsed_at IS NULL);
-- An administrator's change of a plan that is paid for withdraws the grant in the transaction of the subscription.
GRANT UPDATE (granted_plan) ON accounts TO recado_tenant;
