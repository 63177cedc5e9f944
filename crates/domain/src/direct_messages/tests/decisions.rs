//! What is accepted, refused and repeated, and what leaves.

use std::collections::BTreeMap;

use serde_json::Value;
use time::Duration;

use super::*;
use crate::campaigns::Variables;
use crate::holds::{HoldCause, HoldPolicy};
use crate::messaging::{Addressee, Category, ContentInput, HeaderType, MetaStatus};
use crate::settings::{AccountSettings, MarketingCap};
use crate::shared::MediaId;

fn decided(input: MessageInput, facts: &CreationFacts) -> Decision {
    decide(&tenant(), &request(input), facts, &Uuid::now_v7)
}

fn refusal(input: MessageInput, facts: &CreationFacts) -> Option<&'static str> {
    match decided(input, facts) {
        Decision::Bad(ItemError::Refused(refusal)) => Some(refusal.reason()),
        Decision::New(..) => None,
        decision => panic!("{decision:?}"),
    }
}

fn with_contact(change: impl FnOnce(&mut ContactFacts)) -> CreationFacts {
    let mut facts = facts();
    change(facts.contacts.values_mut().next().unwrap());
    facts
}

fn with_template(change: impl FnOnce(&mut Template)) -> CreationFacts {
    let mut facts = facts();
    change(facts.templates.values_mut().next().unwrap());
    facts
}

#[test]
fn template_message_takes_quota_of_its_month_and_a_text_takes_none() {
    let Decision::New(new, None) = decided(template_input(), &facts()) else {
        panic!()
    };
    assert_eq!(new.quota_month, Some(time::macros::date!(2026 - 03 - 01)));
    assert_eq!(new.message.profile_id, Some(Uuid::from_u128(4).into()));
    assert_eq!(
        (new.message.phase(), new.message.kind),
        (Some(Phase::Waiting), ContentKind::Template)
    );
    let later = MessageInput {
        send_at: Some(NOW + Duration::days(30)),
        ..template_input()
    };
    let Decision::New(new, None) = decided(later, &facts()) else {
        panic!()
    };
    assert_eq!(new.quota_month, Some(time::macros::date!(2026 - 04 - 01)));
    let Decision::New(new, None) = decided(text_input(), &facts()) else {
        panic!()
    };
    assert_eq!(new.quota_month, None);
}

#[test]
fn each_obstacle_refuses_with_its_reason() {
    for (facts, reason) in [
        (
            with_template(|template| template.meta_status = MetaStatus::Paused),
            "template_not_approved",
        ),
        (
            with_template(|template| template.unsupported = vec!["unsupported_header:gif".into()]),
            "template_not_sendable",
        ),
        (
            with_contact(|contact| contact.recipient.name = " ".into()),
            "placeholder_empty",
        ),
        (with_contact(|contact| contact.opted_out = true), "opted_out"),
        (
            with_contact(|contact| {
                contact.recipient.phone = String::new();
                contact.user_ids.clear();
            }),
            "no_address",
        ),
    ] {
        assert_eq!(refusal(template_input(), &facts), Some(reason));
    }
    let mut unverified = facts();
    unverified.numbers[0].is_verified = false;
    assert_eq!(refusal(template_input(), &unverified), Some("number_unverified"));
    assert_eq!(refusal(text_input(), &unverified), Some("number_unverified"));
    let mut without_plan = facts();
    without_plan.billing.plan = "gold".into();
    assert_eq!(refusal(template_input(), &without_plan), Some("plan_inactive"));
    assert_eq!(refusal(text_input(), &without_plan), None);
}

#[test]
fn authentication_reaches_opted_out_people_and_needs_a_phone() {
    let authentication = |mut facts: CreationFacts| {
        facts.templates.values_mut().next().unwrap().category = Category::Authentication;
        facts
    };
    let opted_out = authentication(with_contact(|contact| contact.opted_out = true));
    assert_eq!(refusal(template_input(), &opted_out), None);
    let hidden = authentication(with_contact(|contact| contact.recipient.phone = String::new()));
    assert_eq!(refusal(template_input(), &hidden), Some("no_address"));
}

