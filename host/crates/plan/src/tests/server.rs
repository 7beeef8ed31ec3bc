//! An API server in memory, with as much server-side apply as the plan depends on.
//!
//! Paths are lists of member names as in `FieldsV1`; every manager has a set of owned paths.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_model::{ObjectId, Operation};
use serde_json::{Map, Value, json};

use super::build::fields;

type Path = Vec<String>;

/// Object lists with merge keys; all other lists are atomic.
const LIST_KEYS: [(&str, &[&str]); 3] = [
    ("ports", &["port", "protocol"]),
    ("ownerReferences", &["uid"]),
    ("containers", &["name"]),
];

#[derive(Clone, Debug, Default)]
pub struct Stored {
    object: Value,
    managers: BTreeMap<(String, &'static str), BTreeSet<Path>>,
}

#[derive(Clone, Debug, Default)]
pub struct Server {
    objects: BTreeMap<ObjectId, Stored>,
    version: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Refused(pub &'static str);

impl Server {
    pub fn objects(&self) -> Vec<Value> {
        self.objects.values().map(Stored::shown).collect()
    }

    pub fn get(&self, id: &ObjectId) -> Option<Value> {
        self.objects.get(id).map(Stored::shown)
    }

    pub fn ids(&self) -> BTreeSet<ObjectId> {
        self.objects.keys().cloned().collect()
    }

    /// Executes an operation like the writer.
    pub fn write(&mut self, operation: &Operation) -> Result<(), Refused> {
        match operation {
            Operation::Create {
                id, body, generate, ..
            } => {
                if self.objects.contains_key(id) {
                    return Err(Refused("exists"));
                }
                let body = with_generated(body, generate.iter().map(|entry| &entry.key));
                self.apply(id, "innkeeper:web", body);
            }
            Operation::Update {
                id,
                uid,
                resource_version,
                body,
                generate,
                ..
            } => {
                self.check(id, &uid.0, resource_version.0)?;
                let body = with_generated(body, generate.iter().map(|entry| &entry.key));
                self.apply(id, "innkeeper:web", body);
            }
            Operation::Transfer { id, patch, .. } => {
                // A JSON patch has no precondition except the tests in it.
                self.test(id, patch)?;
                self.patch(id, patch);
            }
            Operation::Prune {
                id,
                uid,
                resource_version,
                ..
            } => {
                self.check(id, &uid.0, resource_version.0)?;
                self.objects.remove(id);
            }
            Operation::AddFinalizer | Operation::RemoveFinalizer => {}
        }
        Ok(())
    }

    fn check(&self, id: &ObjectId, uid: &str, version: u64) -> Result<(), Refused> {
        let stored = self.objects.get(id).ok_or(Refused("gone"))?;
        let metadata = &stored.object["metadata"];
        let stored = metadata["resourceVersion"].as_str().unwrap().parse();
        if metadata["uid"] == uid && stored == Ok(version) {
            Ok(())
        } else {
            Err(Refused("changed"))
        }
    }

    /// Executes a forced apply.
    pub fn apply(&mut self, id: &ObjectId, manager: &str, body: Map<String, Value>) {
        self.version += 1;
        let version = self.version;
        let stored = self.objects.entry(id.clone()).or_insert_with(|| Stored {
            object: json!({"metadata": {"uid": format!("u{version}")}}),
            managers: BTreeMap::new(),
        });
        let body = Value::Object(body);
        let mut owned = BTreeSet::new();
        paths(&defaulted(&body), &mut Vec::new(), &mut owned);
        owned.retain(|path| !is_system(path));
        let key = (manager.to_owned(), "Apply");
        let before = stored.managers.insert(key.clone(), owned.clone());
        for path in before.unwrap_or_default().difference(&owned) {
            let others = stored.managers.iter().any(|(_, set)| set.contains(path));
            if !others {
                remove(&mut stored.object, path);
            }
        }
        let old = stored.object.clone();
        merge(&mut stored.object, &defaulted(&body), &mut Vec::new());
        for (other, set) in &mut stored.managers {
            if *other != key {
                set.retain(|path| find(&old, path) == find(&stored.object, path));
            }
        }
        stored.object["metadata"]["resourceVersion"] = version.to_string().into();
        if id.kind.group.starts_with("apps") {
            stored.object["metadata"]["generation"] = version.into();
        }
    }

    /// Updates one field as another client, which takes the field from the owners if the value changes.
    pub fn edit(&mut self, id: &ObjectId, path: &[&str], value: Option<Value>) -> bool {
        let path: Path = path.iter().map(|step| format!("f:{step}")).collect();
        let Some(stored) = self.objects.get_mut(id) else {
            return false;
        };
        if find(&stored.object, &path) == value.as_ref() {
            return false;
        }
        match value {
            None => remove(&mut stored.object, &path),
            Some(value) => insert(&mut stored.object, &path, value),
        }
        let taken = stored
            .managers
            .values_mut()
            .map(|set| {
                let before = set.len();
                set.retain(|owned| !owned.starts_with(&path));
                before != set.len()
            })
            .collect::<Vec<_>>();
        self.version += 1;
        stored.object["metadata"]["resourceVersion"] = self.version.to_string().into();
        taken.contains(&true)
    }

    /// Executes a JSON patch's tests.
    fn test(&self, id: &ObjectId, patch: &Value) -> Result<(), Refused> {
        let stored = self.objects.get(id).ok_or(Refused("gone"))?;
        let value_at = |step: &Value| stored.object.pointer(step["path"].as_str()?).cloned();
        let holds =
            |step: &Value| step["op"] != "test" || value_at(step) == Some(step["value"].clone());
        if patch.as_array().into_iter().flatten().all(holds) {
            Ok(())
        } else {
            Err(Refused("changed"))
        }
    }

    fn patch(&mut self, id: &ObjectId, patch: &Value) {
        self.version += 1;
        let stored = self.objects.get_mut(id).unwrap();
        let before = stored.object.clone();
        for step in patch.as_array().unwrap() {
            let pointer = step["path"].as_str().unwrap();
            let (parent, last) = pointer.rsplit_once('/').unwrap();
            let last = last.replace("~1", "/");
            let op = step["op"].as_str().unwrap();
            if op == "test" {
                continue;
            }
            match stored.object.pointer_mut(parent).unwrap() {
                Value::Object(fields) if op == "remove" => drop(fields.remove(&last).unwrap()),
                Value::Object(fields) => drop(fields.insert(last, step["value"].clone())),
                Value::Array(items) if op == "remove" => {
                    drop(items.remove(last.parse::<usize>().unwrap()));
                }
                Value::Array(items) if last == "-" => items.push(step["value"].clone()),
                Value::Array(items) => {
                    items[last.parse::<usize>().unwrap()] = step["value"].clone()
                }
                other => panic!("no place for {step} in {other}"),
            }
        }
        let mut all = BTreeSet::new();
        paths(&stored.object, &mut Vec::new(), &mut all);
        for set in stored.managers.values_mut() {
            set.retain(|path| find(&stored.object, path).is_some());
        }
        let added = all
            .into_iter()
            .filter(|path| find(&before, path) != find(&stored.object, path));
        let key = ("innkeeper:web".to_owned(), "Update");
        stored.managers.entry(key).or_default().extend(added);
        stored.object["metadata"]["resourceVersion"] = self.version.to_string().into();
    }

    /// Removes an object's managed fields, and changes nothing else.
    pub fn disown(&mut self, id: &ObjectId) {
        self.version += 1;
        let stored = self.objects.get_mut(id).unwrap();
        stored.managers.clear();
        stored.object["metadata"]["resourceVersion"] = self.version.to_string().into();
    }

    pub fn remove(&mut self, id: &ObjectId) {
        self.objects.remove(id);
    }

    pub fn mark_deleting(&mut self, id: &ObjectId) {
        let stored = self.objects.get_mut(id).unwrap();
        stored.object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }

    pub fn set_status(&mut self, id: &ObjectId, status: Value) {
        self.objects.get_mut(id).unwrap().object["status"] = status;
    }
}

impl Stored {
    /// Returns the object with managed fields.
    fn shown(&self) -> Value {
        let mut object = self.object.clone();
        let entries: Vec<Value> = self
            .managers
            .iter()
            .map(|((manager, operation), set)| {
                json!({"manager": manager, "operation": operation, "fieldsV1": nested(set)})
            })
            .collect();
        object["metadata"]["managedFields"] = entries.into();
        object
    }
}

fn with_generated<'a>(
    body: &Map<String, Value>,
    keys: impl Iterator<Item = &'a String>,
) -> Map<String, Value> {
    let mut body = Value::Object(body.clone());
    for key in keys {
        body["data"][key] = "Z2VuZXJhdGVk".into();
    }
    fields(body)
}

/// Returns true for a path that the API server itself sets, and that no manager owns.
fn is_system(path: &Path) -> bool {
    let names = [
        "f:name",
        "f:namespace",
        "f:uid",
        "f:resourceVersion",
        "f:generation",
    ];
    match path.as_slice() {
        [one] => one == "f:apiVersion" || one == "f:kind",
        [metadata, name] => metadata == "f:metadata" && names.contains(&name.as_str()),
        _ => false,
    }
}

/// Fills in a list key's default; the API server also does this before it computes the owned paths.
fn defaulted(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(ports) = value
        .pointer_mut("/spec/ports")
        .and_then(Value::as_array_mut)
    {
        for port in ports {
            if port.get("protocol").is_none() {
                port["protocol"] = "TCP".into();
            }
        }
    }
    value
}

fn list_keys(path: &[String]) -> Option<&'static [&'static str]> {
    let name = path.last()?.strip_prefix("f:")?;
    let keys = LIST_KEYS.iter().find(|(list, _)| *list == name)?;
    Some(keys.1)
}

fn item_member(item: &Value, keys: &[&str]) -> String {
    let named: Map<String, Value> = keys
        .iter()
        .map(|key| ((*key).to_owned(), item[*key].clone()))
        .collect();
    format!("k:{}", Value::Object(named))
}

fn paths(value: &Value, path: &mut Path, all: &mut BTreeSet<Path>) {
    match (value, list_keys(path)) {
        (Value::Object(fields), _) if !fields.is_empty() => {
            for (key, value) in fields {
                path.push(format!("f:{key}"));
                paths(value, path, all);
                path.pop();
            }
        }
        (Value::Array(items), Some(keys)) => {
            for item in items {
                path.push(item_member(item, keys));
                // An ownerReference is atomic; for other items, managers own the item itself and the fields.
                if keys != ["uid"] {
                    paths(item, path, all);
                }
                all.insert(path.clone());
                path.pop();
            }
        }
        _ => {
            all.insert(path.clone());
        }
    }
}

fn nested(set: &BTreeSet<Path>) -> Value {
    let mut root = json!({});
    for path in set {
        let mut node = &mut root;
        for step in path {
            node = &mut node[step];
            if node.is_null() {
                *node = json!({});
            }
        }
        let item = path.last().is_some_and(|last| last.starts_with("k:"));
        let has_more = set
            .iter()
            .any(|other| other.len() > path.len() && other.starts_with(path));
        if item && has_more {
            node["."] = json!({});
        }
    }
    root
}

fn step<'a>(value: &'a Value, member: &str) -> Option<&'a Value> {
    if let Some(key) = member.strip_prefix("f:") {
        return value.get(key);
    }
    let keys: Map<String, Value> = serde_json::from_str(member.strip_prefix("k:")?).unwrap();
    value
        .as_array()?
        .iter()
        .find(|item| keys.iter().all(|(key, value)| item.get(key) == Some(value)))
}

