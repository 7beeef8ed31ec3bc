//! Parents that the CRD admits, generated from the schema.

use innkeeper_crd::RejectionCause;
use innkeeper_guest_testing::{self as testing, Values};
use proptest::prelude::*;
use serde_json::{Map, Value};

use super::{PLUGIN, parent};

/// A parent as the API server stores it, without spec fields that it would reject.
pub(super) fn admitted(name: impl Strategy<Value = String>) -> impl Strategy<Value = Value> {
    let spec = Values::default().strategy(&PLUGIN.root("Wordpress")["properties"]["spec"]);
    (name, spec).prop_map(|(name, spec)| {
        let object = parent(&name, &spec).as_object().unwrap().clone();
        testing::admitted(PLUGIN.schema("Wordpress"), object, |object, cause| {
            leave_out(object["spec"].as_object_mut().unwrap(), cause);
        })
    })
}

/// Removes the field that a cause concerns, or the fields that a rule's message names.
fn leave_out(fields: &mut Map<String, Value>, cause: &RejectionCause) {
    let field = cause.path.split(['.', '[']).nth(1).unwrap_or_default();
    if fields.remove(field).is_some() {
        return;
    }
    let message = cause.to_string().to_lowercase();
    let before = fields.len();
    fields.retain(|name, _| !message.contains(&name.to_lowercase()));
    if fields.len() == before {
        // Messages that name no existing field.
        fields.remove("replicas");
        fields.remove("env");
    }
}
