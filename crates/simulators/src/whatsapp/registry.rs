//! The template registry: created, listed, edited and deleted through the API, and looked up at every send.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value, json};

use super::definition::{check, text};
use super::graph::GraphError;
use crate::{now_ms, set};

/// A stored template.
#[derive(Debug, Clone)]
pub(super) struct Template {
    pub(super) id: u64,
    pub(super) waba: String,
    /// Name, language, category, components and further fields, as they were submitted.
    pub(super) definition: Value,
    pub(super) status: String,
    pub(super) rejected_reason: String,
    /// Optimistic locking: grows with every edit, so that a decision on an older version is not applied.
    pub(super) version: u32,
}

impl Template {
    fn is(&self, name: &str, language: &str) -> bool {
        text(&self.definition, "name") == name && text(&self.definition, "language") == language
    }

    /// The template as the API returns it, restricted to `fields` (a comma-separated list) if given.
    pub(super) fn to_json(&self, fields: Option<&str>) -> Value {
        let mut shown = self.definition.as_object().cloned().unwrap_or_default();
        shown.insert("id".into(), json!(self.id.to_string()));
        shown.insert("status".into(), json!(self.status));
        shown.insert("rejected_reason".into(), json!(self.rejected_reason));
        shown.insert("quality_score".into(), json!({ "score": "UNKNOWN" }));
        if let Some(fields) = fields {
            let selection: HashSet<&str> = fields.split(',').map(str::trim).collect();
            shown.retain(|field, _| field == "id" || selection.contains(field.as_str()));
        }
        Value::Object(shown)
    }

    /// The value of a status update's callback.
    pub(super) fn update(&self, event: &str, reason: Option<&str>) -> Value {
        let mut update = json!({
            "event": event,
            "message_template_id": self.id,
            "message_template_name": text(&self.definition, "name"),
            "message_template_language": text(&self.definition, "language"),
            "message_template_category": text(&self.definition, "category"),
            "reason": reason.unwrap_or("NONE"),
        });
        if event == "REJECTED" {
            let info = json!({ "reason": reason, "recommendation": "Change the template and submit it again." });
            set(&mut update, "rejection_info", info);
        }
        update
    }
}

#[derive(Debug, Default)]
pub(super) struct Registry {
    templates: BTreeMap<u64, Template>,
    deleted: HashSet<u64>,
    last_id: u64,
}

impl Registry {
    pub(super) fn create(&mut self, waba: &str, body: &Value) -> Result<Template, GraphError> {
        check(body)?;
        let (name, language) = (text(body, "name"), text(body, "language"));
        if self.find(name, language).is_some() {
            return Err(GraphError::new(
                100,
                "Content in this language already exists for this template name.",
            ));
        }
        Ok(self.insert(waba, body, "PENDING"))
    }

    /// Adds a template without checking it.
    pub(super) fn insert(&mut self, waba: &str, body: &Value, status: &str) -> Template {
        // Ids grow with the clock, so that a restarted simulator does not reuse an id.
        self.last_id = (self.last_id + 1).max(now_ms().saturating_mul(1000));
        let stored_fields = [
            "name",
            "language",
            "category",
            "correct_category",
            "components",
            "parameter_format",
            "message_send_ttl_seconds",
        ];
        let entry = |field: &str| body.get(field).map(|value| (field.to_owned(), value.clone()));
        let mut definition: Map<String, Value> = stored_fields.into_iter().filter_map(entry).collect();
        definition.entry("category").or_insert_with(|| json!("MARKETING"));
        let (definition, reason) = (Value::Object(definition), "NONE".to_owned());
        let (waba, status) = (waba.to_owned(), status.to_owned());
        let template = Template {
            id: self.last_id,
            waba,
            definition,
            status,
            rejected_reason: reason,
            version: 1,
        };
        self.templates.insert(template.id, template.clone());
        template
    }

    pub(super) fn get(&self, id: u64) -> Option<&Template> {
        self.templates.get(&id)
    }

