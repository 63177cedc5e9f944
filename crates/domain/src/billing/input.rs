//! Input and result of subscribing, and the validation of the input.

use super::{
    BillingType, Card, CardHolder, CardInput, Cycle, FREE_PLAN, HolderInput, PaymentData, Plan, Subscription,
    TaxNumber, plan,
};
use crate::shared::{FieldErrors, text};

/// Subscribe request, not yet validated.
#[derive(Default)]
pub struct SubscribeInput {
    /// Plan id.
    pub plan: Option<String>,
    pub billing_type: Option<String>,
    pub cycle: Option<String>,
    /// The gateway sends its mails about payments to this address.
    pub billing_email: Option<String>,
    /// Tax number of the payer.
    pub cpf_cnpj: Option<String>,
    pub credit_card: Option<CardInput>,
    pub credit_card_holder_info: Option<HolderInput>,
}

/// A new subscription with the data that the payer needs for its first payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribed {
    pub subscription: Subscription,
    pub payment_data: PaymentData,
}

/// Subscribe request after validation.
pub(super) struct ValidatedSubscribe {
    pub(super) plan: &'static Plan,
    pub(super) billing_type: BillingType,
    pub(super) cycle: Cycle,
    pub(super) billing_email: Option<String>,
    pub(super) tax_number: TaxNumber,
    pub(super) card: Option<(Card, CardHolder)>,
}

impl SubscribeInput {
    /// A valid monthly request for tests, also of other crates.
    #[cfg(any(test, feature = "mocks"))]
    pub fn for_tests(plan: &str, billing_type: &str) -> Self {
        let some = |text: &str| Some(text.to_owned());
        Self {
            plan: some(plan),
            billing_type: some(billing_type),
            cycle: some("MONTHLY"),
            billing_email: some("ana@example.com"),
            cpf_cnpj: some("529.982.247-25"),
            credit_card: Some(CardInput {
                holder_name: Some("ANA".into()),
                number: Some("4111111111111111".into()),
                expiry_month: Some("05".into()),
                expiry_year: Some("2030".into()),
                ccv: Some("123".into()),
            }),
            credit_card_holder_info: Some(HolderInput {
                name: some("Ana"),
                email: some("ana@example.com"),
                cpf_cnpj: some("52998224725"),
                postal_code: some("01001000"),
                address_number: some("1"),
                phone: some("11961234567"),
            }),
        }
    }

    pub(super) fn checked(&self) -> Result<ValidatedSubscribe, FieldErrors> {
        let mut errors = FieldErrors::default();
        let plan = paid_plan(&mut errors, self.plan.as_deref());
        let billing_type: Option<BillingType> = parse_enum(&mut errors, "billing_type", self.billing_type.as_deref());
        let cycle: Option<Cycle> = parse_enum(&mut errors, "cycle", self.cycle.as_deref());
        let billing_email = email(&mut errors, self.billing_email.as_deref());
        let tax_number = self.cpf_cnpj.as_deref().and_then(TaxNumber::parse);
        if tax_number.is_none() {
            errors.add("cpf_cnpj", "must be a CPF or CNPJ");
        }
        let card = match billing_type {
            Some(BillingType::CreditCard) => self.card(&mut errors),
            Some(BillingType::Pix | BillingType::Boleto) | None => None,
        };
        let validated = || {
            Some(ValidatedSubscribe {
                plan: plan?,
                billing_type: billing_type?,
                cycle: cycle?,
                billing_email,
                tax_number: tax_number?,
                card,
            })
        };
        match errors.0.is_empty().then(validated).flatten() {
            Some(validated) => Ok(validated),
            None => Err(errors),
        }
    }

    fn card(&self, errors: &mut FieldErrors) -> Option<(Card, CardHolder)> {
        if self.credit_card.is_none() {
            errors.add("credit_card", "is required for CREDIT_CARD");
        }
        if self.credit_card_holder_info.is_none() {
            errors.add("credit_card_holder_info", "is required for CREDIT_CARD");
        }
        let card = self.credit_card.as_ref().and_then(|card| card.checked(errors));
        let holder = self
            .credit_card_holder_info
            .as_ref()
            .and_then(|holder| holder.checked(errors));
        card.zip(holder)
    }
}

/// Looks up a plan that has a price. Adds an error to the field `plan` if there is none.
pub(super) fn paid_plan(errors: &mut FieldErrors, id: Option<&str>) -> Option<&'static Plan> {
    let found = match id {
        None => Err("is required"),
        Some(FREE_PLAN) => Err("must be a paid plan; free needs no subscription"),
        Some(id) => plan(id).ok_or("must be starter, growth or scale"),
    };
    found.map_err(|error| errors.add("plan", error)).ok()
}

/// Parses a required enum value. Adds an error to `field` if it is missing or unknown.
pub(super) fn parse_enum<T: std::str::FromStr<Err = String>>(
    errors: &mut FieldErrors,
    field: &str,
    value: Option<&str>,
) -> Option<T> {
    let parsed = value.ok_or("is required".to_owned()).and_then(str::parse);
    parsed.map_err(|error| errors.add(field, error)).ok()
}

fn email(errors: &mut FieldErrors, value: Option<&str>) -> Option<String> {
    let value = value.map(str::trim).filter(|value| !value.is_empty())?;
    let email = text::email(value);
    if email.is_none() {
        errors.add("billing_email", "must be an e-mail address");
    }
    email
}
