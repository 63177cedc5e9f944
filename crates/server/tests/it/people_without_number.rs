//! People who hide their phone number: user ids by portfolio, campaigns that reach them, and the address of a message.

use std::collections::BTreeSet;

use recado_simulators::whatsapp::{Inbound, WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};

use crate::conversations::wait_for_callbacks;
use crate::harness::runs::{final_status, without_statuses};
use crate::harness::users::{User, now, phone};
use crate::harness::{Server, text, until};

const FIRST: &str = "106500000001";
const SECOND: &str = "106500000002";

/// The portfolio of a simulated number, and another one.
const PORTFOLIO: &str = "506914307656634";
const OTHER_PORTFOLIO: &str = "600000000000002";

/// Connects two numbers of two portfolios. Returns the ids of their profiles.
fn two_portfolios(server: &Server) -> (User<'_>, [String; 2]) {
    server
        .whatsapp
        .set_number(SECOND, |number| number.portfolio_id = OTHER_PORTFOLIO.into());
    let ana = server.owner();
    let profiles = [FIRST, SECOND].map(|number| text(&ana.profile_at(number)["id"]));
    (ana, profiles)
}

/// The message of a person who hides the number.
fn hidden(number: &str, user_id: &str) -> Inbound {
    Inbound {
        user_id: Some(user_id.into()),
        name: Some(user_id.into()),
        ..Inbound::text(number, "", "oi")
    }
}

fn receive(server: &Server, messages: &[Inbound]) {
    for message in messages {
        server.whatsapp.inbound(message);
    }
    wait_for_callbacks(server);
}

fn contacts(user: &User<'_>) -> Vec<Value> {
    user.get("/api/contacts?limit=100").ok()["data"]
        .as_array()
        .unwrap()
        .clone()
}

fn named(user: &User<'_>, name: &str) -> Value {
    let found = contacts(user).into_iter().find(|contact| contact["name"] == name);
    user.get(&format!("/api/contacts/{}", text(&found.unwrap()["id"]))).ok()
}

/// The addresses to which messages were sent: the number of the sender, and `to` or `recipient`.
fn addresses(server: &Server) -> BTreeSet<(String, String)> {
    let sends = server.whatsapp.sends().into_iter().map(|send| {
        let number = send
            .request
            .path
            .trim_end_matches("/messages")
            .rsplit('/')
            .next()
            .unwrap()
            .to_owned();
        let body = &send.request.body;
        assert!(body["to"].is_null() != body["recipient"].is_null(), "{body}");
        (
            number,
            text(if body["to"].is_null() {
                &body["recipient"]
            } else {
                &body["to"]
            }),
        )
    });
    sends.collect()
}

fn expected<const N: usize>(addresses: [(&str, &str); N]) -> BTreeSet<(String, String)> {
    addresses.map(|(number, to)| (number.to_owned(), to.to_owned())).into()
}