#[test]
fn text_needs_an_inbound_message_within_a_day_before_it_leaves() {
    let since = |age: Option<Duration>| with_contact(|contact| contact.last_inbound_at = age.map(|age| NOW - age));
    let (day, microsecond) = (Duration::DAY, Duration::MICROSECOND);
    assert_eq!(refusal(text_input(), &since(Some(day - microsecond))), None);
    assert_eq!(refusal(text_input(), &since(Some(day))), Some("outside_window"));
    assert_eq!(refusal(text_input(), &since(None)), Some("outside_window"));
    let later = MessageInput {
        send_at: Some(NOW + Duration::hours(23)),
        ..text_input()
    };
    assert_eq!(refusal(later, &since(Some(Duration::HOUR))), Some("outside_window"));
}

#[test]
fn number_of_the_conversation_is_used_only_if_it_is_verified() {
    let number = |conversation: u128, verified: [bool; 2]| {
        let mut facts =
            with_contact(|contact| contact.conversation_profile = Some(Uuid::from_u128(conversation).into()));
        facts.numbers = [4, 5]
            .into_iter()
            .zip(verified)
            .map(|(id, is_verified)| NumberChoice {
                id: Uuid::from_u128(id).into(),
                is_verified,
            })
            .collect();
        match decided(text_input(), &facts) {
            Decision::New(new, _) => new.message.profile_id.map(|id| id.0.as_u128()),
            decision => panic!("{decision:?}"),
        }
    };
    assert_eq!(number(5, [true, true]), Some(5));
    assert_eq!(number(5, [true, false]), Some(4));
    assert_eq!(number(6, [true, true]), Some(4));
    let mut without = facts();
    without.numbers.clear();
    let Decision::New(new, _) = decided(text_input(), &without) else {
        panic!()
    };
    assert_eq!(new.message.profile_id, None, "simulated");
}

#[test]
fn unknown_phone_makes_a_contact_and_unknown_ids_are_invalid() {
    let mut facts = facts();
    facts.contacts.clear();
    let Decision::New(new, Some(contact)) = decided(template_input(), &facts) else {
        panic!()
    };
    assert_eq!(
        (new.message.contact_id, contact.draft.name.as_str()),
        (contact.id, "+5511961234567")
    );
    for (field, input) in [
        (
            "to.contact_id",
            MessageInput {
                to: Some(RecipientInput {
                    contact_id: Some(Uuid::nil().into()),
                    ..RecipientInput::default()
                }),
                ..text_input()
            },
        ),
        (
            "profile_id",
            MessageInput {
                profile_id: Some(Uuid::nil().into()),
                ..template_input()
            },
        ),
    ] {
        let Decision::Bad(ItemError::Invalid(errors)) = decided(input, &facts) else {
            panic!("{field}")
        };
        assert_eq!(errors.0.keys().collect::<Vec<_>>(), [field]);
    }
    facts.templates.clear();
    let Decision::Bad(ItemError::Invalid(errors)) = decided(template_input(), &facts) else {
        panic!()
    };
    assert!(errors.0.contains_key("template.id"));
}

#[test]
fn same_reference_repeats_an_equal_request_and_refuses_another_one() {
    let input = |text: &str| MessageInput {
        content: ContentInput::text(text),
        client_reference: Some("r1".into()),
        ..text_input()
    };
    let Decision::New(first, _) = decided(input("Oi"), &facts()) else {
        panic!()
    };
    let known = |earlier: Value| {
        let mut facts = facts();
        // Neither the window nor the number matters for a repetition.
        facts.numbers[0].is_verified = false;
        facts.references = HashMap::from([("r1".to_owned(), (first.message.clone(), earlier))]);
        facts
    };
    assert_eq!(
        decided(input("Oi"), &known(first.request.clone())),
        Decision::Repeated(Box::new(first.message.clone()))
    );
    assert_eq!(
        decided(input("oi"), &known(first.request.clone())),
        Decision::Bad(ItemError::ReferenceTaken(first.message.id))
    );
    // An erased message says nothing of its request any more.
    assert!(matches!(
        decided(input("oi"), &known(Value::Null)),
        Decision::Repeated(_)
    ));
}

