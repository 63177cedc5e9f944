//! Card data on its way to the gateway. It stays in memory, is zeroized on drop, and no `Debug` output contains it.

use std::fmt;

use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};

use super::TaxNumber;
use crate::shared::{FieldErrors, text};

/// Accepted lengths of a card number, in digits.
const NUMBER_DIGITS: std::ops::RangeInclusive<usize> = 12..=19;

/// Maximum length of a name, in characters.
const NAME_CHARS: usize = 100;

/// Maximum length of a house number, in characters.
const HOUSE_CHARS: usize = 20;

/// Card data as entered, not yet validated.
#[derive(Default)]
pub struct CardInput {
    pub holder_name: Option<SecretString>,
    pub number: Option<SecretString>,
    pub expiry_month: Option<SecretString>,
    pub expiry_year: Option<SecretString>,
    /// Security code on the back.
    pub ccv: Option<SecretString>,
}

/// Card holder as entered, not yet validated.
#[derive(Default)]
pub struct HolderInput {
    pub name: Option<String>,
    pub email: Option<String>,
    pub cpf_cnpj: Option<String>,
    /// CEP.
    pub postal_code: Option<String>,
    /// House number.
    pub address_number: Option<String>,
    pub phone: Option<String>,
}

/// Validated card data in the gateway's format.
pub struct Card {
    pub holder_name: SecretString,
    /// Digits only.
    pub number: SecretString,
    /// Two digits.
    pub expiry_month: SecretString,
    /// Four digits.
    pub expiry_year: SecretString,
    /// Three or four digits.
    pub ccv: SecretString,
}

/// Validated card holder in the gateway's format.
pub struct CardHolder {
    pub name: String,
    pub email: String,
    pub tax_number: TaxNumber,
    /// CEP, eight digits.
    pub postal_code: String,
    /// House number.
    pub address_number: String,
    /// Digits only.
    pub phone: String,
}

/// The data that the gateway requires for a card payment.
pub struct CardPayment {
    pub card: Card,
    pub holder: CardHolder,
    /// IP address of the payer.
    pub remote_address: String,
}

impl fmt::Debug for CardPayment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CardPayment(***)")
    }
}

/// Returns the digits of a text. `None` if it contains anything except digits, spaces and hyphens.
fn digits(text: &str) -> Option<SecretString> {
    let mut digits = Zeroizing::new(String::with_capacity(text.len()));
    for c in text.chars() {
        match c {
            '0'..='9' => digits.push(c),
            ' ' | '-' => {}
            _ => return None,
        }
    }
    Some(SecretString::from(digits.as_str()))
}

fn exposed(value: Option<&SecretString>) -> &str {
    value.map(ExposeSecret::expose_secret).unwrap_or_default()
}

/// Normalizes a month: `5` and `05` become `05`.
fn month(text: &str) -> Option<SecretString> {
    let number: u8 = text.trim().parse().ok().filter(|month| (1..=12).contains(month))?;
    Some(SecretString::from(format!("{number:02}")))
}

/// Normalizes a year: `30` and `2030` become `2030`.
fn year(text: &str) -> Option<SecretString> {
    let text = text.trim();
    let number: u16 = text
        .parse()
        .ok()
        .filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    match (text.len(), number) {
        (2, _) => Some(SecretString::from(format!("20{number:02}"))),
        (4, 2000..) => Some(SecretString::from(number.to_string())),
        _ => None,
    }
}

impl CardInput {
    /// Validates every field. Errors name the field and never repeat its value.
    pub(super) fn checked(&self, errors: &mut FieldErrors) -> Option<Card> {
        let field = |errors: &mut FieldErrors, name: &str, value: Option<SecretString>, message: &str| {
            if value.is_none() {
                errors.add(format!("credit_card.{name}"), message);
            }
            value
        };
        let holder = exposed(self.holder_name.as_ref()).trim();
        let valid = (1..=NAME_CHARS).contains(&holder.chars().count());
        let holder_name = field(
            errors,
            "holder_name",
            valid.then(|| SecretString::from(holder)),
            "must be a name of 1 to 100 characters",
        );
        let digits_of = |value: &Option<SecretString>, lengths: std::ops::RangeInclusive<usize>| {
            digits(exposed(value.as_ref())).filter(|digits| lengths.contains(&digits.expose_secret().len()))
        };
        let number = digits_of(&self.number, NUMBER_DIGITS);
        let number = field(errors, "number", number, "must be a card number of 12 to 19 digits");
        let expiry_month = month(exposed(self.expiry_month.as_ref()));
        let expiry_month = field(errors, "expiry_month", expiry_month, "must be 01 to 12");
        let expiry_year = year(exposed(self.expiry_year.as_ref()));
        let expiry_year = field(errors, "expiry_year", expiry_year, "must be a year of four digits");
        let ccv = field(errors, "ccv", digits_of(&self.ccv, 3..=4), "must have 3 or 4 digits");
        Some(Card {
            holder_name: holder_name?,
            number: number?,
            expiry_month: expiry_month?,
            expiry_year: expiry_year?,
            ccv: ccv?,
        })
    }
}

