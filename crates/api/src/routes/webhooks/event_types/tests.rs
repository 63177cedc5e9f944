//! Event types are complete, and their schemas fit their examples and those of `docs/webhooks.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use jsonschema::Validator;

use super::*;
use crate::web::schemas::closed;

fn validator(event_type: &EventType) -> Validator {
    let options = jsonschema::draft202012::options().should_validate_formats(true);
    options
        .build(&closed(event_type.schema.clone()))
        .unwrap_or_else(|error| panic!("{}: {error}", event_type.kind))
}

fn errors(event_type: &EventType, data: &Value) -> Vec<String> {
    let validator = validator(event_type);
    let errors = validator.iter_errors(data);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

#[test]
fn event_types_are_sorted_and_complete() {
    let kinds: Vec<&str> = published().iter().map(|event_type| event_type.kind).collect();
    assert!(kinds.is_sorted(), "{kinds:?}");
    let all = WebhookKind::ALL.iter().map(|kind| kind.as_str());
    assert_eq!(
        kinds.iter().copied().collect::<BTreeSet<_>>(),
        all.collect::<BTreeSet<_>>()
    );
    for event_type in published() {
        assert!(event_type.description.ends_with('.'), "{}", event_type.kind);
        assert!(!event_type.schema.to_string().contains("$ref"), "{}", event_type.kind);
    }
}

#[test]
fn event_type_was_added_in_this_version_or_before() {
    let version = |text: &str| -> Vec<u64> { text.split('.').map(|number| number.parse().unwrap()).collect() };
    for event_type in published() {
        let added = version(event_type.added);
        assert!(
            added.len() == 3 && added <= version(env!("CARGO_PKG_VERSION")),
            "{}",
            event_type.kind
        );
    }
}

#[test]
fn example_fits_its_schema() {
    for event_type in published() {
        let found = errors(event_type, &event_type.example);
        assert!(
            found.is_empty(),
            "{}: {found:#?}\n{:#}",
            event_type.kind,
            event_type.example
        );
    }
}

#[test]
fn schema_refuses_other_data() {
    for event_type in published() {
        for field in event_type.example.as_object().unwrap().keys() {
            let mut data = event_type.example.clone();
            data[field] = json!([[]]);
            assert!(!errors(event_type, &data).is_empty(), "{}: {field}", event_type.kind);
            data.as_object_mut().unwrap().remove(field);
            let is_required = field != "client_reference" || event_type.kind == "message.cancelled";
            assert_eq!(
                errors(event_type, &data).is_empty(),
                !is_required,
                "{}: {field}",
                event_type.kind
            );
        }
    }
}

/// The JSON blocks below "Kinds" of the page, each with the kinds that the text before it names.
fn documented_examples() -> Vec<(Vec<&'static EventType>, Value)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/webhooks.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, kinds) = page.split_once("\n## Kinds\n").unwrap();
    let mut parts = kinds.split("```");
    let mut examples = Vec::new();
    while let (Some(text), Some(block)) = (parts.next(), parts.next()) {
        let text: String = text.lines().filter(|line| !line.starts_with('|')).collect();
        let named = published()
            .iter()
            .filter(|event_type| text.contains(&format!("`{}`", event_type.kind)));
        let example = serde_json::from_str(block.strip_prefix("json").unwrap()).unwrap();
        examples.push((named.collect(), example));
    }
    examples
}

#[test]
fn documented_examples_fit_the_schemas() {
    let mut documented = BTreeSet::new();
    for (event_types, example) in documented_examples() {
        assert!(!event_types.is_empty(), "an example of no kind: {example}");
        for event_type in event_types {
            let found = errors(event_type, &example);
            assert!(found.is_empty(), "{}: {found:#?}", event_type.kind);
            documented.insert(event_type.kind);
        }
    }
    let kinds = published().iter().map(|event_type| event_type.kind);
    assert_eq!(documented, kinds.collect(), "kinds with an example in docs/webhooks.md");
}
