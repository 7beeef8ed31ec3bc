//! The admission policy for grants: a user who sets or changes `spec.grants` of a Plugin can use all rights of the host.
//!
//! The right to write Plugins is not enough for that: the policy also requires the verb `grant` on the Plugin. Roles give
//! it like every other verb, also for single names.

use innkeeper_plugin_controller::resource;
use serde_json::{Value, json};

use super::host::labels;

const NAME: &str = "plugin-grants.innkeeper.dev";

/// Returns the policy and its binding.
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
