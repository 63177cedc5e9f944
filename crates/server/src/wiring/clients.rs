//! The clients of other systems. A process has one of each: they are made once, on the main runtime, where their pooled
//! connections live. A configuration error fails there.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, anyhow};
use recado_gateways::ai::AiApi;
use recado_gateways::brand::PageClient;
use recado_gateways::egress::{Egress, EgressConfig};
use recado_gateways::http::Http;
use recado_gateways::media::ObjectMedia;
use recado_gateways::payment::PaymentApi;
use recado_gateways::whatsapp::{CloudApi, WhatsappFiles};

use crate::config::Config;

/// The timeout of a call to WhatsApp. It is well below the lease of a run, so that a run does not lose its lease to one
/// hanging call.
const WHATSAPP_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Clone)]
pub(super) struct Clients {
    pub(super) whatsapp: Arc<CloudApi>,
    pub(super) payment: Arc<PaymentApi>,
    /// The store of uploaded files.
    pub(super) media: Arc<ObjectMedia>,
    pub(super) ai: Arc<AiApi>,
    pub(super) pages: Arc<PageClient>,
    /// Receives the files of messages.
    pub(super) files: Arc<WhatsappFiles>,
    /// The only client that calls URLs of tenants.
    pub(super) egress: Egress,
}

impl Clients {
    /// `http` is the client of the operator's systems.
    pub(super) fn new(config: &Config, http: &Http) -> anyhow::Result<Self> {
        let egress = Egress::new(EgressConfig::new(config.egress_allow.clone())).map_err(Error::msg)?;
        Ok(Self {
            whatsapp: Arc::new(whatsapp(config, http)?),
            payment: Arc::new(payment(config, http)?),
            media: Arc::new(media(config)?),
            ai: Arc::new(ai(config, http)),
            pages: Arc::new(PageClient::new(egress.clone())),
            files: Arc::new(WhatsappFiles::new(
                http.clone().counted("whatsapp"),
                config.whatsapp_api_url.as_deref(),
                egress.clone(),
                config.inbound_media.hosts.clone(),
            )),
            egress,
        })
    }
}

fn whatsapp(config: &Config, http: &Http) -> anyhow::Result<CloudApi> {
    CloudApi::new(http.clone().counted("whatsapp"), config.whatsapp_api_url.as_deref())
        .map(|api| api.timeout(WHATSAPP_TIMEOUT).app(config.whatsapp_app_id.clone()))
        .map_err(|error| anyhow!("configuration: WHATSAPP_API_URL: {error}"))
}

fn payment(config: &Config, http: &Http) -> anyhow::Result<PaymentApi> {
    let url = config.payment_gateway_url.as_deref();
    PaymentApi::new(
        http.clone().counted("payment"),
        url,
        config.payment_gateway_api_key.as_ref(),
    )
    .map_err(|error| anyhow!("configuration: PAYMENT_GATEWAY_URL, PAYMENT_GATEWAY_API_KEY: {error}"))
}

fn media(config: &Config) -> anyhow::Result<ObjectMedia> {
    // Whether the bucket may be called over plain HTTP is decided by the configuration alone (PLAINTEXT_HOSTS).
    let name = "AWS_ALLOW_HTTP";
    let others = std::env::vars().filter(|(other, _)| !other.eq_ignore_ascii_case(name));
    let is_plain = config.tls.targets.contains(&("storage", false));
    let allow_http = is_plain.then(|| (name.to_owned(), "true".to_owned()));
    ObjectMedia::open(config.media_store_url.as_deref(), others.chain(allow_http))
        .map_err(|error| anyhow!("configuration: MEDIA_STORE_URL {error}"))
}

fn ai(config: &Config, http: &Http) -> AiApi {
    let ai = &config.ai;
    AiApi::new(
        http.clone().counted("ai"),
        ai.url.as_deref(),
        ai.key.as_ref(),
        ai.model.as_deref(),
    )
}