#[test]
fn key_that_triggers_a_template_sends_nothing_else() {
    let (own, other) = (Uuid::from_u128(3), Uuid::from_u128(5));
    for (scope, input, allowed) in [
        (format!("trigger:{own}"), template_input(), true),
        (format!("trigger:{other}"), template_input(), false),
        (format!("trigger:{own}"), text_input(), false),
        ("messages:write".to_owned(), text_input(), true),
    ] {
        let decision = decide(&with_scope(&scope), &request(input), &facts(), &Uuid::now_v7);
        assert_eq!(decision != Decision::Bad(ItemError::Forbidden), allowed, "{scope}");
    }
}

fn departing(content: RequestedContent) -> DepartureFacts {
    DepartureFacts {
        number: Some(Uuid::from_u128(4).into()),
        id: Uuid::from_u128(1).into(),
        content,
        contact: Some(contact()),
        template: Some(template()),
        has_plan: true,
        is_number_removed: false,
        expires_at: at(1),
        send_at: NOW,
        held_by: None,
        time_zone: None,
        person: contact().id,
        attempts: 2,
        now: NOW,
    }
}

/// The departure of an account that holds nothing.
fn departure(facts: DepartureFacts) -> Departure {
    super::super::departure(facts, &mut HoldPolicy::off(NOW))
}

#[test]
fn settings_hold_templates_and_no_free_form_message() {
    let settings = AccountSettings {
        max_marketing_per_contact: Some(MarketingCap { n: 1, days: 1 }),
        ..AccountSettings::default()
    };
    let mut marketing = template();
    marketing.category = Category::Marketing;
    let facts = || DepartureFacts {
        template: Some(marketing.clone()),
        expires_at: NOW + Duration::WEEK,
        ..departing(request(template_input()).content)
    };
    let mut policy = HoldPolicy::new(settings, NOW, BTreeMap::new());
    let mut departure = |facts| super::super::departure(facts, &mut policy);
    assert!(matches!(departure(facts()), Departure::Leave(_)));
    let (cause, until) = (HoldCause::Cap, NOW + Duration::DAY);
    assert_eq!(departure(facts()), Departure::Hold { cause, until });
    let long_due = DepartureFacts {
        send_at: NOW - Duration::days(2),
        ..facts()
    };
    assert_eq!(departure(long_due), Departure::Fail("held too long: cap".to_owned()));
    // What held an expired message is its reason.
    let expired = DepartureFacts {
        expires_at: NOW,
        held_by: Some(HoldCause::QuietHours),
        ..facts()
    };
    assert_eq!(
        departure(expired),
        Departure::Fail("held too long: quiet_hours".to_owned())
    );
    let text = departing(request(text_input()).content);
    assert!(!matches!(departure(text), Departure::Hold { .. }));
}

#[test]
fn due_message_leaves_rendered_for_its_contact() {
    let RequestedContent::Template { key, .. } = request(template_input()).content else {
        panic!()
    };
    let content = RequestedContent::Template {
        key,
        variables: Variables([("1".to_owned(), "{first_name}!".to_owned())].into()),
        values: RequestedValues::default(),
    };
    let Departure::Leave(leaving) = departure(departing(content)) else {
        panic!()
    };
    assert_eq!(
        (leaving.attempts, leaving.to.clone()),
        (2, Addressee::Phone("+5511961234567".into()))
    );
    assert!(matches!(leaving.content, LeavingContent::Template { values, .. } if values.placeholders == ["Ana!"]));
}

#[test]
fn header_file_of_a_message_replaces_that_of_its_template() {
    let id = MediaId(Uuid::from_u128(6));
    let input = |header: MessageHeaderInput| MessageInput {
        template: Some(MessageTemplateInput {
            id: Some(Uuid::from_u128(3).into()),
            header: Some(header),
            ..MessageTemplateInput::default()
        }),
        ..template_input()
    };
    let own = || MessageHeaderInput {
        media_id: Some(id),
        ..MessageHeaderInput::default()
    };
    // A template without a file of its own is sendable with that of the message.
    let bare = with_template(|template| template.header_type = HeaderType::Image);
    assert_eq!(refusal(template_input(), &bare), Some("template_not_sendable"));
    let Decision::New(new, _) = decided(input(own()), &bare) else {
        panic!()
    };
    assert_eq!(new.media_id, Some(id));
    let Departure::Leave(leaving) = departure(DepartureFacts {
        template: Some(bare.templates.values().next().unwrap().clone()),
        ..departing(request(input(own())).content)
    }) else {
        panic!()
    };
    let LeavingContent::Template {
        template, header_media, ..
    } = leaving.content
    else {
        panic!()
    };
    assert_eq!(
        (header_media, template.file_urls()),
        (Some(id), [id.to_string()].into())
    );
    let both = MessageHeaderInput {
        media_url: Some("https://l.example/a.png".into()),
        ..own()
    };
    let errors = MessageRequest::parse(input(both)).unwrap_err();
    assert_eq!(errors.0.into_keys().collect::<Vec<_>>(), ["template.header.media_url"]);
}

