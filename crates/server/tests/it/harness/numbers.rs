//! Faults of a WhatsApp number: what a broken set-up of its owner looks like to the product.

use recado_simulators::whatsapp::{On, WhatsappFault, WhatsappFaultKind};

use super::Server;

/// How the set-up of a number is broken, or what the platform says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberFault {
    /// The platform does not answer.
    Hangs,
    /// The platform answers with 500.
    ServerError,
    /// A proxy answers with 404 and without a body.
    EmptyNotFound,
    /// The token may read the number, but not manage its account.
    MissingPermission,
    /// The number is in no page of its account.
    AbsentFromAccount,
    /// The number belongs to another business.
    OtherOwner,
    /// The number is not registered; this PIN registers it.
    Unregistered(&'static str),
    /// The quality is red.
    RedQuality,
    /// The number may send 1000 messages a second.
    HighThroughput,
    /// The number is also used in the WhatsApp Business app.
    OnBusinessApp,
    /// The messaging limit of its business.
    Limit(&'static str),
    /// The version of the API does not know one of the fields.
    UnknownField,
}

impl Server {
    /// Breaks a number until [`Server::repair_number`].
    pub fn break_number(&self, phone_number_id: &str, fault: NumberFault) {
        let script = |kind: WhatsappFaultKind| {
            let fault = WhatsappFault::of(On::Account, kind).for_id(phone_number_id);
            self.whatsapp.script(vec![fault.for_good()]);
        };
        let set = |change: &dyn Fn(&mut recado_simulators::whatsapp::NumberSettings)| {
            self.whatsapp.set_number(phone_number_id, |number| change(number));
        };
        match fault {
            NumberFault::Hangs => script(WhatsappFaultKind::Hang { ms: 600_000 }),
            NumberFault::ServerError => script(WhatsappFaultKind::AcceptThenStatus500),
            NumberFault::EmptyNotFound => script(WhatsappFaultKind::EmptyStatus { http_status: 404 }),
            NumberFault::MissingPermission => {
                let denied = WhatsappFaultKind::error(200, "whatsapp_business_management is required");
                let faults = [On::PhoneNumbers, On::Subscription].map(|on| WhatsappFault::of(on, denied.clone()));
                self.whatsapp.script(faults.map(WhatsappFault::for_good).to_vec());
            }
            NumberFault::AbsentFromAccount => set(&|number| number.unlisted = true),
            NumberFault::OtherOwner => set(&|number| number.tokens = Some(vec!["the-owner".into()])),
            NumberFault::Unregistered(pin) => {
                set(&|number| (number.status, number.pin) = (Some("PENDING".into()), Some(pin.into())));
            }
            NumberFault::RedQuality => set(&|number| number.quality_rating = "RED".into()),
            NumberFault::HighThroughput => set(&|number| number.throughput = "HIGH".into()),
            NumberFault::OnBusinessApp => set(&|number| number.on_business_app = Some(true)),
            NumberFault::Limit(limit) => set(&|number| number.messaging_limit = Some(limit.into())),
            NumberFault::UnknownField => set(&|number| number.unknown_fields = vec!["is_on_biz_app".into()]),
        }
    }

    /// Makes every call with this token fail as for an expired one, until the faults are cleared.
    pub fn expire_token(&self, token: &str) {
        let expired = WhatsappFault::of(On::Any, WhatsappFaultKind::error(190, "the session has expired"));
        self.whatsapp.script(vec![expired.for_token(token).for_good()]);
    }

    /// Removes all faults, and the settings of this number.
    pub fn repair_number(&self, phone_number_id: &str) {
        self.whatsapp.clear_faults();
        self.whatsapp
            .set_number(phone_number_id, |number| *number = Default::default());
    }
}
