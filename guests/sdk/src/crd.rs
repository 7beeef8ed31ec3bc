//! CustomResourceDefinitions from Rust types.
//!
//! kube's derive generates `spec` and `status`; this module adds conditions, rules and further properties.

use kube::CustomResourceExt;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::json;
use crate::schema;

mod bounds;
pub(crate) mod simplify;

pub(crate) use bounds::unbounded;
pub(crate) use simplify::WHOLE;

/// A CustomResourceDefinition for a [`Manifest`](crate::manifest::Manifest).
///
/// ```
/// use innkeeper_sdk::crd::Crd;
/// use kube::CustomResource;
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug)]
/// #[kube(group = "example.com", version = "v1", kind = "Pond", namespaced)]
/// struct PondSpec {
///     ducks: Option<i32>,
/// }
///
/// let crd = Crd::for_kind::<Pond>().rule("spec", "self.ducks < 100", "a pond is not a lake");
/// let spec = crd.schema_at("spec").unwrap();
/// assert_eq!(spec["x-kubernetes-validations"][0]["message"], "a pond is not a lake");
/// let conditions = crd.schema_at("status.conditions").unwrap();
/// assert_eq!(conditions["x-kubernetes-list-type"], "map");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crd {
    value: Value,
}

impl Crd {
    /// The definition of a type that derives `CustomResource`.
    ///
    /// Adds to the definition of the derive: the status subresource, and `status.conditions` as a
    /// list-map by `type`; no `nullable`, so that the API server drops a null as if it were absent;
    /// no defaults that are null or empty lists or maps, and none in the status, which tells only
    /// observations; only number formats that Kubernetes knows. No field of the status is required, because
    /// the host also writes conditions before the first answer. A root without a description
    /// (`#[kube(doc = "...")]`) takes the spec's. A type without `printcolumn` has the columns
    /// Ready, Synced and Age.
    ///
    /// # Panics
    ///
    /// Panics if the derive cannot make a structural schema of the type.
    pub fn for_kind<T: CustomResourceExt + JsonSchema>() -> Self {
        let mut crd = Self::without_status::<T>();
        let version = crd.version_mut();
        version["subresources"]["status"] = json!({});
        let columns = &mut version["additionalPrinterColumns"];
        if columns.as_array().is_none_or(Vec::is_empty) {
            *columns = json!([
                condition_column("Ready", "Ready", "status"),
                condition_column("Synced", "Synced", "status"),
                age_column(),
            ]);
        }
        let status = &mut crd.root_mut()["properties"]["status"];
        if status.is_null() {
            *status = json!({"type": "object"});
        }
        let generator = &mut schemars::SchemaGenerator::default();
        status["properties"]["conditions"] = schema::conditions(generator).to_value();
        simplify::accept_parts(status);
        crd
    }

    /// The definition of a kind that plugins only read: as [`for_kind`](Self::for_kind), but with a status only
    /// if the type has one.
    ///
    /// # Panics
    ///
    /// As [`for_kind`](Self::for_kind).
    pub fn without_status<T: CustomResourceExt + JsonSchema>() -> Self {
        let mut crd = Self {
            value: json::to_value(&T::crd()),
        };
        // The schema of the derive has lost descriptions that `schema_of` keeps.
        let mut root = schema_of::<T>();
        simplify::describe_root(&mut root);
        if let Some(status) = root.pointer_mut("/properties/status") {
            simplify::remove_defaults(status);
        }
        *crd.root_mut() = root;
        crd
    }

    /// Adds a CEL rule to the schema at a path; the empty path is the root.
    ///
    /// A rule that belongs to one struct is better placed beside it: derive `kube::KubeSchema`
    /// instead of `JsonSchema` and write
    /// `#[x_kube(validation = Rule::new("...").message("..."))]`, or `#[kube(validation = ...)]`
    /// for the root.
    ///
    /// # Panics
    ///
    /// Panics if there is no schema at the path.
    pub fn rule(self, path: &str, rule: &str, message: &str) -> Self {
        self.edit_schema(path, |schema| {
            let rules = schema
                .entry("x-kubernetes-validations")
                .or_insert_with(|| json!([]));
            if let Some(rules) = rules.as_array_mut() {
                rules.push(json!({"rule": rule, "message": message}));
            }
        })
    }

    /// Adds or replaces a property with a Rust type's schema; the path names the enclosing schema, and is empty for the
    /// root.
    ///
    /// # Panics
    ///
    /// Panics if there is no schema at the path.
    pub fn property<T: JsonSchema>(self, path: &str, name: &str) -> Self {
        self.edit_schema(path, |parent| {
            let properties = parent.entry("properties").or_insert_with(|| json!({}));
            properties[name] = schema_of::<T>();
        })
    }

