//! Builders for the documentation of one operation: what the route table cannot supply. Each context builds its own.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::body::PatchFields;
use super::parameters::{
    BoolParam, CursorParam, EnumParam, IdParam, IntegerParam, LIMIT, ORDER, PAGE, SortParam, TextParam, TimeParam,
};
use crate::error::ErrorCode;

pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

pub(crate) fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// An OpenAPI tag: it groups the operations of one context.
pub(crate) struct OpenApiTag {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
}

/// The documentation of one operation.
pub(crate) struct Operation {
    pub(crate) summary: &'static str,
    pub(crate) description: &'static str,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) body: Option<Body>,
    pub(crate) responses: Vec<ResponseDoc>,
    pub(crate) refusals: Vec<(ErrorCode, &'static str)>,
    pub(crate) never: Vec<ErrorCode>,
}

impl Operation {
    /// `summary` is verb and noun; `description` states effects, units and bounds.
    pub(crate) fn new(summary: &'static str, description: &'static str) -> Self {
        Self {
            summary,
            description,
            parameters: vec![],
            body: None,
            responses: vec![],
            refusals: vec![],
            never: vec![],
        }
    }

    pub(crate) fn takes(mut self, parameter: impl Into<Parameter>) -> Self {
        self.parameters.push(parameter.into());
        self
    }

    pub(crate) fn takes_all(mut self, parameters: impl IntoIterator<Item = Parameter>) -> Self {
        self.parameters.extend(parameters);
        self
    }

    pub(crate) fn body(mut self, body: Body) -> Self {
        self.body = Some(body);
        self
    }

    /// Adds a success response.
    pub(crate) fn responds(mut self, response: ResponseDoc) -> Self {
        self.responses.push(response);
        self
    }

    /// Adds an error that cannot be derived from the route, or a cause (possibly empty) to a derived error.
    pub(crate) fn refuses(mut self, error: ErrorCode, cause: &'static str) -> Self {
        self.refusals.push((error, cause));
        self
    }

    /// Removes an error that would be derived from the route.
    pub(crate) fn never(mut self, error: ErrorCode) -> Self {
        self.never.push(error);
        self
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterLocation {
    Path,
    Query,
    Header,
}

pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) location: ParameterLocation,
    pub(crate) description: &'static str,
    pub(crate) schema: ParameterSchema,
    pub(crate) required: bool,
    pub(crate) example: Option<Value>,
}

pub(crate) enum ParameterSchema {
    Of(SchemaOf),
    Custom(Value),
}

impl Parameter {
    fn query(name: &'static str, description: &'static str, schema: Value) -> Self {
        Self {
            name,
            location: ParameterLocation::Query,
            description,
            schema: ParameterSchema::Custom(schema),
            required: false,
            example: None,
        }
    }

    pub(crate) fn required(mut self) -> Self {
        self.required = true;
        self
    }

    pub(crate) fn default(mut self, value: impl Into<Value>) -> Self {
        if let ParameterSchema::Custom(Value::Object(schema)) = &mut self.schema {
            schema.insert("default".into(), value.into());
        }
        self
    }

    pub(crate) fn example(mut self, value: impl Into<Value>) -> Self {
        self.example = Some(value.into());
        self
    }

    pub(crate) fn in_path(mut self) -> Self {
        self.location = ParameterLocation::Path;
        self.required = true;
        self
    }

