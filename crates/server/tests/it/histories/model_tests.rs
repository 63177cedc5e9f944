//! Histories written by hand, right and wrong ones: the models of the keys must tell them apart.

use super::campaigns::{Call as OnCampaign, Campaign, CampaignState, Response as FromCampaign};
use super::checker::{Model, Operation, check};
use super::contacts::{Call as OnContacts, Change, Contact, Directory, Response as FromContacts};
use super::subscriptions::{Call as OnSubscription, LiveSubscription, Response as FromSubscription, Subscription};

/// The operation `number` of clients that call one after the other.
fn at<M: Model>(number: usize, call: M::Call, response: Option<M::Response>) -> Operation<M> {
    let called_at = u64::try_from(number).unwrap() * 10;
    Operation {
        client: number,
        call,
        called_at,
        response: response.map(|response| (called_at + 5, response)),
    }
}

/// A history without concurrency. A call without a response may take effect later.
fn in_sequence<M: Model>(steps: Vec<(M::Call, Option<M::Response>)>) -> Result<(), String> {
    let steps = steps.into_iter().enumerate();
    let operations: Vec<_> = steps
        .map(|(number, (call, response))| at::<M>(number, call, response))
        .collect();
    check(&operations)
}

/// A history of calls that all overlap.
fn at_once<M: Model>(steps: Vec<(M::Call, Option<M::Response>)>) -> Result<(), String> {
    let operation = |(call, response): (M::Call, Option<M::Response>)| Operation {
        called_at: 0,
        ..at::<M>(1, call, response)
    };
    check(&steps.into_iter().map(operation).collect::<Vec<_>>())
}

fn create(name: &str) -> OnContacts {
    let (name, phone) = (name.to_owned(), "+1".to_owned());
    OnContacts::Create { name, phone }
}

fn contact(id: &str, name: &str) -> Contact {
    let (name, phone) = (name.to_owned(), "+1".to_owned());
    Contact {
        id: Some(id.to_owned()),
        name,
        email: None,
        phone,
    }
}

fn one(id: &str, name: &str) -> Option<FromContacts> {
    Some(FromContacts::One(contact(id, name)))
}

fn rename(id: &str, name: &str) -> OnContacts {
    let (id, change) = (id.to_owned(), Change::Name(name.to_owned()));
    OnContacts::Update { id, change }
}

fn move_to(id: &str, phone: &str) -> OnContacts {
    let (id, change) = (id.to_owned(), Change::Phone(phone.to_owned()));
    OnContacts::Update { id, change }
}

fn get(id: &str) -> OnContacts {
    OnContacts::Get(id.to_owned())
}

fn delete(id: &str) -> OnContacts {
    OnContacts::Delete(id.to_owned())
}

fn find() -> OnContacts {
    OnContacts::Find("+1".to_owned())
}

#[test]
fn correct_contact_histories_are_accepted() {
    use FromContacts::{All, Deleted, Missing, Taken};
    let all = |contacts: &[Contact]| Some(All(contacts.to_vec()));
    in_sequence::<Directory>(vec![
        (create("a"), one("1", "a")),
        (create("b"), Some(Taken)),
        (rename("1", "c"), one("1", "c")),
        (find(), all(&[contact("1", "c")])),
        (delete("1"), Some(Deleted)),
        (get("1"), Some(Missing)),
        (create("d"), one("2", "d")),
    ])
    .unwrap();
    // A create and a delete without response take effect late, or never.
    in_sequence::<Directory>(vec![
        (create("a"), None),
        (find(), all(&[])),
        (create("b"), Some(Taken)),
        (find(), all(&[contact("1", "a")])),
        (delete("1"), None),
        (get("1"), one("1", "a")),
        (get("1"), Some(Missing)),
    ])
    .unwrap();
    at_once::<Directory>(vec![
        (create("a"), one("1", "a")),
        (create("b"), Some(Taken)),
        (find(), all(&[])),
    ])
    .unwrap();
}

