//! The input form of a message's content, and its limits.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use url::Url;

use super::{
    FileReference, Interactive, InteractiveChoice, InteractiveHeader, ListRow, ListSection, MediaContent,
    MessageContent, ReplyButton,
};
use crate::media::FileKind;
use crate::shared::text::is_blank;
use crate::shared::{FieldErrors, MediaId};

/// The longest text of a free-form message, in characters.
const TEXT_CHARS: usize = 4096;

const CAPTION_CHARS: usize = 1024;
const FILE_NAME_CHARS: usize = 240;
const URL_CHARS: usize = 2048;

const BUTTONS_BODY_CHARS: usize = 1024;
const LIST_BODY_CHARS: usize = 4096;
const HEADER_CHARS: usize = 60;
const FOOTER_CHARS: usize = 60;

const MAX_BUTTONS: usize = 3;
const BUTTON_ID_CHARS: usize = 256;
const BUTTON_TITLE_CHARS: usize = 20;

const MAX_SECTIONS: usize = 10;
const MAX_ROWS: usize = 10;
const SECTION_TITLE_CHARS: usize = 24;
const ROW_ID_CHARS: usize = 200;
const ROW_TITLE_CHARS: usize = 24;
const ROW_DESCRIPTION_CHARS: usize = 72;

/// The content of a message as a caller gives it. Exactly one field must be set.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ContentInput {
    pub text: Option<String>,
    pub media: Option<MediaInput>,
    pub interactive: Option<InteractiveInput>,
}

/// A file to send: exactly one of `media_id` and `url`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MediaInput {
    /// The type of the file.
    #[schemars(required, with = "FileKind")]
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The id of a file of the account: an upload, or the file of a message. It must be ready.
    #[schemars(example = "0190a1b2-c3d4-7e5f-8a9b-000000000001")]
    pub media_id: Option<MediaId>,
    /// An https URL from which WhatsApp fetches the file.
    #[schemars(length(max = 2048), example = &"https://loja.example/bolo.jpg")]
    pub url: Option<String>,
    /// The text below the file: at most 1024 characters. Not with `audio` or `sticker`.
    #[schemars(length(max = 1024), example = &"Bolo de cenoura")]
    pub caption: Option<String>,
    /// The name that the recipient sees: at most 240 characters. Only with `document`.
    #[schemars(length(max = 240), example = &"cardapio.pdf")]
    pub file_name: Option<String>,
}

/// A message with reply buttons or a list.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct InteractiveInput {
    /// `buttons` or `list`.
    #[schemars(required, extend("enum" = ["buttons", "list"]), example = &"buttons")]
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The text: 1 to 1024 characters with buttons, 1 to 4096 with a list.
    #[schemars(required, length(min = 1, max = 4096), example = &"Quer que eu separe um?")]
    pub body: Option<String>,
    /// The text above the body, or, with buttons, an image, video or document.
    #[schemars(with = "Option<HeaderPartsInput>")]
    pub header: Option<HeaderInput>,
    /// The text below the body: at most 60 characters.
    #[schemars(length(max = 60), example = &"Bolos da Ana")]
    pub footer: Option<String>,
    /// With `buttons`: 1 to 3 buttons.
    #[schemars(length(min = 1, max = 3))]
    pub buttons: Option<Vec<ButtonInput>>,
    /// With `list`: the label that opens the list, 1 to 20 characters.
    #[schemars(length(min = 1, max = 20), example = &"Ver sabores")]
    pub button: Option<String>,
    /// With `list`: 1 to 10 sections with at most 10 rows in all.
    #[schemars(length(min = 1, max = 10))]
    pub sections: Option<Vec<SectionInput>>,
}

/// The header of an interactive message: an object, or the text alone.
#[derive(Clone, PartialEq, Eq)]
pub struct HeaderInput(HeaderPartsInput);

