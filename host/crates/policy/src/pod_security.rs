//! Checks Pods and Pod templates against the Pod Security Standards
//! (<https://kubernetes.io/docs/concepts/security/pod-security-standards/>, Kubernetes 1.34).
//!
//! The only Windows rule forbids HostProcess containers. The exemptions that `restricted` has for Windows Pods do not
//! apply, so such Pods need the level `baseline`.
//! The rules see only built-in kinds, with the fields that the plugin states or that an adopted object has: a custom
//! kind can create any Pod.

use std::collections::BTreeSet;

use innkeeper_model::GroupKind;
use serde_json::{Map, Value};

/// A Pod Security Standards level, from the strictest to the weakest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodSecurity {
    /// Follows current practice for hardened Pods.
    #[default]
    Restricted,
    /// Prevents known privilege escalations.
    Baseline,
    /// Allows every Pod, which includes Pods that take over their node.
    Privileged,
}

impl PodSecurity {
    /// Returns the level as in `spec.grants.podSecurity`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Restricted => "restricted",
            Self::Baseline => "baseline",
            Self::Privileged => "privileged",
        }
    }
}

/// Kinds that are or create Pods, with the path to the Pod template.
const POD_KINDS: [(&str, &str, &[&str]); 9] = [
    ("", "Pod", &[]),
    ("", "PodTemplate", &["template"]),
    ("", "ReplicationController", &["spec", "template"]),
    ("apps", "DaemonSet", &["spec", "template"]),
    ("apps", "Deployment", &["spec", "template"]),
    ("apps", "ReplicaSet", &["spec", "template"]),
    ("apps", "StatefulSet", &["spec", "template"]),
    (
        "batch",
        "CronJob",
        &["spec", "jobTemplate", "spec", "template"],
    ),
    ("batch", "Job", &["spec", "template"]),
];

/// The capabilities that the level `baseline` allows to add.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Sysctls that do not affect other Pods on the node.
const SYSCTLS: [&str; 10] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_syncookies",
];

/// SELinux types for containers.
const SELINUX_TYPES: [&str; 5] = [
    "",
    "container_engine_t",
    "container_init_t",
    "container_kvm_t",
    "container_t",
];

/// Seccomp and AppArmor profiles other than none.
const PROFILES: [&str; 2] = ["RuntimeDefault", "Localhost"];

/// The volumes that the level `restricted` allows.
const VOLUMES: [&str; 8] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// The prefix of annotations that set a container's AppArmor profile.
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The service account for Pods that name none.
const DEFAULT_ACCOUNT: &str = "default";

/// Returns true if this built-in kind is a Pod or creates Pods.
///
/// This includes ControllerRevision: a StatefulSet or DaemonSet creates Pods from the template in it.
pub fn makes_pods(kind: &GroupKind) -> bool {
    template_path(kind).is_some() || is_revision(kind)
}

fn template_path(kind: &GroupKind) -> Option<&'static [&'static str]> {
    POD_KINDS
        .iter()
        .find(|(group, name, _)| *group == &*kind.group && *name == &*kind.kind)
        .map(|(_, _, path)| *path)
}

fn is_revision(kind: &GroupKind) -> bool {
    (&*kind.group, &*kind.kind) == ("apps", "ControllerRevision")
}

/// Returns an object's violations of a level, each with the field path and the allowed values. Only kinds that are or
/// create Pods have any.
///
/// At each level, Pods may use only `default` and these service accounts.
pub fn pod_violations(
    level: PodSecurity,
    accounts: &BTreeSet<String>,
    kind: &GroupKind,
    object: &Map<String, Value>,
) -> Vec<String> {
    if is_revision(kind) && level != PodSecurity::Privileged {
        return vec!["a ControllerRevision may hold any Pod template".to_owned()];
    }
    let Some(path) = template_path(kind) else {
        return Vec::new();
    };
    let violations = |root: Node<'_>| {
        let template = path.iter().fold(root, |node, field| node.at(field));
        template_violations(level, accounts, &template)
    };
    // First without paths: they cost more than the rules, and hardly any object has violations.
    if violations(Node::root(object, None)).is_empty() {
        return Vec::new();
    }
    violations(Node::root(object, Some(String::new())))
}

