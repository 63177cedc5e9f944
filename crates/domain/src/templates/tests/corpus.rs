//! The effect of buttons and cards in every form in which WhatsApp or a caller may write them: what is refused, stored,
//! sent and shown. Each line of `corpus/inputs.jsonl` gives the line of `corpus/outputs.jsonl` at the same place.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{approved_template, checked_submission};
use crate::messaging::{ButtonValue, Category, Component, HeaderType, MetaStatus, RemoteTemplate, TextParameter};
use crate::shared::FieldErrors;
use crate::templates::remote::with_components;
use crate::templates::validate::check_alone;
use crate::templates::*;

const INPUTS: &str = include_str!("corpus/inputs.jsonl");
const OUTPUTS: &str = include_str!("corpus/outputs.jsonl");

/// The template of an input: its `buttons` and `cards`, and optionally `format`, `category` and `variables`.
fn template(input: &Value) -> Template {
    let cards: Vec<_> = read(&input["cards"]);
    let body = if input["format"] == "named" {
        "Oi {{nome}}!"
    } else {
        "Oi {{1}}!"
    };
    Template {
        category: input["category"]
            .as_str()
            .map_or(Category::Marketing, |category| category.parse().unwrap()),
        parameter_format: input["format"].as_str().unwrap_or("positional").parse().unwrap(),
        template_type: if cards.is_empty() {
            TemplateType::Standard
        } else {
            TemplateType::Carousel
        },
        buttons: read(&input["buttons"]),
        carousel_cards: cards,
        variables: read::<Option<_>>(&input["variables"]).unwrap_or_else(|| vec!["Ana".into()]),
        meta_status: MetaStatus::Draft,
        ..approved_template(body, &[])
    }
}

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(if value.is_null() { json!([]) } else { value.clone() }).unwrap()
}

fn outcome<T>(result: Result<T, FieldErrors>, json: impl FnOnce(T) -> Value) -> Value {
    match result {
        Ok(value) => json(value),
        Err(errors) => json!({ "errors": errors.0 }),
    }
}

fn texts(parameters: &[TextParameter]) -> Vec<[Option<&str>; 2]> {
    let pairs = parameters
        .iter()
        .map(|parameter| [parameter.name.as_deref(), Some(parameter.text.as_str())]);
    pairs.collect()
}

fn values(buttons: &[ButtonValue]) -> Vec<String> {
    let values = buttons
        .iter()
        .map(|button| format!("{} {:?} {}", button.index, button.kind, button.value));
    values.collect()
}

fn stored(template: &Template) -> Value {
    let content = serde_json::to_value(template.content()).unwrap();
    json!([content["buttons"], content["carousel_cards"]])
}

fn created(template: &Template) -> Value {
    let input = TemplateInput {
        buttons: Some(Some(template.buttons.clone())),
        carousel_cards: Some(Some(template.carousel_cards.clone())),
        ..TemplateInput::default()
    };
    outcome(check_alone(approved_template("Oi", &[]), input), |()| Value::Null)
}

fn submitted(template: &Template) -> Value {
    // The rule under test is not the example of the body's placeholder.
    let template = Template {
        variables: vec!["Ana".into()],
        ..template.clone()
    };
    outcome(checked_submission(&template), |mut submission| {
        let files = submission.files();
        let files = files.iter().map(|file| json!([file.field, file.format, file.handle]));
        json!(files.collect::<Vec<_>>())
    })
}

/// The template that a synchronization creates, from components with the same buttons and cards.
fn synchronized(input: &Value) -> Value {
    let mut components = vec![
        json!({ "type": "BUTTONS", "buttons": input["buttons"] }),
        json!({ "type": "CAROUSEL", "cards": input["cards"] }),
    ];
    let cards = input["cards"].as_array().into_iter().flatten();
    components.extend(
        cards
            .filter_map(|card| card["components"].as_array())
            .flatten()
            .cloned(),
    );
    let remote = RemoteTemplate {
        meta_template_id: "77".into(),
        name: "boas_vindas".into(),
        language: "pt_BR".into(),
        category: "MARKETING".into(),
        correct_category: None,
        status: Some(MetaStatus::Approved),
        rejected_reason: None,
        quality_score: None,
        parameter_format: None,
        message_send_ttl_seconds: None,
        components: components.iter().map(Component::from).collect(),
    };
    let draft = Template {
        header_type: HeaderType::None,
        ..approved_template("", &[])
    };
    let imported = with_components(&remote, draft);
    json!({ "content": imported.content(), "unsupported": imported.unsupported })
}

#[derive(Serialize)]
struct Output {
    created: Value,
    unsendable: Vec<String>,
    submitted: Value,
    values: Vec<String>,
    cards: Vec<Value>,
    rendered: Rendered,
    synchronized: Value,
}

fn output(input: &Value) -> Output {
    let template = template(input);
    assert_eq!(
        stored(&template),
        json!([
            input.get("buttons").unwrap_or(&json!([])),
            input.get("cards").unwrap_or(&json!([]))
        ])
    );
    let cards = template.cards();
    let cards = cards
        .iter()
        .map(|card| json!([card.header, texts(&card.body), values(&card.buttons)]));
    Output {
        created: created(&template),
        unsendable: template.unsendable_reasons(),
        submitted: submitted(&template),
        values: values(&template.button_values(&["X9".to_owned()])),
        cards: cards.collect(),
        rendered: template.rendered(&MessageValues {
            placeholders: vec!["X9".to_owned()],
            ..MessageValues::default()
        }),
        synchronized: synchronized(input),
    }
}

#[test]
fn corpus_has_its_outputs() {
    let inputs = INPUTS.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let outputs: Vec<String> = inputs
        .map(|input| serde_json::to_string(&output(&input)).unwrap())
        .collect();
    let expected: Vec<&str> = OUTPUTS.lines().collect();
    for (input, (output, expected)) in INPUTS.lines().zip(outputs.iter().zip(&expected)) {
        assert_eq!(output, expected, "{input}");
    }
    assert_eq!(outputs.len(), expected.len());
}