fn find<'a>(value: &'a Value, path: &Path) -> Option<&'a Value> {
    path.iter()
        .try_fold(value, |value, member| step(value, member))
}

fn position(items: &[Value], member: &str) -> Option<usize> {
    let keys: Map<String, Value> = serde_json::from_str(member.strip_prefix("k:")?).ok()?;
    items
        .iter()
        .position(|item| keys.iter().all(|(key, value)| item.get(key) == Some(value)))
}

fn remove(value: &mut Value, path: &[String]) {
    let Some((member, rest)) = path.split_first() else {
        return;
    };
    match value {
        Value::Object(fields) => {
            let key = member.strip_prefix("f:").unwrap();
            if rest.is_empty() {
                fields.remove(key);
            } else if let Some(field) = fields.get_mut(key) {
                remove(field, rest);
            }
        }
        Value::Array(items) => {
            let Some(index) = position(items, member) else {
                return;
            };
            if rest.is_empty() {
                items.remove(index);
            } else {
                remove(&mut items[index], rest);
            }
        }
        _ => {}
    }
}

fn insert(value: &mut Value, path: &[String], new: Value) {
    match path.split_first() {
        None => *value = new,
        Some((member, rest)) => {
            let key = member.strip_prefix("f:").unwrap();
            insert(&mut value[key], rest, new);
        }
    }
}

/// Merges like an apply: maps and keyed lists item by item, all other values as a whole.
fn merge(object: &mut Value, body: &Value, path: &mut Path) {
    match (&mut *object, body, list_keys(path)) {
        (Value::Object(known), Value::Object(stated), _) => {
            for (key, value) in stated {
                path.push(format!("f:{key}"));
                merge(known.entry(key.clone()).or_insert(Value::Null), value, path);
                path.pop();
            }
        }
        (Value::Array(known), Value::Array(stated), Some(keys)) => {
            for item in stated {
                let member = item_member(item, keys);
                path.push(member.clone());
                match position(known, &member) {
                    Some(index) => merge(&mut known[index], item, path),
                    None => known.push(item.clone()),
                }
                path.pop();
            }
        }
        _ => *object = body.clone(),
    }
}
