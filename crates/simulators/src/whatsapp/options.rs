//! What the messaging simulator can be told: before it starts, and for most of it while it runs.

use serde::{Deserialize, Serialize};

/// What happens to a template after it is created or edited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Approval {
    Approve {
        after_ms: u64,
    },
    /// Rejected with this reason, for example `INVALID_FORMAT`.
    Reject {
        after_ms: u64,
        reason: String,
    },
    /// Nothing, until a status is set by hand.
    Manual,
}

/// The settings. The defaults suit tests: quick, no limits, no jitter, no callbacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WhatsappOptions {
    /// The address to listen on; read at the start only.
    #[serde(skip)]
    pub bind: String,
    /// Signs the callbacks.
    pub app_secret: String,
    /// Where callbacks go; none: nowhere.
    pub callback_url: Option<String>,
    /// The business account named in callbacks that belong to no known template.
    pub waba_id: String,
    pub template_approval: Approval,
    /// When each status follows the acceptance; none: never.
    pub sent_ms: Option<u64>,
    pub delivered_ms: Option<u64>,
    pub read_ms: Option<u64>,
    /// Stretches one recipient's delays by up to this share, always the same for the same recipient.
    pub jitter_percent: u8,
    /// The share of recipients who never read.
    pub never_read_percent: u8,
    /// The share of recipients whose messages fail with 131026.
    pub fail_percent: u8,
    /// How long every send takes to be answered.
    pub latency_ms: u64,
    /// Messages per second and phone number; beyond it 130429.
    pub number_rate: Option<u32>,
    /// Whether one message per six seconds and recipient is enforced, in bursts up to 45; beyond it 131056.
    pub pair_limit: bool,
    /// What the phone number says its messaging limit is.
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
    /// Delays and limits as a person at a development server expects them.
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
