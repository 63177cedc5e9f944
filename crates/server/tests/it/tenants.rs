//! Another tenant's ids in bodies, paths and queries: they get the same response as unknown ids, and change nothing.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::client::Reply;
use crate::harness::users::User;
use crate::harness::{Server, text};

/// One resource of each kind of a tenant.
struct Resources {
    contact: String,
    tag: String,
    template: String,
    profile: String,
    campaign: String,
    segment: String,
    campaign_folder: String,
    template_folder: String,
}

impl Resources {
    fn create(owner: &User<'_>) -> Self {
        let tag = owner.tag("vip");
        let body = json!({ "name": "Contato", "phone": "+5511961111111", "tag_ids": [tag] });
        let contact = text(&owner.post("/api/contacts", body).created()["id"]);
        let template = owner.template("own", "Oi {{1}}, tudo bem?", &["Ana"]);
        let resources = Self {
            campaign: owner.campaign(json!({ "name": "Minha", "template_id": template,
                                             "segment_config": { "tag_ids": [tag] } })),
            segment: owner.row("segments", "name, filters", "'S', '{}'"),
            campaign_folder: owner.row("folders", "name, kind", "'F', 'campaign'"),
            template_folder: owner.row("folders", "name, kind", "'G', 'template'"),
            profile: owner.profile(),
            contact,
            tag,
            template,
        };
        let (account, segment, contact) = (&owner.account, &resources.segment, &resources.contact);
        owner.server.db.run(&format!(
            "INSERT INTO segment_members (account_id, segment_id, contact_id) VALUES ('{account}', '{segment}', '{contact}')"
        ));
        owner.server.db.wait_for_outbox();
        resources
    }
}

/// Returns the response with another tenant's id. Checks that it equals the response with an unknown id.
#[track_caller]
fn same_reply(what: &str, foreign: &str, call: impl Fn(&str) -> Reply) -> Reply {
    let unknown = Uuid::now_v7().to_string();
    let (reply, unknown_reply) = (call(foreign), call(&unknown));
    let without = |reply: &Reply, id: &str| reply.text.replace(id, "<id>");
    assert_eq!(
        (reply.status, without(&reply, foreign)),
        (unknown_reply.status, without(&unknown_reply, &unknown)),
        "{what}"
    );
    assert!(reply.status < 500, "{what}: {reply:?}");
    reply
}

#[test]
fn another_tenants_id_in_a_body_is_an_unknown_reference() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let (own, foreign) = (Resources::create(&ana), Resources::create(&bia));
    let (before, mine) = (
        server.db.dump_account(&bia.account),
        server.db.dump_account(&ana.account),
    );
    let campaign = format!("/api/campaigns/{}", own.campaign);
    let contact = format!("/api/contacts/{}", own.contact);
    let template = format!("/api/templates/{}", own.template);
    let fields = |reply: Reply| reply.invalid();
    // One foreign id among own ids refuses the whole request.
    for ids in [|id: &str, _: &str| json!([id]), |id: &str, own: &str| json!([own, id])] {
        let new = |id: &str| json!({ "name": "B", "phone": "11961230000", "tag_ids": ids(id, &own.tag) });
        let named = fields(same_reply("a contact's tags", &foreign.tag, |id| {
            ana.post("/api/contacts", new(id))
        }));
        assert!(named[0].starts_with("tag_ids"), "{named:?}");
        let tags = |id: &str| json!({ "tag_ids": ids(id, &own.tag) });
        same_reply("a contact's new tags", &foreign.tag, |id| ana.put(&contact, tags(id))).invalid();
        same_reply("the tags alone", &foreign.tag, |id| {
            ana.put(&format!("{contact}/tags"), tags(id))
        })
        .invalid();
        let segment = |id: &str| json!({ "name": "C", "segment_config": { "tag_ids": ids(id, &own.tag) } });
        same_reply("a campaign's audience", &foreign.tag, |id| {
            ana.post("/api/campaigns", segment(id))
        })
        .invalid();
        same_reply("a new audience", &foreign.tag, |id| ana.put(&campaign, segment(id))).invalid();
    }
    let references = [
        ("template_id", &foreign.template),
        ("segment_id", &foreign.segment),
        ("folder_id", &foreign.campaign_folder),
    ];
    for (field, foreign) in references {
        let body = |id: &str| json!({ "name": "C", field: id });
        assert_eq!(
            fields(same_reply(field, foreign, |id| ana.post("/api/campaigns", body(id)))),
            [field]
        );
        assert_eq!(
            fields(same_reply(field, foreign, |id| ana.put(&campaign, body(id)))),
            [field]
        );
    }
    let set_folder = |id: &str| json!({ "folder_id": id });
    let reply = same_reply("a template's folder", &foreign.template_folder, |id| {
        ana.put(&template, set_folder(id))
    });
    assert_eq!(fields(reply), ["folder_id"]);
    let new = |id: &str| json!({ "name": "n", "category": "UTILITY", "language": "pt", "template_type": "standard", "folder_id": id });
    same_reply("a new template's folder", &foreign.template_folder, |id| {
        ana.post("/api/templates", new(id))
    })
    .invalid();
    let submit = |id: &str| ana.post(&format!("{template}/submit"), json!({ "profile_id": id }));
    assert_eq!(
        fields(same_reply("the number to submit by", &foreign.profile, submit)),
        ["profile_id"]
    );
    let switch = |id: &str| ana.post("/api/accounts/switch", json!({ "account_id": id }));
    same_reply("another account", &bia.account, switch).refused(401, "AUTH_ERROR");
    assert_eq!(server.db.dump_account(&bia.account), before);
    assert_eq!(server.db.dump_account(&ana.account), mine, "no partial change");
}