    pub(crate) fn in_header(mut self) -> Self {
        self.location = ParameterLocation::Header;
        self
    }
}

/// The `{id}` path parameter.
pub(crate) fn path_id(description: &'static str) -> Parameter {
    id("id", description).in_path()
}

pub(crate) fn text(name: &'static str, description: &'static str) -> Parameter {
    Parameter::query(name, description, json!({ "type": "string" }))
}

pub(crate) fn id(name: &'static str, description: &'static str) -> Parameter {
    Parameter::query(name, description, json!({ "type": "string", "format": "uuid" }))
}

/// A query parameter whose values are the enum `T`.
pub(crate) fn string_enum<T: JsonSchema>(name: &'static str, description: &'static str) -> Parameter {
    Parameter {
        schema: ParameterSchema::Of(schema_of::<T>),
        ..text(name, description)
    }
}

/// A query parameter with a fixed set of values that has no Rust type.
pub(crate) fn one_of(name: &'static str, description: &'static str, values: &[&str]) -> Parameter {
    Parameter::query(name, description, json!({ "type": "string", "enum": values }))
}

impl From<&IntegerParam> for Parameter {
    fn from(param: &IntegerParam) -> Self {
        let schema = json!({ "type": "integer", "minimum": 1, "maximum": param.max, "default": param.default });
        Self::query(param.name, param.description, schema)
    }
}

impl From<&BoolParam> for Parameter {
    fn from(param: &BoolParam) -> Self {
        one_of(param.name, param.description, &["true", "false"])
            .default(param.default.to_string())
            .example("true")
    }
}

impl<T: JsonSchema + Serialize> From<&EnumParam<T>> for Parameter {
    fn from(param: &EnumParam<T>) -> Self {
        let example = param.example.as_ref().map(|example| json!(example));
        Self {
            example,
            ..string_enum::<T>(param.name, param.description)
        }
    }
}

impl<T: JsonSchema + Serialize> From<&SortParam<T>> for Parameter {
    fn from(param: &SortParam<T>) -> Self {
        let default = json!(param.default);
        string_enum::<T>("sort", param.description)
            .default(default.clone())
            .example(default)
    }
}

impl From<&TextParam> for Parameter {
    fn from(param: &TextParam) -> Self {
        text(param.name, param.description).example(param.example)
    }
}

impl From<&IdParam> for Parameter {
    fn from(param: &IdParam) -> Self {
        id(param.name, param.description)
    }
}

impl From<&TimeParam> for Parameter {
    fn from(param: &TimeParam) -> Self {
        let schema = json!({ "type": "string", "format": "date-time" });
        Self::query(param.name, param.description, schema).example(param.example)
    }
}

impl From<&CursorParam> for Parameter {
    fn from(param: &CursorParam) -> Self {
        match param.example {
            Some(example) => text(CursorParam::NAME, param.description).example(example),
            None => id(CursorParam::NAME, param.description),
        }
    }
}

/// `page` and `limit` of a list with numbered pages.
pub(crate) fn numbered_page(limit: &IntegerParam) -> [Parameter; 2] {
    let page = json!({ "type": "integer", "minimum": 1, "default": 1 });
    [Parameter::query(PAGE.name, PAGE.description, page), limit.into()]
}

/// `cursor` and `limit` of a list with keyset pagination.
pub(crate) fn cursor_page() -> [Parameter; 2] {
    [(&CursorParam::first_page(None)).into(), (&LIMIT).into()]
}

/// `order` of a list; the default is descending.
pub(crate) fn order() -> Parameter {
    one_of(ORDER.name, ORDER.description, &[ORDER.ascending, ORDER.descending]).default(ORDER.descending)
}

/// A request body.
pub(crate) struct Body {
    pub(crate) description: &'static str,
    pub(crate) required: bool,
    pub(crate) content: Vec<BodyContent>,
}

/// The content of a body in one media type.
pub(crate) struct BodyContent {
    pub(crate) media_type: &'static str,
    pub(crate) schema: BodySchema,
    pub(crate) example: Option<Value>,
    /// Deserializes an example and returns the error; only for tests.
    #[cfg(test)]
    pub(crate) reads: Option<fn(&Value) -> Option<String>>,
}

pub(crate) enum BodySchema {
    /// A type, and the requirement that this operation adds to the named fields.
    Of(SchemaOf, RequiredFields, &'static [&'static str]),
    Custom(Value),
}

/// The requirement that an operation adds to fields of a body type that several operations share.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequiredFields {
    /// The fields must be present and not null.
    Given,
    /// The fields may be absent, but not null.
    NotNull,
}

impl Body {
    /// A JSON body of type `T`.
    pub(crate) fn json<T: JsonSchema + DeserializeOwned>() -> Self {
        Self::json_with::<T>(&[])
    }

