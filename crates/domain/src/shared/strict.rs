//! Strict deserialization of request bodies. By default serde accepts an array as a struct's fields in order, and null
//! as an absent field. [`Strict`] rejects arrays, and null for the fields that [`Strict::change`] names.

use std::fmt;

use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor,
};

/// Wraps a deserializer, and every nested one, so that only objects deserialize to structs. A wrapper that adds error
/// paths goes around this one.
pub struct Strict<T> {
    inner: T,
    /// The fields of the next object that reject null.
    never_null: &'static [&'static str],
    /// Whether this value rejects null.
    rejects_null: bool,
    /// Whether this value must be an object.
    requires_object: bool,
}

impl<T> Strict<T> {
    /// Accepts only objects as structs.
    pub fn new(inner: T) -> Self {
        Self::change(inner, &[])
    }

    /// Like `new`, for a change that leaves absent fields unchanged: these fields of the outermost object reject null.
    pub fn change(inner: T, never_null: &'static [&'static str]) -> Self {
        Self {
            inner,
            never_null,
            rejects_null: false,
            requires_object: false,
        }
    }

    /// Wraps another part of the same value's deserialization with the same rules.
    fn with<U>(&self, inner: U) -> Strict<U> {
        Strict {
            inner,
            never_null: self.never_null,
            rejects_null: self.rejects_null,
            requires_object: false,
        }
    }

    fn check_null<E: Error>(&self) -> Result<(), E> {
        match self.rejects_null {
            true => Err(E::custom("must not be null")),
            false => Ok(()),
        }
    }
}