#[test]
fn another_tenants_ids_in_path_and_body_are_unknown() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let (own, foreign) = (Resources::create(&ana), Resources::create(&bia));
    let before = server.db.dump_account(&bia.account);
    let calls: [(&str, &str, &str, Value); 9] = [
        (
            "PUT",
            "/api/contacts/{}",
            &foreign.contact,
            json!({ "tag_ids": [foreign.tag] }),
        ),
        (
            "PUT",
            "/api/contacts/{}",
            &foreign.contact,
            json!({ "name": "X", "tag_ids": [own.tag] }),
        ),
        (
            "PUT",
            "/api/contacts/{}/tags",
            &foreign.contact,
            json!({ "tag_ids": [] }),
        ),
        (
            "PUT",
            "/api/contacts/{}/tags",
            &foreign.contact,
            json!({ "tag_ids": [own.tag] }),
        ),
        (
            "PUT",
            "/api/templates/{}",
            &foreign.template,
            json!({ "folder_id": null }),
        ),
        (
            "PUT",
            "/api/templates/{}",
            &foreign.template,
            json!({ "folder_id": own.template_folder }),
        ),
        (
            "POST",
            "/api/templates/{}/submit",
            &foreign.template,
            json!({ "profile_id": own.profile }),
        ),
        (
            "PUT",
            "/api/campaigns/{}",
            &foreign.campaign,
            json!({ "template_id": own.template }),
        ),
        (
            "PUT",
            "/api/whatsapp/profiles/{}",
            &foreign.profile,
            json!({ "access_token": "stolen" }),
        ),
    ];
    for (method, path, foreign, body) in &calls {
        let reply = same_reply(path, foreign, |id| {
            ana.request(method, &path.replace("{}", id)).json(body).send()
        });
        // An invalid body may be reported first, but with the same response as for an unknown id.
        assert!([404, 422].contains(&reply.status), "{path} {body}: {reply:?}");
    }
    assert_eq!(server.db.dump_account(&bia.account), before);
}

#[test]
fn id_of_another_resource_kind_is_not_found() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let (own, foreign) = (Resources::create(&ana), Resources::create(&bia));
    let before = server.db.dump_account(&bia.account);
    for (path, id) in [
        ("/api/contacts/", &own.campaign),
        ("/api/campaigns/", &own.contact),
        ("/api/templates/", &own.profile),
        ("/api/contacts/", &foreign.tag),
        ("/api/campaigns/", &bia.account),
        ("/api/campaigns/", &ana.account),
    ] {
        same_reply(path, id, |id| ana.get(&format!("{path}{id}"))).refused(404, "NOT_FOUND");
        same_reply(path, id, |id| ana.delete(&format!("{path}{id}"))).refused(404, "NOT_FOUND");
    }
    assert_eq!(server.db.dump_account(&bia.account), before);
}

#[test]
fn another_tenants_id_in_a_query_finds_no_rows() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let (own, foreign) = (Resources::create(&ana), Resources::create(&bia));
    let before = server.db.dump_account(&bia.account);
    let filters = [
        ("/api/contacts?tag_id=", &foreign.tag),
        ("/api/contacts?segment_id=", &foreign.segment),
        ("/api/campaigns?folder_id=", &foreign.campaign_folder),
        ("/api/templates?folder_id=", &foreign.template_folder),
        ("/api/templates?cursor=&folder_id=", &foreign.template_folder),
    ];
    for (path, foreign) in filters {
        let found = same_reply(path, foreign, |id| ana.get(&format!("{path}{id}")));
        let list = found.expect(200);
        let rows = list["data"].as_array().or(list["data"]["data"].as_array()).unwrap();
        assert_eq!(rows.len(), 0, "{path}: {list}");
    }
    // A cursor is only a position: a foreign id and an unknown neighbouring id return the same page.
    let next_id = |id: &str| Uuid::from_u128(Uuid::parse_str(id).unwrap().as_u128() + 1).to_string();
    for (path, id) in [
        ("/api/contacts", &foreign.contact),
        ("/api/tags", &foreign.tag),
        ("/api/whatsapp/profiles", &foreign.profile),
    ] {
        let list = |id: &str| ana.get(&format!("{path}?cursor={id}"));
        let (foreign_page, unknown_page) = (list(id), list(&next_id(id)));
        assert_eq!(foreign_page.text, unknown_page.text, "{path}");
        let seen = foreign_page.ok()["data"].to_string();
        assert!(
            seen.contains(&own.tag) || seen.contains(&own.contact) || seen.contains(&own.profile),
            "{seen}"
        );
        assert!(!seen.contains(id.as_str()), "{seen}");
    }
    // A cursor of another tenant's list is only a position, too.
    bia.template("second", "Oi", &[]);
    let cursor = text(&bia.get("/api/templates?cursor=&limit=1").ok()["nextCursor"]);
    let seen = ana.get(&format!("/api/templates?cursor={cursor}")).ok()["data"].to_string();
    assert!(
        !seen.contains(&foreign.template) && !seen.contains(&bia.account),
        "{seen}"
    );
    assert_eq!(server.db.dump_account(&bia.account)["contacts"], before["contacts"]);
}
