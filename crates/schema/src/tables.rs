//! The tables for diesel's query language. `cargo xtask schema` writes this file; the gate fails when it differs from the
//! migrations.

diesel::table! {
    account_deletions (account_id) {
        account_id -> Uuid,
        due_at -> Timestamptz,
        table_name -> Nullable<Text>,
        after -> Nullable<Array<Text>>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    account_settings (account_id) {
        account_id -> Uuid,
        timezone -> Nullable<Text>,
        quiet_hours -> Nullable<Jsonb>,
        max_marketing_per_contact -> Nullable<Jsonb>,
        hold_at_most_hours -> Nullable<SmallInt>,
        opt_out_words -> Nullable<Jsonb>,
        opt_out_words_since -> Nullable<Jsonb>,
        opt_out_reply -> Nullable<Text>,
        opt_out_reply_by -> Nullable<Uuid>,
        late_policy -> Nullable<Jsonb>,
        cost_alerts -> Nullable<Jsonb>,
        holds_changed_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    account_slugs (slug) {
        slug -> Text,
        account_id -> Uuid,
    }
}

diesel::table! {
    account_users (account_id, user_id) {
        account_id -> Uuid,
        user_id -> Uuid,
        role -> Text,
        last_active_at -> Nullable<Timestamptz>,
        is_support -> Bool,
        expires_at -> Nullable<Timestamptz>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    accounts (id) {
        id -> Uuid,
        name -> Text,
        slug -> Text,
        logo_url -> Nullable<Text>,
        plan -> Text,
        status -> Text,
        deleting_at -> Nullable<Timestamptz>,
        granted_plan -> Nullable<Text>,
        created_by -> Nullable<Uuid>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    ad_spend (account_id, date, source) {
        account_id -> Uuid,
        date -> Date,
        source -> Text,
        amount -> Numeric,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    api_key_hashes (key_hash) {
        key_hash -> Binary,
        account_id -> Uuid,
        key_id -> Uuid,
        valid_until -> Nullable<Timestamptz>,
        created_by -> Uuid,
    }
}

diesel::table! {
    api_keys (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        name -> Text,
        key_prefix -> Text,
        key_hint -> Text,
        last_used_at -> Nullable<Timestamptz>,
        scopes -> Array<Text>,
        expires_at -> Nullable<Timestamptz>,
        allowed_cidrs -> Array<Text>,
        last_used_ip -> Nullable<Text>,
        rotated_at -> Nullable<Timestamptz>,
        previous_valid_until -> Nullable<Timestamptz>,
        rotation_request -> Nullable<Binary>,
        expiry_notice -> Text,
        unused_notified_at -> Nullable<Timestamptz>,
        notice_lease_until -> Nullable<Timestamptz>,
        created_by -> Uuid,
        created_at -> Timestamptz,
        version -> BigInt,
    }
}

diesel::table! {
    applied_gateway_events (account_id, event_id) {
        account_id -> Uuid,
        event_id -> Uuid,
        applied_at -> Timestamptz,
    }
}

diesel::table! {
    attribution_rollups (account_id, bucket_minutes, bucket_start, kind, attributed_to_id) {
        account_id -> Uuid,
        bucket_minutes -> SmallInt,
        bucket_start -> Timestamptz,
        kind -> Text,
        attributed_to_id -> Uuid,
        orders -> BigInt,
        revenue -> Numeric,
    }
}

diesel::table! {
    audit_counts (account_id, month, entity_type, action) {
        account_id -> Uuid,
        month -> Date,
        entity_type -> Text,
        action -> Text,
        n -> BigInt,
    }
}

diesel::table! {
    audit_logs (account_id, id, created_at) {
        account_id -> Uuid,
        id -> Uuid,
        user_id -> Nullable<Uuid>,
        action -> Text,
        entity_type -> Text,
        entity_id -> Nullable<Uuid>,
        changes -> Nullable<Jsonb>,
        ip_address -> Nullable<Text>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    automation_executions (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        automation_id -> Uuid,
        status -> Text,
        started_at -> Timestamptz,
        finished_at -> Timestamptz,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    automation_rollups (account_id, bucket_minutes, bucket_start, automation_id) {
        account_id -> Uuid,
        bucket_minutes -> SmallInt,
        bucket_start -> Timestamptz,
        automation_id -> Uuid,
        completed -> BigInt,
        failed -> BigInt,
        latency -> Numeric,
    }
}

diesel::table! {
    automations (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        name -> Text,
        status -> Text,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    billing_history (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        subscription_id -> Uuid,
        gateway_payment_id -> Text,
        billing_type -> Text,
        value -> BigInt,
        status -> Text,
        invoice_url -> Nullable<Text>,
        bank_slip_url -> Nullable<Text>,
        due_date -> Nullable<Date>,
        paid_at -> Nullable<Timestamptz>,
        confirmed -> Bool,
        credited -> Bool,
        last_event_at -> Nullable<Timestamptz>,
        cycle -> Nullable<Text>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    brand_contexts (account_id) {
        account_id -> Uuid,
        company_name -> Nullable<Text>,
        description -> Nullable<Text>,
        products_services -> Nullable<Text>,
        tone_of_voice -> Nullable<Text>,
        target_audience -> Nullable<Text>,
        brand_values -> Nullable<Text>,
        website_url -> Nullable<Text>,
        raw_scrape_data -> Nullable<Jsonb>,
        last_scraped_at -> Nullable<Timestamptz>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    campaign_archives (account_id, campaign_id) {
        account_id -> Uuid,
        campaign_id -> Uuid,
        file_key -> Uuid,
        abandoned -> Array<Uuid>,
        verified_at -> Nullable<Timestamptz>,
        size -> Nullable<BigInt>,
        sha256 -> Nullable<Binary>,
        sends -> Nullable<BigInt>,
        months -> Array<Date>,
        removed_at -> Nullable<Timestamptz>,
        retry_at -> Nullable<Timestamptz>,
        reported_at -> Nullable<Timestamptz>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    campaign_budgets (account_id, campaign_id) {
        account_id -> Uuid,
        campaign_id -> Uuid,
        reserved -> Numeric,
        currency -> Nullable<Text>,
    }
}

diesel::table! {
    campaign_claims (account_id, campaign_id) {
        account_id -> Uuid,
        campaign_id -> Uuid,
        send_ids -> Array<Uuid>,
        earlier_send_ids -> Array<Uuid>,
        retried_until -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    campaign_counter_slots (account_id, campaign_id, slot) {
        account_id -> Uuid,
        campaign_id -> Uuid,
        total -> BigInt,
        pending -> BigInt,
        sent -> BigInt,
        delivered -> BigInt,
        read -> BigInt,
        failed -> BigInt,
        slot -> SmallInt,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    campaign_queue (account_id, campaign_id) {
        account_id -> Uuid,
        campaign_id -> Uuid,
        trigger -> Text,
        user_id -> Nullable<Uuid>,
        ip_address -> Nullable<Text>,
        worker -> Nullable<Uuid>,
        leased_until -> Nullable<Timestamptz>,
        prepared -> Bool,
        waiting_since -> Timestamptz,
        support_admin -> Nullable<Text>,
        retry_at -> Nullable<Timestamptz>,
        retries -> Integer,
        created_at -> Timestamptz,
        waiting_until -> Nullable<Timestamptz>,
        held -> BigInt,
        checked_settings_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    campaign_recipient_batches (account_id, campaign_id, batch_no) {
        account_id -> Uuid,
        campaign_id -> Uuid,
        batch_no -> Integer,
        contact_ids -> Array<Uuid>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    campaign_retries (account_id, campaign_id) {
        account_id -> Uuid,
        campaign_id -> Uuid,
        due_at -> Timestamptz,
        codes -> Nullable<Array<BigInt>>,
        force -> Bool,
        user_id -> Uuid,
        support_admin -> Nullable<Text>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    campaign_retry_batches (account_id, campaign_id, batch_no) {
        account_id -> Uuid,
        campaign_id -> Uuid,
        batch_no -> Integer,
        send_ids -> Array<Uuid>,
        searched_until -> Nullable<Uuid>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    campaign_run_contents (account_id, campaign_id) {
        account_id -> Uuid,
        campaign_id -> Uuid,
        content -> Jsonb,
        body_text -> Nullable<Text>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    campaign_send_times (account_id, campaign_id, sent_at, first_send_id) {
        account_id -> Uuid,
        campaign_id -> Uuid,
        sent_at -> Timestamptz,
        first_send_id -> Uuid,
        send_ids -> Array<Uuid>,
    }
}

diesel::table! {
    campaign_sends (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        campaign_id -> Uuid,
        contact_id -> Uuid,
        status -> Text,
        attempts -> Integer,
        started_at -> Nullable<Timestamptz>,
        retry_at -> Nullable<Timestamptz>,
        unknown_at -> Nullable<Timestamptz>,
        sent_at -> Nullable<Timestamptz>,
        delivered_at -> Nullable<Timestamptz>,
        read_at -> Nullable<Timestamptz>,
        failed_at -> Nullable<Timestamptz>,
        error_code -> Nullable<BigInt>,
        error_message -> Nullable<Text>,
        wa_message_id -> Nullable<Text>,
        quota_month -> Nullable<Date>,
        superseded_wa_message_id -> Nullable<Text>,
        never_confirmed -> Bool,
        earlier_error_code -> Nullable<BigInt>,
        earlier_failures -> Integer,
        pricing -> Nullable<Jsonb>,
        created_at -> Timestamptz,
        by_user_id -> Bool,
        reserved_amount -> Nullable<Numeric>,
        hold_reason -> Nullable<Text>,
        held_since -> Nullable<Timestamptz>,
        is_marketing -> Nullable<Bool>,
    }
}

diesel::table! {
    campaigns (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        name -> Text,
        template_id -> Nullable<Uuid>,
        segment_id -> Nullable<Uuid>,
        segment_config -> Nullable<Jsonb>,
        rfm_segments -> Array<Text>,
        scheduled_at -> Nullable<Timestamptz>,
        variables -> Nullable<Jsonb>,
        folder_id -> Nullable<Uuid>,
        status -> Text,
        total_recipients -> BigInt,
        simulated -> Bool,
        executed_at -> Nullable<Timestamptz>,
        completed_at -> Nullable<Timestamptz>,
        paused_at -> Nullable<Timestamptz>,
        pause_reason -> Nullable<Text>,
        profile_id -> Nullable<Uuid>,
        scheduled_by -> Nullable<Uuid>,
        scheduled_support_admin -> Nullable<Text>,
        retry_scheduled_at -> Nullable<Timestamptz>,
        run_quota_month -> Nullable<Date>,
        created_by -> Nullable<Uuid>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        deleted_at -> Nullable<Timestamptz>,
        version -> BigInt,
        header_location -> Nullable<Jsonb>,
        offer_expires_at -> Nullable<Timestamptz>,
        reach -> Text,
        budget -> Nullable<Jsonb>,
        newcomers_only -> Bool,
    }
}

diesel::table! {
    cart_rollups (account_id, bucket_minutes, bucket_start) {
        account_id -> Uuid,
        bucket_minutes -> SmallInt,
        bucket_start -> Timestamptz,
        carts -> BigInt,
        recovered -> BigInt,
    }
}

diesel::table! {
    carts (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        platform -> Text,
        external_id -> Text,
        contact_id -> Nullable<Uuid>,
        total -> Numeric,
        status -> Text,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    contact_counts (account_id, day) {
        account_id -> Uuid,
        day -> Date,
        contacts -> BigInt,
    }
}

diesel::table! {
    contact_exports (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        contact_id -> Uuid,
        state -> Text,
        requested_at -> Timestamptz,
        expires_at -> Timestamptz,
        due_at -> Nullable<Timestamptz>,
        file_key -> Nullable<Uuid>,
        abandoned -> Array<Uuid>,
        size -> Nullable<BigInt>,
        sha256 -> Nullable<Binary>,
    }
}

diesel::table! {
    contact_identities (account_id, scope, wa_user_id) {
        account_id -> Uuid,
        scope -> Text,
        wa_user_id -> Text,
        contact_id -> Uuid,
        parent_user_id -> Nullable<Text>,
        username -> Nullable<Text>,
        first_seen_at -> Timestamptz,
        last_seen_at -> Timestamptz,
    }
}

diesel::table! {
    contact_rfm (account_id, contact_id) {
        account_id -> Uuid,
        contact_id -> Uuid,
        recency_score -> SmallInt,
        frequency_score -> SmallInt,
        monetary_score -> SmallInt,
        segment -> Text,
    }
}

diesel::table! {
    contact_tags (account_id, contact_id, tag_id) {
        account_id -> Uuid,
        contact_id -> Uuid,
        tag_id -> Uuid,
    }
}

diesel::table! {
    contacts (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        name -> Text,
        phone -> Nullable<Text>,
        email -> Nullable<Text>,
        wa_id -> Nullable<Text>,
        wa_user_id -> Nullable<Text>,
        attributes -> Jsonb,
        opted_out_at -> Nullable<Timestamptz>,
        consent_at -> Nullable<Timestamptz>,
        first_referral -> Nullable<Jsonb>,
        first_referral_at -> Nullable<Timestamptz>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        deleted_at -> Nullable<Timestamptz>,
        version -> BigInt,
        same_person_as -> Nullable<Uuid>,
        time_zone -> Nullable<Text>,
        erased_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    conversation_counts (account_id, status) {
        account_id -> Uuid,
        status -> Text,
        conversations -> BigInt,
    }
}

diesel::table! {
    conversations (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        contact_id -> Uuid,
        profile_id -> Nullable<Uuid>,
        status -> Text,
        last_message_at -> Timestamptz,
        last_inbound_at -> Nullable<Timestamptz>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    cost_months (account_id, currency, month) {
        account_id -> Uuid,
        currency -> Text,
        month -> Date,
        zone -> Text,
        amount -> Numeric,
        summed_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    cost_rollups (account_id, bucket_start, campaign_id, profile_id, template_id, category, market, currency) {
        account_id -> Uuid,
        bucket_start -> Timestamptz,
        campaign_id -> Uuid,
        profile_id -> Uuid,
        template_id -> Uuid,
        category -> Text,
        market -> Text,
        currency -> Text,
        amount -> Numeric,
        messages -> BigInt,
        billable -> BigInt,
        free -> BigInt,
        unpriced -> BigInt,
    }
}

diesel::table! {
    direct_message_queues (account_id, profile_id) {
        account_id -> Uuid,
        profile_id -> Uuid,
        due_at -> Timestamptz,
        waiting_since -> Timestamptz,
        hold_reason -> Nullable<Text>,
        worker -> Nullable<Uuid>,
        leased_until -> Nullable<Timestamptz>,
        held_until -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    direct_message_references (account_id, client_reference) {
        account_id -> Uuid,
        client_reference -> Text,
        message_id -> Uuid,
        status -> Text,
        request_hash -> Nullable<Binary>,
    }
}

diesel::table! {
    direct_messages (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        contact_id -> Uuid,
        profile_id -> Uuid,
        kind -> Text,
        template_id -> Nullable<Uuid>,
        request -> Jsonb,
        client_reference -> Nullable<Text>,
        status -> Text,
        attempts -> Integer,
        send_at -> Timestamptz,
        expires_at -> Timestamptz,
        due_at -> Nullable<Timestamptz>,
        started_at -> Nullable<Timestamptz>,
        unknown_at -> Nullable<Timestamptz>,
        hold_reason -> Nullable<Text>,
        sent_at -> Nullable<Timestamptz>,
        wa_message_id -> Nullable<Text>,
        error_code -> Nullable<BigInt>,
        error_message -> Nullable<Text>,
        pricing -> Nullable<Jsonb>,
        conversation_id -> Nullable<Uuid>,
        quota_month -> Nullable<Date>,
        created_by -> Uuid,
        api_key_id -> Nullable<Uuid>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        text -> Nullable<Text>,
        media_id -> Nullable<Uuid>,
        by_user_id -> Bool,
        failed_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    erased_opt_outs (account_id, hash) {
        account_id -> Uuid,
        hash -> Binary,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    erasures (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        contact_id -> Uuid,
        state -> Text,
        reason -> Nullable<Text>,
        requested_at -> Timestamptz,
        finished_at -> Nullable<Timestamptz>,
        removed -> Jsonb,
        marks -> Nullable<Jsonb>,
        transaction_id -> BigInt,
        step -> Text,
        after -> Nullable<Text>,
        due_at -> Nullable<Timestamptz>,
        claim_id -> Nullable<Uuid>,
    }
}

diesel::table! {
    folders (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        name -> Text,
        kind -> Text,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    gateway_cancellations (subscription_id) {
        subscription_id -> Uuid,
        account_id -> Uuid,
        gateway_subscription_id -> Nullable<Text>,
        until -> Timestamptz,
        due_at -> Timestamptz,
    }
}

diesel::table! {
    gateway_events (id) {
        id -> Uuid,
        seq -> BigInt,
        key -> Text,
        event -> Text,
        gateway_subscription_id -> Nullable<Text>,
        data -> Jsonb,
        attempts -> Integer,
        due_at -> Nullable<Timestamptz>,
        received_at -> Timestamptz,
    }
}

diesel::table! {
    gateway_subscriptions (gateway_subscription_id) {
        gateway_subscription_id -> Text,
        account_id -> Uuid,
        subscription_id -> Uuid,
    }
}

diesel::table! {
    given_cost_alerts (account_id, currency, month, threshold) {
        account_id -> Uuid,
        currency -> Text,
        month -> Date,
        threshold -> Numeric,
        given_at -> Timestamptz,
    }
}

diesel::table! {
    idempotency_key_counts (scope, day, slot) {
        scope -> Uuid,
        day -> Date,
        slot -> Integer,
        keys -> BigInt,
    }
}

diesel::table! {
    idempotency_keys (scope, key) {
        scope -> Uuid,
        key -> Text,
        holder -> Uuid,
        leased_until -> Timestamptz,
        request_hash -> Nullable<Binary>,
        response -> Nullable<Binary>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    invite_tokens (token_hash) {
        token_hash -> Binary,
        account_id -> Uuid,
        invite_id -> Uuid,
    }
}

diesel::table! {
    link_click_writers (id) {
        id -> Uuid,
        batch -> BigInt,
        deferred -> Array<Uuid>,
        applied_at -> Timestamptz,
    }
}

diesel::table! {
    link_codes (short_code) {
        short_code -> Text,
        account_id -> Uuid,
        link_id -> Uuid,
    }
}

diesel::table! {
    link_rollups (account_id, bucket_minutes, bucket_start, link_id) {
        account_id -> Uuid,
        bucket_minutes -> SmallInt,
        bucket_start -> Timestamptz,
        link_id -> Uuid,
        clicks -> BigInt,
    }
}

diesel::table! {
    links (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        short_code -> Text,
        original_url -> Text,
        campaign_id -> Nullable<Uuid>,
        clicks -> BigInt,
        created_at -> Timestamptz,
        contact_id -> Nullable<Uuid>,
        last_clicked_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    mail_recipients (address_hash, mail_id) {
        address_hash -> Binary,
        mail_id -> Uuid,
        account_id -> Uuid,
        mailed_at -> Timestamptz,
    }
}

diesel::table! {
    message_media (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        message_id -> Nullable<Uuid>,
        conversation_id -> Nullable<Uuid>,
        profile_id -> Nullable<Uuid>,
        phone_number_id -> Nullable<Text>,
        wa_media_id -> Nullable<Text>,
        #[sql_name = "type"]
        type_ -> Text,
        mime_type -> Nullable<Text>,
        file_name -> Nullable<Text>,
        expected_sha256 -> Nullable<Text>,
        sha256 -> Nullable<Text>,
        size -> Nullable<BigInt>,
        content_type -> Nullable<Text>,
        state -> Text,
        reason -> Nullable<Text>,
        attempts -> SmallInt,
        mismatches -> SmallInt,
        due_at -> Nullable<Timestamptz>,
        claim_id -> Nullable<Uuid>,
        file_id -> Nullable<Uuid>,
        lost_reported_at -> Nullable<Timestamptz>,
        written_at -> Timestamptz,
        expires_at -> Nullable<Timestamptz>,
        created_at -> Timestamptz,
        abandoned -> Array<Uuid>,
    }
}

diesel::table! {
    message_rollups (account_id, bucket_start, bucket_minutes) {
        account_id -> Uuid,
        bucket_start -> Timestamptz,
        bucket_minutes -> SmallInt,
        sent -> Integer,
        delivered -> Integer,
        read -> Integer,
        failed -> Integer,
        received -> Integer,
    }
}

diesel::table! {
    message_templates (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        name -> Text,
        category -> Text,
        language -> Text,
        template_type -> Text,
        header_type -> Text,
        header_text -> Nullable<Text>,
        header_media_url -> Nullable<Text>,
        body_text -> Nullable<Text>,
        footer_text -> Nullable<Text>,
        buttons -> Jsonb,
        variables -> Jsonb,
        carousel_cards -> Jsonb,
        folder_id -> Nullable<Uuid>,
        profile_id -> Nullable<Uuid>,
        meta_template_id -> Nullable<Text>,
        meta_status -> Text,
        rejection_reason -> Nullable<Text>,
        quality_score -> Nullable<Text>,
        parameter_format -> Text,
        unsupported -> Jsonb,
        category_change -> Nullable<Jsonb>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        deleted_at -> Nullable<Timestamptz>,
        version -> BigInt,
        limited_time_offer -> Nullable<Jsonb>,
        message_send_ttl_seconds -> Nullable<BigInt>,
        rejection_recommendation -> Nullable<Text>,
        correct_category -> Nullable<Text>,
    }
}

diesel::table! {
    message_usage_slots (account_id, month, slot) {
        account_id -> Uuid,
        month -> Date,
        sent -> BigInt,
        reserved -> BigInt,
        test_sends -> BigInt,
        slot -> SmallInt,
    }
}

diesel::table! {
    messages (account_id, id, created_at) {
        account_id -> Uuid,
        id -> Uuid,
        conversation_id -> Uuid,
        direction -> Text,
        #[sql_name = "type"]
        type_ -> Text,
        text -> Nullable<Text>,
        status -> Text,
        wa_message_id -> Nullable<Text>,
        payload -> Jsonb,
        error_message -> Nullable<Text>,
        recorded_at -> Timestamptz,
        referral -> Nullable<Jsonb>,
        pricing -> Nullable<Jsonb>,
        created_at -> Timestamptz,
        origin -> Nullable<Text>,
        caption -> Nullable<Text>,
        interactive -> Nullable<Jsonb>,
        context -> Nullable<Jsonb>,
        media_ids -> Nullable<Array<Uuid>>,
        deleted_at -> Nullable<Timestamptz>,
        by_user_id -> Bool,
    }
}

diesel::table! {
    metric_contacts (account_id, metric_name, contact_id) {
        account_id -> Uuid,
        metric_name -> Text,
        contact_id -> Uuid,
        event_count -> BigInt,
        total_value -> Numeric,
        last_event_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    metric_event_keys (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        occurred_at -> Timestamptz,
    }
}

diesel::table! {
    metric_events (account_id, id, metric_name, occurred_at) {
        account_id -> Uuid,
        id -> Uuid,
        metric_name -> Text,
        contact_id -> Nullable<Uuid>,
        value -> Nullable<Numeric>,
        currency -> Nullable<Text>,
        source -> Text,
        properties -> Jsonb,
        occurred_at -> Timestamptz,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    metric_rollups (account_id, bucket_minutes, bucket_start, metric_name) {
        account_id -> Uuid,
        bucket_minutes -> SmallInt,
        bucket_start -> Timestamptz,
        metric_name -> Text,
        events -> BigInt,
        value -> Numeric,
        last_contacts -> BigInt,
    }
}

diesel::table! {
    metric_sources (account_id, metric_name, source) {
        account_id -> Uuid,
        metric_name -> Text,
        source -> Text,
    }
}

diesel::table! {
    metrics (account_id, metric_name) {
        account_id -> Uuid,
        metric_name -> Text,
        display_name -> Nullable<Text>,
        category -> Nullable<Text>,
        total_events -> BigInt,
        total_value -> Numeric,
        last_event_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    notifications (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        #[sql_name = "type"]
        type_ -> Text,
        title -> Text,
        message -> Text,
        data -> Jsonb,
        read_at -> Nullable<Timestamptz>,
        seq -> BigInt,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    order_items (account_id, order_id, position) {
        account_id -> Uuid,
        order_id -> Uuid,
        position -> Integer,
        product_id -> Text,
        name -> Text,
        quantity -> Numeric,
        price -> Numeric,
        cost -> Nullable<Numeric>,
    }
}

diesel::table! {
    order_keys (account_id, platform, external_id) {
        account_id -> Uuid,
        platform -> Text,
        external_id -> Text,
        order_id -> Uuid,
    }
}

diesel::table! {
    order_rollups (account_id, bucket_minutes, bucket_start, platform) {
        account_id -> Uuid,
        bucket_minutes -> SmallInt,
        bucket_start -> Timestamptz,
        platform -> Text,
        placed -> BigInt,
        pending -> BigInt,
        cancelled -> BigInt,
        refunded -> BigInt,
        paid -> BigInt,
        revenue -> Numeric,
        product_costs -> Numeric,
        gateway_fees -> Numeric,
        attributed_orders -> BigInt,
        attributed_revenue -> Numeric,
    }
}

diesel::table! {
    orders (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        platform -> Text,
        external_id -> Text,
        contact_id -> Nullable<Uuid>,
        status -> Text,
        total -> Numeric,
        gateway_fee -> Numeric,
        campaign_id -> Nullable<Uuid>,
        automation_id -> Nullable<Uuid>,
        link_id -> Nullable<Uuid>,
        placed_at -> Timestamptz,
        paid_at -> Nullable<Timestamptz>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    outbox_events (seq, kind) {
        seq -> BigInt,
        account_id -> Uuid,
        payload -> Jsonb,
        retry_at -> Nullable<Timestamptz>,
        kind -> Text,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    outgoing_mail (id) {
        id -> Uuid,
        account_id -> Uuid,
        content -> Binary,
        attempts -> Integer,
        due_at -> Timestamptz,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    partition_horizons (table_name) {
        table_name -> Text,
        retained_from -> Timestamptz,
    }
}

diesel::table! {
    phone_number_send_slots (phone_number_id) {
        phone_number_id -> Text,
        next_slot_at -> Timestamptz,
        throttled_rate -> Nullable<Double>,
        throttled_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    platform_audit (id) {
        id -> Uuid,
        user_id -> Uuid,
        email -> Text,
        action -> Text,
        entity_type -> Text,
        entity_id -> Nullable<Uuid>,
        account_id -> Nullable<Uuid>,
        changes -> Nullable<Jsonb>,
        ip_address -> Nullable<Text>,
        request_id -> Nullable<Text>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    product_names (account_id, product_id) {
        account_id -> Uuid,
        product_id -> Text,
        name -> Text,
    }
}

diesel::table! {
    product_rollups (account_id, bucket_minutes, bucket_start, product_id) {
        account_id -> Uuid,
        bucket_minutes -> SmallInt,
        bucket_start -> Timestamptz,
        product_id -> Text,
        quantity -> Numeric,
        revenue -> Numeric,
    }
}

diesel::table! {
    rate_card_rows (card_id, row_no) {
        card_id -> Uuid,
        row_no -> Integer,
        market -> Text,
        countries -> Array<Text>,
        currency -> Text,
        category -> Text,
        rate -> Numeric,
        effective_from -> Date,
        zone -> Text,
        effective_at -> Timestamptz,
        free_per_number_month -> Nullable<BigInt>,
    }
}

diesel::table! {
    rate_cards (id) {
        id -> Uuid,
        name -> Text,
        row_count -> BigInt,
        currencies -> Array<Text>,
        effective_from -> Date,
        used_at -> Nullable<Timestamptz>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    retention_horizons (account_id, table_name) {
        account_id -> Uuid,
        table_name -> Text,
        retained_from -> Timestamptz,
    }
}

diesel::table! {
    retention_settings (account_id) {
        account_id -> Uuid,
        terms -> Jsonb,
        version -> BigInt,
        next_run_at -> Nullable<Timestamptz>,
        leased_until -> Nullable<Timestamptz>,
        claim_id -> Nullable<Uuid>,
        last_run_at -> Nullable<Timestamptz>,
        would_remove -> Jsonb,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    rfm_calculations (account_id) {
        account_id -> Uuid,
        due_at -> Timestamptz,
        worker -> Nullable<Uuid>,
        leased_until -> Nullable<Timestamptz>,
        calculated_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    rfm_changes (account_id, worker, contact_id) {
        account_id -> Uuid,
        worker -> Uuid,
        contact_id -> Uuid,
        segment -> Nullable<Text>,
        recency_score -> Nullable<SmallInt>,
        frequency_score -> Nullable<SmallInt>,
        monetary_score -> Nullable<SmallInt>,
    }
}

diesel::table! {
    rfm_counts (account_id, segment) {
        account_id -> Uuid,
        segment -> Text,
        contacts -> BigInt,
    }
}

diesel::table! {
    segment_counts (account_id, segment_id) {
        account_id -> Uuid,
        segment_id -> Uuid,
        contacts -> BigInt,
        counted_at -> Timestamptz,
        changes -> BigInt,
        wanted_at -> Nullable<Timestamptz>,
        leased_until -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    segment_members (account_id, segment_id, contact_id) {
        account_id -> Uuid,
        segment_id -> Uuid,
        contact_id -> Uuid,
    }
}

diesel::table! {
    segments (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        name -> Text,
        description -> Nullable<Text>,
        filters -> Nullable<Jsonb>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        deleted_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    sent_messages (account_id, wa_message_id, recorded_at) {
        account_id -> Uuid,
        wa_message_id -> Text,
        send_id -> Uuid,
        recorded_at -> Timestamptz,
    }
}

diesel::table! {
    service_message_months (account_id, profile_id, month) {
        account_id -> Uuid,
        profile_id -> Uuid,
        month -> Date,
        messages -> BigInt,
    }
}

diesel::table! {
    subscriptions (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        plan -> Text,
        cycle -> Text,
        status -> Text,
        billing_type -> Text,
        value -> BigInt,
        billing_email -> Nullable<Text>,
        gateway_customer_id -> Nullable<Text>,
        gateway_subscription_id -> Nullable<Text>,
        current_period_start -> Nullable<Timestamptz>,
        current_period_end -> Nullable<Timestamptz>,
        cancelled_at -> Nullable<Timestamptz>,
        inactivated_at -> Nullable<Timestamptz>,
        lapsed_at -> Nullable<Timestamptz>,
        period_granted -> Bool,
        anchor_day -> Nullable<Integer>,
        check_at -> Nullable<Timestamptz>,
        last_event_id -> Nullable<Uuid>,
        intent -> Nullable<Jsonb>,
        intent_until -> Nullable<Timestamptz>,
        attempt -> Bool,
        intent_check_at -> Nullable<Timestamptz>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        version -> BigInt,
    }
}

diesel::table! {
    tags (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        name -> Text,
        color -> Nullable<Text>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    team_invites (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        email -> Text,
        role -> Text,
        status -> Text,
        invited_by -> Uuid,
        expires_at -> Timestamptz,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    users (id) {
        id -> Uuid,
        email -> Text,
        name -> Nullable<Text>,
        sessions_valid_from -> Nullable<Timestamptz>,
        name_is_verified -> Bool,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    webhook_deliveries (account_id, event_id, endpoint_id) {
        account_id -> Uuid,
        event_id -> Uuid,
        endpoint_id -> Uuid,
        state -> Text,
        attempt -> Integer,
        next_attempt_at -> Timestamptz,
        leased -> Bool,
        claim -> BigInt,
        failed_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    webhook_endpoint_ids (id) {
        id -> Uuid,
        account_id -> Uuid,
    }
}

diesel::table! {
    webhook_endpoints (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        name -> Text,
        direction -> Text,
        url -> Nullable<Text>,
        events -> Array<Text>,
        is_active -> Bool,
        secret -> Binary,
        secret_hint -> Text,
        previous_secret -> Nullable<Binary>,
        previous_secret_until -> Nullable<Timestamptz>,
        failing_since -> Nullable<Timestamptz>,
        last_failed_at -> Nullable<Timestamptz>,
        disabled_at -> Nullable<Timestamptz>,
        disabled_reason -> Nullable<Text>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        version -> BigInt,
    }
}

diesel::table! {
    webhook_events (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        #[sql_name = "type"]
        type_ -> Text,
        payload -> Jsonb,
        occurred_at -> Timestamptz,
        seq -> Nullable<BigInt>,
    }
}

diesel::table! {
    webhook_inbox (account_id, endpoint_id, message_id, received_at) {
        account_id -> Uuid,
        endpoint_id -> Uuid,
        message_id -> Text,
        received_at -> Timestamptz,
    }
}

diesel::table! {
    webhook_logs (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        endpoint_id -> Uuid,
        direction -> Text,
        event_type -> Text,
        message_id -> Text,
        event_id -> Nullable<Uuid>,
        payload -> Nullable<Jsonb>,
        response_status -> Nullable<Integer>,
        attempt -> Integer,
        duration_ms -> Nullable<Integer>,
        error -> Nullable<Text>,
        next_attempt_at -> Nullable<Timestamptz>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    whatsapp_callbacks (id) {
        id -> Uuid,
        body -> Binary,
        attempts -> Integer,
        due_at -> Timestamptz,
        received_at -> Timestamptz,
        claims -> Integer,
    }
}

diesel::table! {
    whatsapp_files (account_id, phone_number_id, path) {
        account_id -> Uuid,
        phone_number_id -> Text,
        path -> Text,
        file_id -> Text,
        expires_at -> Timestamptz,
    }
}

diesel::table! {
    whatsapp_held_messages (phone_number_id, key) {
        phone_number_id -> Text,
        key -> Binary,
        seq -> BigInt,
        event -> Binary,
        given -> Bool,
        received_at -> Timestamptz,
    }
}

diesel::table! {
    whatsapp_media_failures (phone_number_id, id, failed_at) {
        phone_number_id -> Text,
        id -> Uuid,
        failed_at -> Timestamptz,
    }
}

diesel::table! {
    whatsapp_numbers (phone_number_id, account_id, waba_id) {
        phone_number_id -> Text,
        account_id -> Uuid,
        waba_id -> Text,
    }
}

diesel::table! {
    whatsapp_profiles (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        name -> Text,
        phone_number_id -> Text,
        waba_id -> Text,
        access_token -> Binary,
        messages_per_second -> Nullable<Integer>,
        verification_state -> Text,
        checks -> Jsonb,
        checked_at -> Nullable<Timestamptz>,
        next_check_at -> Nullable<Timestamptz>,
        check_leased_until -> Nullable<Timestamptz>,
        pending_since -> Nullable<Timestamptz>,
        failed_since -> Nullable<Timestamptz>,
        suspected_check -> Nullable<Text>,
        suspected_since -> Nullable<Timestamptz>,
        held_since -> Nullable<Timestamptz>,
        credentials_version -> BigInt,
        verification_version -> BigInt,
        number -> Jsonb,
        health -> Nullable<Jsonb>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        version -> BigInt,
    }
}