fn template_violations(
    level: PodSecurity,
    accounts: &BTreeSet<String>,
    template: &Node<'_>,
) -> Vec<String> {
    let mut violations = Violations(Vec::new());
    let spec = template.at("spec");
    // The API server copies the deprecated `serviceAccount` to the other field.
    for field in ["serviceAccountName", "serviceAccount"] {
        let account = spec.at(field);
        let is_named =
            |name: &str| name.is_empty() || name == DEFAULT_ACCOUNT || accounts.contains(name);
        if !account.is_absent() && !account.text().is_some_and(is_named) {
            violations.add(&account, "be a service account that the grants name");
        }
    }
    if level <= PodSecurity::Baseline {
        baseline(template, &mut violations);
    }
    if level <= PodSecurity::Restricted {
        restricted(&spec, &mut violations);
    }
    violations.0
}

/// The `baseline` rules.
fn baseline(template: &Node<'_>, violations: &mut Violations) {
    let spec = template.at("spec");
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        violations.unless_false(&spec.at(field));
    }
    for volume in spec.at("volumes").items() {
        let host_path = volume.at("hostPath");
        if !host_path.is_absent() {
            violations.add(&host_path, "be absent");
        }
    }
    let security = spec.at("securityContext");
    baseline_security(&security, violations);
    for sysctl in security.at("sysctls").items() {
        violations.unless_one_of(&sysctl.at("name"), &SYSCTLS);
    }
    for annotation in template.at("metadata").at("annotations").members() {
        let is_profile =
            |text: &str| ["", "runtime/default"].contains(&text) || text.starts_with("localhost/");
        if annotation.name.starts_with(APPARMOR) && !annotation.text().is_some_and(is_profile) {
            violations.add(&annotation, "be runtime/default or localhost/*");
        }
    }
    for container in containers(&spec) {
        let security = container.at("securityContext");
        baseline_security(&security, violations);
        violations.unless_false(&security.at("privileged"));
        violations.unless_one_of(&security.at("procMount"), &["Default"]);
        for added in security.at("capabilities").at("add").items() {
            violations.unless_one_of(&added, &CAPABILITIES);
        }
        for port in container.at("ports").items() {
            let host_port = port.at("hostPort");
            // The API server takes 0 for no port.
            if !host_port.is_absent() && host_port.value.as_u64() != Some(0) {
                violations.add(&host_port, "be absent");
            }
        }
        let lifecycle = container.at("lifecycle");
        for action in [
            container.at("livenessProbe"),
            container.at("readinessProbe"),
            container.at("startupProbe"),
            lifecycle.at("postStart"),
            lifecycle.at("preStop"),
        ] {
            // A probe to another host would come from the node's network.
            violations.unless_one_of(&action.at("httpGet").at("host"), &[""]);
            violations.unless_one_of(&action.at("tcpSocket").at("host"), &[""]);
        }
    }
}

/// The `baseline` rules for a Pod's or container's security context.
fn baseline_security(security: &Node<'_>, violations: &mut Violations) {
    violations.unless_false(&security.at("windowsOptions").at("hostProcess"));
    violations.unless_one_of(&security.at("appArmorProfile").at("type"), &PROFILES);
    violations.unless_one_of(&security.at("seccompProfile").at("type"), &PROFILES);
    let selinux = security.at("seLinuxOptions");
    violations.unless_one_of(&selinux.at("type"), &SELINUX_TYPES);
    violations.unless_one_of(&selinux.at("user"), &[""]);
    violations.unless_one_of(&selinux.at("role"), &[""]);
}

/// The additional `restricted` rules.
fn restricted(spec: &Node<'_>, violations: &mut Violations) {
    for volume in spec.at("volumes").items() {
        for source in volume.members() {
            if source.name != "name" && !VOLUMES.contains(&source.name) {
                let allowed = format!("be one of {}", VOLUMES.join(", "));
                violations.add(&source, &allowed);
            }
        }
    }
    let pod_security = spec.at("securityContext");
    restricted_user(&pod_security, violations);
    for container in containers(spec) {
        let security = container.at("securityContext");
        restricted_user(&security, violations);
        let escalation = security.at("allowPrivilegeEscalation");
        // Also if absent: Kubernetes allows it by default.
        if *escalation.value != Value::Bool(false) {
            violations.add(&escalation, "be false");
        }
        let non_root = security.at("runAsNonRoot");
        // A container inherits what the Pod sets.
        if non_root.or(&pod_security.at("runAsNonRoot")).is_absent() {
            violations.add(&non_root, "be true, here or for the Pod");
        }
        let seccomp = security.at("seccompProfile").at("type");
        let pod_seccomp = pod_security.at("seccompProfile").at("type");
        if seccomp.or(&pod_seccomp).is_absent() {
            violations.add(
                &seccomp,
                "be RuntimeDefault or Localhost, here or for the Pod",
            );
        }
        let capabilities = security.at("capabilities");
        let drop = capabilities.at("drop");
        if !drop.items().iter().any(|item| item.text() == Some("ALL")) {
            violations.add(&drop, "have ALL");
        }
        for added in capabilities.at("add").items() {
            violations.unless_one_of(&added, &["NET_BIND_SERVICE"]);
        }
    }
}

