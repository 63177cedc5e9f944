//! A batch of lines that one store call writes. Lines with the same phone number become one row, so that no batch
//! writes a contact twice.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::super::limits::{attributes_fit, merge_fits};
use super::super::{ImportRow, Phone, RefusedRow};
use super::row;

/// Lines with their numbers in the file.
type Lines = Vec<(u64, ImportRow)>;

/// The lines with one phone number, in file order.
struct ContactLines {
    lines: Lines,
    /// The row that all lines together produce.
    merged: ImportRow,
}

impl ContactLines {
    /// Returns `None` without lines.
    fn from_lines(lines: Lines) -> Option<Self> {
        let merged = lines.iter().map(|(_, row)| row.clone()).reduce(row::merge)?;
        Some(Self { lines, merged })
    }
}

#[derive(Default)]
pub(super) struct Batch {
    contacts: Vec<ContactLines>,
    positions: HashMap<Phone, usize>,
    lines: usize,
}

impl Batch {
    /// The number of lines in the batch.
    pub(super) fn lines(&self) -> usize {
        self.lines
    }

    /// Whether the lines of the row's phone number would exceed the attribute limits together. The batch must then be
    /// written first, because the result depends on the stored contact.
    pub(super) fn overflows_with(&self, row: &ImportRow) -> bool {
        let position = row.contact.phone.as_ref().and_then(|phone| self.positions.get(phone));
        let Some(earlier) = position.and_then(|position| self.contacts.get(*position)) else {
            return false;
        };
        let mut attributes = earlier.merged.contact.attributes.clone();
        attributes.extend(row.contact.attributes.clone());
        !attributes_fit(&attributes)
    }

    pub(super) fn push(&mut self, line: u64, row: ImportRow) {
        let Some(phone) = row.contact.phone.clone() else { return };
        let position = *self.positions.entry(phone).or_insert(self.contacts.len());
        match self.contacts.get_mut(position) {
            Some(contact_lines) => {
                contact_lines.merged = row::merge(contact_lines.merged.clone(), row.clone());
                contact_lines.lines.push((line, row));
            }
            None => self.contacts.extend(ContactLines::from_lines(vec![(line, row)])),
        }
        self.lines += 1;
    }

    /// Returns the rows to write: one per phone number.
    pub(super) fn rows(&self) -> Vec<ImportRow> {
        self.contacts
            .iter()
            .map(|contact_lines| contact_lines.merged.clone())
            .collect()
    }

    /// Removes the lines that the store rejected and returns their numbers. Removes as few lines as possible, but at
    /// least one per rejected row, so that the retries end. The batch accepts no lines afterwards.
    pub(super) fn remove_rejected(&mut self, rejected: &[RefusedRow]) -> Vec<u64> {
        let rejected: HashMap<usize, &RefusedRow> = rejected.iter().map(|row| (row.position, row)).collect();
        let mut removed = Vec::new();
        let mut rest = Vec::with_capacity(self.contacts.len());
        for (position, mut contact_lines) in self.contacts.drain(..).enumerate() {
            if let Some(row) = rejected.get(&position) {
                removed.extend(remove_excess_lines(&mut contact_lines.lines, &row.attributes));
                rest.extend(ContactLines::from_lines(contact_lines.lines));
            } else {
                rest.push(contact_lines);
            }
        }
        self.contacts = rest;
        self.lines -= removed.len();
        removed
    }
}

/// Removes the lines that would make a contact with these stored attributes exceed the limits. Removes all lines if
/// none exceeds them, because the contact has changed since.
fn remove_excess_lines(lines: &mut Lines, stored: &Map<String, Value>) -> Vec<u64> {
    let (mut attributes, mut fitting, mut excess) = (stored.clone(), Vec::new(), Vec::new());
    for (line, row) in lines.drain(..) {
        let mut merged = attributes.clone();
        merged.extend(row.contact.attributes.clone());
        if merge_fits(&attributes, &merged) {
            attributes = merged;
            fitting.push((line, row));
        } else {
            excess.push(line);
        }
    }
    if excess.is_empty() {
        return fitting.into_iter().map(|(line, _)| line).collect();
    }
    *lines = fitting;
    excess
}