    /// A JSON body of type `T` with these required fields.
    pub(crate) fn json_with<T: JsonSchema + DeserializeOwned>(fields: &'static [&'static str]) -> Self {
        Self::demanding::<T>(RequiredFields::Given, fields)
    }

    /// A JSON body of an update: every field may be absent, and null clears a nullable field.
    pub(crate) fn change<T: JsonSchema + DeserializeOwned + PatchFields>() -> Self {
        Self::demanding::<T>(RequiredFields::NotNull, T::NEVER_NULL)
    }

    fn demanding<T: JsonSchema + DeserializeOwned>(required: RequiredFields, fields: &'static [&'static str]) -> Self {
        let body = Self::of("application/json", BodySchema::Of(schema_of::<T>, required, fields));
        #[cfg(test)]
        let body = body.read_as::<T>();
        body
    }

    /// A body with a handwritten JSON schema.
    pub(crate) fn custom(media_type: &'static str, schema: Value) -> Self {
        Self::of(media_type, BodySchema::Custom(schema))
    }

    fn of(media_type: &'static str, schema: BodySchema) -> Self {
        Self {
            description: "",
            required: true,
            content: vec![BodyContent {
                media_type,
                schema,
                example: None,
                #[cfg(test)]
                reads: None,
            }],
        }
    }

    #[cfg(test)]
    fn read_as<T: DeserializeOwned>(mut self) -> Self {
        let read = |value: &Value| T::deserialize(value).err().map(|error| error.to_string());
        self.content.iter_mut().for_each(|content| content.reads = Some(read));
        self
    }

    /// Adds the media types of `alternative`.
    pub(crate) fn or(mut self, alternative: Self) -> Self {
        self.content.extend(alternative.content);
        self
    }

    pub(crate) fn described(mut self, description: &'static str) -> Self {
        self.description = description;
        self
    }

    pub(crate) fn optional(mut self) -> Self {
        self.required = false;
        self
    }

    /// Sets the complete example. Without it, the example is generated from the fields' examples.
    pub(crate) fn example(mut self, example: Value) -> Self {
        if let Some(content) = self.content.last_mut() {
            content.example = Some(example);
        }
        self
    }
}

/// A success response.
pub(crate) struct ResponseDoc {
    pub(crate) status: u16,
    pub(crate) description: &'static str,
    pub(crate) content: Vec<ResponseContent>,
    pub(crate) headers: Vec<(&'static str, &'static str, Value)>,
}

pub(crate) struct ResponseContent {
    pub(crate) media_type: &'static str,
    pub(crate) schema: ResponseSchema,
    pub(crate) example: Option<Value>,
}

pub(crate) enum ResponseSchema {
    /// `{ "data": T }`
    Data(SchemaOf),
    /// `T` itself.
    Bare(SchemaOf),
    Custom(Value),
}

impl ResponseDoc {
    fn of(status: u16, description: &'static str, schema: ResponseSchema) -> Self {
        Self::typed(status, description, "application/json", schema)
    }

    fn typed(status: u16, description: &'static str, media_type: &'static str, schema: ResponseSchema) -> Self {
        Self {
            status,
            description,
            content: vec![ResponseContent {
                media_type,
                schema,
                example: None,
            }],
            headers: vec![],
        }
    }

    /// Adds the media types of `alternative`.
    pub(crate) fn or(mut self, alternative: Self) -> Self {
        self.content.extend(alternative.content);
        self
    }

    pub(crate) fn header(mut self, name: &'static str, description: &'static str, schema: Value) -> Self {
        self.headers.push((name, description, schema));
        self
    }

    /// Sets the example. For a JSON object it is a patch of the example that the fields' examples generate; for
    /// an enveloped response it patches `data`.
    pub(crate) fn example(mut self, example: Value) -> Self {
        if let Some(content) = self.content.last_mut() {
            content.example = Some(example);
        }
        self
    }
}

/// 200 `{ "data": T }`.
pub(crate) fn data<T: JsonSchema>(description: &'static str) -> ResponseDoc {
    data_with::<T>(200, description)
}

/// 201 `{ "data": T }`.
pub(crate) fn created<T: JsonSchema>(description: &'static str) -> ResponseDoc {
    data_with::<T>(201, description)
}

/// `{ "data": T }` with any status.
pub(crate) fn data_with<T: JsonSchema>(status: u16, description: &'static str) -> ResponseDoc {
    ResponseDoc::of(status, description, ResponseSchema::Data(schema_of::<T>))
}

/// 200 with `T` as the complete body, without the `data` envelope.
pub(crate) fn whole_body<T: JsonSchema>(description: &'static str) -> ResponseDoc {
    ResponseDoc::of(200, description, ResponseSchema::Bare(schema_of::<T>))
}

pub(crate) fn no_content(description: &'static str) -> ResponseDoc {
    empty(204, description)
}

/// A response without a body.
pub(crate) fn empty(status: u16, description: &'static str) -> ResponseDoc {
    ResponseDoc {
        status,
        description,
        content: vec![],
        headers: vec![],
    }
}

/// 200 with a handwritten JSON schema.
pub(crate) fn custom(media_type: &'static str, description: &'static str, schema: Value) -> ResponseDoc {
    custom_with(200, media_type, description, schema)
}

/// As [`custom`], with another status.
pub(crate) fn custom_with(
    status: u16,
    media_type: &'static str,
    description: &'static str,
    schema: Value,
) -> ResponseDoc {
    ResponseDoc::typed(status, description, media_type, ResponseSchema::Custom(schema))
}
