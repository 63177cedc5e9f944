//! What the routes of billing take.

use garde::Validate;
use recado_domain::billing::{CardInput, HolderInput, PlanChangeInput, SubscribeInput};
use secrecy::SecretString;
use serde::Deserialize;

use crate::web::secret::secret;

/// Body of `POST /api/billing/subscribe`.
#[derive(Deserialize)]
pub(in crate::routes) struct SubscribeBody {
    plan: Option<String>,
    billing_type: Option<String>,
    cycle: Option<String>,
    billing_email: Option<String>,
    cpf_cnpj: Option<String>,
    credit_card: Option<CardBody>,
    credit_card_holder_info: Option<HolderBody>,
}

#[derive(Deserialize)]
struct CardBody {
    #[serde(default, deserialize_with = "secret")]
    holder_name: Option<SecretString>,
    #[serde(default, deserialize_with = "secret")]
    number: Option<SecretString>,
    #[serde(default, deserialize_with = "secret")]
    expiry_month: Option<SecretString>,
    #[serde(default, deserialize_with = "secret")]
    expiry_year: Option<SecretString>,
    #[serde(default, deserialize_with = "secret")]
    ccv: Option<SecretString>,
}

#[derive(Deserialize)]
struct HolderBody {
    name: Option<String>,
    email: Option<String>,
    cpf_cnpj: Option<String>,
    postal_code: Option<String>,
    address_number: Option<String>,
    phone: Option<String>,
}

/// Body of `PUT /api/billing/subscription`.
#[derive(Deserialize, Validate)]
#[garde(allow_unvalidated)]
pub(in crate::routes) struct PlanChangeBody {
    plan: Option<String>,
    cycle: Option<String>,
}

impl From<SubscribeBody> for SubscribeInput {
    fn from(body: SubscribeBody) -> Self {
        Self {
            plan: body.plan,
            billing_type: body.billing_type,
            cycle: body.cycle,
            billing_email: body.billing_email,
            cpf_cnpj: body.cpf_cnpj,
            credit_card: body.credit_card.map(CardInput::from),
            credit_card_holder_info: body.credit_card_holder_info.map(HolderInput::from),
        }
    }
}

impl From<CardBody> for CardInput {
    fn from(body: CardBody) -> Self {
        Self {
            holder_name: body.holder_name,
            number: body.number,
            expiry_month: body.expiry_month,
            expiry_year: body.expiry_year,
            ccv: body.ccv,
        }
    }
}

impl From<HolderBody> for HolderInput {
    fn from(body: HolderBody) -> Self {
        Self {
            name: body.name,
            email: body.email,
            cpf_cnpj: body.cpf_cnpj,
            postal_code: body.postal_code,
            address_number: body.address_number,
            phone: body.phone,
        }
    }
}

impl From<PlanChangeBody> for PlanChangeInput {
    fn from(body: PlanChangeBody) -> Self {
        Self {
            plan: body.plan,
            cycle: body.cycle,
        }
    }
}
