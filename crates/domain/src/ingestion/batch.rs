//! Validation of a batch: reports every error by its path, and rejects the whole batch if any item is invalid.

use std::str::FromStr;

use crate::contacts::Phone;
use crate::shared::{Amount, FieldErrors};

/// The maximum number of items of a batch.
const MAX_ITEMS: usize = 1000;

/// Validates the fields of one item and collects their errors.
pub struct Item<'a> {
    errors: &'a mut FieldErrors,
    path: String,
}

impl Item<'_> {
    /// Reports an invalid field.
    pub fn reject(&mut self, field: &str, message: impl Into<String>) {
        self.errors.add(format!("{}.{field}", self.path), message);
    }

    /// Validates a nested list, whose elements are items themselves.
    pub fn parts<I, T>(
        &mut self,
        field: &str,
        inputs: Vec<I>,
        validate: impl Fn(I, &mut Item<'_>) -> Option<T>,
    ) -> Vec<T> {
        let validate_element = |(index, input)| {
            let path = format!("{}.{field}[{index}]", self.path);
            let errors = &mut *self.errors;
            validate(input, &mut Item { errors, path })
        };
        inputs.into_iter().enumerate().filter_map(validate_element).collect()
    }

    /// Requires a value.
    pub fn required<T>(&mut self, field: &str, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.reject(field, "is required");
        }
        value
    }

    /// Requires a trimmed text of 1 to `max_chars` characters.
    pub fn text(&mut self, field: &str, value: Option<String>, max_chars: usize) -> Option<String> {
        let value = self.required(field, value)?;
        self.optional_text(field, Some(value), max_chars)
    }

    /// Validates an optional text like `text`.
    pub fn optional_text(&mut self, field: &str, value: Option<String>, max_chars: usize) -> Option<String> {
        let text = value?.trim().to_owned();
        if text.is_empty() || text.chars().count() > max_chars {
            self.reject(field, format!("must have 1 to {max_chars} characters"));
            return None;
        }
        Some(text)
    }

    /// Requires a value of a closed set.
    pub fn parse_enum<T: FromStr<Err = String>>(&mut self, field: &str, value: Option<&str>) -> Option<T> {
        let text = self.required(field, value)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(message) => {
                self.reject(field, message);
                None
            }
        }
    }

    /// Validates an optional phone number. An empty text counts as absent.
    pub fn phone(&mut self, field: &str, value: Option<&str>) -> Option<Phone> {
        let text = value.filter(|text| !text.trim().is_empty())?;
        let phone = Phone::parse(text);
        if phone.is_none() {
            self.reject(field, "is not a valid phone number");
        }
        phone
    }

    /// Validates an optional amount that must not be negative.
    pub fn amount(&mut self, field: &str, value: Option<Amount>) -> Option<Amount> {
        let amount = self.optional_signed(field, value)?;
        if amount.is_negative() {
            self.reject(field, "must not be negative");
            return None;
        }
        Some(amount)
    }

    /// Requires an amount that must not be negative.
    pub fn required_amount(&mut self, field: &str, value: Option<Amount>) -> Option<Amount> {
        self.required(field, value)?;
        self.amount(field, value)
    }

    /// Validates an optional amount, which may be negative.
    pub fn optional_signed(&mut self, field: &str, value: Option<Amount>) -> Option<Amount> {
        let amount = value?.validated();
        if amount.is_none() {
            self.reject(field, "must be less than 100 billion, with at most 4 decimals");
        }
        amount
    }
}

/// Validates a batch of 1 to `MAX_ITEMS` items. Fails if any item is invalid.
pub fn validate_batch<I, T>(
    list: &str,
    inputs: Vec<I>,
    validate: impl Fn(I, &mut Item<'_>) -> Option<T>,
) -> Result<Vec<T>, FieldErrors> {
    if inputs.is_empty() || inputs.len() > MAX_ITEMS {
        return Err(FieldErrors::one(list, format!("must have 1 to {MAX_ITEMS} items")));
    }
    let mut errors = FieldErrors::default();
    let mut items = Vec::with_capacity(inputs.len());
    for (index, input) in inputs.into_iter().enumerate() {
        let path = format!("{list}[{index}]");
        let errors = &mut errors;
        items.extend(validate(input, &mut Item { errors, path }));
    }
    errors.into_result()?;
    Ok(items)
}
