//! Who may grant: whoever sets or changes `spec.grants` of a Plugin has the host's power.
//!
//! The right to write Plugins is not enough for that. The policy asks for the verb `grant` on the Plugin as well, which a
//! role gives as it gives any verb, also for single names.

use innkeeper_plugin_controller::resource;
use serde_json::{Value, json};

use super::host::labels;

const NAME: &str = "plugin-grants.innkeeper.dev";

/// The policy and its binding.
pub(super) fn objects() -> Vec<Value> {
    let expression = "request.operation == 'CREATE' ? !has(object.spec.grants) \
        : has(object.spec.grants) == has(oldObject.spec.grants) \
        && (!has(object.spec.grants) || object.spec.grants == oldObject.spec.grants)";
    let message = "spec.grants gives a plugin rights: setting or changing it takes the verb grant on plugins.innkeeper.dev";
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": NAME, "labels": labels()},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [{
                    "apiGroups": [resource::GROUP],
                    "apiVersions": ["*"],
                    "resources": ["plugins"],
                    "operations": ["CREATE", "UPDATE"],
                }],
            },
            "variables": [
                {"name": "unchanged", "expression": expression},
                {"name": "granter", "expression": "authorizer.requestResource.check('grant').allowed()"},
            ],
            "validations": [{
                "expression": "variables.unchanged || variables.granter",
                "message": message,
                "reason": "Forbidden",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": NAME, "labels": labels()},
        "spec": {"policyName": NAME, "validationActions": ["Deny"]},
    });
    vec![policy, binding]
}