/// The header of an interactive message: exactly one of `text` and `media`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HeaderPartsInput {
    /// 1 to 60 characters.
    #[schemars(length(min = 1, max = 60), example = &"Bolos de hoje")]
    pub text: Option<String>,
    /// An image, video or document without a caption. Not with a list.
    pub media: Option<MediaInput>,
}

impl<'de> Deserialize<'de> for HeaderInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;

        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = HeaderInput;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_str<E>(self, text: &str) -> Result<HeaderInput, E> {
                Ok(HeaderInput(HeaderPartsInput {
                    text: Some(text.to_owned()),
                    media: None,
                }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<HeaderInput, A::Error> {
                HeaderPartsInput::deserialize(MapAccessDeserializer::new(map)).map(HeaderInput)
            }
        }
        deserializer.deserialize_any(HeaderVisitor)
    }
}

/// A reply button.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ButtonInput {
    /// The id that the reply names: 1 to 256 characters, unique in the message.
    #[schemars(required, length(min = 1, max = 256), example = &"sim")]
    pub id: Option<String>,
    /// The label: 1 to 20 characters.
    #[schemars(required, length(min = 1, max = 20), example = &"Sim")]
    pub title: Option<String>,
}

/// A section of a list.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SectionInput {
    /// 1 to 24 characters; required if there are several sections.
    #[schemars(length(min = 1, max = 24), example = &"Bolos")]
    pub title: Option<String>,
    /// At least one row.
    #[schemars(required, length(min = 1, max = 10))]
    pub rows: Option<Vec<RowInput>>,
}

/// A row of a list.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RowInput {
    /// The id that the reply names: 1 to 200 characters, unique in the message.
    #[schemars(required, length(min = 1, max = 200), example = &"cenoura")]
    pub id: Option<String>,
    /// 1 to 24 characters.
    #[schemars(required, length(min = 1, max = 24), example = &"Cenoura")]
    pub title: Option<String>,
    /// At most 72 characters.
    #[schemars(length(max = 72), example = &"Com cobertura de chocolate")]
    pub description: Option<String>,
}

impl ContentInput {
    /// A text alone.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: Some(text.into()),
            ..Self::default()
        }
    }

    /// The fields that are set.
    pub fn given(&self) -> Vec<&'static str> {
        [
            ("text", self.text.is_some()),
            ("media", self.media.is_some()),
            ("interactive", self.interactive.is_some()),
        ]
        .into_iter()
        .filter_map(|(field, is_given)| is_given.then_some(field))
        .collect()
    }

    /// Checks the content. The errors name fields by their path in the body.
    pub fn check(self) -> Result<MessageContent, FieldErrors> {
        let given = self.given();
        if let [_, others @ ..] = &given[..]
            && !others.is_empty()
        {
            let mut errors = FieldErrors::default();
            for field in given {
                errors.add(field, "must be the only one of text, media and interactive");
            }
            return Err(errors);
        }
        let mut errors = FieldErrors::default();
        let content = match (self.text, self.media, self.interactive) {
            (Some(text), ..) => {
                if is_blank(&text) || text.chars().count() > TEXT_CHARS {
                    errors.add("text", "must have 1 to 4096 characters");
                }
                Some(MessageContent::Text(text))
            }
            (None, Some(media), _) => check_media(media, "media", &mut errors).map(MessageContent::Media),
            (None, None, Some(interactive)) => {
                check_interactive(interactive, &mut errors).map(MessageContent::Interactive)
            }
            (None, None, None) => {
                errors.add("text", "is required, or media or interactive");
                None
            }
        };
        errors.into_result()?;
        content.ok_or_else(|| FieldErrors::one("text", "is required, or media or interactive"))
    }
}