#[test]
fn wrong_contact_histories_are_rejected() {
    use FromContacts::{All, Deleted, Missing, Taken};
    let created = || (create("a"), one("1", "a"));
    let renamed = || (rename("1", "b"), one("1", "b"));
    for (what, steps) in [
        (
            "lost update",
            vec![created(), renamed(), (find(), Some(All(vec![contact("1", "a")])))],
        ),
        (
            "stale read",
            vec![
                created(),
                renamed(),
                (get("1"), one("1", "b")),
                (get("1"), one("1", "a")),
            ],
        ),
        ("lost create", vec![created(), (get("1"), Some(Missing))]),
        ("lost create of a list", vec![created(), (find(), Some(All(vec![])))]),
        (
            "resurrected delete",
            vec![created(), (delete("1"), Some(Deleted)), (get("1"), one("1", "a"))],
        ),
        (
            "delete without effect",
            vec![created(), (delete("1"), Some(Deleted)), (create("b"), Some(Taken))],
        ),
        (
            "delete of nothing",
            vec![created(), (delete("1"), Some(Deleted)), (delete("1"), Some(Deleted))],
        ),
        ("missing at the delete", vec![created(), (delete("1"), Some(Missing))]),
        ("refused without a reason", vec![(create("a"), Some(Taken))]),
        (
            "update of a deleted contact",
            vec![created(), (delete("1"), Some(Deleted)), renamed()],
        ),
        (
            "write that comes and goes",
            vec![
                created(),
                (rename("1", "b"), None),
                (get("1"), one("1", "b")),
                (get("1"), one("1", "a")),
            ],
        ),
        (
            "move that frees nothing",
            vec![
                created(),
                (move_to("1", "+2"), Some(moved())),
                (create("b"), Some(Taken)),
            ],
        ),
    ] {
        assert!(in_sequence::<Directory>(steps).is_err(), "{what}");
    }
    // Both creates have a response, or neither has the number.
    let twice = vec![(create("a"), one("1", "a")), (create("b"), one("2", "b"))];
    assert!(at_once::<Directory>(twice).is_err());
    assert!(at_once::<Directory>(vec![(create("a"), Some(Taken)), (create("b"), Some(Taken))]).is_err());
}

fn moved() -> FromContacts {
    FromContacts::One(Contact {
        phone: "+2".to_owned(),
        ..contact("1", "a")
    })
}

fn campaign(status: &str, paused: bool, name: &str) -> Option<FromCampaign> {
    let (status, name) = (status.to_owned(), name.to_owned());
    Some(FromCampaign::One(Campaign { status, paused, name }))
}

fn draft() -> (OnCampaign, Option<FromCampaign>) {
    (OnCampaign::Create("a".to_owned()), campaign("draft", false, "a"))
}

fn sent() -> (OnCampaign, Option<FromCampaign>) {
    (OnCampaign::Send, campaign("sending", false, "a"))
}

fn refused(status: &str) -> Option<FromCampaign> {
    Some(FromCampaign::Refused(status.to_owned()))
}

fn ended(status: &str, paused: bool) -> (OnCampaign, Option<FromCampaign>) {
    (OnCampaign::Report, Some(FromCampaign::Ended(status.to_owned(), paused)))
}

fn read_as(status: &str) -> (OnCampaign, Option<FromCampaign>) {
    (OnCampaign::Get, campaign(status, false, "a"))
}

