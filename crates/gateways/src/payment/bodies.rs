//! Builds request bodies of the payment gateway. Card data is written into memory that is wiped.

use recado_domain::billing::{CardPayment, GatewayCustomerInput, GatewaySubscriptionInput, PaymentGatewayError};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Serialize, Serializer};
use serde_json::{Number, Value, json};

use super::reais::to_reais;

/// Larger than any body: a buffer that grows leaves copies of the card in freed memory.
const BODY_BYTES: usize = 16 * 1024;

/// The body of `POST /customers` and `PUT /customers/<id>`.
pub(super) fn customer(input: &GatewayCustomerInput) -> Value {
    let mut body = json!({
        "name": input.name, "cpfCnpj": input.tax_number.as_str(), "externalReference": input.account_id,
    });
    if let (Some(fields), Some(email)) = (body.as_object_mut(), &input.email) {
        fields.insert("email".to_owned(), json!(email));
    }
    body
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    customer: &'a str,
    billing_type: &'a str,
    value: Number,
    next_due_date: String,
    cycle: &'a str,
    description: &'a str,
    external_reference: String,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    card: Option<CardBody<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CardBody<'a> {
    credit_card: Card<'a>,
    credit_card_holder_info: Holder<'a>,
    remote_ip: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Card<'a> {
    holder_name: Exposed<'a>,
    number: Exposed<'a>,
    expiry_month: Exposed<'a>,
    expiry_year: Exposed<'a>,
    ccv: Exposed<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Holder<'a> {
    name: &'a str,
    email: &'a str,
    cpf_cnpj: &'a str,
    postal_code: &'a str,
    address_number: &'a str,
    phone: &'a str,
}

/// Serializes a secret in plain text. Used only in this request body.
struct Exposed<'a>(&'a SecretString);

impl Serialize for Exposed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.expose_secret())
    }
}

impl<'a> From<&'a CardPayment> for CardBody<'a> {
    fn from(payment: &'a CardPayment) -> Self {
        let (card, holder) = (&payment.card, &payment.holder);
        Self {
            credit_card: Card {
                holder_name: Exposed(&card.holder_name),
                number: Exposed(&card.number),
                expiry_month: Exposed(&card.expiry_month),
                expiry_year: Exposed(&card.expiry_year),
                ccv: Exposed(&card.ccv),
            },
            credit_card_holder_info: Holder {
                name: &holder.name,
                email: &holder.email,
                cpf_cnpj: holder.tax_number.as_str(),
                postal_code: &holder.postal_code,
                address_number: &holder.address_number,
                phone: &holder.phone,
            },
            remote_ip: &payment.remote_address,
        }
    }
}

/// The body of `POST /subscriptions`.
pub(super) fn subscription(input: &GatewaySubscriptionInput) -> Result<Zeroizing<Vec<u8>>, PaymentGatewayError> {
    let unserializable = || PaymentGatewayError::NotDone("the request body cannot be serialized".to_owned());
    let body = Body {
        customer: &input.customer,
        billing_type: input.billing_type.as_str(),
        value: to_reais(input.value).ok_or_else(unserializable)?,
        next_due_date: input.first_due.to_string(),
        cycle: input.cycle.as_str(),
        description: &input.description,
        external_reference: input.reference.to_string(),
        card: input.card.as_ref().map(CardBody::from),
    };
    let mut text = Zeroizing::new(Vec::with_capacity(BODY_BYTES));
    serde_json::to_writer(&mut *text, &body).map_err(|_| unserializable())?;
    Ok(text)
}
