//! Logs and counts what the domain reports instead of failing: swallowed errors, and callbacks that are not applied or
//! only in part.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{Counter, counter};
use recado_domain::callbacks::{CallbackReport, Unread};
use recado_domain::conversations::IdentityReport;
use recado_domain::shared::{CallbackId, ErrorReport, SideStep, StoreError};

use recado_api::error_chain::chain;

/// The maximum number of values of a label. WhatsApp can send any name, so further names become `OTHER`.
const MAX_LABEL_VALUES: usize = 64;
const OTHER: &str = "other";

const UNREAD: &str = "recado_whatsapp_unread_total";

/// One instance per process, so that all threads share the label values.
#[derive(Clone)]
pub struct Reports(Arc<Counters>);

struct Counters {
    fields: Mutex<BTreeSet<String>>,
    kinds: Mutex<BTreeSet<String>>,
    unreadable: Counter,
    set_aside: Counter,
}

impl Default for Reports {
    fn default() -> Self {
        for step in SideStep::ALL {
            counter!("recado_swallowed_errors_total", "step" => step.as_str()).absolute(0);
        }
        counter!("recado_identity_conflicts_total").absolute(0);
        counter!(UNREAD, "field" => OTHER, "type" => OTHER).absolute(0);
        let initialized = |name: &'static str| {
            let counter = counter!(name);
            counter.absolute(0);
            counter
        };
        Self(Arc::new(Counters {
            fields: Mutex::default(),
            kinds: Mutex::default(),
            unreadable: initialized("recado_whatsapp_callbacks_unreadable_total"),
            set_aside: initialized("recado_whatsapp_callbacks_set_aside_total"),
        }))
    }
}

impl ErrorReport for Reports {
    fn swallowed(&self, step: SideStep, error: &dyn std::error::Error) {
        tracing::warn!(step = step.as_str(), cause = %chain(error), "a step failed without failing its request");
        counter!("recado_swallowed_errors_total", "step" => step.as_str()).increment(1);
    }
}

impl IdentityReport for Reports {
    fn same_persons(&self, count: usize) {
        counter!("recado_identity_conflicts_total").increment(u64::try_from(count).unwrap_or(u64::MAX));
    }
}

impl CallbackReport for Reports {
    fn unread(&self, unread: &Unread) {
        let field = label(&self.0.fields, &unread.field);
        let kind = match &unread.kind {
            Some(kind) => label(&self.0.kinds, kind),
            None => String::new(),
        };
        counter!(UNREAD, "field" => field, "type" => kind).increment(1);
    }

    fn unreadable(&self, id: CallbackId) {
        tracing::warn!(callback = %id, "dropped a signed request that is not a valid WhatsApp callback");
        self.0.unreadable.increment(1);
    }

    fn set_aside(&self, id: CallbackId, error: &StoreError) {
        let cause = chain(error);
        tracing::error!(callback = %id, cause, "set aside a WhatsApp callback that cannot be applied");
        self.0.set_aside.increment(1);
    }
}

/// Counts held inbound events that were dropped because no profile was verified in time.
pub struct UnclaimedMessages(Counter);

impl Default for UnclaimedMessages {
    fn default() -> Self {
        let counter = counter!("recado_whatsapp_unclaimed_total");
        counter.absolute(0);
        Self(counter)
    }
}

impl UnclaimedMessages {
    pub fn add(&self, count: u64) {
        self.0.increment(count);
    }
}

/// Returns the name as a label value, or `OTHER` if it is malformed or there are too many names.
fn label(names: &Mutex<BTreeSet<String>>, name: &str) -> String {
    let is_name = (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
    if is_name && (names.contains(name) || names.len() < MAX_LABEL_VALUES) {
        names.insert(name.to_owned());
        return name.to_owned();
    }
    OTHER.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_limited_and_well_formed() {
        let names = Mutex::default();
        for number in 0..MAX_LABEL_VALUES {
            let name = format!("field_{number}");
            assert_eq!(label(&names, &name), name);
        }
        assert_eq!(label(&names, "one_more"), OTHER);
        assert_eq!(label(&names, "field_0"), "field_0");
        let names = Mutex::default();
        for malformed in ["", "A B", "x\ny", &"x".repeat(65)] {
            assert_eq!(label(&names, malformed), OTHER, "{malformed}");
        }
        assert!(names.into_inner().unwrap().is_empty());
    }
}