impl HolderInput {
    /// Validates every field. Errors name the field.
    pub(super) fn checked(&self, errors: &mut FieldErrors) -> Option<CardHolder> {
        let field = |errors: &mut FieldErrors, name: &str, value: Option<String>, message: &str| {
            if value.is_none() {
                errors.add(format!("credit_card_holder_info.{name}"), message);
            }
            value
        };
        let trimmed = |value: &Option<String>| value.as_deref().unwrap_or_default().trim().to_owned();
        let within = |value: &Option<String>, max_chars: usize| {
            Some(trimmed(value)).filter(|text| (1..=max_chars).contains(&text.chars().count()))
        };
        let name = within(&self.name, NAME_CHARS);
        let name = field(errors, "name", name, "must be a name of 1 to 100 characters");
        let email = text::email(&trimmed(&self.email));
        let email = field(errors, "email", email, "must be an e-mail address");
        let tax_number = TaxNumber::parse(&trimmed(&self.cpf_cnpj));
        if tax_number.is_none() {
            errors.add("credit_card_holder_info.cpf_cnpj", "must be a CPF or CNPJ");
        }
        let digits_without = |value: &Option<String>, separators: &[char]| -> Option<String> {
            let digits: String = trimmed(value)
                .chars()
                .filter(|c| !separators.contains(c) && !c.is_whitespace())
                .collect();
            digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(digits)
        };
        let postal_code = digits_without(&self.postal_code, &['-', '.']).filter(|digits| digits.len() == 8);
        let postal_code = field(errors, "postal_code", postal_code, "must be a CEP of 8 digits");
        let address_number = within(&self.address_number, HOUSE_CHARS);
        let message = "must be a house number of 1 to 20 characters";
        let address_number = field(errors, "address_number", address_number, message);
        let phone = digits_without(&self.phone, &['-', '.', '(', ')', '+']);
        let phone = phone.filter(|digits| (10..=15).contains(&digits.len()));
        let phone = field(errors, "phone", phone, "must be a phone number with its area code");
        Some(CardHolder {
            name: name?,
            email: email?,
            tax_number: tax_number?,
            postal_code: postal_code?,
            address_number: address_number?,
            phone: phone?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(number: &str, month: &str, year: &str, ccv: &str) -> Result<Card, Vec<String>> {
        let input = CardInput {
            holder_name: Some("ANA SOUZA".into()),
            number: Some(number.into()),
            expiry_month: Some(month.into()),
            expiry_year: Some(year.into()),
            ccv: Some(ccv.into()),
        };
        let mut errors = FieldErrors::default();
        let card = input.checked(&mut errors);
        assert!(
            !format!("{errors:?}").contains("4111"),
            "an error never repeats a card number"
        );
        card.ok_or_else(|| errors.0.into_keys().collect())
    }

    #[test]
    fn card_input_is_normalized_to_the_gateway_format() {
        let card = card("4111 1111-1111 1111", "5", "30", "123").ok().unwrap();
        let parts = [&card.number, &card.expiry_month, &card.expiry_year, &card.ccv].map(|part| part.expose_secret());
        assert_eq!(parts, ["4111111111111111", "05", "2030", "123"]);
        let payment = CardPayment {
            card,
            holder: HolderInput {
                name: Some(" Ana ".into()),
                email: Some("ana@example.com".into()),
                cpf_cnpj: Some("529.982.247-25".into()),
                postal_code: Some("01001-000".into()),
                address_number: Some("1".into()),
                phone: Some("(11) 96123-4567".into()),
            }
            .checked(&mut FieldErrors::default())
            .unwrap(),
            remote_address: "203.0.113.9".into(),
        };
        assert_eq!(
            (payment.holder.postal_code.as_str(), payment.holder.phone.as_str()),
            ("01001000", "11961234567")
        );
        assert_eq!(format!("{payment:?}"), "CardPayment(***)");
    }

    #[test]
    fn card_input_errors_name_each_wrong_field() {
        let wrong = |number, month, year, ccv| card(number, month, year, ccv).err().unwrap_or_default();
        assert_eq!(wrong("4111x111111111111", "5", "2030", "123"), ["credit_card.number"]);
        assert_eq!(wrong("41111111111", "5", "2030", "123"), ["credit_card.number"]);
        assert_eq!(
            wrong("4111111111111111", "13", "1999", "12"),
            ["credit_card.ccv", "credit_card.expiry_month", "credit_card.expiry_year"]
        );
        assert_eq!(wrong("4111111111111111", "+5", "203", "12a").len(), 2);
        let mut errors = FieldErrors::default();
        assert!(CardInput::default().checked(&mut errors).is_none());
        assert!(HolderInput::default().checked(&mut errors).is_none());
        assert_eq!(errors.0.len(), 11);
    }
}
