//! Request bodies of billing.

use garde::Validate;
use recado_domain::billing::{BillingType, CardInput, Cycle, HolderInput, PlanChangeInput, SubscribeInput};
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::Deserialize;

use crate::web::body::PatchFields;
use crate::web::secret::secret;

/// A new subscription.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct SubscribeBody {
    /// The id of a paid plan: `starter`, `growth` or `scale`.
    #[schemars(required, example = &"starter")]
    plan: Option<String>,
    /// The payment method.
    #[schemars(required, with = "BillingType")]
    billing_type: Option<String>,
    /// The billing cycle.
    #[schemars(required, with = "Cycle")]
    cycle: Option<String>,
    /// The e-mail address for invoices. If absent, the card holder's address is used, if given.
    #[schemars(example = &"financeiro@example.com")]
    billing_email: Option<String>,
    /// The payer's CPF or CNPJ, including alphanumeric CNPJ. Other characters, such as a mask, are removed. The check
    /// digits are verified.
    #[schemars(required, example = &"529.982.247-25")]
    cpf_cnpj: Option<String>,
    /// The card; required for `CREDIT_CARD`. It is sent to the payment gateway and never stored.
    credit_card: Option<CardBody>,
    /// The card holder; required for `CREDIT_CARD`.
    credit_card_holder_info: Option<HolderBody>,
}

/// A credit card.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "CreditCard")]
struct CardBody {
    /// The name on the card.
    #[schemars(required, with = "String", example = &"ANA LIMA")]
    #[serde(default, deserialize_with = "secret")]
    holder_name: Option<SecretString>,
    /// The card number: 12 to 19 digits, optionally grouped by spaces or hyphens.
    #[schemars(required, with = "String", example = &"4444 4444 4444 4448")]
    #[serde(default, deserialize_with = "secret")]
    number: Option<SecretString>,
    /// The month of expiry.
    #[schemars(required, with = "String", example = &"05")]
    #[serde(default, deserialize_with = "secret")]
    expiry_month: Option<SecretString>,
    /// The year of expiry: two or four digits.
    #[schemars(required, with = "String", example = &"2030")]
    #[serde(default, deserialize_with = "secret")]
    expiry_year: Option<SecretString>,
    /// The security code: three or four digits.
    #[schemars(required, with = "String", example = &"123")]
    #[serde(default, deserialize_with = "secret")]
    ccv: Option<SecretString>,
}

/// The holder of a credit card.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "CardHolder")]
struct HolderBody {
    /// The holder's name.
    #[schemars(required, example = &"Ana Lima")]
    name: Option<String>,
    /// The holder's e-mail address.
    #[schemars(required, example = &"ana@example.com")]
    email: Option<String>,
    /// The holder's CPF or CNPJ.
    #[schemars(required, example = &"529.982.247-25")]
    cpf_cnpj: Option<String>,
    /// The holder's CEP: eight digits.
    #[schemars(required, example = &"13010-000")]
    postal_code: Option<String>,
    /// The house number of the holder's address.
    #[schemars(required, example = &"150")]
    address_number: Option<String>,
    /// The holder's phone number.
    #[schemars(required, example = &"11 96123-4567")]
    phone: Option<String>,
}

/// Another plan, another cycle, or both.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
pub(crate) struct PlanChangeBody {
    /// The id of a paid plan. It can be the current plan if the cycle changes.
    #[schemars(required, example = &"growth")]
    plan: Option<String>,
    /// The billing cycle. If absent, the cycle is not changed.
    #[schemars(with = "Option<Cycle>")]
    cycle: Option<String>,
}

impl PatchFields for PlanChangeBody {
    const NEVER_NULL: &'static [&'static str] = &["cycle"];
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
