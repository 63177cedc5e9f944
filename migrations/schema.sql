-- The whole schema, from pg_dump of a migrated database without its partitions. `cargo xtask schema` writes this
-- file; the gate fails when it differs from the migrations.

CREATE FUNCTION public.counter_slot(messages bigint) RETURNS smallint
    LANGUAGE sql STABLE
    AS $$
  SELECT (CASE WHEN messages < 10000 THEN 0
    ELSE 1 + extract(epoch FROM now())::bigint % least(messages / 10000, 1000) END)::smallint
$$;

CREATE FUNCTION public.first_id(at timestamp with time zone) RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  SELECT overlay(repeat('0', 32) PLACING coalesce(
    lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0'), repeat('0', 12)) FROM 1)::uuid
$$;

CREATE FUNCTION public.fitting_user_id(account uuid, contact uuid, latest text, number_scope text) RETURNS text
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    AS $$
BEGIN
  RETURN coalesce(
    (SELECT i.wa_user_id FROM contact_identities i
      WHERE i.account_id = account AND i.contact_id = contact AND i.scope = number_scope),
    (SELECT i.parent_user_id FROM contact_identities i
      WHERE i.account_id = account AND i.contact_id = contact AND i.parent_user_id IS NOT NULL
      ORDER BY i.last_seen_at DESC LIMIT 1),
    CASE WHEN NOT EXISTS (SELECT 1 FROM contact_identities i
      WHERE i.account_id = account AND i.contact_id = contact AND i.wa_user_id = latest) THEN latest END);
END
$$;

CREATE FUNCTION public.has_subscribers(account uuid, kind text) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RETURN EXISTS (
    SELECT 1 FROM webhook_endpoints e
    WHERE e.account_id = account AND e.direction = 'outbound' AND e.events && ARRAY[kind, '*']);
END
$$;

CREATE FUNCTION public.last_id(at timestamp with time zone) RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  SELECT overlay(repeat('f', 32) PLACING coalesce(
    lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0'), repeat('f', 12)) FROM 1)::uuid
$$;

CREATE FUNCTION public.make_tenant_table(name regclass, account_column text DEFAULT 'account_id'::text) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
  own text := format('%I = nullif(current_setting(''app.account_id'', true), '''')::uuid', account_column);
BEGIN
  EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', name);
  EXECUTE format('CREATE POLICY tenant_isolation ON %s USING (%s) WITH CHECK (%s)', name, own, own);
END
$$;

CREATE FUNCTION public.same_person_contacts(account uuid, contact uuid) RETURNS SETOF uuid
    LANGUAGE plpgsql STABLE ROWS 2 PARALLEL SAFE
    AS $$
BEGIN
  RETURN QUERY WITH RECURSIVE person (id) AS (
    SELECT contact
    UNION
    SELECT n.id FROM person p CROSS JOIN LATERAL (
      SELECT c.same_person_as AS id FROM contacts c
        WHERE c.account_id = account AND c.id = p.id AND c.same_person_as IS NOT NULL
      UNION ALL
      SELECT c.id FROM contacts c WHERE c.account_id = account AND c.same_person_as = p.id) n)
    SELECT p.id FROM person p;
END
$$;

CREATE FUNCTION public.same_person_goes_first(account uuid, contact uuid, phone text, other uuid) RETURNS boolean
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    AS $$
BEGIN
  RETURN EXISTS (SELECT 1 FROM same_person_contacts(account, other) p (id)
    JOIN contacts o ON o.account_id = account AND o.id = p.id
    WHERE o.deleted_at IS NULL AND o.id <> contact
      AND (o.phone IS NULL, o.id) < (same_person_goes_first.phone IS NULL, contact));
END
$$;

CREATE FUNCTION public.same_person_opted_out(account uuid, other uuid) RETURNS boolean
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    AS $$
BEGIN
  RETURN EXISTS (SELECT 1 FROM same_person_contacts(account, other) p (id)
    JOIN contacts o ON o.account_id = account AND o.id = p.id
    WHERE o.deleted_at IS NULL AND o.opted_out_at IS NOT NULL);
END
$$;

CREATE FUNCTION public.send_id(frozen_at timestamp with time zone, campaign_id uuid, contact_id uuid) RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  SELECT overlay(overlay(md5(campaign_id::text || contact_id::text)
    PLACING lpad(to_hex(floor(extract(epoch FROM frozen_at) * 1000)::bigint), 12, '0') || '8' FROM 1)
    PLACING 'a' FROM 17)::uuid
$$;

CREATE FUNCTION public.set_storage(name regclass, class text) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
  options text := CASE class
    WHEN 'entity' THEN 'autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05'
    WHEN 'ledger' THEN 'autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_insert_scale_factor = 0.01,
      autovacuum_analyze_scale_factor = 0.02'
    WHEN 'queue' THEN 'fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
      autovacuum_vacuum_cost_delay = 0'
    WHEN 'counter' THEN 'fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
      autovacuum_vacuum_cost_delay = 0'
    WHEN 'rollup' THEN 'fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05'
  END;
BEGIN
  IF options IS NULL THEN
    RAISE EXCEPTION 'no storage class "%"', class USING HINT = 'The classes are entity, ledger, queue, counter, rollup.';
  END IF;
  EXECUTE format('ALTER TABLE %s SET (%s)', name, options);
END
$$;

CREATE TABLE public.account_deletions (
    account_id uuid NOT NULL,
    due_at timestamp with time zone NOT NULL,
    table_name text,
    after text[],
    created_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.account_settings (
    account_id uuid NOT NULL,
    timezone text,
    quiet_hours jsonb,
    max_marketing_per_contact jsonb,
    hold_at_most_hours smallint,
    opt_out_words jsonb,
    opt_out_words_since jsonb,
    opt_out_reply text,
    opt_out_reply_by uuid,
    late_policy jsonb,
    cost_alerts jsonb,
    holds_changed_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.account_slugs (
    slug text NOT NULL,
    account_id uuid NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.account_users (
    account_id uuid NOT NULL,
    user_id uuid NOT NULL,
    role text NOT NULL,
    last_active_at timestamp with time zone,
    is_support boolean DEFAULT false NOT NULL,
    expires_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT account_users_is_support_check CHECK ((is_support = (expires_at IS NOT NULL))),
    CONSTRAINT account_users_role_check CHECK ((role = ANY (ARRAY['owner'::text, 'admin'::text, 'member'::text, 'viewer'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.accounts (
    id uuid NOT NULL,
    name text NOT NULL,
    slug text NOT NULL,
    logo_url text,
    plan text DEFAULT 'free'::text NOT NULL,
    status text DEFAULT 'active'::text NOT NULL,
    deleting_at timestamp with time zone,
    granted_plan text,
    created_by uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT accounts_status_check CHECK ((status = ANY (ARRAY['active'::text, 'suspended'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.ad_spend (
    account_id uuid NOT NULL,
    date date NOT NULL,
    source text NOT NULL,
    amount numeric NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.api_key_hashes (
    key_hash bytea NOT NULL,
    account_id uuid NOT NULL,
    key_id uuid NOT NULL,
    valid_until timestamp with time zone,
    created_by uuid NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.api_keys (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    key_prefix text NOT NULL,
    key_hint text NOT NULL,
    last_used_at timestamp with time zone,
    scopes text[] DEFAULT '{*}'::text[] NOT NULL,
    expires_at timestamp with time zone,
    allowed_cidrs text[] DEFAULT '{}'::text[] NOT NULL,
    last_used_ip text,
    rotated_at timestamp with time zone,
    previous_valid_until timestamp with time zone,
    rotation_request bytea,
    expiry_notice text DEFAULT 'none'::text NOT NULL,
    unused_notified_at timestamp with time zone,
    notice_lease_until timestamp with time zone,
    created_by uuid NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    version bigint DEFAULT 1 NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.applied_gateway_events (
    account_id uuid NOT NULL,
    event_id uuid NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_insert_scale_factor='0.01', autovacuum_analyze_scale_factor='0.02');

CREATE TABLE public.attribution_rollups (
    account_id uuid NOT NULL,
    bucket_minutes smallint NOT NULL,
    bucket_start timestamp with time zone NOT NULL,
    kind text NOT NULL,
    attributed_to_id uuid NOT NULL,
    orders bigint DEFAULT 0 NOT NULL,
    revenue numeric DEFAULT 0 NOT NULL,
    CONSTRAINT attribution_rollups_bucket_minutes_check CHECK ((bucket_minutes = ANY (ARRAY[15, 1440, 10080]))),
    CONSTRAINT attribution_rollups_kind_check CHECK ((kind = ANY (ARRAY['campaign'::text, 'automation'::text, 'link'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.audit_counts (
    account_id uuid NOT NULL,
    month date NOT NULL,
    entity_type text NOT NULL,
    action text NOT NULL,
    n bigint NOT NULL,
    CONSTRAINT audit_counts_n_check CHECK ((n >= 0))
)
PARTITION BY RANGE (month);

CREATE TABLE public.audit_logs (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    user_id uuid,
    action text NOT NULL,
    entity_type text NOT NULL,
    entity_id uuid,
    changes jsonb,
    ip_address text,
    created_at timestamp with time zone DEFAULT now() NOT NULL
)
PARTITION BY RANGE (created_at);

CREATE TABLE public.automation_executions (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    automation_id uuid NOT NULL,
    status text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT automation_executions_status_check CHECK ((status = ANY (ARRAY['completed'::text, 'failed'::text]))),
    CONSTRAINT automation_executions_time_check CHECK ((finished_at >= started_at))
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_insert_scale_factor='0.01', autovacuum_analyze_scale_factor='0.02');

CREATE TABLE public.automation_rollups (
    account_id uuid NOT NULL,
    bucket_minutes smallint NOT NULL,
    bucket_start timestamp with time zone NOT NULL,
    automation_id uuid NOT NULL,
    completed bigint DEFAULT 0 NOT NULL,
    failed bigint DEFAULT 0 NOT NULL,
    latency numeric DEFAULT 0 NOT NULL,
    CONSTRAINT automation_rollups_bucket_minutes_check CHECK ((bucket_minutes = ANY (ARRAY[15, 1440])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.automations (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    status text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT automations_status_check CHECK ((status = ANY (ARRAY['draft'::text, 'active'::text, 'paused'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.billing_history (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    subscription_id uuid NOT NULL,
    gateway_payment_id text NOT NULL,
    billing_type text NOT NULL,
    value bigint NOT NULL,
    status text NOT NULL,
    invoice_url text,
    bank_slip_url text,
    due_date date,
    paid_at timestamp with time zone,
    confirmed boolean DEFAULT false NOT NULL,
    credited boolean DEFAULT false NOT NULL,
    last_event_at timestamp with time zone,
    cycle text,
    created_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_insert_scale_factor='0.01', autovacuum_analyze_scale_factor='0.02');

CREATE TABLE public.brand_contexts (
    account_id uuid NOT NULL,
    company_name text,
    description text,
    products_services text,
    tone_of_voice text,
    target_audience text,
    brand_values text,
    website_url text,
    raw_scrape_data jsonb,
    last_scraped_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.campaign_archives (
    account_id uuid NOT NULL,
    campaign_id uuid NOT NULL,
    file_key uuid NOT NULL,
    abandoned uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    verified_at timestamp with time zone,
    size bigint,
    sha256 bytea,
    sends bigint,
    months date[] DEFAULT '{}'::date[] NOT NULL,
    removed_at timestamp with time zone,
    retry_at timestamp with time zone,
    reported_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.campaign_budgets (
    account_id uuid NOT NULL,
    campaign_id uuid NOT NULL,
    reserved numeric DEFAULT 0 NOT NULL,
    currency text
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.campaign_claims (
    account_id uuid NOT NULL,
    campaign_id uuid NOT NULL,
    send_ids uuid[] NOT NULL,
    earlier_send_ids uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    retried_until timestamp with time zone
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');
ALTER TABLE ONLY public.campaign_claims ALTER COLUMN send_ids SET STORAGE EXTERNAL;

CREATE TABLE public.campaign_counter_slots (
    account_id uuid NOT NULL,
    campaign_id uuid NOT NULL,
    total bigint DEFAULT 0 NOT NULL,
    pending bigint DEFAULT 0 NOT NULL,
    sent bigint DEFAULT 0 NOT NULL,
    delivered bigint DEFAULT 0 NOT NULL,
    read bigint DEFAULT 0 NOT NULL,
    failed bigint DEFAULT 0 NOT NULL,
    slot smallint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE VIEW public.campaign_counters WITH (security_invoker='true') AS
 SELECT account_id,
    campaign_id,
    created_at,
    (sum(total))::bigint AS total,
    (sum(pending))::bigint AS pending,
    (sum(sent))::bigint AS sent,
    (sum(delivered))::bigint AS delivered,
    (sum(read))::bigint AS read,
    (sum(failed))::bigint AS failed
   FROM public.campaign_counter_slots
  GROUP BY account_id, campaign_id, created_at;

CREATE TABLE public.campaign_queue (
    account_id uuid NOT NULL,
    campaign_id uuid NOT NULL,
    trigger text NOT NULL,
    user_id uuid,
    ip_address text,
    worker uuid,
    leased_until timestamp with time zone,
    prepared boolean DEFAULT true NOT NULL,
    waiting_since timestamp with time zone DEFAULT now() NOT NULL,
    support_admin text,
    retry_at timestamp with time zone,
    retries integer DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    waiting_until timestamp with time zone,
    held bigint DEFAULT 0 NOT NULL,
    checked_settings_at timestamp with time zone,
    CONSTRAINT campaign_queue_trigger_check CHECK ((trigger = ANY (ARRAY['execute'::text, 'send'::text, 'schedule'::text, 'retry'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.campaign_recipient_batches (
    account_id uuid NOT NULL,
    campaign_id uuid NOT NULL,
    batch_no integer NOT NULL,
    contact_ids uuid[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');
ALTER TABLE ONLY public.campaign_recipient_batches ALTER COLUMN contact_ids SET STORAGE EXTERNAL;

CREATE TABLE public.campaign_retries (
    account_id uuid NOT NULL,
    campaign_id uuid NOT NULL,
    due_at timestamp with time zone NOT NULL,
    codes bigint[],
    force boolean NOT NULL,
    user_id uuid NOT NULL,
    support_admin text,
    created_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.campaign_retry_batches (
    account_id uuid NOT NULL,
    campaign_id uuid NOT NULL,
    batch_no integer NOT NULL,
    send_ids uuid[] NOT NULL,
    searched_until uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT campaign_retry_batches_search_check CHECK (((batch_no = 0) = (searched_until IS NOT NULL)))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');
ALTER TABLE ONLY public.campaign_retry_batches ALTER COLUMN send_ids SET STORAGE EXTERNAL;

CREATE TABLE public.campaign_run_contents (
    account_id uuid NOT NULL,
    campaign_id uuid NOT NULL,
    content jsonb NOT NULL,
    body_text text,
    created_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.campaign_send_times (
    account_id uuid NOT NULL,
    campaign_id uuid NOT NULL,
    sent_at timestamp with time zone NOT NULL,
    first_send_id uuid NOT NULL,
    send_ids uuid[] NOT NULL
)
PARTITION BY RANGE (first_send_id);
ALTER TABLE ONLY public.campaign_send_times ALTER COLUMN send_ids SET STORAGE EXTERNAL;

CREATE TABLE public.campaign_sends (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    campaign_id uuid NOT NULL,
    contact_id uuid NOT NULL,
    status text DEFAULT 'pending'::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    started_at timestamp with time zone,
    retry_at timestamp with time zone,
    unknown_at timestamp with time zone,
    sent_at timestamp with time zone,
    delivered_at timestamp with time zone,
    read_at timestamp with time zone,
    failed_at timestamp with time zone,
    error_code bigint,
    error_message text,
    wa_message_id text,
    quota_month date,
    superseded_wa_message_id text,
    never_confirmed boolean DEFAULT false NOT NULL,
    earlier_error_code bigint,
    earlier_failures integer DEFAULT 0 NOT NULL,
    pricing jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    by_user_id boolean DEFAULT false NOT NULL,
    reserved_amount numeric,
    hold_reason text,
    held_since timestamp with time zone,
    is_marketing boolean,
    CONSTRAINT campaign_sends_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'sent'::text, 'delivered'::text, 'read'::text, 'failed'::text])))
)
PARTITION BY RANGE (id);

CREATE TABLE public.campaigns (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    template_id uuid,
    segment_id uuid,
    segment_config jsonb,
    rfm_segments text[] DEFAULT '{}'::text[] NOT NULL,
    scheduled_at timestamp with time zone,
    variables jsonb,
    folder_id uuid,
    status text DEFAULT 'draft'::text NOT NULL,
    total_recipients bigint DEFAULT 0 NOT NULL,
    simulated boolean DEFAULT false NOT NULL,
    executed_at timestamp with time zone,
    completed_at timestamp with time zone,
    paused_at timestamp with time zone,
    pause_reason text,
    profile_id uuid,
    quota_month date,
    scheduled_by uuid,
    scheduled_support_admin text,
    retry_scheduled_at timestamp with time zone,
    frozen_at timestamp with time zone,
    run_quota_month date,
    created_by uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    version bigint DEFAULT 1 NOT NULL,
    header_location jsonb,
    offer_expires_at timestamp with time zone,
    reach text DEFAULT 'phone'::text NOT NULL,
    budget jsonb,
    newcomers_only boolean DEFAULT false NOT NULL,
    late_policy jsonb,
    skipped_at timestamp with time zone,
    archiving_at timestamp with time zone,
    archived_at timestamp with time zone,
    CONSTRAINT campaigns_status_check CHECK ((status = ANY (ARRAY['draft'::text, 'scheduled'::text, 'sending'::text, 'cancelled'::text, 'completed'::text, 'partial'::text, 'sent'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.cart_rollups (
    account_id uuid NOT NULL,
    bucket_minutes smallint NOT NULL,
    bucket_start timestamp with time zone NOT NULL,
    carts bigint DEFAULT 0 NOT NULL,
    recovered bigint DEFAULT 0 NOT NULL,
    CONSTRAINT cart_rollups_bucket_minutes_check CHECK ((bucket_minutes = ANY (ARRAY[15, 1440])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.carts (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    platform text NOT NULL,
    external_id text NOT NULL,
    contact_id uuid,
    total numeric NOT NULL,
    status text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT carts_status_check CHECK ((status = ANY (ARRAY['open'::text, 'abandoned'::text, 'recovered'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.contact_counts (
    account_id uuid NOT NULL,
    day date NOT NULL,
    contacts bigint NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.contact_exports (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    contact_id uuid NOT NULL,
    state text DEFAULT 'running'::text NOT NULL,
    requested_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    due_at timestamp with time zone,
    file_key uuid,
    abandoned uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    size bigint,
    sha256 bytea,
    CONSTRAINT contact_exports_state_check CHECK ((state = ANY (ARRAY['running'::text, 'done'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.contact_identities (
    account_id uuid NOT NULL,
    scope text NOT NULL,
    wa_user_id text NOT NULL,
    contact_id uuid NOT NULL,
    parent_user_id text,
    username text,
    first_seen_at timestamp with time zone NOT NULL,
    last_seen_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.contact_rfm (
    account_id uuid NOT NULL,
    contact_id uuid NOT NULL,
    recency_score smallint NOT NULL,
    frequency_score smallint NOT NULL,
    monetary_score smallint NOT NULL,
    segment text NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.contact_tags (
    account_id uuid NOT NULL,
    contact_id uuid NOT NULL,
    tag_id uuid NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.contacts (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    phone text,
    email text,
    wa_id text,
    wa_user_id text,
    attributes jsonb DEFAULT '{}'::jsonb NOT NULL,
    opted_out_at timestamp with time zone,
    consent_at timestamp with time zone,
    first_referral jsonb,
    first_referral_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    version bigint DEFAULT 1 NOT NULL,
    same_person_as uuid,
    time_zone text,
    erased_at timestamp with time zone
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.conversation_counts (
    account_id uuid NOT NULL,
    status text NOT NULL,
    conversations bigint NOT NULL,
    CONSTRAINT conversation_counts_status_check CHECK ((status = ANY (ARRAY['open'::text, 'closed'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.conversations (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    contact_id uuid NOT NULL,
    profile_id uuid,
    status text DEFAULT 'open'::text NOT NULL,
    last_message_at timestamp with time zone NOT NULL,
    last_inbound_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT conversations_status_check CHECK ((status = ANY (ARRAY['open'::text, 'closed'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.cost_months (
    account_id uuid NOT NULL,
    currency text NOT NULL,
    month date NOT NULL,
    zone text NOT NULL,
    amount numeric NOT NULL,
    summed_at timestamp with time zone
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.cost_rollups (
    account_id uuid NOT NULL,
    bucket_start timestamp with time zone NOT NULL,
    campaign_id uuid NOT NULL,
    profile_id uuid NOT NULL,
    template_id uuid NOT NULL,
    category text NOT NULL,
    market text NOT NULL,
    currency text NOT NULL,
    amount numeric DEFAULT 0 NOT NULL,
    messages bigint DEFAULT 0 NOT NULL,
    billable bigint DEFAULT 0 NOT NULL,
    free bigint DEFAULT 0 NOT NULL,
    unpriced bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.direct_message_queues (
    account_id uuid NOT NULL,
    profile_id uuid NOT NULL,
    due_at timestamp with time zone NOT NULL,
    waiting_since timestamp with time zone DEFAULT now() NOT NULL,
    hold_reason text,
    worker uuid,
    leased_until timestamp with time zone,
    held_until timestamp with time zone,
    CONSTRAINT direct_message_queues_hold_reason_check CHECK ((hold_reason = ANY (ARRAY['number'::text, 'suspended'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.direct_message_references (
    account_id uuid NOT NULL,
    client_reference text NOT NULL,
    message_id uuid NOT NULL,
    status text NOT NULL,
    request_hash bytea
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_insert_scale_factor='0.01', autovacuum_analyze_scale_factor='0.02');

CREATE TABLE public.direct_messages (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    contact_id uuid NOT NULL,
    profile_id uuid NOT NULL,
    kind text NOT NULL,
    template_id uuid,
    request jsonb NOT NULL,
    client_reference text,
    status text DEFAULT 'pending'::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    send_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    due_at timestamp with time zone,
    started_at timestamp with time zone,
    unknown_at timestamp with time zone,
    hold_reason text,
    sent_at timestamp with time zone,
    wa_message_id text,
    error_code bigint,
    error_message text,
    pricing jsonb,
    conversation_id uuid,
    quota_month date,
    created_by uuid NOT NULL,
    api_key_id uuid,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    text text,
    media_id uuid,
    by_user_id boolean DEFAULT false NOT NULL,
    failed_at timestamp with time zone,
    hold_rule text,
    held_settings_at timestamp with time zone,
    is_marketing boolean,
    CONSTRAINT direct_messages_hold_reason_check CHECK ((hold_reason = 'throttled'::text)),
    CONSTRAINT direct_messages_kind_check CHECK ((kind = ANY (ARRAY['template'::text, 'text'::text, 'media'::text, 'interactive'::text]))),
    CONSTRAINT direct_messages_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'sent'::text, 'delivered'::text, 'read'::text, 'failed'::text, 'cancelled'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_insert_scale_factor='0.01', autovacuum_analyze_scale_factor='0.02');

CREATE TABLE public.erased_opt_outs (
    account_id uuid NOT NULL,
    hash bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.erasures (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    contact_id uuid NOT NULL,
    state text DEFAULT 'running'::text NOT NULL,
    reason text,
    requested_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    removed jsonb DEFAULT '{}'::jsonb NOT NULL,
    marks jsonb,
    transaction_id bigint DEFAULT ((pg_current_xact_id())::text)::bigint NOT NULL,
    step text NOT NULL,
    after text,
    due_at timestamp with time zone,
    claim_id uuid,
    CONSTRAINT erasures_marks_check CHECK (((state = 'running'::text) = (marks IS NOT NULL))),
    CONSTRAINT erasures_state_check CHECK ((state = ANY (ARRAY['running'::text, 'done'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.folders (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    kind text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT folders_kind_check CHECK ((kind = ANY (ARRAY['campaign'::text, 'template'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.gateway_cancellations (
    subscription_id uuid NOT NULL,
    account_id uuid NOT NULL,
    gateway_subscription_id text,
    until timestamp with time zone NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.gateway_events (
    id uuid NOT NULL,
    seq bigint NOT NULL,
    key text NOT NULL,
    event text NOT NULL,
    gateway_subscription_id text,
    data jsonb NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    due_at timestamp with time zone,
    received_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE public.gateway_events ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.gateway_events_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.gateway_subscriptions (
    gateway_subscription_id text NOT NULL,
    account_id uuid NOT NULL,
    subscription_id uuid NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.given_cost_alerts (
    account_id uuid NOT NULL,
    currency text NOT NULL,
    month date NOT NULL,
    threshold numeric NOT NULL,
    given_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.idempotency_key_counts (
    scope uuid NOT NULL,
    day date NOT NULL,
    slot integer NOT NULL,
    keys bigint NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.idempotency_keys (
    scope uuid NOT NULL,
    key text NOT NULL,
    holder uuid NOT NULL,
    leased_until timestamp with time zone NOT NULL,
    request_hash bytea,
    response bytea,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT idempotency_keys_response_check CHECK (((request_hash IS NULL) = (response IS NULL)))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.invite_tokens (
    token_hash bytea NOT NULL,
    account_id uuid NOT NULL,
    invite_id uuid NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.link_click_writers (
    id uuid NOT NULL,
    batch bigint DEFAULT 0 NOT NULL,
    deferred uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.link_codes (
    short_code text NOT NULL,
    account_id uuid NOT NULL,
    link_id uuid NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.link_rollups (
    account_id uuid NOT NULL,
    bucket_minutes smallint NOT NULL,
    bucket_start timestamp with time zone NOT NULL,
    link_id uuid NOT NULL,
    clicks bigint DEFAULT 0 NOT NULL,
    CONSTRAINT link_rollups_bucket_minutes_check CHECK ((bucket_minutes = ANY (ARRAY[15, 1440, 10080])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.links (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    short_code text NOT NULL,
    original_url text NOT NULL,
    campaign_id uuid,
    clicks bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    contact_id uuid,
    last_clicked_at timestamp with time zone
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.mail_recipients (
    address_hash bytea NOT NULL,
    mail_id uuid NOT NULL,
    account_id uuid NOT NULL,
    mailed_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.message_media (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    message_id uuid,
    conversation_id uuid,
    profile_id uuid,
    phone_number_id text,
    wa_media_id text,
    type text NOT NULL,
    mime_type text,
    file_name text,
    expected_sha256 text,
    sha256 text,
    size bigint,
    content_type text,
    state text NOT NULL,
    reason text,
    attempts smallint DEFAULT 0 NOT NULL,
    mismatches smallint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone,
    claim_id uuid,
    file_id uuid,
    lost_reported_at timestamp with time zone,
    written_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    abandoned uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    CONSTRAINT message_media_state_check CHECK ((state = ANY (ARRAY['pending'::text, 'ready'::text, 'failed'::text, 'expired'::text]))),
    CONSTRAINT message_media_type_check CHECK ((type = ANY (ARRAY['image'::text, 'video'::text, 'audio'::text, 'document'::text, 'sticker'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_insert_scale_factor='0.01', autovacuum_analyze_scale_factor='0.02');

CREATE TABLE public.message_rollups (
    account_id uuid NOT NULL,
    bucket_start timestamp with time zone NOT NULL,
    bucket_minutes smallint NOT NULL,
    sent integer DEFAULT 0 NOT NULL,
    delivered integer DEFAULT 0 NOT NULL,
    read integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    received integer DEFAULT 0 NOT NULL,
    CONSTRAINT message_rollups_bucket_minutes_check CHECK ((bucket_minutes = ANY (ARRAY[15, 180, 1440])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.message_templates (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    category text NOT NULL,
    language text NOT NULL,
    template_type text NOT NULL,
    header_type text DEFAULT 'none'::text NOT NULL,
    header_text text,
    header_media_url text,
    body_text text,
    footer_text text,
    buttons jsonb DEFAULT '[]'::jsonb NOT NULL,
    variables jsonb DEFAULT '[]'::jsonb NOT NULL,
    carousel_cards jsonb DEFAULT '[]'::jsonb NOT NULL,
    folder_id uuid,
    profile_id uuid,
    meta_template_id text,
    meta_status text DEFAULT 'draft'::text NOT NULL,
    rejection_reason text,
    quality_score text,
    parameter_format text DEFAULT 'positional'::text NOT NULL,
    unsupported jsonb DEFAULT '[]'::jsonb NOT NULL,
    category_change jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    version bigint DEFAULT 1 NOT NULL,
    limited_time_offer jsonb,
    message_send_ttl_seconds bigint,
    rejection_recommendation text,
    correct_category text,
    CONSTRAINT message_templates_meta_status_check CHECK ((meta_status = ANY (ARRAY['draft'::text, 'pending'::text, 'approved'::text, 'rejected'::text, 'paused'::text, 'disabled'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.message_usage_slots (
    account_id uuid NOT NULL,
    month date NOT NULL,
    sent bigint DEFAULT 0 NOT NULL,
    reserved bigint DEFAULT 0 NOT NULL,
    test_sends bigint DEFAULT 0 NOT NULL,
    slot smallint DEFAULT 0 NOT NULL,
    CONSTRAINT message_usage_slots_test_sends_check CHECK ((test_sends >= 0))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE VIEW public.message_usage WITH (security_invoker='true') AS
 SELECT account_id,
    month,
    (sum(sent))::bigint AS sent,
    (sum(reserved))::bigint AS reserved,
    (sum(test_sends))::bigint AS test_sends
   FROM public.message_usage_slots
  GROUP BY account_id, month;

CREATE TABLE public.messages (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    conversation_id uuid NOT NULL,
    direction text NOT NULL,
    type text NOT NULL,
    text text,
    status text NOT NULL,
    wa_message_id text,
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    error_message text,
    recorded_at timestamp with time zone DEFAULT now() NOT NULL,
    referral jsonb,
    pricing jsonb,
    created_at timestamp with time zone NOT NULL,
    origin text,
    caption text,
    interactive jsonb,
    context jsonb,
    media_ids uuid[],
    deleted_at timestamp with time zone,
    by_user_id boolean DEFAULT false NOT NULL,
    CONSTRAINT messages_direction_check CHECK ((direction = ANY (ARRAY['inbound'::text, 'outbound'::text]))),
    CONSTRAINT messages_status_check CHECK ((status = ANY (ARRAY['received'::text, 'pending'::text, 'sent'::text, 'delivered'::text, 'read'::text, 'failed'::text])))
)
PARTITION BY RANGE (created_at);

CREATE TABLE public.metric_contacts (
    account_id uuid NOT NULL,
    metric_name text NOT NULL,
    contact_id uuid NOT NULL,
    event_count bigint DEFAULT 0 NOT NULL,
    total_value numeric DEFAULT 0 NOT NULL,
    last_event_at timestamp with time zone
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.metric_event_keys (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    occurred_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_insert_scale_factor='0.01', autovacuum_analyze_scale_factor='0.02');

CREATE TABLE public.metric_events (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    metric_name text NOT NULL,
    contact_id uuid,
    value numeric,
    currency text,
    source text NOT NULL,
    properties jsonb DEFAULT '{}'::jsonb NOT NULL,
    occurred_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
)
PARTITION BY RANGE (occurred_at);

CREATE TABLE public.metric_rollups (
    account_id uuid NOT NULL,
    bucket_minutes smallint NOT NULL,
    bucket_start timestamp with time zone NOT NULL,
    metric_name text NOT NULL,
    events bigint DEFAULT 0 NOT NULL,
    value numeric DEFAULT 0 NOT NULL,
    last_contacts bigint DEFAULT 0 NOT NULL,
    CONSTRAINT metric_rollups_bucket_minutes_check CHECK ((bucket_minutes = ANY (ARRAY[15, 180, 1440])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.metric_sources (
    account_id uuid NOT NULL,
    metric_name text NOT NULL,
    source text NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.metrics (
    account_id uuid NOT NULL,
    metric_name text NOT NULL,
    display_name text,
    category text,
    total_events bigint DEFAULT 0 NOT NULL,
    total_value numeric DEFAULT 0 NOT NULL,
    last_event_at timestamp with time zone
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.notifications (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    type text NOT NULL,
    title text NOT NULL,
    message text NOT NULL,
    data jsonb DEFAULT '{}'::jsonb NOT NULL,
    read_at timestamp with time zone,
    seq bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT notifications_type_check CHECK ((type = ANY (ARRAY['success'::text, 'info'::text, 'warning'::text, 'error'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_insert_scale_factor='0.01', autovacuum_analyze_scale_factor='0.02');

ALTER TABLE public.notifications ALTER COLUMN seq ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.notifications_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.order_items (
    account_id uuid NOT NULL,
    order_id uuid NOT NULL,
    "position" integer NOT NULL,
    product_id text NOT NULL,
    name text NOT NULL,
    quantity numeric NOT NULL,
    price numeric NOT NULL,
    cost numeric
)
PARTITION BY RANGE (order_id);

CREATE TABLE public.order_keys (
    account_id uuid NOT NULL,
    platform text NOT NULL,
    external_id text NOT NULL,
    order_id uuid NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_insert_scale_factor='0.01', autovacuum_analyze_scale_factor='0.02');

CREATE TABLE public.order_rollups (
    account_id uuid NOT NULL,
    bucket_minutes smallint NOT NULL,
    bucket_start timestamp with time zone NOT NULL,
    platform text NOT NULL,
    placed bigint DEFAULT 0 NOT NULL,
    pending bigint DEFAULT 0 NOT NULL,
    cancelled bigint DEFAULT 0 NOT NULL,
    refunded bigint DEFAULT 0 NOT NULL,
    paid bigint DEFAULT 0 NOT NULL,
    revenue numeric DEFAULT 0 NOT NULL,
    product_costs numeric DEFAULT 0 NOT NULL,
    gateway_fees numeric DEFAULT 0 NOT NULL,
    attributed_orders bigint DEFAULT 0 NOT NULL,
    attributed_revenue numeric DEFAULT 0 NOT NULL,
    CONSTRAINT order_rollups_bucket_minutes_check CHECK ((bucket_minutes = ANY (ARRAY[15, 180, 1440])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.orders (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    platform text NOT NULL,
    external_id text NOT NULL,
    contact_id uuid,
    status text NOT NULL,
    total numeric NOT NULL,
    gateway_fee numeric DEFAULT 0 NOT NULL,
    campaign_id uuid,
    automation_id uuid,
    link_id uuid,
    placed_at timestamp with time zone NOT NULL,
    paid_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT orders_paid_at_check CHECK (((status <> 'paid'::text) OR (paid_at IS NOT NULL))),
    CONSTRAINT orders_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'paid'::text, 'cancelled'::text, 'refunded'::text])))
)
PARTITION BY RANGE (id);

CREATE TABLE public.outbox_events (
    seq bigint NOT NULL,
    account_id uuid NOT NULL,
    payload jsonb NOT NULL,
    retry_at timestamp with time zone,
    kind text GENERATED ALWAYS AS (COALESCE((payload ->> 'kind'::text), ''::text)) STORED NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE public.outbox_events ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.outbox_events_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.outgoing_mail (
    id uuid NOT NULL,
    account_id uuid NOT NULL,
    content bytea NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.partition_horizons (
    table_name text NOT NULL,
    retained_from timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE UNLOGGED TABLE public.phone_number_send_slots (
    phone_number_id text NOT NULL,
    next_slot_at timestamp with time zone NOT NULL,
    throttled_rate double precision,
    throttled_at timestamp with time zone
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.platform_audit (
    id uuid NOT NULL,
    user_id uuid NOT NULL,
    email text NOT NULL,
    action text NOT NULL,
    entity_type text NOT NULL,
    entity_id uuid,
    account_id uuid,
    changes jsonb,
    ip_address text,
    request_id text,
    created_at timestamp with time zone DEFAULT date_trunc('milliseconds'::text, now()) NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_insert_scale_factor='0.01', autovacuum_analyze_scale_factor='0.02');

CREATE TABLE public.product_names (
    account_id uuid NOT NULL,
    product_id text NOT NULL,
    name text NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.product_rollups (
    account_id uuid NOT NULL,
    bucket_minutes smallint NOT NULL,
    bucket_start timestamp with time zone NOT NULL,
    product_id text NOT NULL,
    quantity numeric DEFAULT 0 NOT NULL,
    revenue numeric DEFAULT 0 NOT NULL,
    CONSTRAINT product_rollups_bucket_minutes_check CHECK ((bucket_minutes = ANY (ARRAY[15, 1440, 10080])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.rate_card_rows (
    card_id uuid NOT NULL,
    row_no integer NOT NULL,
    market text NOT NULL,
    countries text[] NOT NULL,
    currency text NOT NULL,
    category text NOT NULL,
    rate numeric(10,6) NOT NULL,
    effective_from date NOT NULL,
    zone text NOT NULL,
    effective_at timestamp with time zone NOT NULL,
    free_per_number_month bigint
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.rate_cards (
    id uuid NOT NULL,
    name text NOT NULL,
    row_count bigint NOT NULL,
    currencies text[] NOT NULL,
    effective_from date NOT NULL,
    used_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.retention_horizons (
    account_id uuid NOT NULL,
    table_name text NOT NULL,
    retained_from timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.retention_settings (
    account_id uuid NOT NULL,
    terms jsonb DEFAULT '{}'::jsonb NOT NULL,
    version bigint DEFAULT 0 NOT NULL,
    next_run_at timestamp with time zone,
    leased_until timestamp with time zone,
    claim_id uuid,
    last_run_at timestamp with time zone,
    would_remove jsonb DEFAULT '{}'::jsonb NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.rfm_calculations (
    account_id uuid NOT NULL,
    due_at timestamp with time zone NOT NULL,
    worker uuid,
    leased_until timestamp with time zone,
    calculated_at timestamp with time zone
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.rfm_changes (
    account_id uuid NOT NULL,
    worker uuid NOT NULL,
    contact_id uuid NOT NULL,
    segment text,
    recency_score smallint,
    frequency_score smallint,
    monetary_score smallint
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.rfm_counts (
    account_id uuid NOT NULL,
    segment text NOT NULL,
    contacts bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.segment_counts (
    account_id uuid NOT NULL,
    segment_id uuid NOT NULL,
    contacts bigint NOT NULL,
    counted_at timestamp with time zone NOT NULL,
    changes bigint DEFAULT 0 NOT NULL,
    wanted_at timestamp with time zone,
    leased_until timestamp with time zone
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.segment_members (
    account_id uuid NOT NULL,
    segment_id uuid NOT NULL,
    contact_id uuid NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.segments (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    description text,
    filters jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.sent_messages (
    account_id uuid NOT NULL,
    wa_message_id text NOT NULL,
    send_id uuid NOT NULL,
    recorded_at timestamp with time zone DEFAULT now() NOT NULL
)
PARTITION BY RANGE (recorded_at);

CREATE TABLE public.service_message_months (
    account_id uuid NOT NULL,
    profile_id uuid NOT NULL,
    month date NOT NULL,
    messages bigint NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.subscriptions (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    plan text NOT NULL,
    cycle text NOT NULL,
    status text NOT NULL,
    billing_type text NOT NULL,
    value bigint NOT NULL,
    billing_email text,
    gateway_customer_id text,
    gateway_subscription_id text,
    current_period_start timestamp with time zone,
    current_period_end timestamp with time zone,
    cancelled_at timestamp with time zone,
    inactivated_at timestamp with time zone,
    lapsed_at timestamp with time zone,
    period_granted boolean DEFAULT false NOT NULL,
    anchor_day integer,
    check_at timestamp with time zone,
    last_event_id uuid,
    intent jsonb,
    intent_until timestamp with time zone,
    attempt boolean DEFAULT false NOT NULL,
    intent_check_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    version bigint DEFAULT 0 NOT NULL,
    CONSTRAINT subscriptions_anchor_day_check CHECK (((anchor_day >= 1) AND (anchor_day <= 31))),
    CONSTRAINT subscriptions_attempt_check CHECK (((NOT attempt) OR (intent IS NOT NULL))),
    CONSTRAINT subscriptions_billing_type_check CHECK ((billing_type = ANY (ARRAY['PIX'::text, 'BOLETO'::text, 'CREDIT_CARD'::text]))),
    CONSTRAINT subscriptions_cycle_check CHECK ((cycle = ANY (ARRAY['MONTHLY'::text, 'YEARLY'::text]))),
    CONSTRAINT subscriptions_intent_check CHECK (((intent IS NULL) = (intent_until IS NULL))),
    CONSTRAINT subscriptions_status_check CHECK ((status = ANY (ARRAY['active'::text, 'pending'::text, 'past_due'::text, 'inactive'::text, 'cancelled'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.tags (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    color text,
    created_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.team_invites (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    email text NOT NULL,
    role text NOT NULL,
    status text DEFAULT 'pending'::text NOT NULL,
    invited_by uuid NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT team_invites_role_check CHECK ((role = ANY (ARRAY['owner'::text, 'admin'::text, 'member'::text, 'viewer'::text]))),
    CONSTRAINT team_invites_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'accepted'::text, 'expired'::text, 'revoked'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.users (
    id uuid NOT NULL,
    email text NOT NULL,
    name text,
    sessions_valid_from timestamp with time zone,
    name_is_verified boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.webhook_deliveries (
    account_id uuid NOT NULL,
    event_id uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    state text DEFAULT 'waiting'::text NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    next_attempt_at timestamp with time zone DEFAULT now() NOT NULL,
    leased boolean DEFAULT false NOT NULL,
    claim bigint DEFAULT 0 NOT NULL,
    failed_at timestamp with time zone,
    CONSTRAINT webhook_deliveries_state_check CHECK ((state = ANY (ARRAY['waiting'::text, 'failed'::text, 'dropped'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.webhook_endpoint_ids (
    id uuid NOT NULL,
    account_id uuid NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.webhook_endpoints (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    direction text NOT NULL,
    url text,
    events text[] NOT NULL,
    is_active boolean DEFAULT true NOT NULL,
    secret bytea NOT NULL,
    secret_hint text NOT NULL,
    previous_secret bytea,
    previous_secret_until timestamp with time zone,
    failing_since timestamp with time zone,
    last_failed_at timestamp with time zone,
    disabled_at timestamp with time zone,
    disabled_reason text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    CONSTRAINT webhook_endpoints_direction_check CHECK ((direction = ANY (ARRAY['outbound'::text, 'inbound'::text]))),
    CONSTRAINT webhook_endpoints_disabled_check CHECK ((((disabled_at IS NULL) = (disabled_reason IS NULL)) AND ((disabled_at IS NULL) OR (NOT is_active)))),
    CONSTRAINT webhook_endpoints_disabled_reason_check CHECK ((disabled_reason = ANY (ARRAY['gone'::text, 'failing'::text]))),
    CONSTRAINT webhook_endpoints_failing_check CHECK (((failing_since IS NULL) = (last_failed_at IS NULL))),
    CONSTRAINT webhook_endpoints_previous_secret_check CHECK (((previous_secret IS NULL) = (previous_secret_until IS NULL))),
    CONSTRAINT webhook_endpoints_url_check CHECK (((direction = 'inbound'::text) OR (url IS NOT NULL)))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.webhook_events (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    type text NOT NULL,
    payload jsonb NOT NULL,
    occurred_at timestamp with time zone NOT NULL,
    seq bigint
)
PARTITION BY RANGE (id);

CREATE SEQUENCE public.webhook_events_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE public.webhook_events_seq_seq OWNED BY public.webhook_events.seq;

CREATE TABLE public.webhook_inbox (
    account_id uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    message_id text NOT NULL,
    received_at timestamp with time zone NOT NULL
)
PARTITION BY RANGE (received_at);

CREATE TABLE public.webhook_logs (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    direction text NOT NULL,
    event_type text NOT NULL,
    message_id text NOT NULL,
    event_id uuid,
    payload jsonb,
    response_status integer,
    attempt integer DEFAULT 1 NOT NULL,
    duration_ms integer,
    error text,
    next_attempt_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT webhook_logs_direction_check CHECK ((direction = ANY (ARRAY['outbound'::text, 'inbound'::text]))),
    CONSTRAINT webhook_logs_payload_check CHECK (((direction = 'outbound'::text) = (event_id IS NOT NULL)))
)
PARTITION BY RANGE (id);

CREATE TABLE public.whatsapp_callbacks (
    id uuid NOT NULL,
    body bytea NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    due_at timestamp with time zone NOT NULL,
    received_at timestamp with time zone DEFAULT now() NOT NULL,
    claims integer DEFAULT 0 NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.whatsapp_files (
    account_id uuid NOT NULL,
    phone_number_id text NOT NULL,
    path text NOT NULL,
    file_id text NOT NULL,
    expires_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.whatsapp_held_messages (
    phone_number_id text NOT NULL,
    key bytea NOT NULL,
    seq bigint NOT NULL,
    event bytea NOT NULL,
    given boolean DEFAULT false NOT NULL,
    received_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE public.whatsapp_held_messages ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.whatsapp_held_messages_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.whatsapp_media_failures (
    phone_number_id text NOT NULL,
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    failed_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.whatsapp_numbers (
    phone_number_id text NOT NULL,
    account_id uuid NOT NULL,
    waba_id text NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE public.whatsapp_profiles (
    account_id uuid NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    phone_number_id text NOT NULL,
    waba_id text NOT NULL,
    access_token bytea NOT NULL,
    messages_per_second integer,
    verification_state text DEFAULT 'pending'::text NOT NULL,
    checks jsonb DEFAULT '[]'::jsonb NOT NULL,
    checked_at timestamp with time zone,
    next_check_at timestamp with time zone DEFAULT now(),
    check_leased_until timestamp with time zone,
    pending_since timestamp with time zone DEFAULT now(),
    failed_since timestamp with time zone,
    suspected_check text,
    suspected_since timestamp with time zone,
    held_since timestamp with time zone DEFAULT now(),
    credentials_version bigint DEFAULT 1 NOT NULL,
    verification_version bigint DEFAULT 1 NOT NULL,
    number jsonb DEFAULT '{}'::jsonb NOT NULL,
    health jsonb,
    health_asked_at timestamp with time zone,
    last_inbound_at timestamp with time zone,
    last_callback_at timestamp with time zone,
    last_accepted_at timestamp with time zone,
    service_month date,
    service_messages bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    CONSTRAINT whatsapp_profiles_messages_per_second_check CHECK (((messages_per_second >= 1) AND (messages_per_second <= 1000))),
    CONSTRAINT whatsapp_profiles_verification_state_check CHECK ((verification_state = ANY (ARRAY['pending'::text, 'verified'::text, 'failed'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

ALTER TABLE ONLY public.account_deletions
    ADD CONSTRAINT account_deletions_pkey PRIMARY KEY (account_id);

ALTER TABLE ONLY public.account_settings
    ADD CONSTRAINT account_settings_pkey PRIMARY KEY (account_id);

ALTER TABLE ONLY public.account_slugs
    ADD CONSTRAINT account_slugs_pkey PRIMARY KEY (slug);

ALTER TABLE ONLY public.account_users
    ADD CONSTRAINT account_users_pkey PRIMARY KEY (account_id, user_id);

ALTER TABLE ONLY public.accounts
    ADD CONSTRAINT accounts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.ad_spend
    ADD CONSTRAINT ad_spend_pkey PRIMARY KEY (account_id, date, source);

ALTER TABLE ONLY public.api_key_hashes
    ADD CONSTRAINT api_key_hashes_pkey PRIMARY KEY (key_hash);

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.applied_gateway_events
    ADD CONSTRAINT applied_gateway_events_pkey PRIMARY KEY (account_id, event_id);

ALTER TABLE ONLY public.attribution_rollups
    ADD CONSTRAINT attribution_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start, kind, attributed_to_id);

ALTER TABLE ONLY public.audit_counts
    ADD CONSTRAINT audit_counts_pkey PRIMARY KEY (account_id, month, entity_type, action);

ALTER TABLE ONLY public.audit_logs
    ADD CONSTRAINT audit_logs_pkey PRIMARY KEY (account_id, created_at, id);

ALTER TABLE ONLY public.automation_executions
    ADD CONSTRAINT automation_executions_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.automation_rollups
    ADD CONSTRAINT automation_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start, automation_id);

ALTER TABLE ONLY public.automations
    ADD CONSTRAINT automations_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.billing_history
    ADD CONSTRAINT billing_history_gateway_payment_id_unique UNIQUE (account_id, gateway_payment_id);

ALTER TABLE ONLY public.billing_history
    ADD CONSTRAINT billing_history_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.brand_contexts
    ADD CONSTRAINT brand_contexts_pkey PRIMARY KEY (account_id);

ALTER TABLE ONLY public.campaign_archives
    ADD CONSTRAINT campaign_archives_pkey PRIMARY KEY (account_id, campaign_id);

ALTER TABLE ONLY public.campaign_budgets
    ADD CONSTRAINT campaign_budgets_pkey PRIMARY KEY (account_id, campaign_id);

ALTER TABLE ONLY public.campaign_claims
    ADD CONSTRAINT campaign_claims_pkey PRIMARY KEY (account_id, campaign_id);

ALTER TABLE ONLY public.campaign_counter_slots
    ADD CONSTRAINT campaign_counter_slots_pkey PRIMARY KEY (account_id, campaign_id, slot);

ALTER TABLE ONLY public.campaign_queue
    ADD CONSTRAINT campaign_queue_pkey PRIMARY KEY (account_id, campaign_id);

ALTER TABLE ONLY public.campaign_recipient_batches
    ADD CONSTRAINT campaign_recipient_batches_pkey PRIMARY KEY (account_id, campaign_id, batch_no);

ALTER TABLE ONLY public.campaign_retries
    ADD CONSTRAINT campaign_retries_pkey PRIMARY KEY (account_id, campaign_id);

ALTER TABLE ONLY public.campaign_retry_batches
    ADD CONSTRAINT campaign_retry_batches_pkey PRIMARY KEY (account_id, campaign_id, batch_no);

ALTER TABLE ONLY public.campaign_run_contents
    ADD CONSTRAINT campaign_run_contents_pkey PRIMARY KEY (account_id, campaign_id);

ALTER TABLE ONLY public.campaign_send_times
    ADD CONSTRAINT campaign_send_times_pkey PRIMARY KEY (account_id, campaign_id, sent_at, first_send_id);

ALTER TABLE ONLY public.campaign_sends
    ADD CONSTRAINT campaign_sends_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.campaigns
    ADD CONSTRAINT campaigns_pkey PRIMARY KEY (account_id, id) INCLUDE (name);

ALTER TABLE ONLY public.cart_rollups
    ADD CONSTRAINT cart_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start);

ALTER TABLE ONLY public.carts
    ADD CONSTRAINT carts_external_id_unique UNIQUE (account_id, platform, external_id);

ALTER TABLE ONLY public.carts
    ADD CONSTRAINT carts_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.contact_counts
    ADD CONSTRAINT contact_counts_pkey PRIMARY KEY (account_id, day);

ALTER TABLE ONLY public.contact_exports
    ADD CONSTRAINT contact_exports_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.contact_identities
    ADD CONSTRAINT contact_identities_contact_id_scope_unique UNIQUE (account_id, contact_id, scope);

ALTER TABLE ONLY public.contact_identities
    ADD CONSTRAINT contact_identities_pkey PRIMARY KEY (account_id, scope, wa_user_id);

ALTER TABLE ONLY public.contact_rfm
    ADD CONSTRAINT contact_rfm_pkey PRIMARY KEY (account_id, contact_id);

ALTER TABLE ONLY public.contact_tags
    ADD CONSTRAINT contact_tags_pkey PRIMARY KEY (account_id, contact_id, tag_id);

ALTER TABLE ONLY public.contacts
    ADD CONSTRAINT contacts_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.conversation_counts
    ADD CONSTRAINT conversation_counts_pkey PRIMARY KEY (account_id, status);

ALTER TABLE ONLY public.conversations
    ADD CONSTRAINT conversations_contact_id_unique UNIQUE (account_id, contact_id);

ALTER TABLE ONLY public.conversations
    ADD CONSTRAINT conversations_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.cost_months
    ADD CONSTRAINT cost_months_pkey PRIMARY KEY (account_id, currency, month);

ALTER TABLE ONLY public.cost_rollups
    ADD CONSTRAINT cost_rollups_pkey PRIMARY KEY (account_id, bucket_start, campaign_id, profile_id, template_id, category, market, currency);

ALTER TABLE ONLY public.direct_message_queues
    ADD CONSTRAINT direct_message_queues_pkey PRIMARY KEY (account_id, profile_id);

ALTER TABLE ONLY public.direct_message_references
    ADD CONSTRAINT direct_message_references_pkey PRIMARY KEY (account_id, client_reference);

ALTER TABLE ONLY public.direct_messages
    ADD CONSTRAINT direct_messages_client_reference_unique UNIQUE (account_id, client_reference);

ALTER TABLE ONLY public.direct_messages
    ADD CONSTRAINT direct_messages_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.erased_opt_outs
    ADD CONSTRAINT erased_opt_outs_pkey PRIMARY KEY (account_id, hash);

ALTER TABLE ONLY public.erasures
    ADD CONSTRAINT erasures_contact_id_unique UNIQUE (account_id, contact_id);

ALTER TABLE ONLY public.erasures
    ADD CONSTRAINT erasures_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.folders
    ADD CONSTRAINT folders_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.gateway_cancellations
    ADD CONSTRAINT gateway_cancellations_pkey PRIMARY KEY (subscription_id);

ALTER TABLE ONLY public.gateway_events
    ADD CONSTRAINT gateway_events_key_unique UNIQUE (key);

ALTER TABLE ONLY public.gateway_events
    ADD CONSTRAINT gateway_events_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.gateway_subscriptions
    ADD CONSTRAINT gateway_subscriptions_pkey PRIMARY KEY (gateway_subscription_id);

ALTER TABLE ONLY public.given_cost_alerts
    ADD CONSTRAINT given_cost_alerts_pkey PRIMARY KEY (account_id, currency, month, threshold);

ALTER TABLE ONLY public.idempotency_key_counts
    ADD CONSTRAINT idempotency_key_counts_pkey PRIMARY KEY (scope, day, slot);

ALTER TABLE ONLY public.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (scope, key);

ALTER TABLE ONLY public.invite_tokens
    ADD CONSTRAINT invite_tokens_pkey PRIMARY KEY (token_hash);

ALTER TABLE ONLY public.link_click_writers
    ADD CONSTRAINT link_click_writers_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.link_codes
    ADD CONSTRAINT link_codes_pkey PRIMARY KEY (short_code);

ALTER TABLE ONLY public.link_rollups
    ADD CONSTRAINT link_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start, link_id);

ALTER TABLE ONLY public.links
    ADD CONSTRAINT links_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.links
    ADD CONSTRAINT links_short_code_unique UNIQUE (account_id, short_code);

ALTER TABLE ONLY public.mail_recipients
    ADD CONSTRAINT mail_recipients_pkey PRIMARY KEY (address_hash, mail_id);

ALTER TABLE ONLY public.message_media
    ADD CONSTRAINT message_media_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.message_rollups
    ADD CONSTRAINT message_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start);

ALTER TABLE ONLY public.message_templates
    ADD CONSTRAINT message_templates_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.message_usage_slots
    ADD CONSTRAINT message_usage_slots_pkey PRIMARY KEY (account_id, month, slot);

ALTER TABLE ONLY public.messages
    ADD CONSTRAINT messages_pkey PRIMARY KEY (account_id, id, created_at);

ALTER TABLE ONLY public.messages
    ADD CONSTRAINT messages_wa_message_id_unique UNIQUE (account_id, wa_message_id, created_at);

ALTER TABLE ONLY public.metric_contacts
    ADD CONSTRAINT metric_contacts_pkey PRIMARY KEY (account_id, metric_name, contact_id);

ALTER TABLE ONLY public.metric_event_keys
    ADD CONSTRAINT metric_event_keys_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.metric_events
    ADD CONSTRAINT metric_events_pkey PRIMARY KEY (account_id, metric_name, occurred_at, id);

ALTER TABLE ONLY public.metric_rollups
    ADD CONSTRAINT metric_rollups_pkey PRIMARY KEY (account_id, metric_name, bucket_minutes, bucket_start);

ALTER TABLE ONLY public.metric_sources
    ADD CONSTRAINT metric_sources_pkey PRIMARY KEY (account_id, metric_name, source);

ALTER TABLE ONLY public.metrics
    ADD CONSTRAINT metrics_pkey PRIMARY KEY (account_id, metric_name);

ALTER TABLE ONLY public.notifications
    ADD CONSTRAINT notifications_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.order_items
    ADD CONSTRAINT order_items_pkey PRIMARY KEY (account_id, order_id, "position");

ALTER TABLE ONLY public.order_keys
    ADD CONSTRAINT order_keys_pkey PRIMARY KEY (account_id, platform, external_id);

ALTER TABLE ONLY public.order_rollups
    ADD CONSTRAINT order_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start, platform);

ALTER TABLE ONLY public.orders
    ADD CONSTRAINT orders_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.outbox_events
    ADD CONSTRAINT outbox_events_pkey PRIMARY KEY (kind, seq);

ALTER TABLE ONLY public.outgoing_mail
    ADD CONSTRAINT outgoing_mail_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.partition_horizons
    ADD CONSTRAINT partition_horizons_pkey PRIMARY KEY (table_name);

ALTER TABLE ONLY public.phone_number_send_slots
    ADD CONSTRAINT phone_number_send_slots_pkey PRIMARY KEY (phone_number_id);

ALTER TABLE ONLY public.platform_audit
    ADD CONSTRAINT platform_audit_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.product_names
    ADD CONSTRAINT product_names_pkey PRIMARY KEY (account_id, product_id);

ALTER TABLE ONLY public.product_rollups
    ADD CONSTRAINT product_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start, product_id);

ALTER TABLE ONLY public.rate_card_rows
    ADD CONSTRAINT rate_card_rows_pkey PRIMARY KEY (card_id, row_no);

ALTER TABLE ONLY public.rate_cards
    ADD CONSTRAINT rate_cards_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.retention_horizons
    ADD CONSTRAINT retention_horizons_pkey PRIMARY KEY (account_id, table_name);

ALTER TABLE ONLY public.retention_settings
    ADD CONSTRAINT retention_settings_pkey PRIMARY KEY (account_id);

ALTER TABLE ONLY public.rfm_calculations
    ADD CONSTRAINT rfm_calculations_pkey PRIMARY KEY (account_id);

ALTER TABLE ONLY public.rfm_changes
    ADD CONSTRAINT rfm_changes_pkey PRIMARY KEY (account_id, worker, contact_id);

ALTER TABLE ONLY public.rfm_counts
    ADD CONSTRAINT rfm_counts_pkey PRIMARY KEY (account_id, segment);

ALTER TABLE ONLY public.segment_counts
    ADD CONSTRAINT segment_counts_pkey PRIMARY KEY (account_id, segment_id);

ALTER TABLE ONLY public.segment_members
    ADD CONSTRAINT segment_members_pkey PRIMARY KEY (account_id, segment_id, contact_id);

ALTER TABLE ONLY public.segments
    ADD CONSTRAINT segments_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.sent_messages
    ADD CONSTRAINT sent_messages_pkey PRIMARY KEY (account_id, wa_message_id, recorded_at);

ALTER TABLE ONLY public.service_message_months
    ADD CONSTRAINT service_message_months_pkey PRIMARY KEY (account_id, profile_id, month);

ALTER TABLE ONLY public.subscriptions
    ADD CONSTRAINT subscriptions_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.tags
    ADD CONSTRAINT tags_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.team_invites
    ADD CONSTRAINT team_invites_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.users
    ADD CONSTRAINT users_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.webhook_deliveries
    ADD CONSTRAINT webhook_deliveries_pkey PRIMARY KEY (account_id, event_id, endpoint_id);

ALTER TABLE ONLY public.webhook_endpoint_ids
    ADD CONSTRAINT webhook_endpoint_ids_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.webhook_endpoints
    ADD CONSTRAINT webhook_endpoints_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.webhook_events
    ADD CONSTRAINT webhook_events_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.webhook_inbox
    ADD CONSTRAINT webhook_inbox_pkey PRIMARY KEY (account_id, endpoint_id, message_id, received_at);

ALTER TABLE ONLY public.webhook_logs
    ADD CONSTRAINT webhook_logs_pkey PRIMARY KEY (account_id, id);

ALTER TABLE ONLY public.whatsapp_callbacks
    ADD CONSTRAINT whatsapp_callbacks_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.whatsapp_files
    ADD CONSTRAINT whatsapp_files_pkey PRIMARY KEY (account_id, phone_number_id, path);

ALTER TABLE ONLY public.whatsapp_held_messages
    ADD CONSTRAINT whatsapp_held_messages_pkey PRIMARY KEY (key, phone_number_id);

ALTER TABLE ONLY public.whatsapp_media_failures
    ADD CONSTRAINT whatsapp_media_failures_pkey PRIMARY KEY (phone_number_id, failed_at, id);

ALTER TABLE ONLY public.whatsapp_numbers
    ADD CONSTRAINT whatsapp_numbers_pkey PRIMARY KEY (phone_number_id, account_id, waba_id);

ALTER TABLE ONLY public.whatsapp_profiles
    ADD CONSTRAINT whatsapp_profiles_phone_number_id_unique UNIQUE (account_id, phone_number_id);

ALTER TABLE ONLY public.whatsapp_profiles
    ADD CONSTRAINT whatsapp_profiles_pkey PRIMARY KEY (account_id, id);

CREATE INDEX account_slugs_account_id_idx ON public.account_slugs USING btree (account_id);

CREATE INDEX account_users_expires_at_idx ON public.account_users USING btree (expires_at) WHERE is_support;

CREATE INDEX account_users_user_id_idx ON public.account_users USING btree (user_id);

CREATE INDEX accounts_created_at_idx ON public.accounts USING btree (created_at DESC, id DESC) WHERE (deleting_at IS NULL);

CREATE INDEX accounts_created_by_idx ON public.accounts USING btree (created_by) WHERE (created_by IS NOT NULL);

CREATE INDEX api_key_hashes_key_id_idx ON public.api_key_hashes USING btree (account_id, key_id);

CREATE INDEX api_keys_expiry_notice_idx ON public.api_keys USING btree (expiry_notice, expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX api_keys_unused_since_idx ON public.api_keys USING btree (GREATEST(COALESCE(last_used_at, created_at), unused_notified_at));

CREATE INDEX applied_gateway_events_event_id_idx ON public.applied_gateway_events USING btree (event_id);

CREATE INDEX audit_logs_action_idx ON ONLY public.audit_logs USING btree (account_id, action, created_at DESC, id DESC) INCLUDE (entity_type);

CREATE INDEX audit_logs_entity_type_idx ON ONLY public.audit_logs USING btree (account_id, entity_type, created_at DESC, id DESC) INCLUDE (action);

CREATE INDEX automation_executions_automation_id_idx ON public.automation_executions USING btree (account_id, automation_id);

CREATE INDEX billing_history_created_at_idx ON public.billing_history USING btree (account_id, created_at DESC, id DESC);

CREATE INDEX billing_history_paid_at_idx ON public.billing_history USING btree (paid_at) WHERE (paid_at IS NOT NULL);

CREATE INDEX campaign_counter_slots_unfolded_idx ON public.campaign_counter_slots USING btree (account_id, campaign_id) WHERE (slot > 0);

CREATE INDEX campaign_counters_created_at_idx ON public.campaign_counter_slots USING btree (account_id, created_at DESC, campaign_id DESC);

CREATE INDEX campaign_retries_due_at_idx ON public.campaign_retries USING btree (due_at);

CREATE INDEX campaign_sends_campaign_id_idx ON ONLY public.campaign_sends USING btree (account_id, campaign_id, contact_id);

CREATE INDEX campaign_sends_contact_id_idx ON ONLY public.campaign_sends USING btree (account_id, contact_id);

CREATE INDEX campaign_sends_failed_at_idx ON ONLY public.campaign_sends USING btree (account_id, campaign_id, failed_at) WHERE (failed_at IS NOT NULL);

CREATE INDEX campaign_sends_retry_at_idx ON ONLY public.campaign_sends USING btree (account_id, campaign_id, retry_at) WHERE (retry_at IS NOT NULL);

CREATE INDEX campaign_sends_unknown_at_idx ON ONLY public.campaign_sends USING btree (unknown_at) WHERE (unknown_at IS NOT NULL);

CREATE INDEX campaign_sends_unknown_idx ON ONLY public.campaign_sends USING btree (account_id, campaign_id) WHERE (unknown_at IS NOT NULL);

CREATE INDEX campaigns_created_at_idx ON public.campaigns USING btree (account_id, created_at DESC, id DESC) WHERE (deleted_at IS NULL);

CREATE INDEX campaigns_due_idx ON public.campaigns USING btree (scheduled_at) WHERE ((status = 'scheduled'::text) AND (deleted_at IS NULL));

CREATE INDEX campaigns_executed_at_idx ON public.campaigns USING btree (account_id, executed_at DESC, id DESC) WHERE ((deleted_at IS NULL) AND (executed_at IS NOT NULL));

CREATE INDEX campaigns_folder_id_idx ON public.campaigns USING btree (account_id, folder_id) WHERE (folder_id IS NOT NULL);

CREATE INDEX campaigns_frozen_updated_at_idx ON public.campaigns USING btree (account_id, updated_at) WHERE (frozen_at IS NOT NULL);

CREATE INDEX campaigns_profile_id_idx ON public.campaigns USING btree (account_id, profile_id) WHERE (profile_id IS NOT NULL);

CREATE INDEX campaigns_template_id_idx ON public.campaigns USING btree (account_id, template_id) WHERE (status = 'sending'::text);

CREATE INDEX carts_contact_id_idx ON public.carts USING btree (account_id, contact_id) WHERE (contact_id IS NOT NULL);

CREATE INDEX contact_exports_contact_id_idx ON public.contact_exports USING btree (account_id, contact_id);

CREATE INDEX contact_exports_due_at_idx ON public.contact_exports USING btree (due_at) WHERE (due_at IS NOT NULL);

CREATE INDEX contact_exports_expires_at_idx ON public.contact_exports USING btree (expires_at);

CREATE INDEX contact_identities_parent_user_id_idx ON public.contact_identities USING btree (account_id, parent_user_id) WHERE (parent_user_id IS NOT NULL);

CREATE INDEX contact_identities_wa_user_id_idx ON public.contact_identities USING btree (account_id, wa_user_id);

CREATE INDEX contact_rfm_segment_idx ON public.contact_rfm USING btree (account_id, segment, contact_id);

CREATE INDEX contact_tags_tag_id_idx ON public.contact_tags USING btree (account_id, tag_id, contact_id);

CREATE INDEX contacts_created_at_idx ON public.contacts USING btree (account_id, created_at) WHERE (deleted_at IS NULL);

CREATE INDEX contacts_deleted_idx ON public.contacts USING btree (account_id, deleted_at) INCLUDE (id) WHERE (deleted_at IS NOT NULL);

CREATE UNIQUE INDEX contacts_phone_unique ON public.contacts USING btree (account_id, phone) WHERE (deleted_at IS NULL);

CREATE INDEX contacts_same_person_as_idx ON public.contacts USING btree (account_id, same_person_as) WHERE (same_person_as IS NOT NULL);

CREATE UNIQUE INDEX contacts_wa_id_unique ON public.contacts USING btree (account_id, wa_id) WHERE ((wa_id IS NOT NULL) AND (deleted_at IS NULL));

CREATE UNIQUE INDEX contacts_wa_user_id_unique ON public.contacts USING btree (account_id, wa_user_id) WHERE (deleted_at IS NULL);

CREATE INDEX conversations_last_message_at_idx ON public.conversations USING btree (account_id, last_message_at DESC, id DESC);

CREATE INDEX conversations_profile_id_idx ON public.conversations USING btree (account_id, profile_id) WHERE (profile_id IS NOT NULL);

CREATE INDEX conversations_status_idx ON public.conversations USING btree (account_id, status, last_message_at DESC, id DESC);

CREATE INDEX cost_rollups_campaign_id_idx ON public.cost_rollups USING btree (account_id, campaign_id);

CREATE INDEX direct_message_queues_due_idx ON public.direct_message_queues USING btree (due_at);

CREATE INDEX direct_messages_contact_id_idx ON public.direct_messages USING btree (account_id, contact_id, created_at DESC, id DESC);

CREATE INDEX direct_messages_created_at_idx ON public.direct_messages USING btree (account_id, created_at DESC, id DESC);

CREATE INDEX direct_messages_due_idx ON public.direct_messages USING btree (account_id, profile_id, due_at, id) WHERE (due_at IS NOT NULL);

CREATE INDEX direct_messages_hold_rule_idx ON public.direct_messages USING btree (account_id, held_settings_at) WHERE (hold_rule IS NOT NULL);

CREATE INDEX direct_messages_media_id_idx ON public.direct_messages USING btree (account_id, media_id) WHERE (media_id IS NOT NULL);

CREATE INDEX direct_messages_sent_at_idx ON public.direct_messages USING btree (account_id, conversation_id, sent_at DESC, id DESC) WHERE (conversation_id IS NOT NULL);

CREATE INDEX direct_messages_started_at_idx ON public.direct_messages USING btree (started_at) WHERE ((status = 'pending'::text) AND (started_at IS NOT NULL));

CREATE INDEX direct_messages_started_idx ON public.direct_messages USING btree (account_id, profile_id) WHERE ((status = 'pending'::text) AND (started_at IS NOT NULL));

CREATE INDEX direct_messages_status_idx ON public.direct_messages USING btree (account_id, status, created_at DESC, id DESC);

CREATE INDEX direct_messages_template_id_idx ON public.direct_messages USING btree (account_id, template_id, created_at DESC, id DESC) WHERE (template_id IS NOT NULL);

CREATE INDEX direct_messages_wa_message_id_idx ON public.direct_messages USING btree (account_id, wa_message_id) WHERE (wa_message_id IS NOT NULL);

CREATE INDEX erasures_due_at_idx ON public.erasures USING btree (due_at) WHERE (due_at IS NOT NULL);

CREATE INDEX erasures_running_idx ON public.erasures USING btree (account_id) WHERE (state = 'running'::text);

CREATE INDEX gateway_cancellations_due_at_idx ON public.gateway_cancellations USING btree (due_at);

CREATE INDEX gateway_events_due_at_idx ON public.gateway_events USING btree (seq) WHERE (due_at IS NOT NULL);

CREATE INDEX gateway_events_gateway_subscription_id_idx ON public.gateway_events USING btree (gateway_subscription_id, seq) WHERE (due_at IS NOT NULL);

CREATE INDEX gateway_events_received_at_idx ON public.gateway_events USING btree (received_at) WHERE (due_at IS NULL);

CREATE INDEX gateway_subscriptions_account_id_idx ON public.gateway_subscriptions USING btree (account_id);

CREATE INDEX idempotency_key_counts_day_idx ON public.idempotency_key_counts USING btree (day);

CREATE INDEX idempotency_keys_created_at_idx ON public.idempotency_keys USING btree (created_at);

CREATE INDEX invite_tokens_invite_id_idx ON public.invite_tokens USING btree (account_id, invite_id);

CREATE INDEX link_codes_account_id_idx ON public.link_codes USING btree (account_id);

CREATE INDEX links_campaign_id_idx ON public.links USING btree (account_id, campaign_id) WHERE (campaign_id IS NOT NULL);

CREATE INDEX links_contact_id_idx ON public.links USING btree (account_id, contact_id) WHERE (contact_id IS NOT NULL);

CREATE INDEX mail_recipients_account_id_idx ON public.mail_recipients USING btree (account_id);

CREATE INDEX mail_recipients_mailed_at_idx ON public.mail_recipients USING btree (mailed_at);

CREATE INDEX message_media_due_at_idx ON public.message_media USING btree (due_at) WHERE (state = 'pending'::text);

CREATE INDEX message_media_expires_at_idx ON public.message_media USING btree (expires_at) WHERE (state = 'ready'::text);

CREATE INDEX message_media_lost_idx ON public.message_media USING btree (account_id) WHERE ((state = ANY (ARRAY['failed'::text, 'expired'::text])) AND (message_id IS NOT NULL) AND (lost_reported_at IS NULL));

CREATE INDEX message_media_lost_reported_at_idx ON public.message_media USING btree (account_id, lost_reported_at) WHERE (lost_reported_at IS NOT NULL);

CREATE INDEX message_media_message_id_idx ON public.message_media USING btree (account_id, message_id) WHERE (message_id IS NOT NULL);

CREATE INDEX message_media_pending_idx ON public.message_media USING btree (phone_number_id, due_at) WHERE (state = 'pending'::text);

CREATE INDEX message_media_written_idx ON public.message_media USING btree (account_id, written_at) WHERE ((message_id IS NOT NULL) AND ((state = ANY (ARRAY['pending'::text, 'ready'::text])) OR (abandoned <> '{}'::uuid[])));

CREATE INDEX message_templates_folder_id_idx ON public.message_templates USING btree (account_id, folder_id) WHERE (folder_id IS NOT NULL);

CREATE INDEX message_templates_meta_template_id_idx ON public.message_templates USING btree (account_id, meta_template_id);

CREATE UNIQUE INDEX message_templates_name_unique ON public.message_templates USING btree (account_id, name, language) WHERE (deleted_at IS NULL);

CREATE INDEX message_templates_profile_id_idx ON public.message_templates USING btree (account_id, profile_id) WHERE (profile_id IS NOT NULL);

CREATE INDEX messages_created_at_idx ON ONLY public.messages USING btree (account_id, conversation_id, created_at DESC, id DESC);

CREATE INDEX messages_media_ids_idx ON ONLY public.messages USING gin (media_ids) WHERE (media_ids IS NOT NULL);

CREATE INDEX messages_pending_idx ON ONLY public.messages USING btree (recorded_at) WHERE (status = 'pending'::text);

CREATE INDEX messages_written_idx ON ONLY public.messages USING btree (account_id, created_at DESC, id DESC);

CREATE INDEX metric_contacts_contact_id_idx ON public.metric_contacts USING btree (account_id, contact_id);

CREATE INDEX metric_contacts_total_value_idx ON public.metric_contacts USING btree (account_id, metric_name, total_value DESC, contact_id);

CREATE INDEX metric_events_contact_id_idx ON ONLY public.metric_events USING btree (account_id, contact_id, metric_name, occurred_at) WHERE (contact_id IS NOT NULL);

CREATE INDEX notifications_seq_idx ON public.notifications USING btree (seq);

CREATE UNIQUE INDEX notifications_seq_unique ON public.notifications USING btree (account_id, seq);

CREATE INDEX notifications_unread_idx ON public.notifications USING btree (account_id, id) WHERE (read_at IS NULL);

CREATE INDEX orders_contact_id_idx ON ONLY public.orders USING btree (account_id, contact_id) WHERE (contact_id IS NOT NULL);

CREATE INDEX outbox_events_account_id_idx ON public.outbox_events USING btree (kind, account_id, seq) WHERE ((retry_at IS NULL) AND (account_id IS NOT NULL));

CREATE INDEX outbox_events_kind_idx ON public.outbox_events USING btree (kind, seq) WHERE (retry_at IS NULL);

CREATE INDEX outbox_events_other_account_id_idx ON public.outbox_events USING btree (account_id) WHERE ((retry_at IS NOT NULL) OR (kind <> ALL (ARRAY['audit'::text, 'notification'::text, 'webhook'::text])));

CREATE INDEX outbox_events_retry_at_idx ON public.outbox_events USING btree (kind, retry_at) WHERE (retry_at IS NOT NULL);

CREATE INDEX outgoing_mail_account_id_due_at_idx ON public.outgoing_mail USING btree (account_id, due_at, id);

CREATE INDEX outgoing_mail_due_at_idx ON public.outgoing_mail USING btree (due_at);

CREATE INDEX platform_audit_account_id_idx ON public.platform_audit USING btree (account_id, created_at DESC, id DESC) WHERE (account_id IS NOT NULL);

CREATE INDEX platform_audit_created_at_idx ON public.platform_audit USING btree (created_at DESC, id DESC);

CREATE INDEX platform_audit_user_id_idx ON public.platform_audit USING btree (user_id, created_at DESC, id DESC);

CREATE INDEX rate_card_rows_countries_idx ON public.rate_card_rows USING gin (countries);

CREATE INDEX retention_settings_next_run_at_idx ON public.retention_settings USING btree (next_run_at) WHERE (next_run_at IS NOT NULL);

CREATE INDEX rfm_calculations_due_at_idx ON public.rfm_calculations USING btree (due_at);

CREATE INDEX segment_members_contact_id_idx ON public.segment_members USING btree (account_id, contact_id);

CREATE INDEX subscriptions_check_at_idx ON public.subscriptions USING btree (check_at) WHERE (check_at IS NOT NULL);

CREATE INDEX subscriptions_created_at_idx ON public.subscriptions USING btree (account_id, created_at DESC);

CREATE INDEX subscriptions_intent_until_idx ON public.subscriptions USING btree (intent_until) WHERE (intent_until IS NOT NULL);

CREATE INDEX subscriptions_lapse_idx ON public.subscriptions USING btree (current_period_end) WHERE ((status = 'cancelled'::text) AND (lapsed_at IS NULL));

CREATE UNIQUE INDEX subscriptions_live_unique ON public.subscriptions USING btree (account_id) WHERE (status = ANY (ARRAY['active'::text, 'pending'::text, 'past_due'::text]));

CREATE UNIQUE INDEX tags_name_unique ON public.tags USING btree (account_id, lower(name));

CREATE UNIQUE INDEX team_invites_pending_unique ON public.team_invites USING btree (account_id, lower(email)) WHERE (status = 'pending'::text);

CREATE INDEX webhook_deliveries_abandoned_idx ON public.webhook_deliveries USING btree (event_id) WHERE (state <> 'waiting'::text);

CREATE INDEX webhook_deliveries_claim_idx ON public.webhook_deliveries USING btree (endpoint_id, next_attempt_at, event_id) WHERE (state = 'waiting'::text);

CREATE INDEX webhook_deliveries_failed_at_idx ON public.webhook_deliveries USING btree (account_id, endpoint_id, failed_at);

CREATE INDEX webhook_deliveries_next_attempt_at_idx ON public.webhook_deliveries USING btree (next_attempt_at) WHERE (state = 'waiting'::text);

CREATE INDEX webhook_endpoint_ids_endpoint_idx ON public.webhook_endpoint_ids USING btree (account_id, id);

CREATE INDEX webhook_events_seq_idx ON ONLY public.webhook_events USING btree (account_id, seq);

CREATE INDEX webhook_logs_endpoint_id_idx ON ONLY public.webhook_logs USING btree (account_id, endpoint_id, id);

CREATE INDEX webhook_logs_failed_idx ON ONLY public.webhook_logs USING btree (account_id, id) WHERE ((response_status IS NULL) OR (response_status >= 400));

CREATE INDEX webhook_logs_inbound_idx ON ONLY public.webhook_logs USING btree (account_id, id) WHERE (direction = 'inbound'::text);

CREATE INDEX whatsapp_callbacks_due_at_idx ON public.whatsapp_callbacks USING btree (due_at, id);

CREATE INDEX whatsapp_held_messages_received_at_idx ON public.whatsapp_held_messages USING btree (received_at);

CREATE INDEX whatsapp_held_messages_seq_idx ON public.whatsapp_held_messages USING btree (phone_number_id, seq);

CREATE INDEX whatsapp_numbers_account_id_idx ON public.whatsapp_numbers USING btree (account_id);

CREATE INDEX whatsapp_numbers_waba_id_idx ON public.whatsapp_numbers USING btree (waba_id);

CREATE INDEX whatsapp_profiles_held_since_idx ON public.whatsapp_profiles USING btree (held_since) WHERE ((held_since IS NOT NULL) AND (verification_state = 'verified'::text));

CREATE INDEX whatsapp_profiles_next_check_at_idx ON public.whatsapp_profiles USING btree (next_check_at) WHERE (next_check_at IS NOT NULL);

ALTER TABLE ONLY public.account_settings
    ADD CONSTRAINT account_settings_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.account_users
    ADD CONSTRAINT account_users_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.account_users
    ADD CONSTRAINT account_users_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id);

ALTER TABLE ONLY public.ad_spend
    ADD CONSTRAINT ad_spend_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.applied_gateway_events
    ADD CONSTRAINT applied_gateway_events_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.attribution_rollups
    ADD CONSTRAINT attribution_rollups_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.automation_executions
    ADD CONSTRAINT automation_executions_automation_id_fkey FOREIGN KEY (account_id, automation_id) REFERENCES public.automations(account_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.automation_rollups
    ADD CONSTRAINT automation_rollups_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.automations
    ADD CONSTRAINT automations_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.billing_history
    ADD CONSTRAINT billing_history_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.billing_history
    ADD CONSTRAINT billing_history_subscription_id_fkey FOREIGN KEY (account_id, subscription_id) REFERENCES public.subscriptions(account_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.brand_contexts
    ADD CONSTRAINT brand_contexts_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.campaign_archives
    ADD CONSTRAINT campaign_archives_campaign_id_fkey FOREIGN KEY (account_id, campaign_id) REFERENCES public.campaigns(account_id, id);

ALTER TABLE ONLY public.campaign_budgets
    ADD CONSTRAINT campaign_budgets_campaign_id_fkey FOREIGN KEY (account_id, campaign_id) REFERENCES public.campaigns(account_id, id);

ALTER TABLE ONLY public.campaign_counter_slots
    ADD CONSTRAINT campaign_counter_slots_campaign_id_fkey FOREIGN KEY (account_id, campaign_id) REFERENCES public.campaigns(account_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.campaign_recipient_batches
    ADD CONSTRAINT campaign_recipient_batches_campaign_id_fkey FOREIGN KEY (account_id, campaign_id) REFERENCES public.campaigns(account_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.campaign_retries
    ADD CONSTRAINT campaign_retries_campaign_id_fkey FOREIGN KEY (account_id, campaign_id) REFERENCES public.campaigns(account_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.campaign_retry_batches
    ADD CONSTRAINT campaign_retry_batches_campaign_id_fkey FOREIGN KEY (account_id, campaign_id) REFERENCES public.campaigns(account_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.campaign_run_contents
    ADD CONSTRAINT campaign_run_contents_campaign_id_fkey FOREIGN KEY (account_id, campaign_id) REFERENCES public.campaigns(account_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.campaigns
    ADD CONSTRAINT campaigns_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.campaigns
    ADD CONSTRAINT campaigns_folder_id_fkey FOREIGN KEY (account_id, folder_id) REFERENCES public.folders(account_id, id);

ALTER TABLE ONLY public.campaigns
    ADD CONSTRAINT campaigns_profile_id_fkey FOREIGN KEY (account_id, profile_id) REFERENCES public.whatsapp_profiles(account_id, id);

ALTER TABLE ONLY public.campaigns
    ADD CONSTRAINT campaigns_segment_id_fkey FOREIGN KEY (account_id, segment_id) REFERENCES public.segments(account_id, id);

ALTER TABLE ONLY public.campaigns
    ADD CONSTRAINT campaigns_template_id_fkey FOREIGN KEY (account_id, template_id) REFERENCES public.message_templates(account_id, id);

ALTER TABLE ONLY public.cart_rollups
    ADD CONSTRAINT cart_rollups_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.carts
    ADD CONSTRAINT carts_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.carts
    ADD CONSTRAINT carts_contact_id_fkey FOREIGN KEY (account_id, contact_id) REFERENCES public.contacts(account_id, id);

ALTER TABLE ONLY public.contact_counts
    ADD CONSTRAINT contact_counts_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.contact_exports
    ADD CONSTRAINT contact_exports_contact_id_fkey FOREIGN KEY (account_id, contact_id) REFERENCES public.contacts(account_id, id);

ALTER TABLE ONLY public.contact_identities
    ADD CONSTRAINT contact_identities_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.contact_identities
    ADD CONSTRAINT contact_identities_contact_id_fkey FOREIGN KEY (account_id, contact_id) REFERENCES public.contacts(account_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.contact_rfm
    ADD CONSTRAINT contact_rfm_contact_id_fkey FOREIGN KEY (account_id, contact_id) REFERENCES public.contacts(account_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.contact_tags
    ADD CONSTRAINT contact_tags_contact_id_fkey FOREIGN KEY (account_id, contact_id) REFERENCES public.contacts(account_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.contact_tags
    ADD CONSTRAINT contact_tags_tag_id_fkey FOREIGN KEY (account_id, tag_id) REFERENCES public.tags(account_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.contacts
    ADD CONSTRAINT contacts_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.conversation_counts
    ADD CONSTRAINT conversation_counts_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.conversations
    ADD CONSTRAINT conversations_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.conversations
    ADD CONSTRAINT conversations_contact_id_fkey FOREIGN KEY (account_id, contact_id) REFERENCES public.contacts(account_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.conversations
    ADD CONSTRAINT conversations_profile_id_fkey FOREIGN KEY (account_id, profile_id) REFERENCES public.whatsapp_profiles(account_id, id);

ALTER TABLE ONLY public.cost_months
    ADD CONSTRAINT cost_months_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.cost_rollups
    ADD CONSTRAINT cost_rollups_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.direct_message_queues
    ADD CONSTRAINT direct_message_queues_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.direct_message_references
    ADD CONSTRAINT direct_message_references_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.direct_messages
    ADD CONSTRAINT direct_messages_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.direct_messages
    ADD CONSTRAINT direct_messages_contact_id_fkey FOREIGN KEY (account_id, contact_id) REFERENCES public.contacts(account_id, id);

ALTER TABLE ONLY public.direct_messages
    ADD CONSTRAINT direct_messages_conversation_id_fkey FOREIGN KEY (account_id, conversation_id) REFERENCES public.conversations(account_id, id);

ALTER TABLE ONLY public.direct_messages
    ADD CONSTRAINT direct_messages_template_id_fkey FOREIGN KEY (account_id, template_id) REFERENCES public.message_templates(account_id, id);

ALTER TABLE ONLY public.erasures
    ADD CONSTRAINT erasures_contact_id_fkey FOREIGN KEY (account_id, contact_id) REFERENCES public.contacts(account_id, id);

ALTER TABLE ONLY public.folders
    ADD CONSTRAINT folders_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.given_cost_alerts
    ADD CONSTRAINT given_cost_alerts_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.link_rollups
    ADD CONSTRAINT link_rollups_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.links
    ADD CONSTRAINT links_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.links
    ADD CONSTRAINT links_campaign_id_fkey FOREIGN KEY (account_id, campaign_id) REFERENCES public.campaigns(account_id, id);

ALTER TABLE ONLY public.message_rollups
    ADD CONSTRAINT message_rollups_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.message_templates
    ADD CONSTRAINT message_templates_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.message_templates
    ADD CONSTRAINT message_templates_folder_id_fkey FOREIGN KEY (account_id, folder_id) REFERENCES public.folders(account_id, id);

ALTER TABLE ONLY public.message_templates
    ADD CONSTRAINT message_templates_profile_id_fkey FOREIGN KEY (account_id, profile_id) REFERENCES public.whatsapp_profiles(account_id, id);

ALTER TABLE ONLY public.message_usage_slots
    ADD CONSTRAINT message_usage_slots_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.metric_contacts
    ADD CONSTRAINT metric_contacts_contact_id_fkey FOREIGN KEY (account_id, contact_id) REFERENCES public.contacts(account_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.metric_contacts
    ADD CONSTRAINT metric_contacts_metric_name_fkey FOREIGN KEY (account_id, metric_name) REFERENCES public.metrics(account_id, metric_name) ON DELETE CASCADE;

ALTER TABLE ONLY public.metric_rollups
    ADD CONSTRAINT metric_rollups_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.metric_sources
    ADD CONSTRAINT metric_sources_metric_name_fkey FOREIGN KEY (account_id, metric_name) REFERENCES public.metrics(account_id, metric_name) ON DELETE CASCADE;

ALTER TABLE ONLY public.metrics
    ADD CONSTRAINT metrics_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.notifications
    ADD CONSTRAINT notifications_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.order_keys
    ADD CONSTRAINT order_keys_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.order_rollups
    ADD CONSTRAINT order_rollups_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.product_names
    ADD CONSTRAINT product_names_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.product_rollups
    ADD CONSTRAINT product_rollups_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.rate_card_rows
    ADD CONSTRAINT rate_card_rows_card_id_fkey FOREIGN KEY (card_id) REFERENCES public.rate_cards(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.retention_horizons
    ADD CONSTRAINT retention_horizons_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.retention_settings
    ADD CONSTRAINT retention_settings_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.rfm_calculations
    ADD CONSTRAINT rfm_calculations_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.rfm_counts
    ADD CONSTRAINT rfm_counts_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.segment_counts
    ADD CONSTRAINT segment_counts_segment_id_fkey FOREIGN KEY (account_id, segment_id) REFERENCES public.segments(account_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.segment_members
    ADD CONSTRAINT segment_members_contact_id_fkey FOREIGN KEY (account_id, contact_id) REFERENCES public.contacts(account_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.segment_members
    ADD CONSTRAINT segment_members_segment_id_fkey FOREIGN KEY (account_id, segment_id) REFERENCES public.segments(account_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.segments
    ADD CONSTRAINT segments_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.service_message_months
    ADD CONSTRAINT service_message_months_profile_id_fkey FOREIGN KEY (account_id, profile_id) REFERENCES public.whatsapp_profiles(account_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.subscriptions
    ADD CONSTRAINT subscriptions_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.tags
    ADD CONSTRAINT tags_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.team_invites
    ADD CONSTRAINT team_invites_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.webhook_deliveries
    ADD CONSTRAINT webhook_deliveries_endpoint_id_fkey FOREIGN KEY (account_id, endpoint_id) REFERENCES public.webhook_endpoints(account_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.webhook_endpoint_ids
    ADD CONSTRAINT webhook_endpoint_ids_endpoint_fkey FOREIGN KEY (account_id, id) REFERENCES public.webhook_endpoints(account_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.webhook_endpoints
    ADD CONSTRAINT webhook_endpoints_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.whatsapp_files
    ADD CONSTRAINT whatsapp_files_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.whatsapp_profiles
    ADD CONSTRAINT whatsapp_profiles_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id) ON DELETE CASCADE;

CREATE POLICY account_marks ON public.rate_cards FOR UPDATE USING (((NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid IS NOT NULL));

CREATE POLICY account_reads ON public.rate_card_rows FOR SELECT USING (true);

CREATE POLICY account_reads ON public.rate_cards FOR SELECT USING (((NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid IS NOT NULL));

ALTER TABLE public.account_settings ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.account_users ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.accounts ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.ad_spend ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.api_keys ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.applied_gateway_events ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.attribution_rollups ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.audit_counts ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.audit_logs ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.automation_executions ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.automation_rollups ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.automations ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.billing_history ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.brand_contexts ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.campaign_archives ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.campaign_budgets ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.campaign_claims ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.campaign_counter_slots ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.campaign_queue ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.campaign_recipient_batches ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.campaign_retries ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.campaign_retry_batches ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.campaign_run_contents ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.campaign_send_times ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.campaign_sends ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.campaigns ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.cart_rollups ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.carts ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.contact_counts ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.contact_exports ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.contact_identities ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.contact_rfm ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.contact_tags ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.contacts ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.conversation_counts ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.conversations ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.cost_months ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.cost_rollups ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.direct_message_queues ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.direct_message_references ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.direct_messages ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.erased_opt_outs ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.erasures ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.folders ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.gateway_subscriptions ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.given_cost_alerts ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.link_codes ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.link_rollups ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.links ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.message_media ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.message_rollups ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.message_templates ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.message_usage_slots ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.messages ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.metric_contacts ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.metric_event_keys ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.metric_events ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.metric_rollups ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.metric_sources ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.metrics ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.notifications ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.order_items ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.order_keys ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.order_rollups ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.orders ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.outbox_events ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.product_names ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.product_rollups ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.rate_card_rows ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.rate_cards ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.retention_horizons ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.retention_settings ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.rfm_calculations ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.rfm_changes ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.rfm_counts ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.segment_counts ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.segment_members ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.segments ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.sent_messages ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.service_message_months ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.subscriptions ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.tags ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.team_invites ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant_isolation ON public.account_settings USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.account_users USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.accounts USING ((id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.ad_spend USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.api_keys USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.applied_gateway_events USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.attribution_rollups USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.audit_counts USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.audit_logs USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.automation_executions USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.automation_rollups USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.automations USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.billing_history USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.brand_contexts USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.campaign_archives USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.campaign_budgets USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.campaign_claims USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.campaign_counter_slots USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.campaign_queue USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.campaign_recipient_batches USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.campaign_retries USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.campaign_retry_batches USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.campaign_run_contents USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.campaign_send_times USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.campaign_sends USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.campaigns USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.cart_rollups USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.carts USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.contact_counts USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.contact_exports USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.contact_identities USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.contact_rfm USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.contact_tags USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.contacts USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.conversation_counts USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.conversations USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.cost_months USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.cost_rollups USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.direct_message_queues USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.direct_message_references USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.direct_messages USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.erased_opt_outs USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.erasures USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.folders USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.gateway_subscriptions USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.given_cost_alerts USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.link_codes USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.link_rollups USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.links USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.message_media USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.message_rollups USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.message_templates USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.message_usage_slots USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.messages USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.metric_contacts USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.metric_event_keys USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.metric_events USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.metric_rollups USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.metric_sources USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.metrics USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.notifications USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.order_items USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.order_keys USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.order_rollups USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.orders USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.outbox_events USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.product_names USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.product_rollups USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.retention_horizons USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.retention_settings USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.rfm_calculations USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.rfm_changes USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.rfm_counts USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.segment_counts USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.segment_members USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.segments USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.sent_messages USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.service_message_months USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.subscriptions USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.tags USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.team_invites USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.webhook_deliveries USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.webhook_endpoint_ids USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.webhook_endpoints USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.webhook_events USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.webhook_inbox USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.webhook_logs USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.whatsapp_files USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.whatsapp_numbers USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

CREATE POLICY tenant_isolation ON public.whatsapp_profiles USING ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid)) WITH CHECK ((account_id = (NULLIF(current_setting('app.account_id'::text, true), ''::text))::uuid));

ALTER TABLE public.webhook_deliveries ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.webhook_endpoint_ids ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.webhook_endpoints ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.webhook_events ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.webhook_inbox ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.webhook_logs ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.whatsapp_files ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.whatsapp_numbers ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.whatsapp_profiles ENABLE ROW LEVEL SECURITY;

GRANT USAGE ON SCHEMA public TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.account_settings TO recado_tenant;

GRANT SELECT ON TABLE public.account_users TO recado_tenant;

GRANT SELECT ON TABLE public.accounts TO recado_tenant;

GRANT UPDATE(plan) ON TABLE public.accounts TO recado_tenant;

GRANT UPDATE(granted_plan) ON TABLE public.accounts TO recado_tenant;

GRANT UPDATE(updated_at) ON TABLE public.accounts TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.ad_spend TO recado_tenant;

GRANT SELECT ON TABLE public.api_keys TO recado_tenant;

GRANT SELECT,INSERT ON TABLE public.applied_gateway_events TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.attribution_rollups TO recado_tenant;

GRANT SELECT ON TABLE public.audit_counts TO recado_tenant;

GRANT SELECT ON TABLE public.audit_logs TO recado_tenant;

GRANT SELECT,INSERT ON TABLE public.automation_executions TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.automation_rollups TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.automations TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.billing_history TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.brand_contexts TO recado_tenant;

GRANT SELECT ON TABLE public.campaign_archives TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.campaign_budgets TO recado_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.campaign_claims TO recado_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.campaign_counter_slots TO recado_tenant;

GRANT SELECT ON TABLE public.campaign_counters TO recado_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.campaign_queue TO recado_tenant;

GRANT SELECT,INSERT,DELETE ON TABLE public.campaign_recipient_batches TO recado_tenant;

GRANT UPDATE(batch_no) ON TABLE public.campaign_recipient_batches TO recado_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.campaign_retries TO recado_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.campaign_retry_batches TO recado_tenant;

GRANT SELECT,INSERT ON TABLE public.campaign_run_contents TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.campaign_send_times TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.campaign_sends TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.campaigns TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.cart_rollups TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.carts TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.contact_counts TO recado_tenant;

GRANT SELECT,INSERT ON TABLE public.contact_exports TO recado_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.contact_identities TO recado_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.contact_rfm TO recado_tenant;

GRANT SELECT,INSERT,DELETE ON TABLE public.contact_tags TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.contacts TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.conversation_counts TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.conversations TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.cost_months TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.cost_rollups TO recado_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.direct_message_queues TO recado_tenant;

GRANT SELECT ON TABLE public.direct_message_references TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.direct_messages TO recado_tenant;

GRANT SELECT,INSERT,DELETE ON TABLE public.erased_opt_outs TO recado_tenant;

GRANT UPDATE(created_at) ON TABLE public.erased_opt_outs TO recado_tenant;

GRANT SELECT,INSERT ON TABLE public.erasures TO recado_tenant;

GRANT SELECT,INSERT,DELETE ON TABLE public.folders TO recado_tenant;

GRANT UPDATE(name) ON TABLE public.folders TO recado_tenant;

GRANT INSERT ON TABLE public.gateway_subscriptions TO recado_tenant;

GRANT SELECT,INSERT ON TABLE public.given_cost_alerts TO recado_tenant;

GRANT INSERT ON TABLE public.link_codes TO recado_tenant;

GRANT SELECT ON TABLE public.link_rollups TO recado_tenant;

GRANT SELECT,INSERT ON TABLE public.links TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.message_media TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.message_rollups TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.message_templates TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.message_usage_slots TO recado_tenant;

GRANT SELECT ON TABLE public.message_usage TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.messages TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.metric_contacts TO recado_tenant;

GRANT SELECT,INSERT ON TABLE public.metric_event_keys TO recado_tenant;

GRANT SELECT,INSERT ON TABLE public.metric_events TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.metric_rollups TO recado_tenant;

GRANT SELECT,INSERT ON TABLE public.metric_sources TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.metrics TO recado_tenant;

GRANT SELECT ON TABLE public.notifications TO recado_tenant;

GRANT UPDATE(read_at) ON TABLE public.notifications TO recado_tenant;

GRANT SELECT,INSERT,DELETE ON TABLE public.order_items TO recado_tenant;

GRANT SELECT,INSERT ON TABLE public.order_keys TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.order_rollups TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.orders TO recado_tenant;

GRANT INSERT ON TABLE public.outbox_events TO recado_tenant;

REVOKE ALL ON TABLE public.platform_audit FROM postgres;
GRANT SELECT,INSERT,REFERENCES,TRIGGER ON TABLE public.platform_audit TO postgres;

GRANT SELECT,INSERT,UPDATE ON TABLE public.product_names TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.product_rollups TO recado_tenant;

GRANT SELECT ON TABLE public.rate_card_rows TO recado_tenant;

GRANT SELECT(id) ON TABLE public.rate_cards TO recado_tenant;

GRANT SELECT(used_at),UPDATE(used_at) ON TABLE public.rate_cards TO recado_tenant;

GRANT SELECT(created_at) ON TABLE public.rate_cards TO recado_tenant;

GRANT SELECT ON TABLE public.retention_horizons TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.retention_settings TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.rfm_calculations TO recado_tenant;

GRANT SELECT,INSERT,DELETE ON TABLE public.rfm_changes TO recado_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.rfm_counts TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.segment_counts TO recado_tenant;

GRANT SELECT,INSERT,DELETE ON TABLE public.segment_members TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.segments TO recado_tenant;

GRANT SELECT,INSERT ON TABLE public.sent_messages TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.service_message_months TO recado_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.subscriptions TO recado_tenant;

GRANT SELECT,INSERT,DELETE ON TABLE public.tags TO recado_tenant;

GRANT SELECT ON TABLE public.team_invites TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.webhook_deliveries TO recado_tenant;

GRANT SELECT,INSERT ON TABLE public.webhook_endpoint_ids TO recado_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.webhook_endpoints TO recado_tenant;

GRANT SELECT,INSERT ON TABLE public.webhook_events TO recado_tenant;

GRANT SELECT,INSERT ON TABLE public.webhook_inbox TO recado_tenant;

GRANT SELECT,INSERT ON TABLE public.webhook_logs TO recado_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.whatsapp_files TO recado_tenant;

GRANT INSERT ON TABLE public.whatsapp_numbers TO recado_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.whatsapp_profiles TO recado_tenant;