macro_rules! forwarded {
    ($($name:ident($($argument:ident: $type:ty),*)),+ $(,)?) => {$(
        fn $name<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            let visitor = self.with(visitor);
            self.inner.$name($($argument,)* visitor)
        }
    )+};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    forwarded! {
        deserialize_any(), deserialize_bool(),
        deserialize_i8(), deserialize_i16(), deserialize_i32(), deserialize_i64(), deserialize_i128(),
        deserialize_u8(), deserialize_u16(), deserialize_u32(), deserialize_u64(), deserialize_u128(),
        deserialize_f32(), deserialize_f64(), deserialize_char(), deserialize_str(), deserialize_string(),
        deserialize_bytes(), deserialize_byte_buf(), deserialize_option(), deserialize_unit(),
        deserialize_unit_struct(name: &'static str), deserialize_newtype_struct(name: &'static str),
        deserialize_seq(), deserialize_tuple(length: usize),
        deserialize_tuple_struct(name: &'static str, length: usize), deserialize_map(),
        deserialize_enum(name: &'static str, variants: &'static [&'static str]),
        deserialize_identifier(), deserialize_ignored_any(),
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let mut visitor = self.with(visitor);
        visitor.requires_object = true;
        self.inner.deserialize_struct(name, fields, visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! visited {
    ($($name:ident: $type:ty),+ $(,)?) => {$(
        fn $name<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$name(value)
        }
    )+};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Strict<V> {
    type Value = V::Value;

    visited! {
        visit_bool: bool, visit_i8: i8, visit_i16: i16, visit_i32: i32, visit_i64: i64, visit_i128: i128,
        visit_u8: u8, visit_u16: u16, visit_u32: u32, visit_u64: u64, visit_u128: u128,
        visit_f32: f32, visit_f64: f64, visit_char: char,
        visit_str: &str, visit_borrowed_str: &'de str, visit_string: String,
        visit_bytes: &[u8], visit_borrowed_bytes: &'de [u8], visit_byte_buf: Vec<u8>,
    }

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.requires_object {
            true => f.write_str("an object"),
            false => self.inner.expecting(f),
        }
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.check_null()?;
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.check_null()?;
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let deserializer = self.with(deserializer);
        self.inner.visit_some(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let deserializer = self.with(deserializer);
        self.inner.visit_newtype_struct(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        match self.requires_object {
            true => Err(A::Error::invalid_type(Unexpected::Seq, &self)),
            false => self.inner.visit_seq(Strict::new(items)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Strict::change(fields, self.never_null))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variants: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(Strict::new(variants))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        let deserializer = self.with(deserializer);
        self.inner.deserialize(deserializer)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.inner.next_element_seed(Strict::new(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        if self.never_null.is_empty() {
            return self.inner.next_key_seed(seed);
        }
        let Some(key) = self.inner.next_key::<String>()? else {
            return Ok(None);
        };
        self.rejects_null = self.never_null.contains(&key.as_str());
        seed.deserialize(StringDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let mut seed = Strict::new(seed);
        seed.rejects_null = self.rejects_null;
        self.inner.next_value_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Strict<A> {
    type Error = A::Error;
    type Variant = Strict<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (value, variant) = self.inner.variant_seed(seed)?;
        Ok((value, Strict::new(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.newtype_variant_seed(Strict::new(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.inner.tuple_variant(length, Strict::new(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let mut visitor = Strict::new(visitor);
        visitor.requires_object = true;
        self.inner.struct_variant(fields, visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Deserialize;
    use serde_json::value::RawValue;
    use serde_json::{Value, json};

    use super::*;
    use crate::shared::Amount;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Inner {
        number: Option<u8>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    enum Kind {
        Plain,
        Named { name: String },
        Inner(Inner),
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Outer {
        name: Option<String>,
        note: Option<String>,
        inner: Option<Inner>,
        list: Vec<Inner>,
        pair: Option<(u8, Inner)>,
        map: BTreeMap<String, Inner>,
        kind: Option<Kind>,
        amount: Option<Amount>,
        any: Value,
    }

    fn parse(body: &str) -> Result<Outer, String> {
        let mut json = serde_json::Deserializer::from_str(body);
        let parsed = Outer::deserialize(Strict::new(&mut json)).map_err(|error| error.to_string());
        // Deserializing from text and from a parsed value has the same result.
        let value: Value = serde_json::from_str(body).unwrap();
        assert_eq!(Outer::deserialize(Strict::new(value)).is_ok(), parsed.is_ok(), "{body}");
        parsed
    }

    #[test]
    fn strict_rejects_arrays_as_structs_at_any_depth() {
        for body in [
            "[]",
            r#"["Ana"]"#,
            r#"{"inner":[]}"#,
            r#"{"inner":[7]}"#,
            r#"{"list":[[]]}"#,
            r#"{"list":[{"number":1},[2]]}"#,
            r#"{"pair":[1,[2]]}"#,
            r#"{"map":{"a":[2]}}"#,
            r#"{"kind":{"Named":["Ana"]}}"#,
            r#"{"kind":{"Inner":[7]}}"#,
        ] {
            // serde alone accepts all of these.
            assert!(serde_json::from_str::<Outer>(body).is_ok(), "{body}");
            let error_message = parse(body).unwrap_err();
            assert!(
                error_message.starts_with("invalid type: sequence, expected an object"),
                "{error_message}"
            );
        }
        let error_message = parse(r#"{"inner":"x"}"#).unwrap_err();
        assert!(
            error_message.starts_with("invalid type: string \"x\", expected an object"),
            "{error_message}"
        );
    }

    #[test]
    fn strict_reads_other_values_like_serde() {
        for body in [
            "{}",
            r#"{"name":null,"inner":null,"unknown":[{"inner":[1]}],"any":[[1,{"a":[]}],null]}"#,
            r#"{"name":"Ana","inner":{"number":7},"list":[{},{"number":1}],"pair":[1,{"number":2}]}"#,
            r#"{"map":{"a":{"number":3}},"kind":"Plain"}"#,
            r#"{"kind":{"Named":{"name":"Ana"}}}"#,
            r#"{"kind":{"Inner":{"number":7}}}"#,
            r#"{"amount":99999999999.9999}"#,
            r#"{"amount":"0.10"}"#,
        ] {
            assert_eq!(parse(body).unwrap(), serde_json::from_str(body).unwrap(), "{body}");
        }
        for body in [
            r#"{"name":"a","name":"b"}"#,
            r#"{"name":3}"#,
            r#"{"inner":{"number":256}}"#,
            r#"{"kind":"None"}"#,
            r#"{"list":{}}"#,
            r#"{"map":[]}"#,
            r#"{"amount":true}"#,
            r#"{"name":"#,
        ] {
            let mut json = serde_json::Deserializer::from_str(body);
            let strict = Outer::deserialize(Strict::new(&mut json)).unwrap_err().to_string();
            assert_eq!(strict, serde_json::from_str::<Outer>(body).unwrap_err().to_string());
        }
        let mut json = serde_json::Deserializer::from_str("1.230");
        let raw = Box::<RawValue>::deserialize(Strict::new(&mut json)).unwrap();
        assert_eq!(raw.get(), "1.230");
    }

    #[test]
    fn strict_change_rejects_null_for_required_fields() {
        let parse = |body: &str| {
            let mut json = serde_json::Deserializer::from_str(body);
            Outer::deserialize(Strict::change(&mut json, &["name", "inner", "any"])).map_err(|error| error.to_string())
        };
        for body in [r#"{"name":null}"#, r#"{"note":"x","inner":null}"#, r#"{"any":null}"#] {
            let error_message = parse(body).unwrap_err();
            assert!(error_message.starts_with("must not be null"), "{error_message}");
        }
        // Only fields of the outermost object reject null.
        let valid = r#"{"name":"Ana","note":null,"inner":{"number":null},"any":{"name":null},"unknown":null}"#;
        assert_eq!(parse(valid).unwrap(), serde_json::from_str(valid).unwrap());
        assert_eq!(
            parse("{}").unwrap(),
            Outer {
                any: Value::Null,
                ..Outer::default()
            }
        );
        assert!(parse(r#"{"inner":[]}"#).is_err());
        assert!(
            parse(r#"{"name":"a","name":"b"}"#)
                .unwrap_err()
                .starts_with("duplicate field")
        );
    }

    proptest! {
        /// Values without structs are unchanged.
        #[test]
        fn strict_keeps_plain_values(
            numbers in proptest::collection::vec(any::<f64>(), 0..5), text in ".*", yes: bool,
        ) {
            let value = json!({ "numbers": numbers, "text": text, "yes": [yes, { "no": null }] });
            let written = value.to_string();
            let mut json = serde_json::Deserializer::from_str(&written);
            let plain: Value = serde_json::from_str(&written).unwrap();
            prop_assert_eq!(Value::deserialize(Strict::new(&mut json)).unwrap(), plain);
        }
    }
}
