//! The tables and columns that diesel's query language uses.

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
        scheduled_by -> Nullable<Uuid>,
        scheduled_support_admin -> Nullable<Text>,
        variables -> Nullable<Jsonb>,
        folder_id -> Nullable<Uuid>,
        status -> Text,
        total_recipients -> BigInt,
        simulated -> Bool,
        executed_at -> Nullable<Timestamptz>,
        completed_at -> Nullable<Timestamptz>,
        paused_at -> Nullable<Timestamptz>,
        pause_reason -> Nullable<Text>,
        retry_scheduled_at -> Nullable<Timestamptz>,
        profile_id -> Nullable<Uuid>,
        quota_month -> Nullable<Date>,
        created_by -> Nullable<Uuid>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        version -> BigInt,
        deleted_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    contacts (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        name -> Text,
        phone -> Nullable<Text>,
        email -> Nullable<Text>,
        wa_user_id -> Nullable<Text>,
        attributes -> Jsonb,
        opted_out_at -> Nullable<Timestamptz>,
        first_referral -> Nullable<Jsonb>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        version -> BigInt,
        deleted_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    message_templates (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        name -> Text,
        category -> Text,
        category_change -> Nullable<Jsonb>,
        language -> Text,
        template_type -> Text,
        parameter_format -> Text,
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
        unsupported -> Jsonb,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        version -> BigInt,
        deleted_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    tags (account_id, id) {
        account_id -> Uuid,
        id -> Uuid,
        name -> Text,
        color -> Nullable<Text>,
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
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        version -> BigInt,
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
    }
}
