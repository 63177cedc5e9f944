//! A batch of lines that one store call writes. Lines with the same phone number or the same WhatsApp user id become one
//! row.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::super::limits::{attributes_fit, merge_fits, merge_rule};
use super::super::{ContactDraft, ImportRow, Phone, RefusedRow, RowRefusal};
use super::row;

/// Lines with their numbers in the file.
type Lines = Vec<(u64, ImportRow)>;

/// A line that is not imported, and why.
pub(super) type SkippedLine = (u64, String);

/// The lines of one contact, in file order. All have the same phone number, and at most one user id.
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
    by_phone: HashMap<Phone, usize>,
    by_user_id: HashMap<String, usize>,
    lines: usize,
}

impl Batch {
    /// The number of lines in the batch.
    pub(super) fn lines(&self) -> usize {
        self.lines
    }

    /// Whether the batch must be written before the row is added, because the row's result depends on the stored
    /// contact: it would exceed the attribute limits together with earlier lines, or names only one of the keys of
    /// earlier lines, or a second user id for a phone number.
    pub(super) fn must_precede(&self, row: &ImportRow) -> bool {
        let [by_phone, by_user_id] = self.positions(&row.contact);
        if by_phone.is_some() && by_user_id.is_some() && by_phone != by_user_id {
            return true;
        }
        let Some(earlier) = by_phone.or(by_user_id).and_then(|position| self.contacts.get(position)) else {
            return false;
        };
        let (earlier, later) = (&earlier.merged.contact, &row.contact);
        let differ = |(earlier, later)| earlier != later;
        if earlier.phone != later.phone
            || earlier
                .wa_user_id
                .as_ref()
                .zip(later.wa_user_id.as_ref())
                .is_some_and(differ)
        {
            return true;
        }
        let mut attributes = earlier.attributes.clone();
        attributes.extend(later.attributes.clone());
        !attributes_fit(&attributes)
    }

    /// The positions of the earlier lines with the contact's phone number, and of those with its user id.
    fn positions(&self, contact: &ContactDraft) -> [Option<usize>; 2] {
        let by_phone = contact.phone.as_ref().and_then(|phone| self.by_phone.get(phone));
        let by_user_id = contact.wa_user_id.as_ref().and_then(|id| self.by_user_id.get(id));
        [by_phone.copied(), by_user_id.copied()]
    }

    pub(super) fn push(&mut self, line: u64, row: ImportRow) {
        let [by_phone, by_user_id] = self.positions(&row.contact);
        let position = by_phone.or(by_user_id).unwrap_or(self.contacts.len());
        self.by_phone
            .extend(row.contact.phone.clone().map(|phone| (phone, position)));
        self.by_user_id
            .extend(row.contact.wa_user_id.clone().map(|id| (id, position)));
        match self.contacts.get_mut(position) {
            Some(contact_lines) => {
                contact_lines.merged = row::merge(contact_lines.merged.clone(), row.clone());
                contact_lines.lines.push((line, row));
            }
            None => self.contacts.extend(ContactLines::from_lines(vec![(line, row)])),
        }
        self.lines += 1;
    }

    /// Returns the rows to write: one per phone number or user id.
    pub(super) fn rows(&self) -> Vec<ImportRow> {
        self.contacts
            .iter()
            .map(|contact_lines| contact_lines.merged.clone())
            .collect()
    }

    /// Removes the lines that the store rejected and returns them. Removes as few lines as possible, but at least one per
    /// rejected row, so that the retries end. The batch accepts no lines afterwards.
    pub(super) fn remove_rejected(&mut self, rejected: &[RefusedRow]) -> Vec<SkippedLine> {
        let rejected: HashMap<usize, &RefusedRow> = rejected.iter().map(|row| (row.position, row)).collect();
        let mut removed = Vec::new();
        let mut rest = Vec::with_capacity(self.contacts.len());
        for (position, mut contact_lines) in self.contacts.drain(..).enumerate() {
            if let Some(row) = rejected.get(&position) {
                removed.extend(remove_refused_lines(&mut contact_lines.lines, &row.reason));
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

/// Removes the lines to which the reason applies.
fn remove_refused_lines(lines: &mut Lines, reason: &RowRefusal) -> Vec<SkippedLine> {
    let (removed, message) = match reason {
        RowRefusal::Attributes(stored) => (
            remove_excess_lines(lines, stored),
            format!("attributes {}", merge_rule()),
        ),
        RowRefusal::UserIdTaken => (
            remove_lines_with_user_id(lines),
            "wa_user_id belongs to another contact".to_owned(),
        ),
        RowRefusal::UserIdDiffers => (
            remove_lines_with_user_id(lines),
            "wa_user_id is not the one that the contact with this phone has".to_owned(),
        ),
    };
    removed.into_iter().map(|line| (line, message.clone())).collect()
}

fn remove_lines_with_user_id(lines: &mut Lines) -> Vec<u64> {
    let (refused, rest): (Lines, Lines) = lines.drain(..).partition(|(_, row)| row.contact.wa_user_id.is_some());
    *lines = rest;
    refused.into_iter().map(|(line, _)| line).collect()
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
