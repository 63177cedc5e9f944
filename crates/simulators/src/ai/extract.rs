//! Extracts the facts of a page by plain rules: labelled lines first, then the first line and sentences with keywords.

use serde_json::{Map, Value, json};

const FIELDS: [&str; 6] = [
    "company_name",
    "description",
    "products_services",
    "tone_of_voice",
    "target_audience",
    "brand_values",
];
const OFFER: [&str; 10] = [
    "produto",
    "serviço",
    "oferece",
    "vende",
    "coleção",
    "cardápio",
    "loja de",
    "product",
    "service",
    "we sell",
];
const AUDIENCE: [&str; 8] = [
    "para quem",
    "clientes",
    "público",
    "famílias",
    "empresas",
    "mulheres",
    "customers",
    "for people",
];
const VALUES: [&str; 9] = [
    "valores",
    "qualidade",
    "sustent",
    "respeito",
    "missão",
    "compromisso",
    "artesanal",
    "values",
    "quality",
];

/// Returns a value for every field of the schema, or for the `FIELDS` without a schema.
pub(super) fn facts(prompt: &str, schema: Option<&Value>) -> Value {
    let page = page(prompt);
    let properties = schema
        .and_then(|schema| schema.get("properties"))
        .and_then(Value::as_object);
    let names: Vec<&str> = match properties {
        Some(properties) => properties.keys().map(String::as_str).collect(),
        None => FIELDS.to_vec(),
    };
    let value = |name: &str| match fact(name, page) {
        Some(fact) => json!(fact),
        None if properties
            .and_then(|all| all.get(name))
            .is_some_and(|kind| kind.get("type") == Some(&json!("string"))) =>
        {
            json!("")
        }
        None => Value::Null,
    };
    Value::Object(
        names
            .into_iter()
            .map(|name| (name.to_owned(), value(name)))
            .collect::<Map<_, _>>(),
    )
}

/// The text between the markers, or the whole prompt without them.
fn page(prompt: &str) -> &str {
    let after_start = prompt.split_once("<<<PAGE").map_or(prompt, |(_, page)| page);
    after_start
        .split_once("PAGE>>>")
        .map_or(after_start, |(page, _)| page)
        .trim()
}

fn fact(name: &str, page: &str) -> Option<String> {
    match name {
        "company_name" => company_name(page),
        "description" => {
            labelled(page, &["description", "og:description", "descrição"]).or_else(|| first_sentences(page))
        }
        "products_services" => sentences_with(page, &OFFER),
        "target_audience" => sentences_with(page, &AUDIENCE),
        "brand_values" => sentences_with(page, &VALUES),
        "tone_of_voice" => first_sentences(page).map(|_| tone(page).to_owned()),
        _ => None,
    }
}

/// The site's name, or else the first part of the title or of the first line.
fn company_name(page: &str) -> Option<String> {
    if let Some(name) = labelled(page, &["site_name", "og:site_name", "site name"]) {
        return Some(name);
    }
    let first = || {
        page.lines()
            .map(str::trim)
            .find(|line| !line.is_empty())
            .map(str::to_owned)
    };
    let title = labelled(page, &["title", "og:title", "título"]).or_else(first)?;
    let ends = [" | ", " – ", " — ", " - ", " · "]
        .iter()
        .filter_map(|mark| title.find(mark));
    let name = ends.min().and_then(|end| title.get(..end)).unwrap_or(&title);
    Some(name.trim().chars().take(200).collect())
}

/// The rest of the first line that begins with one of the labels and a colon.
fn labelled(page: &str, labels: &[&str]) -> Option<String> {
    let value = |line: &str| {
        let (label, value) = line.split_once(": ")?;
        let matches = labels.contains(&label.trim().trim_start_matches(['#', '*', ' ']).to_lowercase().as_str());
        (matches && !value.trim().is_empty()).then(|| value.trim().to_owned())
    };
    page.lines().find_map(value)
}

/// The first two sentences after the title.
fn first_sentences(page: &str) -> Option<String> {
    let two: Vec<&str> = sentences(page).take(2).collect();
    (!two.is_empty()).then(|| two.join(" "))
}

/// The first two sentences that contain one of the words.
fn sentences_with(page: &str, words: &[&str]) -> Option<String> {
    let has_word = |sentence: &&str| {
        let lower = sentence.to_lowercase();
        words.iter().any(|word| lower.contains(word))
    };
    let found: Vec<&str> = sentences(page).filter(has_word).take(2).collect();
    (!found.is_empty()).then(|| found.join(" "))
}

/// The sentences of at least three words, without the labelled lines.
fn sentences(page: &str) -> impl Iterator<Item = &str> {
    let labels = ["title", "description", "url", "site_name", "keywords", "título"];
    let is_labelled = move |line: &&str| {
        let label = line
            .split_once(": ")
            .map(|(label, _)| label.trim().trim_start_matches("og:").to_lowercase());
        label.is_some_and(|label| labels.contains(&label.as_str()))
    };
    page.lines()
        .filter(move |line| !is_labelled(line))
        .flat_map(|line| line.split_inclusive(['.', '!', '?']))
        .map(str::trim)
        .filter(|sentence| sentence.split_whitespace().count() >= 3)
}

fn tone(page: &str) -> &'static str {
    let exclamations = page.matches('!').count();
    if exclamations >= 2 {
        "Entusiasmado e próximo"
    } else {
        "Claro e profissional"
    }
}