fn check_media(input: MediaInput, path: &str, errors: &mut FieldErrors) -> Option<MediaContent> {
    let kind: Option<FileKind> = match input.kind.as_deref().map(str::parse) {
        Some(Ok(kind)) => Some(kind),
        Some(Err(message)) => {
            errors.add(format!("{path}.type"), message);
            None
        }
        None => {
            errors.add(format!("{path}.type"), "is required");
            None
        }
    };
    let file = match (input.media_id, input.url) {
        (Some(id), None) => Some(FileReference::Media(id)),
        (None, Some(url)) if is_https(&url) => Some(FileReference::Url(url)),
        (None, Some(_)) => {
            errors.add(format!("{path}.url"), "must be an https URL of at most 2048 characters");
            None
        }
        (Some(_), Some(_)) => {
            errors.add(format!("{path}.url"), "must not be combined with media_id");
            None
        }
        (None, None) => {
            errors.add(format!("{path}.media_id"), "is required, or url");
            None
        }
    };
    let caption = input.caption.filter(|caption| !caption.is_empty());
    if caption.is_some() && kind.is_some_and(|kind| !kind.has_caption()) {
        errors.add(format!("{path}.caption"), "is not allowed with audio or sticker");
    }
    check_at_most(caption.as_deref(), &format!("{path}.caption"), CAPTION_CHARS, errors);
    let file_name = input.file_name.filter(|name| !name.is_empty());
    if file_name.is_some() && kind.is_some_and(|kind| kind != FileKind::Document) {
        errors.add(format!("{path}.file_name"), "is allowed only with document");
    }
    check_at_most(
        file_name.as_deref(),
        &format!("{path}.file_name"),
        FILE_NAME_CHARS,
        errors,
    );
    Some(MediaContent {
        kind: kind?,
        file: file?,
        caption,
        file_name,
    })
}

/// Whether WhatsApp can fetch the URL: https with a host and without credentials.
fn is_https(url: &str) -> bool {
    let is_short = url.chars().count() <= URL_CHARS && !url.contains(char::is_whitespace);
    let parsed = Url::parse(url).ok().filter(|parsed| {
        parsed.scheme() == "https" && parsed.has_host() && parsed.username().is_empty() && parsed.password().is_none()
    });
    is_short && parsed.is_some()
}

fn check_interactive(input: InteractiveInput, errors: &mut FieldErrors) -> Option<Interactive> {
    let is_list = match input.kind.as_deref() {
        Some("buttons") => false,
        Some("list") => true,
        Some(_) => {
            errors.add("interactive.type", "must be one of buttons, list");
            return None;
        }
        None => {
            errors.add("interactive.type", "is required");
            return None;
        }
    };
    let body_chars = if is_list { LIST_BODY_CHARS } else { BUTTONS_BODY_CHARS };
    let body = required(input.body, "interactive.body", body_chars, errors);
    let header = input
        .header
        .and_then(|HeaderInput(header)| check_header(header, is_list, errors));
    let footer = input.footer.filter(|footer| !footer.is_empty());
    check_at_most(footer.as_deref(), "interactive.footer", FOOTER_CHARS, errors);
    let choice = if is_list {
        let button = required(input.button, "interactive.button", BUTTON_TITLE_CHARS, errors);
        let sections = check_sections(input.sections.unwrap_or_default(), errors);
        InteractiveChoice::List { button, sections }
    } else {
        InteractiveChoice::Buttons(check_buttons(input.buttons.unwrap_or_default(), errors))
    };
    Some(Interactive {
        header,
        body,
        footer,
        choice,
    })
}

fn check_header(input: HeaderPartsInput, is_list: bool, errors: &mut FieldErrors) -> Option<InteractiveHeader> {
    match (input.text, input.media) {
        (Some(text), None) => {
            let text = required(Some(text), "interactive.header.text", HEADER_CHARS, errors);
            Some(InteractiveHeader::Text(text))
        }
        (None, Some(_)) if is_list => {
            errors.add("interactive.header.media", "is not allowed with a list");
            None
        }
        (None, Some(media)) => {
            let path = "interactive.header.media";
            let media = check_media(media, path, errors)?;
            if matches!(media.kind, FileKind::Audio | FileKind::Sticker) {
                errors.add(format!("{path}.type"), "must be one of image, video, document");
            }
            if media.caption.is_some() {
                errors.add(format!("{path}.caption"), "is not allowed in a header");
            }
            Some(InteractiveHeader::Media(media))
        }
        (Some(_), Some(_)) => {
            errors.add("interactive.header.media", "must not be combined with text");
            None
        }
        (None, None) => {
            errors.add("interactive.header.text", "is required, or media");
            None
        }
    }
}