#[test]
fn correct_campaign_histories_are_accepted() {
    use FromCampaign::{Cancelled, Deleted, Executed, Missing};
    in_sequence::<CampaignState>(vec![
        draft(),
        (OnCampaign::Schedule, campaign("scheduled", false, "a")),
        (OnCampaign::Unschedule, campaign("draft", false, "a")),
        sent(),
        paused(),
        (OnCampaign::Delete, refused("sending")),
        (OnCampaign::Resume, campaign("sending", false, "a")),
        // The run ends by itself.
        read_as("partial"),
        (OnCampaign::Cancel, refused("partial")),
        (OnCampaign::Delete, Some(Deleted)),
        (OnCampaign::Get, Some(Missing)),
    ])
    .unwrap();
    in_sequence::<CampaignState>(vec![
        draft(),
        (OnCampaign::Execute, Some(Executed)),
        ended("completed", false),
        read_as("completed"),
    ])
    .unwrap();
    in_sequence::<CampaignState>(vec![
        draft(),
        (OnCampaign::Execute, Some(Executed)),
        paused(),
        ended("sending", true),
        (OnCampaign::Cancel, Some(Cancelled)),
        (OnCampaign::Resume, refused("cancelled")),
    ])
    .unwrap();
    // The run is over and deleted before the response to `execute`.
    in_sequence::<CampaignState>(vec![
        draft(),
        (OnCampaign::Execute, None),
        read_as("completed"),
        (OnCampaign::Delete, Some(Deleted)),
        (OnCampaign::Report, Some(Missing)),
    ])
    .unwrap();
    in_sequence::<CampaignState>(vec![
        draft(),
        sent(),
        (OnCampaign::Cancel, None),
        read_as("sending"),
        read_as("cancelled"),
    ])
    .unwrap();
    in_sequence::<CampaignState>(vec![draft(), sent(), paused(), (OnCampaign::Cancel, Some(Cancelled))]).unwrap();
}

type CampaignSteps = Vec<(OnCampaign, Option<FromCampaign>)>;

fn assert_rejected(histories: Vec<(&str, CampaignSteps)>) {
    for (what, steps) in histories {
        assert!(in_sequence::<CampaignState>(steps).is_err(), "{what}");
    }
}

fn cancelled() -> (OnCampaign, Option<FromCampaign>) {
    (OnCampaign::Cancel, Some(FromCampaign::Cancelled))
}

fn paused() -> (OnCampaign, Option<FromCampaign>) {
    (OnCampaign::Pause, campaign("sending", true, "a"))
}

fn renamed(status: &str, name: &str) -> (OnCampaign, Option<FromCampaign>) {
    (OnCampaign::Rename(name.to_owned()), campaign(status, false, name))
}

#[test]
fn illegal_starts_and_changes_of_a_campaign_are_rejected() {
    let executed = (OnCampaign::Execute, Some(FromCampaign::Executed));
    let refused_start = (OnCampaign::Send, refused("draft"));
    let paused_draft = (OnCampaign::Pause, campaign("draft", true, "a"));
    assert_rejected(vec![
        ("run without a start", vec![draft(), read_as("sending")]),
        ("two starts", vec![draft(), sent(), executed]),
        ("start that is undone", vec![draft(), sent(), read_as("draft")]),
        ("refused start of a draft", vec![draft(), refused_start]),
        ("pause of a draft", vec![draft(), paused_draft]),
        ("change of a run", vec![draft(), sent(), renamed("sending", "b")]),
        (
            "response with an older name",
            vec![draft(), renamed("draft", "b"), sent()],
        ),
    ]);
    let two_starts = at_once::<CampaignState>(vec![sent(), sent(), draft()]);
    assert!(two_starts.is_err(), "two concurrent starts");
}

#[test]
fn illegal_transitions_of_a_run_are_rejected() {
    let run = |steps: CampaignSteps| [vec![draft(), sent()], steps].concat();
    let refused_cancel = (OnCampaign::Cancel, refused("completed"));
    let resumed = (OnCampaign::Resume, campaign("sending", false, "a"));
    let deleted = (OnCampaign::Delete, Some(FromCampaign::Deleted));
    let (ended_but_sending, ended_otherwise) = (ended("sending", true), ended("completed", false));
    assert_rejected(vec![
        (
            "cancelled run that goes on",
            run(vec![cancelled(), read_as("completed")]),
        ),
        ("two cancels", run(vec![cancelled(), cancelled()])),
        (
            "refusal that names another status",
            run(vec![cancelled(), refused_cancel]),
        ),
        ("paused run that ends", run(vec![paused(), read_as("completed")])),
        ("pause without effect", run(vec![paused(), read_as("sending")])),
        ("deleted run", run(vec![paused(), deleted])),
        ("resume of a cancelled run", run(vec![paused(), cancelled(), resumed])),
        (
            "ended run that goes on",
            run(vec![read_as("completed"), read_as("sending")]),
        ),
        ("another result", run(vec![read_as("completed"), read_as("partial")])),
        (
            "response at the end of a run that goes on",
            run(vec![ended_but_sending]),
        ),
        (
            "end that differs from the status",
            run(vec![cancelled(), ended_otherwise]),
        ),
    ]);
}