#[test]
fn each_portfolio_reports_its_own_user_id_and_only_its_numbers_use_it() {
    let server = Server::start(without_statuses());
    let (ana, [first, second]) = two_portfolios(&server);
    let number = "+5511961234567";
    let reported = |at: &str, user_id: &str| Inbound {
        user_id: Some(user_id.into()),
        username: Some("bia.lima".into()),
        name: Some("Bia".into()),
        ..Inbound::text(at, number, "oi")
    };
    receive(
        &server,
        &[reported(FIRST, "BR.1"), reported(SECOND, "BR.2"), hidden(FIRST, "BR.3")],
    );
    let bia = named(&ana, "Bia");
    let ids: Vec<_> = bia["identities"].as_array().unwrap().iter().collect();
    let scopes: BTreeSet<_> = ids
        .iter()
        .map(|id| (text(&id["scope"]), text(&id["wa_user_id"])))
        .collect();
    let both = [(PORTFOLIO, "BR.1"), (OTHER_PORTFOLIO, "BR.2")].map(|(scope, id)| (scope.to_owned(), id.to_owned()));
    assert_eq!(scopes, both.into());
    assert_eq!(
        (&ids[0]["username"], &ids[0]["parent_user_id"]),
        (&json!("bia.lima"), &json!(null))
    );
    assert_eq!(bia["same_person_as"], json!(null));
    // No other contact gets an id that a number reported, whatever its portfolio.
    for user_id in ["BR.1", "BR.2"] {
        let taken = json!({ "name": "Rui", "wa_user_id": user_id });
        assert_eq!(ana.post("/api/contacts", taken.clone()).invalid(), ["wa_user_id"]);
        let third = text(&named(&ana, "BR.3")["id"]);
        assert_eq!(
            ana.put(&format!("/api/contacts/{third}"), taken.clone()).invalid(),
            ["wa_user_id"]
        );
        let unknown = format!("/api/contacts/{}", uuid::Uuid::now_v7());
        ana.put(&unknown, taken).refused(404, "NOT_FOUND");
    }
    // The other portfolio's number does not know the third person.
    let template = ana.approved("Oi", &[]);
    let message = |profile: &str| json!({ "to": { "wa_user_id": "BR.3" }, "template": { "id": template }, "profile_id": profile });
    let refused = ana
        .post("/api/messages", message(&second))
        .refused(400, "VALIDATION_ERROR");
    assert_eq!(refused["details"]["reason"], "no_address");
    ana.post("/api/messages", message(&first)).created();
    crate::harness::until("the message leaves", || !server.whatsapp.sends().is_empty());
    assert_eq!(addresses(&server), expected([(FIRST, "BR.3")]));
    // An id that the account sets fits every number.
    let made = ana
        .post("/api/contacts", json!({ "name": "Davi", "wa_user_id": "BR.9" }))
        .created();
    let identities = &ana.get(&format!("/api/contacts/{}", text(&made["id"]))).ok()["identities"];
    assert_eq!(
        (&identities[0]["scope"], &identities[0]["wa_user_id"]),
        (&json!("unknown"), &json!("BR.9"))
    );
    for profile in [&first, &second] {
        let message = json!({ "to": { "wa_user_id": "BR.9" }, "template": { "id": template }, "profile_id": profile });
        ana.post("/api/messages", message).created();
    }
    let all = expected([(FIRST, "BR.3"), (FIRST, "BR.9"), (SECOND, "BR.9")]);
    crate::harness::until("both messages leave", || addresses(&server) == all);
    assert_eq!(contacts(&ana).len(), 3);
}

/// Three contacts with a phone, three people who hide theirs, of whom two are the same persons. One person opted out.
fn audience(server: &Server) -> User<'_> {
    let ana = server.owner();
    ana.profile_at(FIRST);
    ana.contact("Com numero", &phone(1));
    ana.contact("Duas vezes", &phone(2));
    ana.contact("Saiu", &phone(3));
    receive(
        server,
        &[
            hidden(FIRST, "BR.1"),
            hidden(FIRST, "BR.2"),
            // The platform says that this is the contact with the second phone.
            Inbound {
                user_id: Some("BR.2".into()),
                ..Inbound::text(FIRST, &phone(2), "oi")
            },
            hidden(FIRST, "BR.3"),
            Inbound {
                user_id: Some("BR.3".into()),
                ..Inbound::text(FIRST, &phone(3), "oi")
            },
            // An opt-out of one counts for both.
            Inbound {
                text: "SAIR".into(),
                ..hidden(FIRST, "BR.3")
            },
        ],
    );
    let (twice, by_id) = (named(&ana, "Duas vezes"), named(&ana, "BR.2"));
    assert_eq!(
        (&twice["same_person_as"], &by_id["same_person_as"]),
        (&by_id["id"], &twice["id"])
    );
    assert_eq!((&twice["phone"], &by_id["phone"]), (&json!(phone(2)), &json!(null)));
    ana
}