fn check_buttons(input: Vec<ButtonInput>, errors: &mut FieldErrors) -> Vec<ReplyButton> {
    if input.is_empty() || input.len() > MAX_BUTTONS {
        errors.add("interactive.buttons", "must have 1 to 3 buttons");
        return Vec::new();
    }
    let mut ids = HashSet::new();
    let mut buttons = Vec::new();
    for (index, button) in input.into_iter().enumerate() {
        let path = format!("interactive.buttons[{index}]");
        let id = unique_id(button.id, &path, BUTTON_ID_CHARS, &mut ids, errors);
        let title = required(button.title, &format!("{path}.title"), BUTTON_TITLE_CHARS, errors);
        buttons.push(ReplyButton { id, title });
    }
    buttons
}

fn check_sections(input: Vec<SectionInput>, errors: &mut FieldErrors) -> Vec<ListSection> {
    if input.is_empty() || input.len() > MAX_SECTIONS {
        errors.add("interactive.sections", "must have 1 to 10 sections");
        return Vec::new();
    }
    let needs_title = input.len() > 1;
    let mut ids = HashSet::new();
    let mut sections = Vec::new();
    let mut count = 0_usize;
    for (index, section) in input.into_iter().enumerate() {
        let path = format!("interactive.sections[{index}]");
        let title = match section.title.filter(|title| !title.is_empty()) {
            None if needs_title => {
                errors.add(format!("{path}.title"), "is required if there are several sections");
                None
            }
            None => None,
            title => Some(required(title, &format!("{path}.title"), SECTION_TITLE_CHARS, errors)),
        };
        let input_rows = section.rows.unwrap_or_default();
        count = count.saturating_add(input_rows.len());
        if input_rows.is_empty() || count > MAX_ROWS {
            let message = "must have at least one row, and all sections at most 10";
            errors.add(format!("{path}.rows"), message);
            continue;
        }
        let mut rows = Vec::new();
        for (index, row) in input_rows.into_iter().enumerate() {
            let path = format!("{path}.rows[{index}]");
            let description = row.description.filter(|description| !description.is_empty());
            check_at_most(
                description.as_deref(),
                &format!("{path}.description"),
                ROW_DESCRIPTION_CHARS,
                errors,
            );
            rows.push(ListRow {
                id: unique_id(row.id, &path, ROW_ID_CHARS, &mut ids, errors),
                title: required(row.title, &format!("{path}.title"), ROW_TITLE_CHARS, errors),
                description,
            });
        }
        sections.push(ListSection { title, rows });
    }
    sections
}

/// A text of 1 to `chars` characters.
fn required(text: Option<String>, path: &str, chars: usize, errors: &mut FieldErrors) -> String {
    let text = text.unwrap_or_default();
    if is_blank(&text) || text.chars().count() > chars {
        errors.add(path, format!("must have 1 to {chars} characters"));
    }
    text
}

fn check_at_most(text: Option<&str>, path: &str, chars: usize, errors: &mut FieldErrors) {
    if text.is_some_and(|text| text.chars().count() > chars) {
        errors.add(path, format!("must have at most {chars} characters"));
    }
}

fn unique_id(
    id: Option<String>,
    path: &str,
    chars: usize,
    ids: &mut HashSet<String>,
    errors: &mut FieldErrors,
) -> String {
    let path = format!("{path}.id");
    let id = required(id, &path, chars, errors);
    if !id.is_empty() && !ids.insert(id.clone()) {
        errors.add(path, "must be unique in the message");
    }
    id
}
