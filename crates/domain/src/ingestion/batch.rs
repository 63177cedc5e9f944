//! Reading a batch: every item is looked at, every fault is named by its place, and one fault refuses all.

use std::str::FromStr;

use crate::contacts::Phone;
use crate::shared::{Amount, FieldErrors};

/// How many items a batch may have.
const ITEMS: usize = 1000;

/// The faults found in one item so far.
pub struct Item<'a> {
    errors: &'a mut FieldErrors,
    path: String,
}

impl Item<'_> {
    /// Adds a fault.
    pub fn fault(&mut self, field: &str, message: impl Into<String>) {
        self.errors.add(format!("{}.{field}", self.path), message);
    }

    /// A list inside the item, each part of it an item itself.
    pub fn parts<I, T>(&mut self, field: &str, inputs: Vec<I>, read: impl Fn(I, &mut Item<'_>) -> Option<T>) -> Vec<T> {
        let read_one = |(index, input)| {
            let path = format!("{}.{field}[{index}]", self.path);
            let errors = &mut *self.errors;
            read(input, &mut Item { errors, path })
        };
        inputs.into_iter().enumerate().filter_map(read_one).collect()
    }

    /// What has to be there.
    pub fn required<T>(&mut self, field: &str, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.fault(field, "is required");
        }
        value
    }

    /// A text of 1 to `most` characters that is more than white space.
    pub fn text(&mut self, field: &str, value: Option<String>, most: usize) -> Option<String> {
        let value = self.required(field, value)?;
        self.optional_text(field, Some(value), most)
    }

    /// The same where it may be missing.
    pub fn optional_text(&mut self, field: &str, value: Option<String>, most: usize) -> Option<String> {
        let text = value?.trim().to_owned();
        if text.is_empty() || text.chars().count() > most {
            self.fault(field, format!("must have 1 to {most} characters"));
            return None;
        }
        Some(text)
    }

    /// A word of a closed set.
    pub fn parse_enum<T: FromStr<Err = String>>(&mut self, field: &str, value: Option<&str>) -> Option<T> {
        let word = self.required(field, value)?;
        match word.parse() {
            Ok(value) => Some(value),
            Err(fault) => {
                self.fault(field, fault);
                None
            }
        }
    }

    /// A phone number; an empty text is none.
    pub fn phone(&mut self, field: &str, value: Option<&str>) -> Option<Phone> {
        let text = value.filter(|text| !text.trim().is_empty())?;
        let phone = Phone::parse(text);
        if phone.is_none() {
            self.fault(field, "must be a phone number");
        }
        phone
    }

    /// Money or a quantity: not below zero.
    pub fn amount(&mut self, field: &str, value: Option<Amount>) -> Option<Amount> {
        let amount = self.optional_signed(field, value)?;
        if amount.is_negative() {
            self.fault(field, "must not be negative");
            return None;
        }
        Some(amount)
    }

    /// The same where it has to be there.
    pub fn required_amount(&mut self, field: &str, value: Option<Amount>) -> Option<Amount> {
        self.required(field, value)?;
        self.amount(field, value)
    }

    /// Any amount.
    pub fn optional_signed(&mut self, field: &str, value: Option<Amount>) -> Option<Amount> {
        let amount = value?.validated();
        if amount.is_none() {
            self.fault(field, "must be below 100 billion, with at most 4 decimals");
        }
        amount
    }
}

/// Reads 1 to 1000 items; refused when any of them has a fault.
pub fn checked_batch<I, T>(
    list: &str,
    inputs: Vec<I>,
    read: impl Fn(I, &mut Item<'_>) -> Option<T>,
) -> Result<Vec<T>, FieldErrors> {
    if inputs.is_empty() || inputs.len() > ITEMS {
        return Err(FieldErrors::one(list, format!("must have 1 to {ITEMS} items")));
    }
    let mut errors = FieldErrors::default();
    let mut checked = Vec::with_capacity(inputs.len());
    for (index, input) in inputs.into_iter().enumerate() {
        let path = format!("{list}[{index}]");
        let errors = &mut errors;
        checked.extend(read(input, &mut Item { errors, path }));
    }
    errors.into_result()?;
    Ok(checked)
}
