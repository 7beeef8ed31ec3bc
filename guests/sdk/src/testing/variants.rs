//! Object variants: with the API server's defaults, and in another order.

use serde_json::{Value, json};

use crate::children::{Children, Observed};
use crate::host::{Denied, Host, ListSelector, LogLevel, ObjectRef};
use crate::request::Request;

/// Adds missing members, as the API server adds defaults; list items correspond by index.
///
/// ```
/// use innkeeper_sdk::testing::with_defaults;
/// use serde_json::json;
///
/// let mut service = json!({"spec": {"ports": [{"port": 80}]}});
/// with_defaults(&mut service, &json!({"spec": {"ports": [{"protocol": "TCP"}], "type": "ClusterIP"}}));
/// let ports = json!([{"port": 80, "protocol": "TCP"}]);
/// assert_eq!(service, json!({"spec": {"ports": ports, "type": "ClusterIP"}}));
/// ```
pub fn with_defaults(object: &mut Value, defaults: &Value) {
    match (object, defaults) {
        (Value::Object(members), Value::Object(defaults)) => {
            for (key, default) in defaults {
                with_defaults(members.entry(key).or_insert(Value::Null), default);
            }
        }
        (Value::Array(items), Value::Array(defaults)) => {
            items
                .iter_mut()
                .zip(defaults)
                .for_each(|(item, default)| with_defaults(item, default));
        }
        (absent @ Value::Null, default) => *absent = default.clone(),
        _ => {}
    }
}

/// Returns the same request with all object members and children in reverse order.
///
/// A reconciler must answer both requests alike.
///
/// # Panics
///
/// Panics if the configuration of the request is not JSON.
pub fn reverse_order(request: &Request) -> Request {
    let children =
        request.children.iter().rev().map(|child| {
            Observed::new(child.key.clone(), child.retained, reversed(child.object()))
        });
    let config: Value = request.config().expect("a configuration should be JSON");
    let mut reversed_request = Request::new(
        reversed(request.parent_value()),
        Children::new(children.collect()),
        reversed(&config),
        request.phase,
    );
    reversed_request.namespace_terminating = request.namespace_terminating;
    reversed_request
}

/// Returns the value as text, with each object's members in reverse order.
fn reversed(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let texts = members
                .iter()
                .rev()
                .map(|(key, it)| format!("{}:{}", json!(key), reversed(it)));
            format!("{{{}}}", texts.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            let texts: Vec<String> = items.iter().map(reversed).collect();
            format!("[{}]", texts.join(","))
        }
        other => other.to_string(),
    }
}

/// A host that returns another host's lists in reverse order.
#[derive(Debug)]
pub struct ReverseOrder<H>(
    /// The other host.
    pub H,
);

impl<H: Host> Host for ReverseOrder<H> {
    fn log(&self, level: LogLevel, message: &str) {
        self.0.log(level, message);
    }

    fn now_ms(&self) -> u64 {
        self.0.now_ms()
    }

    fn zone_offset(&self, zone: &str, unix_ms: u64) -> Option<i32> {
        self.0.zone_offset(zone, unix_ms)
    }

    fn random(&self, length: u32) -> Vec<u8> {
        self.0.random(length)
    }

    fn get_json(&self, object: &ObjectRef) -> Result<Option<String>, Denied> {
        self.0.get_json(object)
    }

    fn list_json(&self, selector: &ListSelector) -> Result<Vec<String>, Denied> {
        let mut list = self.0.list_json(selector)?;
        list.reverse();
        Ok(list)
    }
}