fn live(id: &str, plan: &str, status: &str) -> Option<FromSubscription> {
    let (id, plan, status) = (Some(id.to_owned()), plan.to_owned(), status.to_owned());
    Some(FromSubscription::One(Subscription { id, plan, status }))
}

fn subscribed(id: &str) -> (OnSubscription, Option<FromSubscription>) {
    let call = OnSubscription::Subscribe {
        plan: "starter",
        by_card: false,
    };
    (call, Some(FromSubscription::Subscribed(Some(id.to_owned()))))
}

#[test]
fn correct_subscription_histories_are_accepted() {
    use FromSubscription::{Cancelled, Changed, Contended, Missing, Nothing, Refused};
    let (change, changed) = (
        OnSubscription::Change("scale"),
        Changed(Some("1".to_owned()), "scale".to_owned()),
    );
    in_sequence::<LiveSubscription>(vec![
        (OnSubscription::Cancel, Some(Missing)),
        subscribed("1"),
        (change.clone(), Some(changed)),
        (change, Some(Refused)),
        (OnSubscription::Get, live("1", "scale", "pending")),
        (OnSubscription::Cancel, Some(Cancelled)),
        (OnSubscription::Get, Some(Nothing)),
        subscribed("2"),
    ])
    .unwrap();
    let unknown = (subscribed("1").0, None);
    in_sequence::<LiveSubscription>(vec![
        unknown,
        (OnSubscription::Get, Some(Nothing)),
        (OnSubscription::Get, live("1", "starter", "pending")),
    ])
    .unwrap();
    // A 409 leaves open whether another request completed the call.
    for read in [Some(Nothing), live("1", "starter", "pending")] {
        let contended = (OnSubscription::Cancel, Some(Contended));
        in_sequence::<LiveSubscription>(vec![subscribed("1"), contended, (OnSubscription::Get, read)]).unwrap();
    }
}

#[test]
fn wrong_subscription_histories_are_rejected() {
    use FromSubscription::{Cancelled, Contended, Nothing, Refused};
    let cancelled = || (OnSubscription::Cancel, Some(Cancelled));
    let get = |response| (OnSubscription::Get, response);
    for (what, steps) in [
        ("two subscriptions", vec![subscribed("1"), subscribed("2")]),
        ("lost subscription", vec![subscribed("1"), get(Some(Nothing))]),
        (
            "undone cancellation",
            vec![subscribed("1"), cancelled(), get(live("1", "starter", "pending"))],
        ),
        ("two cancellations", vec![subscribed("1"), cancelled(), cancelled()]),
        (
            "another plan",
            vec![subscribed("1"), get(live("1", "scale", "pending"))],
        ),
        (
            "paid by itself",
            vec![subscribed("1"), get(live("1", "starter", "active"))],
        ),
        (
            "409 with a late effect",
            vec![
                subscribed("1"),
                (OnSubscription::Cancel, Some(Contended)),
                get(live("1", "starter", "pending")),
                get(Some(Nothing)),
            ],
        ),
        ("refused without a reason", vec![(subscribed("1").0, Some(Refused))]),
    ] {
        assert!(in_sequence::<LiveSubscription>(steps).is_err(), "{what}");
    }
    assert!(
        at_once::<LiveSubscription>(vec![subscribed("1"), subscribed("2")]).is_err(),
        "two concurrent subscriptions"
    );
}
