//! The options of the WhatsApp simulator. All but `bind` can change at run time.

use serde::{Deserialize, Serialize};

/// The decision on a template after its creation or edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Approval {
    Approve {
        after_ms: u64,
    },
    /// Rejects with this reason, for example `INVALID_FORMAT`.
    Reject {
        after_ms: u64,
        reason: String,
    },
    /// The template stays pending until a status is set by hand.
    Manual,
}

/// The defaults suit tests: short delays, no limits, no jitter, no callbacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WhatsappOptions {
    /// The address to listen on. Read only at the start.
    #[serde(skip)]
    pub bind: String,
    /// Key that signs the callbacks.
    pub app_secret: String,
    /// URL for callbacks. None: sends no callbacks.
    pub callback_url: Option<String>,
    /// The business account in callbacks that do not belong to a registered template.
    pub waba_id: String,
    pub template_approval: Approval,
    /// Delay of each status after the acceptance. None: the status is not sent.
    pub sent_ms: Option<u64>,
    pub delivered_ms: Option<u64>,
    pub read_ms: Option<u64>,
    /// Lengthens a recipient's delays by up to this percentage, deterministically per recipient.
    pub jitter_percent: u8,
    /// Percentage of recipients who never read.
    pub never_read_percent: u8,
    /// Percentage of recipients whose messages fail with 131026.
    pub fail_percent: u8,
    /// Delay of the response to every send.
    pub latency_ms: u64,
    /// Messages per second and phone number. Beyond it, a send fails with 130429.
    pub number_rate: Option<u32>,
    /// Enforces one message per six seconds and recipient, with bursts of up to 45. Beyond it, a send fails with
    /// 131056.
    pub pair_limit: bool,
    /// The messaging limit that the phone number returns.
    pub messaging_limit: String,
}

impl Default for WhatsappOptions {
    fn default() -> Self {
        Self {
            bind: "127.0.0.1:0".into(),
            app_secret: "app-secret".into(),
            callback_url: None,
            waba_id: "100000000000001".into(),
            template_approval: Approval::Approve { after_ms: 20 },
            sent_ms: Some(20),
            delivered_ms: Some(40),
            read_ms: Some(60),
            jitter_percent: 0,
            never_read_percent: 0,
            fail_percent: 0,
            latency_ms: 0,
            number_rate: None,
            pair_limit: false,
            messaging_limit: "TIER_2K".into(),
        }
    }
}

impl WhatsappOptions {
    /// Delays and limits for a development server.
    pub fn development() -> Self {
        Self {
            template_approval: Approval::Approve { after_ms: 1000 },
            sent_ms: Some(200),
            delivered_ms: Some(800),
            read_ms: Some(2000),
            jitter_percent: 25,
            number_rate: Some(80),
            ..Self::default()
        }
    }
}
