//! Links the contacts of the same person.

use std::collections::{BTreeMap, BTreeSet};

use crate::shared::ContactId;

/// A contact and the one that it names as the same person.
#[derive(Clone, Copy, Debug)]
pub struct LinkedContact {
    pub id: ContactId,
    pub has_phone: bool,
    pub named: Option<ContactId>,
}

/// Whom the contacts have to name if the contacts of each pair are one person. `contacts` MUST contain the pairs and all
/// that are linked to them.
pub fn linked(contacts: &[LinkedContact], pairs: &[(ContactId, ContactId)]) -> BTreeMap<ContactId, ContactId> {
    let mut contacts = contacts.to_vec();
    for (one, other) in pairs {
        let names = star(&contacts, BTreeSet::from([*one, *other]));
        for contact in &mut contacts {
            contact.named = names.get(&contact.id).copied().or(contact.named);
        }
    }
    let named = contacts.iter().filter_map(|contact| Some((contact.id, contact.named?)));
    named.collect()
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

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn id(number: u128) -> ContactId {
        Uuid::from_u128(number).into()
    }

    #[test]
    fn pairs_join_their_groups_in_one_star() {
        let contact = |number, has_phone, named: Option<u128>| LinkedContact {
            id: id(number),
            has_phone,
            named: named.map(id),
        };
        let contacts = [
            contact(1, false, Some(2)),
            contact(2, false, Some(1)),
            contact(3, true, None),
            contact(4, false, None),
        ];
        let found = linked(&contacts, &[(id(2), id(3)), (id(4), id(1))]);
        let expected = [(1, 3), (2, 3), (3, 1), (4, 3)].map(|(from, to)| (id(from), id(to)));
        assert_eq!(found, BTreeMap::from(expected));
        assert_eq!(linked(&contacts[2..], &[]), BTreeMap::new());
    }
}
