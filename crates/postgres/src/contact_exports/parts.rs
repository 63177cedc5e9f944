//! The rows of an export: each part is one statement, read page by page.

use recado_domain::contact_exports::ExportPart;

const DIRECT_MESSAGES: &str =
    "SELECT created_at AS at, id, jsonb_build_object('id', id, 'kind', kind, 'status', status, 'text', text,
               'request', request, 'client_reference', client_reference, 'send_at', send_at, 'sent_at', sent_at,
               'wa_message_id', wa_message_id, 'error_code', error_code, 'error_message', error_message,
               'pricing', pricing, 'conversation_id', conversation_id, 'created_at', created_at) AS data
             FROM direct_messages WHERE account_id = $1 AND contact_id = $2";

const CAMPAIGN_SENDS: &str =
    "SELECT s.created_at AS at, s.id, jsonb_build_object('id', s.id, 'campaign_id', s.campaign_id,
               'campaign_name', g.name, 'status', s.status, 'sent_at', s.sent_at, 'delivered_at', s.delivered_at,
               'read_at', s.read_at, 'failed_at', s.failed_at, 'error_code', s.error_code,
               'error_message', s.error_message, 'wa_message_id', s.wa_message_id, 'pricing', s.pricing) AS data
             FROM campaign_sends s JOIN campaigns g ON g.account_id = s.account_id AND g.id = s.campaign_id
             WHERE s.account_id = $1 AND s.contact_id = $2 AND g.archived_at IS NULL";

const ORDERS: &str =
    "SELECT o.created_at AS at, o.id, to_jsonb(o) - '{account_id,contact_id}'::text[] || jsonb_build_object('items',
               (SELECT coalesce(jsonb_agg(to_jsonb(i) - '{account_id,order_id}'::text[] ORDER BY i.position), '[]')
                FROM order_items i WHERE i.account_id = o.account_id AND i.order_id = o.id)) AS data
             FROM orders o WHERE o.account_id = $1 AND o.contact_id = $2";

/// The rows of a part with a time, an id and their data, of account `$1` and contact `$2`. Every part finds the rows of
/// the contact by an index.
fn rows(part: ExportPart) -> &'static str {
    match part {
        ExportPart::Contact => {
            "SELECT created_at AS at, id, to_jsonb(c) - '{account_id,version}'::text[] AS data FROM contacts c
             WHERE account_id = $1 AND id = $2"
        }
        ExportPart::Identity => {
            "SELECT first_seen_at AS at, contact_id AS id, jsonb_agg(to_jsonb(i) - '{account_id,contact_id}'::text[]) AS data
             FROM contact_identities i WHERE account_id = $1 AND contact_id = $2 GROUP BY 1, 2"
        }
        ExportPart::Tag => {
            "SELECT t.created_at AS at, t.id, jsonb_build_object('id', t.id, 'name', t.name) AS data
             FROM contact_tags k JOIN tags t ON t.account_id = k.account_id AND t.id = k.tag_id
             WHERE k.account_id = $1 AND k.contact_id = $2"
        }
        ExportPart::Segment => {
            "SELECT s.created_at AS at, s.id, jsonb_build_object('id', s.id, 'name', s.name) AS data
             FROM segment_members k JOIN segments s ON s.account_id = k.account_id AND s.id = k.segment_id
             WHERE k.account_id = $1 AND k.contact_id = $2 AND s.deleted_at IS NULL"
        }
        ExportPart::RfmScore => {
            "SELECT timestamptz 'epoch' AS at, contact_id AS id, to_jsonb(r) - '{account_id,contact_id}'::text[] AS data
             FROM contact_rfm r WHERE account_id = $1 AND contact_id = $2"
        }
        ExportPart::Conversation => {
            "SELECT created_at AS at, id, to_jsonb(v) - '{account_id,contact_id}'::text[] AS data FROM conversations v
             WHERE account_id = $1 AND contact_id = $2"
        }
        ExportPart::Message => {
            "SELECT m.created_at AS at, m.id, to_jsonb(m) - '{account_id,recorded_at}'::text[] AS data
             FROM conversations v JOIN messages m ON m.account_id = $1 AND m.conversation_id = v.id
             WHERE v.account_id = $1 AND v.contact_id = $2"
        }
        ExportPart::MessageFile => {
            "SELECT f.written_at AS at, f.id, jsonb_build_object('id', f.id, 'message_id', f.message_id, 'type', f.type,
               'mime_type', f.mime_type, 'file_name', f.file_name, 'size', f.size, 'sha256', f.sha256, 'state', f.state) AS data
             FROM conversations v JOIN messages m ON m.account_id = $1 AND m.conversation_id = v.id
             JOIN message_media f ON f.account_id = $1 AND f.message_id = m.id
             WHERE v.account_id = $1 AND v.contact_id = $2"
        }
        ExportPart::DirectMessage => DIRECT_MESSAGES,
        ExportPart::CampaignSend => CAMPAIGN_SENDS,
        ExportPart::Order => ORDERS,
        ExportPart::Cart => {
            "SELECT created_at AS at, id, to_jsonb(c) - '{account_id,contact_id}'::text[] AS data FROM carts c
             WHERE account_id = $1 AND contact_id = $2"
        }
        ExportPart::MetricEvent => {
            "SELECT occurred_at AS at, id, to_jsonb(e) - '{account_id,contact_id}'::text[] AS data FROM metric_events e
             WHERE account_id = $1 AND contact_id = $2"
        }
        ExportPart::MetricTotals => {
            "SELECT timestamptz 'epoch' AS at, contact_id AS id,
               jsonb_agg(to_jsonb(t) - '{account_id,contact_id}'::text[] ORDER BY metric_name) AS data
             FROM metric_contacts t WHERE account_id = $1 AND contact_id = $2 GROUP BY 1, 2"
        }
        ExportPart::Link => {
            "SELECT created_at AS at, id, to_jsonb(l) - '{account_id,contact_id}'::text[] AS data FROM links l
             WHERE account_id = $1 AND contact_id = $2"
        }
    }
}

/// A page of a part. `$3` and `$4` the last row of the page before, or null; `$5` limit.
pub(super) fn page(part: ExportPart) -> String {
    format!(
        "SELECT at, id, data FROM ({}) r WHERE $3 IS NULL OR (at, id) > ($3, $4) ORDER BY at, id LIMIT $5",
        rows(part)
    )
}