    pub(super) fn was_deleted(&self, id: u64) -> bool {
        self.deleted.contains(&id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.templates.is_empty()
    }

    pub(super) fn find(&self, name: &str, language: &str) -> Option<&Template> {
        self.templates.values().find(|template| template.is(name, language))
    }

    /// Replaces the components. The template becomes pending again.
    pub(super) fn edit(&mut self, id: u64, body: &Value) -> Result<Template, GraphError> {
        let Some(template) = self.templates.get_mut(&id) else {
            return Err(GraphError::new(
                100,
                "Unsupported post request: the object does not exist.",
            ));
        };
        if !["APPROVED", "REJECTED", "PAUSED"].contains(&template.status.as_str()) {
            return Err(GraphError::new(
                100,
                "Only approved, rejected or paused templates can be edited.",
            ));
        }
        let mut changed = template.definition.clone();
        for field in ["components", "category", "parameter_format", "message_send_ttl_seconds"] {
            if let Some(value) = body.get(field) {
                set(&mut changed, field, value.clone());
            }
        }
        if template.status == "APPROVED" && text(&changed, "category") != text(&template.definition, "category") {
            return Err(GraphError::new(
                100,
                "The category of an approved template cannot be changed.",
            ));
        }
        check(&changed)?;
        template.definition = changed;
        template.status = "PENDING".into();
        template.version += 1;
        Ok(template.clone())
    }

    /// Deletes templates by name, or only the one with this id. Returns how many.
    pub(super) fn delete(&mut self, waba: &str, name: &str, id: Option<u64>) -> usize {
        let matches = |template: &&Template| {
            template.waba == waba && text(&template.definition, "name") == name && id.is_none_or(|id| id == template.id)
        };
        let ids: Vec<u64> = self
            .templates
            .values()
            .filter(matches)
            .map(|template| template.id)
            .collect();
        for id in &ids {
            self.templates.remove(id);
            self.deleted.insert(*id);
        }
        ids.len()
    }

    /// Applies a status event and returns the template. None: the template was deleted, or edited since `version`.
    pub(super) fn set_status(
        &mut self,
        id: u64,
        version: Option<u32>,
        event: &str,
        reason: Option<&str>,
    ) -> Option<Template> {
        let template = self.templates.get_mut(&id)?;
        if version.is_some_and(|version| version != template.version) {
            return None;
        }
        match event {
            "REINSTATED" | "UNARCHIVED" => template.status = "APPROVED".into(),
            // These events do not change whether the template can be sent.
            "FLAGGED" | "LOCKED" => {}
            status => template.status = status.to_owned(),
        }
        template.rejected_reason = reason.filter(|_| event == "REJECTED").unwrap_or("NONE").to_owned();
        template.version += 1;
        Some(template.clone())
    }

    /// A page of a business account's templates.
    pub(super) fn page(&self, waba: &str, query: &Query<'_>) -> Value {
        let matches = |template: &&Template| {
            template.waba == waba
                && query.name.is_none_or(|name| text(&template.definition, "name") == name)
                && query
                    .status
                    .is_none_or(|status| template.status.eq_ignore_ascii_case(status))
        };
        let after = query
            .after
            .and_then(|cursor| u64::from_str_radix(cursor, 16).ok())
            .unwrap_or(0);
        let mut rest = self
            .templates
            .values()
            .filter(matches)
            .filter(|template| template.id > after);
        let page: Vec<&Template> = rest.by_ref().take(query.limit).collect();
        let data: Vec<Value> = page.iter().map(|template| template.to_json(query.fields)).collect();
        let (Some(first), Some(last)) = (page.first(), page.last()) else {
            return json!({ "data": [] });
        };
        let after = format!("{:x}", last.id);
        let mut paging = json!({ "cursors": { "before": format!("{:x}", first.id), "after": after } });
        if rest.next().is_some() {
            let mut next = format!("{}?limit={}&after={after}", query.url, query.limit);
            for (field, value) in [("name", query.name), ("status", query.status), ("fields", query.fields)] {
                if let Some(value) = value {
                    next.push_str(&format!("&{field}={value}"));
                }
            }
            set(&mut paging, "next", json!(next));
        }
        json!({ "data": data, "paging": paging })
    }

    pub(super) fn clear(&mut self) {
        self.deleted.extend(self.templates.keys());
        self.templates.clear();
    }
}

/// The query parameters of the list of templates.
pub(super) struct Query<'a> {
    /// URL of the list, for the link to the next page.
    pub(super) url: String,
    pub(super) name: Option<&'a str>,
    pub(super) status: Option<&'a str>,
    pub(super) fields: Option<&'a str>,
    pub(super) after: Option<&'a str>,
    pub(super) limit: usize,
}
