//! Bounds and use cases of settings.

use std::sync::Arc;

use serde_json::{Value, json};
use time::macros::{datetime, time};
use uuid::Uuid;

use super::*;
use crate::shared::{AccountId, Event, FieldErrors, MockClock, Role, Tenant, UserId};

fn quiet_hours(value: Value) -> QuietHours {
    serde_json::from_value(value).unwrap()
}

fn invalid_fields(input: SettingsInput) -> Vec<String> {
    let FieldErrors(fields) = input.check().unwrap_err();
    fields.into_keys().collect()
}

fn set<T>(value: T) -> Option<Option<T>> {
    Some(Some(value))
}

fn alert(amount: &str, currency: &str) -> CostAlert {
    serde_json::from_value(json!({ "amount": amount, "currency": currency })).unwrap()
}

#[test]
fn settings_at_their_bounds_are_accepted() {
    for (n, days, hours, within) in [(1, 1, 1, 60), (100, 90, 168, 86_400)] {
        let input = SettingsInput {
            timezone: set("america/sao_paulo".into()),
            quiet_hours: set(quiet_hours(
                json!({ "from": "22:30", "to": "08:00", "zone": "account" }),
            )),
            max_marketing_per_contact: set(MarketingCap { n, days }),
            hold_at_most_hours: set(hours),
            opt_out_words: set((0..50).map(|_| format!(" {} ", "ã".repeat(40))).collect()),
            opt_out_reply: set("ã".repeat(1024)),
            late_policy: set(LatePolicy {
                within,
                otherwise: LateAction::Skip,
            }),
            cost_alerts: set((0..20).map(|_| alert("0.0001", "USD")).collect()),
        };
        let change = input.check().unwrap();
        assert_eq!(change.timezone.unwrap().unwrap().as_str(), "America/Sao_Paulo");
        assert_eq!(change.opt_out_words.unwrap().unwrap()[0], "ã".repeat(40));
    }
}

#[test]
fn settings_outside_their_bounds_name_their_fields() {
    let policy = |within| LatePolicy {
        within,
        otherwise: LateAction::Send,
    };
    for (hours, within, n, days) in [(0, 59, 0, 0), (169, 86_401, 101, 91), (-1, 0, 0, 0)] {
        let input = SettingsInput {
            timezone: set("Mars/Base".into()),
            quiet_hours: set(quiet_hours(
                json!({ "from": "08:00", "to": "08:00", "zone": "contact", "categories": [], "days": [7] }),
            )),
            max_marketing_per_contact: set(MarketingCap { n, days }),
            hold_at_most_hours: set(hours),
            opt_out_words: set(vec!["sair".into(), " ".into(), "x".repeat(41)]),
            opt_out_reply: set(" \n".into()),
            late_policy: set(policy(within)),
            cost_alerts: set(vec![alert("0", "USD"), alert("-1", "usd"), alert("0.00001", "USD")]),
        };
        let expected = [
            "cost_alerts[0].amount",
            "cost_alerts[1].amount",
            "cost_alerts[1].currency",
            "cost_alerts[2].amount",
            "hold_at_most_hours",
            "late_policy.within",
            "max_marketing_per_contact.days",
            "max_marketing_per_contact.n",
            "opt_out_reply",
            "opt_out_words[1]",
            "opt_out_words[2]",
            "quiet_hours.categories",
            "quiet_hours.days",
            "quiet_hours.to",
            "timezone",
        ];
        assert_eq!(invalid_fields(input), expected);
    }
    let too_many = SettingsInput {
        opt_out_words: set(vec!["sair".into(); 51]),
        opt_out_reply: set("x".repeat(1025)),
        cost_alerts: set(vec![alert("1", "USD"); 21]),
        ..SettingsInput::default()
    };
    assert_eq!(
        invalid_fields(too_many),
        ["cost_alerts", "opt_out_reply", "opt_out_words"]
    );
}

#[test]
fn quiet_hours_have_defaults_and_one_written_form() {
    let hours = quiet_hours(json!({ "from": "22:30", "to": "08:05", "zone": "contact" }));
    assert_eq!((hours.from, hours.to), (time!(22:30), time!(8:05)));
    assert_eq!(
        json!(hours),
        json!({ "from": "22:30", "to": "08:05", "zone": "contact", "categories": ["MARKETING"],
                "days": [0, 1, 2, 3, 4, 5, 6] })
    );
    let input = SettingsInput {
        quiet_hours: set(quiet_hours(json!({ "from": "00:00", "to": "23:59", "zone": "account",
                    "categories": ["UTILITY", "MARKETING", "UTILITY"], "days": [6, 0, 6] }))),
        ..SettingsInput::default()
    };
    let hours = input.check().unwrap().quiet_hours.unwrap().unwrap();
    assert_eq!(hours.categories, [HeldCategory::Marketing, HeldCategory::Utility]);
    assert_eq!(hours.days, [0, 6]);
    for invalid in ["24:00", "8:00", "08:60", "08:00:00", "0800", "", "+8:00", "08:0a"] {
        let value = json!({ "from": invalid, "to": "07:00", "zone": "account" });
        assert!(serde_json::from_value::<QuietHours>(value).is_err(), "{invalid}");
    }
}

#[tokio::test]
async fn settings_update_is_audited_without_values() {
    let mut store = MockSettingsStore::new();
    let written = |_: &AccountId, change: &SettingsChange, _: &UserId, _: &time::OffsetDateTime, events: &[Event]| {
        let [Event::Audit(audit)] = events else { return false };
        let fields = json!({ "fields": ["opt_out_words", "opt_out_reply"] });
        audit.changes == Some(fields) && audit.entity_type == "account_settings" && change.opt_out_reply == Some(None)
    };
    store
        .expect_update()
        .withf(written)
        .times(1)
        .returning(|_, _, _, _, _| Ok(AccountSettings::default()));
    let mut clock = MockClock::new();
    clock.expect_now().return_const(datetime!(2026-11-29 12:00 UTC));
    let tenant = Tenant::for_tests(AccountId(Uuid::from_u128(9)), UserId(Uuid::nil()), Role::Owner);
    let input = SettingsInput {
        opt_out_words: set(vec!["cancelar".into()]),
        opt_out_reply: Some(None),
        ..SettingsInput::default()
    };
    let service = Settings::new(Arc::new(store), Arc::new(clock));
    service.update(&tenant, input).await.unwrap();
}

#[test]
fn late_policy_sends_by_default() {
    let policy: LatePolicy = serde_json::from_value(json!({ "within": 60 })).unwrap();
    assert_eq!(policy.otherwise, LateAction::Send);
    assert_eq!(json!(policy), json!({ "within": 60, "else": "send" }));
}

#[test]
fn only_some_settings_change_holds() {
    let changes = |input: SettingsInput| input.check().unwrap().changes_holds();
    let words = SettingsInput {
        opt_out_words: Some(None),
        opt_out_reply: Some(None),
        late_policy: Some(None),
        cost_alerts: Some(None),
        ..SettingsInput::default()
    };
    assert!(!changes(words));
    for input in [
        SettingsInput {
            timezone: Some(None),
            ..SettingsInput::default()
        },
        SettingsInput {
            quiet_hours: Some(None),
            ..SettingsInput::default()
        },
        SettingsInput {
            max_marketing_per_contact: Some(None),
            ..SettingsInput::default()
        },
        SettingsInput {
            hold_at_most_hours: Some(None),
            ..SettingsInput::default()
        },
    ] {
        assert!(changes(input));
    }
}
