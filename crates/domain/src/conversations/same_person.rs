//! Links the contacts of the same person.

use std::collections::{BTreeMap, BTreeSet};

use crate::shared::ContactId;

/// A contact and the one that it names as the same person.
#[derive(Clone, Copy)]
pub(super) struct LinkedContact {
    pub(super) id: ContactId,
    pub(super) has_phone: bool,
    pub(super) named: Option<ContactId>,
}

/// Whom the contacts of `group` have to name, with all that are linked to them already: a star, because a contact names
/// one other only. All name the one that a campaign writes to (one with a phone before one without, then the one with the
/// smaller id), and that one names the next.
pub(super) fn star(contacts: &[LinkedContact], mut group: BTreeSet<ContactId>) -> BTreeMap<ContactId, ContactId> {
    // Each round adds what a link leads to, in either direction.
    loop {
        let links = contacts.iter().filter_map(|contact| Some((contact.id, contact.named?)));
        let links = links.filter(|(id, named)| group.contains(id) || group.contains(named));
        let linked: Vec<ContactId> = links.flat_map(|(id, named)| [id, named]).collect();
        let size = group.len();
        group.extend(linked);
        if group.len() == size {
            break;
        }
    }
    let of_group = contacts.iter().filter(|contact| group.contains(&contact.id));
    let mut order: Vec<_> = of_group.map(|contact| (!contact.has_phone, contact.id)).collect();
    order.sort_unstable();
    let [(_, first), (_, second), ..] = order[..] else {
        return BTreeMap::new();
    };
    let named = |id: ContactId| if id == first { second } else { first };
    order.iter().map(|(_, id)| (*id, named(*id))).collect()
}
