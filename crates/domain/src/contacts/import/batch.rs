//! Lines of a file that are written together. Lines of one number become one row: no batch writes one contact twice.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::super::limits::{attributes_fit, merge_fits};
use super::super::{ImportRow, Phone, RefusedRow};
use super::row;

/// Lines with their numbers in the file.
type Lines = Vec<(u64, ImportRow)>;

/// The lines of one number, in their order.
struct Person {
    lines: Lines,
    /// What they come to.
    merged: ImportRow,
}

impl Person {
    /// None where there is no line.
    fn of(lines: Lines) -> Option<Self> {
        let merged = lines.iter().map(|(_, row)| row.clone()).reduce(row::merge)?;
        Some(Self { lines, merged })
    }
}

/// Lines that are written together.
#[derive(Default)]
pub(super) struct Batch {
    people: Vec<Person>,
    positions: HashMap<Phone, usize>,
    lines: usize,
}

impl Batch {
    /// How many lines it holds.
    pub(super) fn lines(&self) -> usize {
        self.lines
    }

    /// Whether the lines of one number would have more attributes than a contact may have. Whether the contact has them
    /// already is known after the earlier ones are written.
    pub(super) fn overflows_with(&self, row: &ImportRow) -> bool {
        let position = row.contact.phone.as_ref().and_then(|phone| self.positions.get(phone));
        let Some(earlier) = position.and_then(|position| self.people.get(*position)) else {
            return false;
        };
        let mut attributes = earlier.merged.contact.attributes.clone();
        attributes.extend(row.contact.attributes.clone());
        !attributes_fit(&attributes)
    }

    pub(super) fn push(&mut self, line: u64, row: ImportRow) {
        let Some(phone) = row.contact.phone.clone() else { return };
        let position = *self.positions.entry(phone).or_insert(self.people.len());
        match self.people.get_mut(position) {
            Some(person) => {
                person.merged = row::merge(person.merged.clone(), row.clone());
                person.lines.push((line, row));
            }
            None => self.people.extend(Person::of(vec![(line, row)])),
        }
        self.lines += 1;
    }

    /// What the store is to write: one row a number.
    pub(super) fn rows(&self) -> Vec<ImportRow> {
        self.people.iter().map(|person| person.merged.clone()).collect()
    }

    /// Takes the lines out that the store refused, as few as make the rest fit; their numbers. At least one of each row,
    /// so that trying again ends. Nothing is pushed afterwards.
    pub(super) fn take_refused(&mut self, refused: &[RefusedRow]) -> Vec<u64> {
        let refused: HashMap<usize, &RefusedRow> = refused.iter().map(|row| (row.position, row)).collect();
        let mut taken = Vec::new();
        let mut rest = Vec::with_capacity(self.people.len());
        for (position, mut person) in self.people.drain(..).enumerate() {
            if let Some(row) = refused.get(&position) {
                taken.extend(beyond_limits(&mut person.lines, &row.attributes));
                rest.extend(Person::of(person.lines));
            } else {
                rest.push(person);
            }
        }
        self.people = rest;
        self.lines -= taken.len();
        taken
    }
}

/// Takes out the lines that would make a contact with these attributes too large; all of them where it is not seen which
/// ones would, because the contact has changed since.
fn beyond_limits(lines: &mut Lines, stored: &Map<String, Value>) -> Vec<u64> {
    let (mut attributes, mut fitting, mut beyond) = (stored.clone(), Vec::new(), Vec::new());
    for (line, row) in lines.drain(..) {
        let mut merged = attributes.clone();
        merged.extend(row.contact.attributes.clone());
        if merge_fits(&attributes, &merged) {
            attributes = merged;
            fitting.push((line, row));
        } else {
            beyond.push(line);
        }
    }
    if beyond.is_empty() {
        return fitting.into_iter().map(|(line, _)| line).collect();
    }
    *lines = fitting;
    beyond
}