/// The `restricted` rules for the user in a Pod's or container's security context.
fn restricted_user(security: &Node<'_>, violations: &mut Violations) {
    let non_root = security.at("runAsNonRoot");
    if !non_root.is_absent() && *non_root.value != Value::Bool(true) {
        violations.add(&non_root, "be true");
    }
    let user = security.at("runAsUser");
    if !user.is_absent() && user.value.as_i64().is_none_or(|user| user == 0) {
        violations.add(&user, "be another user than 0");
    }
}

/// Returns all containers in a Pod's three lists.
fn containers<'a>(spec: &Node<'a>) -> Vec<Node<'a>> {
    ["initContainers", "containers", "ephemeralContainers"]
        .iter()
        .flat_map(|list| spec.at(list).items())
        .collect()
}

/// The violations so far.
struct Violations(Vec<String>);

impl Violations {
    fn add(&mut self, node: &Node<'_>, allowed: &str) {
        let path = node.path.as_deref().unwrap_or_default();
        let text = format!("{path} must {allowed}");
        // `restricted` repeats some `baseline` rules with fewer values.
        if !self.0.contains(&text) {
            self.0.push(text);
        }
    }

    fn unless_false(&mut self, node: &Node<'_>) {
        if !node.is_absent() && *node.value != Value::Bool(false) {
            self.add(node, "be false");
        }
    }

    fn unless_one_of(&mut self, node: &Node<'_>, allowed: &[&str]) {
        if node.is_absent() || node.text().is_some_and(|text| allowed.contains(&text)) {
            return;
        }
        // The empty text counts as absent.
        let allowed: Vec<&str> = allowed
            .iter()
            .copied()
            .filter(|value| !value.is_empty())
            .collect();
        if allowed.is_empty() {
            self.add(node, "be absent");
        } else {
            self.add(node, &format!("be one of {}", allowed.join(", ")));
        }
    }
}

/// A value in an object, with the path.
#[derive(Clone)]
struct Node<'a> {
    /// None in the first run, which only tells whether there are violations.
    path: Option<String>,
    /// The last field in the path.
    name: &'a str,
    /// Null if the value is absent, which an answer may also state.
    value: &'a Value,
    /// An object's fields; none for other values.
    fields: Option<&'a Map<String, Value>>,
}

impl<'a> Node<'a> {
    const fn root(object: &'a Map<String, Value>, path: Option<String>) -> Self {
        Self {
            path,
            name: "",
            value: &Value::Null,
            fields: Some(object),
        }
    }

    fn new(path: Option<String>, name: &'a str, value: &'a Value) -> Self {
        Self {
            path,
            name,
            value,
            fields: value.as_object(),
        }
    }

    fn at(&self, name: &'a str) -> Self {
        let value = self.fields.and_then(|fields| fields.get(name));
        let path = self.path.as_ref().map(|path| {
            let dot = if path.is_empty() { "" } else { "." };
            format!("{path}{dot}{name}")
        });
        Self::new(path, name, value.unwrap_or(&Value::Null))
    }

    /// Returns an object's fields.
    fn members(&self) -> Vec<Self> {
        self.fields
            .into_iter()
            .flat_map(Map::keys)
            .map(|name| self.at(name))
            .collect()
    }

    /// Returns a list's items. Another value counts as one item: the API server rejects it later.
    fn items(&self) -> Vec<Self> {
        match self.value {
            Value::Null => Vec::new(),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .map(|(index, item)| {
                    let path = self.path.as_ref().map(|path| format!("{path}[{index}]"));
                    Self::new(path, self.name, item)
                })
                .collect(),
            _ => vec![self.clone()],
        }
    }

    fn text(&self) -> Option<&'a str> {
        self.value.as_str()
    }

    fn is_absent(&self) -> bool {
        self.value.is_null()
    }

    fn or(&self, other: &Self) -> Self {
        let node = if self.is_absent() { other } else { self };
        node.clone()
    }
}