#[test]
fn campaign_reaches_everybody_once_by_one_address() {
    let server = Server::start(without_statuses());
    let ana = audience(&server);
    let template = ana.approved("Oi", &[]);
    let campaign = |reach: Value| ana.campaign(json!({ "name": "Oferta", "template_id": template, "reach": reach }));
    let phones = ana.campaign(json!({ "name": "Oferta", "template_id": template }));
    let preview = ana.post(&format!("/api/campaigns/{phones}/preview"), json!({})).ok();
    assert_eq!(preview["recipients_by"], json!({ "phone": 2, "user_id": 0 }));
    assert_eq!(
        preview["unreachable"],
        json!({ "no_address": 2, "opted_out": 2, "authentication_needs_phone": 0 })
    );
    assert_eq!(
        ana.post("/api/campaigns", json!({ "name": "Oferta", "reach": "email" }))
            .invalid(),
        ["reach"]
    );
    let any = campaign(json!("any"));
    assert_eq!(ana.get(&format!("/api/campaigns/{any}")).ok()["reach"], "any");
    let preview = ana.post(&format!("/api/campaigns/{any}/preview"), json!({})).ok();
    assert_eq!(
        (&preview["recipients"], &preview["recipients_by"]),
        (&json!(3), &json!({ "phone": 2, "user_id": 1 }))
    );
    assert_eq!(preview["unreachable"]["opted_out"], 2);
    // The contact with the phone did not opt out itself.
    let message = json!({ "to": { "phone": phone(3) }, "template": { "id": template } });
    let refused = ana.post("/api/messages", message).refused(400, "VALIDATION_ERROR");
    assert_eq!(refused["details"]["reason"], "opted_out");
    let report = ana.execute(&any).ok();
    assert_eq!((&report["total"], &report["sent"]), (&json!(3), &json!(3)));
    let to = |position| phone(position).trim_start_matches('+').to_owned();
    let sent: BTreeSet<String> = addresses(&server)
        .into_iter()
        .map(|(_, to)| to.trim_start_matches('+').to_owned())
        .collect();
    assert_eq!(sent, [to(1), to(2), "BR.1".to_owned()].into());
    assert_eq!(server.whatsapp.sends().len(), 3);
    let sends = ana.get(&format!("/api/campaigns/{any}/sends")).expect(200);
    let rows: BTreeSet<_> = sends["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|send| {
            (
                text(&send["address"]),
                send["contacts"]["phone"].is_null(),
                send["contacts"]["wa_user_id"].is_null(),
            )
        })
        .collect();
    let kinds = [("phone", false, true), ("user_id", true, false)]
        .map(|(kind, no_phone, no_id)| (kind.to_owned(), no_phone, no_id));
    assert_eq!(rows, kinds.into());
}

#[test]
fn test_send_takes_a_phone_a_contact_or_a_user_id() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(FIRST);
    receive(&server, &[hidden(FIRST, "BR.1")]);
    let contact = text(&named(&ana, "BR.1")["id"]);
    let id = ana.plain_campaign();
    let test = |body: Value| ana.post(&format!("/api/campaigns/{id}/test"), body);
    test(json!({ "contact_id": contact })).ok();
    test(json!({ "wa_user_id": "BR.1" })).ok();
    test(json!({ "phone": phone(7) })).ok();
    let ids = server
        .whatsapp
        .sends()
        .iter()
        .map(|send| send.request.body["recipient"].clone())
        .collect::<Vec<_>>();
    assert_eq!(ids, [json!("BR.1"), json!("BR.1"), json!(null)]);
    // Codes go to phone numbers alone.
    server
        .db
        .run("UPDATE message_templates SET category = 'AUTHENTICATION'");
    let refused = test(json!({ "contact_id": contact })).refused(400, "VALIDATION_ERROR");
    assert_eq!(refused["details"]["reason"], "no_address");
    let any = ana.campaign(json!({ "name": "Codigo", "reach": "any",
        "template_id": ana.get(&format!("/api/campaigns/{id}")).ok()["template_id"] }));
    let preview = ana.post(&format!("/api/campaigns/{any}/preview"), json!({})).ok();
    assert_eq!(
        preview["unreachable"],
        json!({ "no_address": 0, "opted_out": 0, "authentication_needs_phone": 1 })
    );
    assert_eq!(server.whatsapp.sends().len(), 3);
}

#[test]
fn test_send_takes_exactly_one_valid_recipient() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(FIRST);
    let contact = ana.contact("Ana", &phone(1));
    let id = ana.plain_campaign();
    let test = |body: Value| ana.post(&format!("/api/campaigns/{id}/test"), body);
    assert_eq!(
        test(json!({ "phone": phone(7), "contact_id": contact })).invalid(),
        ["contact_id"]
    );
    assert_eq!(test(json!({})).invalid(), ["phone"]);
    assert_eq!(test(json!({ "wa_user_id": "x" })).invalid(), ["wa_user_id"]);
    assert_eq!(
        test(json!({ "contact_id": uuid::Uuid::now_v7() })).invalid(),
        ["contact_id"]
    );
    assert!(server.whatsapp.sends().is_empty());
}