#[test]
fn due_message_that_may_not_leave_fails_with_the_reason() {
    let template_content = || request(template_input()).content;
    let failure = |facts: DepartureFacts| match departure(facts) {
        Departure::Fail(message) => message,
        departure => panic!("{departure:?}"),
    };
    let base = || departing(template_content());
    for (facts, message) in [
        (
            DepartureFacts {
                is_number_removed: true,
                ..base()
            },
            NUMBER_REMOVED,
        ),
        (
            DepartureFacts {
                expires_at: NOW,
                ..base()
            },
            EXPIRED,
        ),
        (
            DepartureFacts {
                contact: None,
                ..base()
            },
            "the contact was deleted",
        ),
        (
            DepartureFacts {
                template: None,
                ..base()
            },
            "the template was deleted",
        ),
        (
            DepartureFacts {
                has_plan: false,
                ..base()
            },
            "The account has no active plan; subscribe to a plan",
        ),
    ] {
        assert_eq!(failure(facts), message);
    }
}

#[test]
fn due_message_is_checked_like_a_new_one() {
    let failure = |facts: DepartureFacts| match departure(facts) {
        Departure::Fail(message) => message,
        departure => panic!("{departure:?}"),
    };
    let base = || departing(request(template_input()).content);
    let text_content = || request(text_input()).content;
    let opted_out = ContactFacts {
        opted_out: true,
        ..contact()
    };
    let facts = DepartureFacts {
        contact: Some(opted_out),
        ..base()
    };
    assert_eq!(failure(facts), Refusal::OptedOut.to_string());
    let silent = ContactFacts {
        last_inbound_at: None,
        ..contact()
    };
    let facts = DepartureFacts {
        contact: Some(silent),
        ..departing(text_content())
    };
    assert_eq!(failure(facts), Refusal::OutsideWindow.to_string());
    let facts = DepartureFacts {
        has_plan: false,
        template: None,
        ..departing(text_content())
    };
    assert!(matches!(departure(facts), Departure::Leave(_)), "a text needs neither");
}

#[test]
fn location_and_offer_of_a_template_are_required_and_an_ended_offer_fails() {
    use crate::messaging::{HeaderType, LimitedTimeOffer};
    let special = with_template(|template| {
        template.header_type = HeaderType::Location;
        template.limited_time_offer = Some(LimitedTimeOffer {
            text: "Hoje".into(),
            has_expiration: true,
        });
    });
    let Decision::Bad(ItemError::Refused(Refusal::EmptyPlaceholders { placeholders })) =
        decided(template_input(), &special)
    else {
        panic!()
    };
    assert_eq!(placeholders, ["header_location", "offer_expires_at"]);
    let with_values = |offer_expires_at| {
        let mut input = template_input();
        let template = input.template.as_mut().unwrap();
        template.header = Some(MessageHeaderInput {
            latitude: Some(-23.5),
            longitude: Some(-46.6),
            name: Some("Loja".into()),
            address: Some("Av. Paulista".into()),
            ..MessageHeaderInput::default()
        });
        template.offer_expires_at = Some(offer_expires_at);
        input
    };
    assert_eq!(refusal(with_values(at(60)), &special), None);
    let departs = |offer_expires_at| {
        departure(DepartureFacts {
            template: special.templates.values().next().cloned(),
            ..departing(request(with_values(offer_expires_at)).content)
        })
    };
    assert!(matches!(departs(at(60)), Departure::Leave(_)));
    assert_eq!(
        departs(at(59)),
        Departure::Fail(crate::templates::OFFER_ENDED.to_owned())
    );
}