    /// Removes a property from `required` in the schema at the path.
    ///
    /// # Panics
    ///
    /// Panics if there is no schema at the path.
    pub fn optional(self, path: &str, name: &str) -> Self {
        self.edit_schema(path, |schema| {
            let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) else {
                return;
            };
            required.retain(|required_name| required_name != name);
            if required.is_empty() {
                schema.remove("required");
            }
        })
    }

    /// Removes a property from the schema at a path: a field in a Kubernetes type that has no effect in this parent, such
    /// as `claims` in container resources.
    ///
    /// # Panics
    ///
    /// Panics if there is no such property.
    pub fn remove(self, path: &str, name: &str) -> Self {
        self.edit_schema(path, |schema| {
            let removed = schema
                .get_mut("properties")
                .and_then(Value::as_object_mut)
                .and_then(|properties| properties.remove(name));
            assert!(
                removed.is_some(),
                "there is no property {name:?} at {path:?}"
            );
        })
        .optional(path, name)
    }

    /// Sets a keyword in the schema at a path, such as `maxItems`.
    ///
    /// # Panics
    ///
    /// Panics if there is no schema at the path.
    pub fn set(self, path: &str, keyword: &str, value: impl Into<Value>) -> Self {
        self.edit_schema(path, |schema| {
            schema.insert(keyword.to_owned(), value.into());
        })
    }

    /// Changes the schema at a path.
    ///
    /// A path has property names with dots between them; `[]` steps into list items and `{}` into map values:
    /// `spec.databases[].env{}`.
    ///
    /// # Panics
    ///
    /// Panics if there is no schema at the path.
    pub fn edit_schema(mut self, path: &str, edit: impl FnOnce(&mut Map<String, Value>)) -> Self {
        let schema = self
            .root_mut()
            .pointer_mut(&pointer(path))
            .and_then(Value::as_object_mut);
        assert!(schema.is_some(), "there is no schema at {path:?}");
        if let Some(schema) = schema {
            edit(schema);
        }
        self
    }

    /// Edits the whole CRD as JSON.
    pub fn edit(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.value);
        self
    }

    /// Removes descriptions more than `depth_max` properties below the root, and cuts descriptions with more than 200
    /// characters after the first sentence.
    ///
    /// Kubernetes types have long descriptions, and clients that keep the last applied configuration in an annotation
    /// cannot apply a CRD over 256 KiB.
    pub fn truncate_descriptions_below(mut self, depth_max: usize) -> Self {
        simplify::shorten(self.root_mut(), depth_max);
        self
    }

    /// Puts the `kubectl get` columns Ready and Reason before the type's `printcolumn`s, and Age after them.
    pub fn with_condition_columns(mut self) -> Self {
        let columns = &mut self.version_mut()["additionalPrinterColumns"];
        if let Some(columns) = columns.as_array_mut() {
            columns.insert(0, condition_column("Ready", "Ready", "status"));
            columns.insert(1, condition_column("Reason", "Ready", "reason"));
            columns.push(age_column());
        }
        self
    }

    /// Adds a bound to each string, list and map without one; [`Manifest::crd`](crate::manifest::Manifest::crd) calls this.
    ///
    /// - Spec strings: 4,096 characters; names 253 (properties `name`, `namespace`, and those that end with `Name` or
    ///   `Namespace`), label values 63 (`labels`, `matchLabels`, `nodeSelector`), times and quantities 64.
    /// - Spec lists and maps: 64 members.
    /// - Status strings: 32,768 characters; status lists and maps: 1,024 members.
    ///
    /// The field's own bound takes precedence: `#[schemars(length(max = 16384))]`, also for lists;
    /// `#[schemars(extend("maxProperties" = 256))]` for maps; [`set`](Self::set) for fields with Kubernetes types.
    pub fn bounded(mut self) -> Self {
        bounds::add(self.root_mut());
        self
    }

    /// The schema at a path, in the form of [`edit_schema`](Self::edit_schema).
    pub fn schema_at(&self, path: &str) -> Option<&Value> {
        self.value
            .pointer("/spec/versions/0/schema/openAPIV3Schema")?
            .pointer(&pointer(path))
    }

    /// The definition as JSON.
    pub const fn value(&self) -> &Value {
        &self.value
    }

    /// The definition as JSON.
    pub fn into_value(self) -> Value {
        self.value
    }

    /// The one version that the derive makes.
    fn version_mut(&mut self) -> &mut Value {
        &mut self.value["spec"]["versions"][0]
    }

    /// The schema of that version.
    fn root_mut(&mut self) -> &mut Value {
        &mut self.version_mut()["schema"]["openAPIV3Schema"]
    }
}

/// A Rust type's structural schema, in the form that CRDs have.
///
/// # Panics
///
/// Panics if the type has no structural schema.
pub fn schema_of<T: JsonSchema>() -> Value {
    // The derive macro's steps, and one that keeps descriptions.
    let mut schema = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(schemars::transform::AddNullable::default())
        .with_transform(kube::core::schema::StructuralSchemaRewriter)
        .with_transform(simplify::KeepDescription)
        .with_transform(kube::core::schema::OptionalEnum)
        .with_transform(kube::core::schema::OptionalIntOrString)
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    if let Some(members) = schema.as_object_mut() {
        members.remove("title");
    }
    simplify::simplify(&mut schema);
    schema
}

/// Converts a path below a schema to a JSON pointer.
fn pointer(path: &str) -> String {
    let mut pointer = String::new();
    for step in path.split('.').filter(|step| !step.is_empty()) {
        let name = step.trim_end_matches(['[', ']', '{', '}']);
        if !name.is_empty() {
            pointer.push_str("/properties/");
            pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
        }
        for opening in step[name.len()..].chars() {
            match opening {
                '[' => pointer.push_str("/items"),
                '{' => pointer.push_str("/additionalProperties"),
                _ => {}
            }
        }
    }
    pointer
}

/// The `kubectl get` column for a condition's field.
fn condition_column(name: &str, condition: &str, field: &str) -> Value {
    let path = format!(".status.conditions[?(@.type==\"{condition}\")].{field}");
    json!({"name": name, "type": "string", "jsonPath": path})
}

fn age_column() -> Value {
    json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
}

#[cfg(test)]
mod tests;