/// The reach decides whether a failed send to a person without a number can be retried. 131062 is retried once the
/// person has a phone.
#[test]
fn retry_reaches_people_by_user_id_or_by_a_phone_that_became_known() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(FIRST);
    receive(&server, &[hidden(FIRST, "BR.1"), hidden(FIRST, "BR.2")]);
    let template = ana.approved("Oi", &[]);
    let id = ana.campaign(json!({ "name": "Oferta", "template_id": template, "reach": "any" }));
    server.whatsapp.script(vec![
        WhatsappFault::send_to("BR.1", WhatsappFaultKind::error(131_051, "")),
        WhatsappFault::send_to("BR.2", WhatsappFaultKind::error(131_062, "")),
    ]);
    assert_eq!(ana.execute(&id).ok()["failed"], 2);
    let retry = |reach: &str| {
        server
            .db
            .run(&format!("UPDATE campaigns SET reach = '{reach}' WHERE id = '{id}'"));
        ana.post(&format!("/api/campaigns/{id}/preview"), json!({})).ok()["retry"].clone()
    };
    let group = |reason: &str, code: u32| json!({ "reason": reason, "code": code, "count": 1, "earliest": null });
    assert_eq!(
        retry("phone"),
        json!({ "tried": 0, "left_out": [group("never", 131_062), group("unreachable", 131_051)] })
    );
    assert_eq!(
        retry("any"),
        json!({ "tried": 1, "left_out": [group("never", 131_062)] })
    );
    let person = text(&named(&ana, "BR.2")["id"]);
    ana.put(&format!("/api/contacts/{person}"), json!({ "phone": phone(2) }))
        .ok();
    assert_eq!(retry("any")["tried"], 2);
    let before = server.whatsapp.sends().len();
    ana.post(&format!("/api/campaigns/{id}/retry-failed"), json!({})).ok();
    assert_eq!(final_status(&ana, &id), "completed");
    assert_eq!((before, server.whatsapp.sends().len()), (2, 4));
    let to: BTreeSet<String> = addresses(&server).into_iter().map(|(_, to)| to).collect();
    assert_eq!(to, ["BR.1".to_owned(), "BR.2".to_owned(), phone(2)].into());
}

/// What a status says of its recipient makes no second contact of the person, and says that two contacts are one.
#[test]
fn status_names_the_user_id_of_its_recipient() {
    let server = Server::start(without_statuses());
    let (ana, _) = two_portfolios(&server);
    let contact = ana.contact("Bia", &phone(1));
    let template = ana.approved("Oi", &[]);
    let sent = || {
        let body = json!({ "to": { "contact_id": contact }, "template": { "id": template } });
        let id = text(&ana.post("/api/messages", body).created()["id"]);
        until("the message is sent", || {
            ana.get(&format!("/api/messages/{id}")).ok()["status"] == "sent"
        });
        id
    };
    let report = |id: &str, user_id: &str, wa_id: Option<String>| {
        let mut status = json!({ "id": format!("wamid.{id}"), "status": "delivered", "timestamp": now().to_string(),
            "biz_opaque_callback_data": id, "recipient_user_id": user_id });
        if let Some(wa_id) = wa_id {
            status["recipient_id"] = json!(wa_id);
        }
        let callback = json!({ "object": "whatsapp_business_account", "entry": [{ "id": "1", "changes": [{ "field": "messages",
            "value": { "metadata": { "phone_number_id": FIRST }, "statuses": [status] } }] }] });
        // It is applied before the response.
        for _ in 0..2 {
            assert_eq!(server.callback(&callback).status, 200);
        }
    };
    let found = || ana.get(&format!("/api/contacts/{contact}")).ok();
    // The person hides the number from the callback, but the message was sent to it.
    report(&sent(), "BR.1", None);
    let bia = found();
    assert_eq!(bia["identities"].as_array().unwrap().len(), 1, "{bia}");
    assert_eq!(
        (
            &bia["identities"][0]["scope"],
            &bia["identities"][0]["wa_user_id"],
            &bia["wa_user_id"]
        ),
        (&json!(PORTFOLIO), &json!("BR.1"), &json!("BR.1"))
    );
    receive(&server, &[hidden(FIRST, "BR.1")]);
    assert_eq!(contacts(&ana).len(), 1);
    // Another contact has the id that the second number's portfolio uses.
    receive(&server, &[hidden(FIRST, "BR.9")]);
    report(&sent(), "BR.9", Some(phone(1).trim_start_matches('+').to_owned()));
    let other = named(&ana, "BR.9");
    assert_eq!(
        (&found()["same_person_as"], &other["same_person_as"]),
        (&other["id"], &json!(contact))
    );
    // A status of a message that the account did not send says nothing.
    report(
        "0190a1b2-c3d4-7e5f-8a9b-000000000001",
        "BR.7",
        Some("5511900000000".into()),
    );
    assert_eq!(contacts(&ana).len(), 2);
}
